"""What was proven about one tensor of a trace: bytes, execution, and its values against each source's."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.explorer import Explorer
from app.jobs import State
from app.pages.badge import Badge
from app.pages.evidence import EvidenceGroup, EvidenceView, pins_of
from app.pages.frame import Frame, frame
from app.pages.links import cite_trace_url, proof_url, trace_url, verdict_url, with_query
from app.pages.numbers import Number
from app.pages.scope import Scope
from provenance.catalogue import Catalogue, Kind
from provenance.catalogues import outline_of
from provenance.names import Address
from provenance.trace import Trace
from provenance.verdict import Parity, Report

_RUNS = "Runs the cited files themselves, line by line, on this trace’s tokens and weights."
_COMPUTES = "Computes every tensor again in NumPy by its equation, from this trace’s vectors and weights."

EQUATION = "equation"
"""The source by which a report calls the recomputation in NumPy."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A tensor against one source: its badge, or figures with where they come from.

    `number` is None where the two were not compared; then `badge` says why.
    """

    source: str
    name: str
    badge: Badge
    number: Number | None
    tolerance: Number | None
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A verification under way or failed, or none (an empty state).

    `url` is where its page asks again, into `target`; `address` and `head` say where the button
    leads back to; `says` is what verifying does.
    """

    state: str
    proving: str
    error: str
    url: str
    target: str
    verify_url: str
    address: str
    head: int | None
    says: str

    @property
    def runs(self) -> bool:
        """Whether its page has to ask again."""
        return self.state in (State.QUEUED, State.RUNNING)

    @property
    def said(self) -> str:
        """What a page says that shows this, to be compared with what is to be said now."""
        return f"{self.state}: {self.proving}"


@dataclass(frozen=True, slots=True)
class Proof:
    """Everything proven about one tensor. `tolerance` is empty where the figures' own differ.

    `waiting` is None once there is a report.
    """

    badges: tuple[Badge, ...]
    figures: tuple[Figure, ...]
    tolerance: Number | None
    command: str
    verdict_url: str
    cite_trace_url: str
    waiting: Waiting | None


@dataclass(frozen=True, slots=True)
class Polled:
    """The part of a proof that a page asks for again and again."""

    waiting: Waiting


@dataclass(frozen=True, slots=True)
class ProofState:
    """How far the verification is, with the title of the tensor's page."""

    frame: Frame
    proof: Polled


def proof_of_tensor(
    explorer: Explorer, trace: Trace, address: Address, evidence: Sequence[EvidenceGroup], head: int | None = None
) -> Proof:
    """What was proven about one tensor, or how far its verification is."""
    report = explorer.verifications.report(trace)
    catalogue = explorer.catalogue(trace)
    figures = tuple(_figures(catalogue, address, report)) if report else ()
    tolerances = {figure.tolerance.text for figure in figures if figure.tolerance}
    same = next((figure.tolerance for figure in figures if figure.tolerance), None)
    return Proof(
        badges=_badges([view for group in evidence for column in group.columns for view in column], figures),
        figures=figures,
        tolerance=same if len(tolerances) == 1 else None,
        command=command(trace),
        verdict_url=verdict_url(trace.id),
        cite_trace_url=cite_trace_url(trace.id),
        waiting=None if report else waiting_of(explorer, trace, address, head),
    )


def waiting_of(explorer: Explorer, trace: Trace, address: Address | None = None, head: int | None = None) -> Waiting:
    """How far the verification of a trace is, as the page of a tensor or of the verdict shows it."""
    known = explorer.verifications.state(trace)
    state, proving = (known.state.value, known.proving) if known else ("", "")
    url = proof_url(trace.id, address) if address else verdict_url(trace.id)
    return Waiting(
        state=state,
        proving=proving,
        error=known.error if known else "",
        url=with_query(url, said=f"{state}: {proving}", head=head),
        target="this" if address else "#verdict",
        verify_url=f"{trace_url(trace.id)}/verify",
        address=str(address) if address else "",
        head=head,
        says=_RUNS if outline_of(trace.recipe.model).cited else _COMPUTES,
    )


def proof_state(explorer: Explorer, trace: Trace, address: Address) -> ProofState:
    """The state alone."""
    scope = Scope.of(explorer, trace, address.layer or 0, address.step)
    row = scope.catalogue.row(address.site)
    shown = frame(scope, f"{row.title}, {address}", site=row.site)
    return ProofState(shown, Polled(waiting_of(explorer, trace, address)))


def command(trace: Trace) -> str:
    """The command that gives the same report."""
    return f"tensor-provenance verify --trace {trace.id[:12]}"


def difference(value: float) -> Number:
    """A difference in two digits: `3.1e-7`; 0 only where nothing differs at all."""
    if value == 0:
        return Number("0", "0.0")
    digits, _, exponent = f"{value:.1e}".partition("e")
    return Number(f"{digits}e{int(exponent)}" if exponent else digits, repr(value))


