"""What a stored report says about cited lines: whether they ran, and which of them held a tensor."""

from dataclasses import dataclass

from app.pages.badge import Badge
from provenance.catalogue import Evidence, Operation
from provenance.verdict import Execution, Ran, Report


@dataclass(frozen=True, slots=True)
class Mark:
    """What was seen at a line when the cited file was run; `kind` is `held` or `read`."""

    kind: str
    sign: str
    says: str


HELD = Mark("held", "▸", "ran and held this tensor")
"""The mark of a line that held the tensor of the page."""

UNPROVEN = Badge("plain", "○", "not run yet", "Not verified for this trace yet: nobody has run these lines on it.")
"""The badge of lines while a trace is not verified."""

_RAN = {
    Ran.PRODUCED: Badge(
        "proven",
        "✓",
        "executed",
        "When the file was run on this trace, these lines produced the operation's tensors.",
    ),
    Ran.EXECUTED: Badge(
        "proven",
        "✓",
        "executed",
        "When the file was run on this trace, these lines ran, without giving the operation's tensors a name.",
    ),
    Ran.ELSEWHERE: Badge(
        "differs", "≠", "executed, named elsewhere", "These lines ran, but other lines named the operation's tensors."
    ),
    Ran.NOT: Badge("missing", "✕", "did not run", "When the file was run on this trace, not all of these lines ran."),
}


def execution_of(operation: str, evidence: Evidence, report: Report) -> Execution | None:
    """What a piece of evidence did in a report; None where its file did not testify."""
    wanted = (operation, evidence.label, evidence.citation.lines)
    found = [e for e in report.executions if (e.operation, e.label, e.lines) == wanted]
    return found[0] if found else None


def execution_badge(operation: str, evidence: Evidence, report: Report | None) -> Badge:
    """Whether cited lines ran, or what is missing."""
    if report is None:
        return UNPROVEN
    execution = execution_of(operation, evidence, report)
    if execution is not None:
        return _RAN[execution.ran]
    reasons = report.departures.get(evidence.citation.pin.label)
    if reasons:
        return Badge("plain", "–", "does not apply", f"Does not apply: {'; '.join(reasons)}.")
    return Badge("plain", "○", "not run", "No step of this trace does what these lines do.")


def marks_of(report: Report, site: str, evidence: Evidence, reader: Operation | None) -> dict[int, Mark]:
    """The marks of a file's lines: those that held the tensor and, more quietly, a reader's own."""
    marks: dict[int, Mark] = {}
    if reader is not None:
        execution = execution_of(reader.id, evidence, report)
        says = f"ran and held a tensor of {reader.title}"
        marks |= {line: Mark("read", "▹", says) for line in (execution.produced if execution else ())}
    held = report.held_at.get(evidence.citation.pin.label, {}).get(site, ())
    return marks | dict.fromkeys(held, HELD)
