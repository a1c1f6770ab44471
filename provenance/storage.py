"""What everybody needs of a place that keeps traces: files here, object storage elsewhere."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from provenance.prompt import Token
from provenance.trace import Recipe, Record, Trace


@dataclass(frozen=True, slots=True)
class Listed:
    """A trace in the list: its id and its record, or why it cannot be read."""

    id: str
    record: Record | None
    problem: str = ""


class Store(Protocol):
    """Keeps traces whole or not at all, for several threads and processes at once.

    A trace is written once and never changed; one that is deleted is gone for every reader's next
    `open`. A text that is attached takes the place of an earlier one of its name, at once and whole.
    """

    def save(
        self,
        recipe: Recipe,
        generated: tuple[Token, ...],
        tensors: Mapping[str, torch.Tensor],
        patches: Mapping[str, torch.Tensor] | None = None,
    ) -> Trace:
        """Keep a trace; where the same one is kept already, that one stays."""

    def open(self, id: str) -> Trace:
        """A trace by its id or a beginning of it. Raises UnknownTrace, or CorruptTrace."""

    def __contains__(self, id: str) -> bool:
        """Whether the trace of that whole id is here and can be read."""

    def full_id(self, id: str) -> str:
        """Complete a beginning of at least 6 digits. Raises UnknownTrace."""

    def ids(self) -> Iterator[str]:
        """The ids of all traces, readable or not."""

    def list(self) -> tuple[Listed, ...]:
        """All traces, the newest first; those that cannot be read come last, with the reason."""

    def delete(self, id: str) -> None:
        """Remove a trace with all that is attached to it. Raises UnknownTrace."""

    def attach(self, id: str, name: str, content: str) -> None:
        """Keep a text beside a trace. Raises UnknownTrace."""

    def attached(self, id: str, name: str) -> str | None:
        """The text of that name beside a trace, if there is one. Raises UnknownTrace."""

    def state(self) -> Hashable:
        """Which traces there are: equal while none was added, removed or replaced."""

    def state_of(self, id: str) -> Hashable:
        """How a trace of that whole id is kept: equal while nothing of it, or attached to it, has changed."""

    def clean(self) -> int:
        """Remove what writers that were killed left behind; returns how many."""