def source_names(catalogue: Catalogue, report: Report) -> dict[str, str]:
    """Every source that can be compared with, as a person calls it."""
    names = {}
    for pin in pins_of(catalogue):
        version = report.versions.get(pin.label)
        names[pin.label] = f"{pin.label} {version}" if version else f"{pin.author or pin.repository}’s code"
    return names | {EQUATION: "equation in NumPy"}


def parity_badge(parity: Parity) -> Badge:
    """Whether two values are equal within the tolerance."""
    if parity.note:
        return Badge("differs", "≠", "differs", f"They do not compare: {parity.note}.")
    if parity.holds:
        return Badge("proven", "✓", "equal", "Equal within the tolerance.")
    return Badge("differs", "≠", "differs", "They differ by more than is tolerated.")


def _figures(catalogue: Catalogue, address: Address, report: Report) -> Iterator[Figure]:
    for source, name in source_names(catalogue, report).items():
        parity = report.parity(str(address), source)
        if parity is None:
            yield Figure(source, name, _not_compared(catalogue, address, report, source), None, None, ())
            continue
        yield Figure(
            source=source,
            name=name,
            badge=parity_badge(parity),
            number=difference(parity.largest_difference),
            tolerance=difference(parity.tolerance),
            details=tuple(_details(parity)),
        )


def _not_compared(catalogue: Catalogue, address: Address, report: Report, source: str) -> Badge:
    if reasons := _reasons(catalogue, address, report, source):
        return Badge("plain", "–", f"does not apply: {'; '.join(reasons)}", "No failure: the two cannot be compared.")
    if source != EQUATION:
        return Badge("plain", "○", "does not name this tensor", "There it is part of an expression, or is not there.")
    what = "it is learned" if catalogue.row(address.site).kind is Kind.PARAMETER else "it is given"
    return Badge("plain", "○", f"none, {what}", "There is nothing to compute again.")


def _reasons(catalogue: Catalogue, address: Address, report: Report, source: str) -> tuple[str, ...]:
    """Why a source does not apply to a tensor: of the equations, what is said of this tensor alone."""
    reasons = report.departures.get(source, ())
    if source != EQUATION:
        return reasons
    if catalogue.row(address.site).kind is not Kind.TENSOR:
        return ()
    return tuple(r for r in reasons if r.startswith(f"{address.place}: ")) or reasons


def _details(parity: Parity) -> Iterator[str]:
    if parity.note:
        yield parity.note
    if parity.line:
        yield f"compared with {parity.expression} at line {parity.line}"
    if parity.layout:
        yield f"ours laid out: {parity.layout}"
    if parity.visible_only:
        yield "on the visible cells only: masked ones are filled differently"
    yield f"largest value there {parity.largest_reference:.3g}, so relative {difference(parity.relative).text}"
    yield f"tolerance {difference(parity.tolerance).text}"


# --- the three signs ---


def _badges(views: Sequence[EvidenceView], figures: Sequence[Figure]) -> tuple[Badge, ...]:
    badges = [_bytes(views), _executed(views)] if views else []
    return (*badges, _equal(figures))


def _bytes(views: Sequence[EvidenceView]) -> Badge:
    worst = min((view.badge for view in views), key=lambda badge: "✕≈≡✓".index(badge.sign))
    says = {
        "✓": "All lines shown are the pinned revisions’ own: each file’s git blob id was checked.",
        "≡": "Each file’s git blob id was checked; where the revision’s own blob was not seen here, the lines are "
        "the same in every content that it can have.",
        "≈": "Each file’s git blob id was checked; some lines are read from a release and may be a line off.",
        "✕": "Some of the cited files are not available here.",
    }
    return Badge(worst.kind, worst.sign, "bytes", says[worst.sign])


def _executed(views: Sequence[EvidenceView]) -> Badge:
    seen = [view.execution for view in views if view.execution]
    failed = [badge for badge in seen if badge.kind in ("missing", "differs")]
    ran = [badge for badge in seen if badge.kind == "proven"]
    if failed:
        return Badge(failed[0].kind, failed[0].sign, "executed", failed[0].explanation)
    if not ran:
        reason = seen[0] if seen else Badge("plain", "○", "", "")
        return Badge("plain", reason.sign, "executed", reason.explanation)
    part = "all" if len(ran) == len(seen) else f"{len(ran)} of {len(seen)}"
    return Badge(
        "proven", "✓", "executed" if part == "all" else f"executed ({part})",
        f"When the cited files were run on this trace, {part} of these citations ran.",
    )  # fmt: skip


def _equal(figures: Sequence[Figure]) -> Badge:
    compared = [figure for figure in figures if figure.number]
    if not compared:
        says = figures[0].badge.explanation if figures else "Not compared for this trace yet."
        return Badge("plain", "○", "equal", says)
    worst = max(compared, key=lambda figure: float(figure.number.exact) if figure.number else 0.0)
    wrong = [figure for figure in compared if figure.badge.kind != "proven"]
    names = " and ".join(figure.name for figure in compared)
    if wrong:
        return Badge("differs", "≠", "differs", f"Differs from {' and '.join(figure.name for figure in wrong)}.")
    assert worst.number is not None
    return Badge(
        "proven", "✓", f"equal {worst.number.text}", f"The largest difference from {names} is {worst.number.exact}."
    )
