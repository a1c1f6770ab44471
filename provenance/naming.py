"""The naming schemes: whose names a file of tensors may use, and what each kind of name is called here."""

from collections.abc import Mapping
from enum import StrEnum

SCOPE = "OpenAI's variable scope"
MODULE = "transformers' module"
KEY = "transformers' checkpoint"
HOOK = "TransformerLens' hook"


class Scheme(StrEnum):
    """A naming scheme, by the word with which a person asks for it."""

    SITE = "site"
    """our own addresses"""
    OPENAI = "openai"
    """variable scopes, for parameters and outputs"""
    TRANSFORMERS = "transformers"
    """module paths for outputs, checkpoint keys for parameters"""
    TRANSFORMERLENS = "transformerlens"
    """hooks"""


ALIASES: Mapping[Scheme, tuple[str, ...]] = {
    Scheme.SITE: (),
    Scheme.OPENAI: (SCOPE,),
    Scheme.TRANSFORMERS: (MODULE, KEY),
    Scheme.TRANSFORMERLENS: (HOOK,),
}
"""The kinds of other names (`Alias.scheme`) that make up each scheme."""
