"""What is known of every model family without its models: its catalogue, what it reads, and what proves it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from provenance.catalogue import Catalogue
from provenance.errors import InvalidInput, UnknownFamily
from provenance.gpt2.catalogue import CATALOGUE as GPT2
from provenance.gpt2.catalogue import GPT2_SMALL
from provenance.gpt2.config import TIED
from provenance.gpt2.config import Config as GPT2Config
from provenance.textbook.catalogue import CATALOGUE as TEXTBOOK
from provenance.textbook.config import Config as TextbookConfig

Stored = Mapping[str, int | float | str]
"""A model's config, as a trace stores it."""


class OfFamily(Protocol):
    """What names its family: a stored model, for one."""

    @property
    def family(self) -> str:
        """The family's name."""


class Reads(Enum):
    """What a family's models are run on."""

    TOKENS = "tokens of a text"
    VECTORS = "vectors drawn from a seed"


@dataclass(frozen=True, slots=True)
class Outline:
    """A model family, as those see it who know none by name.

    `title` is its name for people. Where no trace is shown, `example` has the axis sizes of its best known model,
    `example_model`, and `example_variants` the variants that it has; `constants_of` and `variants_of` read a
    stored config. `predicts` says that its models have logits, so that they can decode; `cited` that lines of
    code prove its rows, which else are equations alone. `start` are sites to begin with.
    """

    title: str
    catalogue: Catalogue
    example_model: str
    example: Mapping[str, int]
    constants_of: Callable[[Stored], Mapping[str, int]]
    variants_of: Callable[[Stored], frozenset[str]]
    reads: Reads
    predicts: bool
    cited: bool
    start: tuple[str, ...]
    example_variants: frozenset[str]


OUTLINES: Mapping[str, Outline] = {
    GPT2.family: Outline(
        title="GPT-2",
        catalogue=GPT2,
        example_model="gpt2",
        example=GPT2_SMALL,
        constants_of=lambda config: GPT2Config(**config).constants,  # type: ignore[arg-type]
        variants_of=lambda config: GPT2Config(**config).variants,  # type: ignore[arg-type]
        reads=Reads.TOKENS,
        predicts=True,
        cited=True,
        start=("h.ln_1.out", "h.attn.scores", "h.attn.pattern", "h.resid_mid", "logits"),
        example_variants=frozenset((TIED,)),
    ),
    TEXTBOOK.family: Outline(
        title="Textbook transformer",
        catalogue=TEXTBOOK,
        example_model=TextbookConfig().name,
        example=TextbookConfig().constants,
        constants_of=lambda config: TextbookConfig.from_json(config).constants,
        variants_of=lambda config: TextbookConfig.from_json(config).variants,
        reads=Reads.VECTORS,
        predicts=False,
        cited=False,
        start=("x", "h.attn.q", "h.attn.score", "h.attn.weight", "h.resid_mid", "h.resid_post"),
        example_variants=TextbookConfig().variants,
    ),
}
"""Every model family by its name, the first one first."""

CATALOGUES: Mapping[str, Catalogue] = {family: outline.catalogue for family, outline in OUTLINES.items()}
"""The catalogue of every model family."""

EXAMPLE_CONSTANTS: Mapping[str, Mapping[str, int]] = {family: outline.example for family, outline in OUTLINES.items()}
"""Axis sizes of each family's best known model, where no trace is shown."""


def outline_of(model: OfFamily) -> Outline:
    """The family of a model. Raises UnknownFamily, where a newer version stored it."""
    return outline_named(model.family)


def catalogue_named(family: str) -> Catalogue:
    """A family's catalogue; the first one's for an empty name. Raises UnknownFamily."""
    return outline_named(family).catalogue


def outline_named(family: str) -> Outline:
    """A family; the first one for an empty name. Raises UnknownFamily."""
    if not family:
        return next(iter(OUTLINES.values()))
    if family not in OUTLINES:
        raise UnknownFamily(f"There is no model family {family[:40]!r}.", hint=f"There are: {', '.join(OUTLINES)}.")
    return OUTLINES[family]


def check_predicts(model: OfFamily) -> None:
    """Raise InvalidInput where a model has no logits, so that there is nothing that they say."""
    if not outline_of(model).predicts:
        raise InvalidInput(
            "The model of this trace predicts nothing: it ends with its residual stream and has no logits.",
            hint="Its tensors can be looked at, compared and changed.",
        )
