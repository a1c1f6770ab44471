"""The axes of shapes: what each one counts, so that pages can label and slice tensors of any family."""

from dataclasses import dataclass
from enum import StrEnum


class Counts(StrEnum):
    """What an axis counts. The value is the word for one of them, and its name in a page's address."""

    BATCH = "batch"
    TOKEN = "token"
    """tokens that this step runs"""
    PAST = "past"
    """tokens of the earlier steps"""
    KEY = "key"
    """past tokens, then this step's: what a query can attend to"""
    POSITION = "position"
    HEAD = "head"
    CHANNEL = "channel"
    ENTRY = "entry"
    """entries of the vocabulary"""
    LAYER = "layer"
    PART = "part"
    """different things stacked, such as keys and values"""
    ONE = "one"


@dataclass(frozen=True, slots=True)
class Axis:
    """One named axis: its symbol (`d`), its name in a shape (`768 d`), what it means and what it counts.

    `decode` is what replaces the symbol in a decode step, where that is fixed.
    """

    symbol: str
    name: str
    meaning: str
    counts: Counts
    decode: str | None = None
