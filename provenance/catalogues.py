"""The catalogue of every model family, read without its models."""

from collections.abc import Mapping

from provenance.catalogue import Catalogue
from provenance.gpt2.catalogue import CATALOGUE as GPT2_CATALOGUE
from provenance.gpt2.catalogue import GPT2_SMALL

CATALOGUES: Mapping[str, Catalogue] = {"gpt2": GPT2_CATALOGUE}
"""The catalogue of every model family."""

EXAMPLE_CONSTANTS: Mapping[str, Mapping[str, int]] = {"gpt2": GPT2_SMALL}
"""Axis sizes of each family's best known model, where no trace is shown."""
