"""All results of a run as one typed value, which results.json holds."""

import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import TypeAdapter

from benchmarks.commands import Commands
from benchmarks.forward import Forward
from benchmarks.machine import ALLOCATORS, Machine
from benchmarks.pages import Pages
from benchmarks.parts import Part
from benchmarks.peers import Peers
from benchmarks.scale import Largest, Lengths, OfSize
from benchmarks.sizes import Peak, Sizes
from benchmarks.store import Done
from benchmarks.summaries import Summaries

Result = TypeVar("Result")
ByAllocator = Mapping[str, Result]


@dataclass(frozen=True, slots=True)
class Results:
    """What was measured; a part that was not is missing, and `problems` says why where it failed."""

    machine: Machine
    quick: bool
    dates: Mapping[str, str]
    forward: ByAllocator[Forward] = field(default_factory=dict)
    sizes: ByAllocator[Sizes] = field(default_factory=dict)
    peak: ByAllocator[Peak] = field(default_factory=dict)
    summaries: ByAllocator[Summaries] = field(default_factory=dict)
    commands: Commands | None = None
    pages: Pages | None = None
    peers: ByAllocator[tuple[Peers, ...]] = field(default_factory=dict)
    lengths: Lengths | None = None
    model_sizes: tuple[OfSize, ...] = ()
    largest: Largest | None = None
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def allocators(self) -> tuple[str, ...]:
        """The allocators that anything was measured with, glibc's defaults first."""
        measured = (self.forward, self.sizes, self.peak, self.summaries, self.peers)
        return tuple(name for name in ALLOCATORS if any(name in each for each in measured))

    def to_json(self) -> str:
        """The content of results.json."""
        return TypeAdapter(Results).dump_json(self, indent=1).decode() + "\n"


def from_json(text: str) -> Results:
    """What `Results.to_json` wrote."""
    return TypeAdapter(Results).validate_json(text)


def collect(machine: Machine, quick: bool, done: Iterable[tuple[Part, Done]]) -> Results:
    """Put the parts together."""
    pairs = list(done)
    good = [(part, _typed(part, outcome.result)) for part, outcome in pairs if not outcome.problem]
    by_name = {part.name: result for part, result in good}

    def each(start: str) -> dict[str, Any]:
        named = {allocator: by_name.get(f"{start}-{allocator}") for allocator in ALLOCATORS}
        return {allocator: result for allocator, result in named.items() if result is not None}

    beside = {
        allocator: tuple(found for part, found in good if part.group == "peers" and part.allocator == allocator)
        for allocator in ALLOCATORS
    }
    return Results(
        machine=machine,
        quick=quick,
        dates={outcome.part: outcome.date for _, outcome in pairs},
        forward=each("forward"),
        sizes=each("sizes"),
        peak=each("peak"),
        summaries=each("summaries"),
        commands=by_name.get("commands"),
        pages=by_name.get("pages"),
        peers={allocator: found for allocator, found in beside.items() if found},
        lengths=by_name.get("scale-lengths"),
        model_sizes=tuple(result for part, result in good if part.name.startswith("scale-size-")),
        largest=by_name.get("scale-largest"),
        problems={outcome.part: outcome.problem for _, outcome in pairs if outcome.problem},
    )


def _typed(part: Part, result: Any) -> Any:
    """A part's JSON as what its function returns."""
    return TypeAdapter(typing.get_type_hints(part.callable)["return"]).validate_python(result)
