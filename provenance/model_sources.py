"""Where models come from: what each family offers by name, and what can be said of a model before it runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from provenance.errors import UnsupportedCheckpoint
from provenance.model import Model
from provenance.prompt import Tokenizer


class Kind(StrEnum):
    """What kind of source a model has."""

    DEMO = "ships with this project"
    SEEDED = "made here from a seed"
    DIRECTORY = "a folder that the operator named"
    HUB = "the Hugging Face hub's cache"


@dataclass(frozen=True, slots=True)
class Source:
    """A model that can be named: where its weights come from, whether they are here, else how to get them.

    `family` is the family of models that it belongs to.
    """

    name: str
    description: str
    available: bool
    family: str
    directory: Path | None = None
    kind: Kind = Kind.DIRECTORY
    advice: str = ""


@dataclass(frozen=True, slots=True)
class KeyReport:
    """What became of a checkpoint's keys; every list is sorted.

    `matched` are spelt as transformers saves them; `renamed` pairs a key spelt otherwise with that
    spelling. `warnings` are sentences about what was read, none of them a reason to refuse it.
    """

    matched: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    ignored: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    misshapen: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether every parameter was found, once and in its shape, and nothing else."""
        return not (self.missing or self.unexpected or self.misshapen)

    def check(self, where: Path) -> None:
        """Raise UnsupportedCheckpoint where anything is missing, unexpected or misshapen."""
        for what, keys in (
            ("lacks", self.missing),
            ("has keys that the model does not:", self.unexpected),
            ("has weights of another shape or kind:", self.misshapen),
        ):
            if keys:
                more = f" and {len(keys) - 4} more" if len(keys) > 4 else ""
                raise UnsupportedCheckpoint(
                    f"The checkpoint in {where.name!r} {what} {', '.join(keys[:4])}{more}.",
                    hint="Nothing was loaded: a weight that does not fit is never replaced by a random one.",
                )


@dataclass(frozen=True, slots=True)
class Inspection:
    """What can be said of a model without running it.

    `origin` says in words where its weights are, `parameters` how many there are; `sha256` is None for seeded
    weights and for what cannot be read; `problem` says why it cannot be loaded; `tokenizer` says in words
    how a text becomes ids.
    """

    source: Source
    origin: str
    config: Mapping[str, int | float | str] | None = None
    parameters: int | None = None
    report: KeyReport | None = None
    files: tuple[Path, ...] = ()
    sha256: str | None = None
    tokenizer: str = ""
    problem: str = ""


class Shelf(Protocol):
    """The models of one family, by name."""

    family: str

    def sources(self) -> tuple[Source, ...]:
        """Every model that is offered, those whose weights are not here included."""

    def knows(self, name: str) -> bool:
        """Whether a name is this family's to answer for.

        It may know more models than it offers; and where it says yes and there is no such model, the other
        methods raise UnknownModel with the reason.
        """

    def load(self, name: str, dtype: str = "float32") -> Model:
        """Load a model. Raises UnknownModel, UnsupportedCheckpoint, or InvalidInput for a dtype."""

    def inspect(self, name: str) -> Inspection:
        """What a model is, without loading it. Raises UnknownModel."""

    def tokenizer(self, name: str) -> Tokenizer | None:
        """The model's tokenizer, where it reads text and has one."""
