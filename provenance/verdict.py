"""Verdicts: what was proven about a trace, as it is stored beside it and shown on its pages."""

from enum import StrEnum

from provenance.trace import Frozen

FILE = "verdict.json"
"""The name of a report that is stored beside its trace."""
TOLERANCE = 5e-5
"""In fp32 on a CPU: max|Δ| ≤ 5e-5 · max(1, max|reference|) over the compared cells."""


class Parity(Frozen):
    """One tensor of ours against one value of another computation.

    `source` is the witness's label, or `equation`. `visible_only` is True where masked cells were
    left out. `layout` says how our tensor was laid out anew for the comparison.
    """

    address: str
    source: str
    line: int | None = None
    expression: str = ""
    layout: str = ""
    visible_only: bool = False
    largest_difference: float
    largest_reference: float
    tolerance: float
    holds: bool
    note: str = ""

    @property
    def relative(self) -> float:
        """The largest difference over the largest value compared with."""
        return self.largest_difference / self.largest_reference if self.largest_reference else 0.0

    @property
    def severity(self) -> float:
        """The difference as a part of what is tolerated; over 1 it does not hold."""
        return self.largest_difference / self.tolerance if self.holds else max(1.0, self.largest_difference)


class Coverage(Frozen):
    """Whether every assignment that a witness saw is a site, and every site was seen."""

    source: str
    assignments: int
    mapped: int
    exceptions: tuple[str, ...]
    unmapped: tuple[str, ...]
    unseen: tuple[str, ...]
    complete: bool

    @property
    def holds(self) -> bool:
        """No assignment without a site or a reason; of a complete witness, no site unseen."""
        return self.assignments > 0 and not self.unmapped and not (self.complete and self.unseen)


class Ran(StrEnum):
    """What the cited lines of one piece of evidence did when the witness ran."""

    PRODUCED = "produced the tensor"
    EXECUTED = "ran, without naming the tensor"
    ELSEWHERE = "ran, but the tensor was named elsewhere"
    NOT = "did not run"


class Execution(Frozen):
    """One piece of an operation's evidence, and what its lines did.

    `produced` are the cited lines at which the witness saw a tensor of the operation.
    """

    operation: str
    source: str
    label: str
    lines: str
    ran: Ran
    produced: tuple[int, ...]

    @property
    def holds(self) -> bool:
        """Whether the cited lines ran and, where the file names the operation's tensors, named one."""
        return self.ran in (Ran.PRODUCED, Ran.EXECUTED)


class Bytes(Frozen):
    """A cited file: whether its bytes were had, from where, and which blob they are."""

    key: str
    blob: str = ""
    carrier: str = ""
    settled: bool = False
    problem: str = ""

    @property
    def holds(self) -> bool:
        """Whether the bytes were had and every anchor stood at its lines."""
        return not self.problem


class Report(Frozen):
    """All verdicts about one trace.

    `departures` say per source why it does not apply; `held_at` gives per source and site the
    lines at which the witness saw the tensor.
    """

    trace: str
    model: str
    created_at: str
    versions: dict[str, str]
    seconds: float
    bytes: tuple[Bytes, ...]
    coverage: tuple[Coverage, ...]
    executions: tuple[Execution, ...]
    parities: tuple[Parity, ...]
    departures: dict[str, tuple[str, ...]]
    held_at: dict[str, dict[str, tuple[int, ...]]]

    @property
    def holds(self) -> bool:
        """Whether everything that applies was proven."""
        return (
            all(verdict.holds for verdict in self.bytes)
            and all(verdict.holds for verdict in self.coverage)
            and all(verdict.holds for verdict in self.executions)
            and all(verdict.holds for verdict in self.parities)
        )

    def parity(self, address: str, source: str) -> Parity | None:
        """The worst comparison of one tensor with one source, if there was any."""
        found = [p for p in self.parities if p.address == address and p.source == source]
        return max(found, key=lambda parity: parity.severity, default=None)
