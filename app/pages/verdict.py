"""The page of a trace's verdict: all that was proven about it, each claim with the command that repeats it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.badge import Badge
from app.pages.evidence import carrier_says, pins_of
from app.pages.frame import Frame, frame
from app.pages.links import site_url, source_url, tensor_url, trace_url
from app.pages.numbers import Number
from app.pages.proof import Waiting, command, difference, parity_badge, source_names, waiting_of
from app.pages.scope import Link, Scope
from provenance.catalogue import Catalogue
from provenance.inputs import said
from provenance.names import Address
from provenance.trace import Trace
from provenance.verdict import Bytes, Coverage, Execution, Parity, Ran, Report

_WORST = 8
_MOST_FAILING = 40


@dataclass(frozen=True, slots=True)
class BytesView:
    """A cited file: whether its bytes were had, which blob they are, and from where."""

    badge: Badge
    key: str
    url: str
    blob: str
    says: str


@dataclass(frozen=True, slots=True)
class CoverageView:
    """How much of what a file names when it runs is a tensor here, and the other way round."""

    badge: Badge
    name: str
    says: str
    exceptions: tuple[str, ...]
    unmapped: tuple[str, ...]
    unseen: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class ExecutionView:
    """What the cited lines of a file did: counts, and each citation that is not plainly right."""

    badge: Badge
    name: str
    says: str
    failing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParityView:
    """One tensor against one source; `link` is its page."""

    badge: Badge
    address: str
    url: str
    line: str
    difference: Number
    relative: Number
    tolerance: Number
    note: str


@dataclass(frozen=True, slots=True)
class ParitiesView:
    """All tensors against one source: how many hold, and the worst of them."""

    id: str
    badge: Badge
    name: str
    count: int
    holding: int
    worst: tuple[ParityView, ...]


@dataclass(frozen=True, slots=True)
class ReportView:
    """A report as its page shows it."""

    badge: Badge
    seconds: str
    created_at: str
    versions: tuple[tuple[str, str], ...]
    bytes: tuple[BytesView, ...]
    coverage: tuple[CoverageView, ...]
    executions: tuple[ExecutionView, ...]
    parities: tuple[ParitiesView, ...]
    departures: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class VerdictPage:
    """What was proven about a trace; without a report, how far its verification is."""

    frame: Frame
    trace: str
    trace_url: str
    trace_text: str
    model: str
    command: str
    json_url: str
    report: ReportView | None
    waiting: Waiting | None


def verdict_page(explorer: Explorer, trace: Trace) -> VerdictPage:
    """The page of a trace's verdict."""
    scope = Scope.of(explorer, trace)
    report = explorer.verifications.report(trace)
    return VerdictPage(
        frame=frame(scope, f"Verdict about trace {trace.id[:12]}"),
        trace=trace.id,
        trace_url=trace_url(trace.id),
        trace_text=said(trace.recipe),
        model=trace.recipe.model.name,
        command=command(trace),
        json_url=f"/api{trace_url(trace.id)}/verdict",
        report=_report(scope.catalogue, report) if report else None,
        waiting=None if report else waiting_of(explorer, trace),
    )


def _holds(holds: bool, word: str = "holds", otherwise: str = "does not hold") -> Badge:
    return Badge("proven", "✓", word, "") if holds else Badge("missing", "✕", otherwise, "")


def _report(catalogue: Catalogue, report: Report) -> ReportView:
    names = source_names(catalogue, report)
    executing = dict.fromkeys(execution.source for execution in report.executions)
    comparing = dict.fromkeys(parity.source for parity in report.parities)
    return ReportView(
        badge=_holds(report.holds, "everything that applies holds", "not everything holds"),
        seconds=f"{report.seconds:.0f}",
        created_at=report.created_at.replace("T", " ").replace("+00:00", " UTC"),
        versions=tuple(report.versions.items()),
        bytes=tuple(_bytes(catalogue, found) for found in report.bytes),
        coverage=tuple(_coverage(catalogue, found, names) for found in report.coverage),
        executions=tuple(_executions(catalogue, report, source, names) for source in executing),
        parities=tuple(_parities(report, source, names) for source in comparing),
        departures=tuple(
            (names.get(source, source), reason) for source, reasons in report.departures.items() for reason in reasons
        ),
    )


def _bytes(catalogue: Catalogue, found: Bytes) -> BytesView:
    pin = next((pin for pin in pins_of(catalogue) if pin.key == found.key), None)
    if found.problem:
        badge, says = Badge("missing", "✕", "not had", ""), found.problem
    elif found.settled:
        badge = Badge("proven", "✓", "verified", "")
        says = f"the pinned revision’s own, from {carrier_says(found.carrier)}"
    else:
        badge = Badge("proven", "≡", "one of the candidates", "")
        says = f"one of the contents that the pinned revision can have, from {carrier_says(found.carrier)}"
    return BytesView(badge, found.key, source_url(pin) if pin else "/sources", found.blob, says)


def _coverage(catalogue: Catalogue, found: Coverage, names: dict[str, str]) -> CoverageView:
    return CoverageView(
        badge=_holds(found.holds, "complete", "incomplete"),
        name=names.get(found.source, found.source),
        says=f"{found.mapped} of {found.assignments} assignments that were seen are tensors here",
        exceptions=found.exceptions,
        unmapped=found.unmapped,
        unseen=tuple(Link(site_url(site), "", catalogue.row(site).title) for site in found.unseen),
    )


def _executions(catalogue: Catalogue, report: Report, source: str, names: dict[str, str]) -> ExecutionView:
    mine = [execution for execution in report.executions if execution.source == source]
    counts = Counter(execution.ran for execution in mine)
    quietly = counts[Ran.EXECUTED]
    return ExecutionView(
        badge=_holds(all(execution.holds for execution in mine), "all ran", "not all ran"),
        name=names.get(source, source),
        says=f"{counts[Ran.PRODUCED]} of {len(mine)} citations hold the line that named the tensor"
        + (f"; {quietly} ran without naming it, as part of an expression or a module" if quietly else ""),
        failing=tuple(_failing(catalogue, mine)),
    )


def _failing(catalogue: Catalogue, executions: list[Execution]) -> Iterator[str]:
    for execution in executions:
        if not execution.holds:
            yield f"{catalogue.operations[execution.operation].title}, lines {execution.lines}: {execution.ran.value}"


def _parities(report: Report, source: str, names: dict[str, str]) -> ParitiesView:
    mine = sorted((p for p in report.parities if p.source == source), key=lambda parity: -parity.severity)
    failing = sum(not parity.holds for parity in mine)
    return ParitiesView(
        id=f"parity-{source}",
        badge=_holds(not failing, "all equal", f"{failing} differ"),
        name=names.get(source, source),
        count=len(mine),
        holding=len(mine) - failing,
        worst=tuple(_parity(report.trace, parity) for parity in mine[: max(_WORST, min(failing, _MOST_FAILING))]),
    )


def _parity(trace: str, parity: Parity) -> ParityView:
    return ParityView(
        badge=parity_badge(parity),
        address=parity.address,
        url=tensor_url(trace, Address.parse(parity.address)),
        line=str(parity.line or ""),
        difference=difference(parity.largest_difference),
        relative=difference(parity.relative),
        tolerance=difference(parity.tolerance),
        note="; ".join(filter(None, (parity.note, parity.layout))),
    )
