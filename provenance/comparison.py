"""What comes out of a comparison: its rows in computation order, and the first that does not agree."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from torch import Tensor

from provenance.catalogue import Catalogue, Evidence, Kind, Operation
from provenance.difference import Difference, Status
from provenance.errors import InvalidInput
from provenance.families import FAMILIES, Family
from provenance.names import Address
from provenance.order import computation_order
from provenance.trace import Trace

UNPLACED = "named."
"""What the addresses of tensors start with of which no catalogue knows the place; their row's name says more."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One side that is a trace: its catalogue, its number of blocks, and how a tensor of it is read."""

    trace: Trace
    catalogue: Catalogue
    layers: int
    tensor: Callable[[Address], Tensor]
    label: str

    @property
    def family(self) -> Family:
        """The family of its model."""
        return FAMILIES[self.trace.recipe.model.family]

    def visible(self, address: Address) -> Tensor | None:
        """Where a score-like tensor is compared; None where all of it is."""
        site = self.family.compared_where_visible.get(address.site)
        return None if site is None else self.tensor(Address(site, address.layer, address.step))

    def scale(self, address: Address) -> float:
        """The size of the terms of a sum that cancels, 0 for all other tensors (see `Family.cancelling`)."""
        if address.site not in self.family.cancelling:
            return 0.0
        terms = (self.tensor(at) for at in self.catalogue.inputs_of(address, self.layers))
        return max((float(term.abs().max()) for term in terms), default=0.0)

    def order(self, step: int) -> tuple[Address, ...]:
        """Its tensors of one step in computation order; parameters, which do not change, in step 0 only."""
        found = computation_order(self.catalogue, self.layers, step)
        return tuple(a for a in found if not step or self.catalogue.row(a.site).kind is not Kind.PARAMETER)


class How(StrEnum):
    """Which tensors of the two sides are put beside each other."""

    STEPS = "steps"
    """the same step on both sides, tensors whole"""
    POSITIONS = "positions"
    """each position that both have run, whichever step ran it"""
    NAMES = "names"
    """a file of named tensors is one of the sides"""


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A tensor of a file whose name nothing fits, with close names."""

    name: str
    near: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides, tensor by tensor in computation order.

    `only_a` and `only_b` are addresses or names without a counterpart, `unknown` are names that
    nothing fits. `notes` say in sentences what was not compared, and why. `relative` is the tolerance
    that was asked for; None is that of the dtypes. `parameters_only` says that nothing that was computed
    could be compared.
    """

    how: How
    rows: tuple[Difference, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    unknown: tuple[UnknownName, ...] = ()
    notes: tuple[str, ...] = ()
    relative: float | None = None
    parameters_only: bool = False

    @property
    def first_divergence(self) -> Difference | None:
        """The first tensor in computation order that was compared and does not agree."""
        return next((row for row in self.rows if row.status is Status.DIFFERS), None)

    @property
    def agrees(self) -> bool:
        """Whether something was compared, and all of it agrees; a shape that does not fit does not."""
        return bool(self.rows) and not self.parameters_only and all(row.agrees for row in self.rows)

    def count(self, status: Status) -> int:
        """How many rows have that status."""
        return sum(row.status is status for row in self.rows)

    @property
    def compared(self) -> int:
        """How many tensors were compared."""
        return len(self.rows) - self.count(Status.UNFIT)

    @property
    def unfit(self) -> tuple[Difference, ...]:
        """The rows whose shapes do not fit."""
        return tuple(row for row in self.rows if row.status is Status.UNFIT)

    def place_of(self, row: Difference) -> str:
        """How a row is called in a report: its address, or its name where that is all there is."""
        return row.name if row.address.site.startswith(UNPLACED) else str(row.address)

    def row(self, address: Address) -> Difference | None:
        """The row of an address."""
        return next((row for row in self.rows if row.address == address), None)


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor from which the first divergence is computed; `difference` is None where it was not compared."""

    address: Address
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Upstream:
    """What lies before the first divergence: the tensors it is computed from, and what still agrees.

    `cited` is the evidence for the lines to look at: that of the operation that computes it.
    `agreeing` are the operations above it, in computation order, of which every compared tensor
    agrees; where an input was not compared, the nearest ones above it that were are taken.
    """

    address: Address
    operation: Operation
    cited: tuple[Evidence, ...]
    inputs: tuple[Input, ...]
    agreeing: tuple[Operation, ...]


def upstream(comparison: Comparison, catalogue: Catalogue, layers: int) -> Upstream | None:
    """What lies before the first divergence; None where there is none, or its place is not known."""
    first = comparison.first_divergence
    if first is None or first.address.site not in catalogue.rows:
        return None
    rows = {row.address: row for row in comparison.rows}

    def known(address: Address) -> Difference | None:
        fixed = catalogue.row(address.site).kind is Kind.PARAMETER
        return rows.get(Address(address.site, address.layer) if fixed else address)

    operation = catalogue.operation_of(catalogue.row(first.address.site))
    reached = [(address, known(address)) for address in _above(first.address, catalogue, layers, known)]
    agreeing: dict[str, bool] = {}
    for address, row in reached:
        if row is not None:
            id = catalogue.row(address.site).operation
            agreeing[id] = agreeing.get(id, True) and row.agrees
    agreeing.pop(operation.id, None)
    inputs = tuple(Input(address, known(address)) for address in catalogue.inputs_of(first.address, layers))
    cited = tuple(context.evidence for context in catalogue.context(first.address.site) if context.produces)
    kept = tuple(found for id, found in catalogue.operations.items() if agreeing.get(id))
    return Upstream(first.address, operation, cited, inputs, kept)


def _above(
    start: Address, catalogue: Catalogue, layers: int, known: Callable[[Address], Difference | None]
) -> Iterator[Address]:
    """The tensors above one: two levels of those that were compared; what was not is passed through."""
    seen = {start}
    waiting = deque([(start, 0)])
    while waiting:
        address, level = waiting.popleft()
        for source in catalogue.inputs_of(address, layers):
            if source in seen:
                continue
            seen.add(source)
            yield source
            deeper = level + (known(source) is not None)
            if deeper < 2:
                waiting.append((source, deeper))


def by_segment(order: tuple[Address, ...]) -> Iterator[tuple[Address, ...]]:
    """Addresses in runs of one layer, so that each block is replayed once."""
    for _, run in groupby(order, key=lambda address: (address.step, address.layer)):
        yield tuple(run)


def check_tolerance(relative: float | None) -> None:
    """Raise InvalidInput for a tolerance that is no number from 0 on."""
    if relative is not None and not 0 <= relative < float("inf"):
        raise InvalidInput(f"A tolerance cannot be {relative}.", hint="It is a share of the largest value: 2e-5.")
