"""The command `verify`: prove a trace, and print what was proven as a table."""

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli_record import usual_length
from app.cli_shell import (
    NAME,
    AsJson,
    Batch,
    InputSeed,
    Length,
    emit,
    emit_json,
    opened,
    settings_with,
    trace_id,
    waiting,
)
from provenance.errors import InvalidPrompt

if TYPE_CHECKING:
    from app.explorer import Explorer
    from provenance.trace import Trace
    from provenance.vectors import Vectors
    from provenance.verdict import Parity, Report

_WORST = 12


def verify(
    trace: Annotated[
        str | None, typer.Option(metavar="ID", help="A trace: its id, 6 or more first digits, or 'latest'.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="Record with this model first.")] = None,
    prompt: Annotated[str | None, typer.Option(metavar="TEXT", help="The prompt to record.")] = None,
    ids: Annotated[
        str | None, typer.Option(metavar="5,6,7", help="Token ids, or numbers of vectors, in the place of a prompt.")
    ] = None,
    length: Length = None,
    batch: Batch = None,
    input_seed: InputSeed = None,
    steps: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Decode steps after the prompt: 1 if not given.")
    ] = None,
    tensorflow: Annotated[
        bool, typer.Option("--tensorflow", help="Run OpenAI's file on real TensorFlow too, where it is installed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Prove a trace: bytes, coverage, execution, parity, equations. Exit code 0 only if all holds.

    The cited files are run as they stand, line by line, on the trace's own tokens and weights. Of a model for
    which no code is cited, every tensor is computed again by its equation.
    """
    given = (prompt, ids, model, length, batch, input_seed)
    if trace is not None and any(each is not None for each in given):
        raise InvalidPrompt("Name a trace, or a prompt to record, not both.")
    from provenance.vectors import Vectors

    if tensorflow:
        # Said before anything is recorded.
        from provenance.witness.tensorflow_real import require

        require()
    with opened(settings_with(model)) as here:
        if trace:
            found = here.store.open(trace_id(here, trace))
        else:
            found = _recorded(here, prompt, ids, steps, Vectors(length, batch, input_seed))
        with waiting(f"Proving {found.id[:12]}"):
            report = _prove(here, found, tensorflow)
    emit_json(report) if as_json else emit(report_text(report))
    if not report.holds:
        raise typer.Exit(1)


def _recorded(
    here: "Explorer", prompt: str | None, ids: str | None, steps: int | None, vectors: "Vectors"
) -> "Trace":
    usual = usual_length(here)
    if (prompt is None) == (ids is None) and (usual is None or prompt is not None):
        raise InvalidPrompt(
            "Name a trace, or give a prompt or ids.", hint=f"For example: {NAME} verify --prompt 'Hello world'."
        )
    try:
        numbers = None if ids is None else [int(part) for part in ids.replace(",", " ").split()]
    except ValueError:
        raise InvalidPrompt(f"--ids {ids!r} is not a list of numbers.", hint="Write --ids 5,6,7.") from None
    with waiting(f"Recording with {here.settings.model}"):
        decoded = (0 if usual else 1) if steps is None else steps
        return here.record(here.plan(prompt, ids=numbers, steps=decoded, vectors=vectors))


def _prove(here: "Explorer", trace: "Trace", tensorflow: bool) -> "Report":
    if not tensorflow:
        return here.verifications.verify(trace, lambda what: None)
    # This report is not stored: the pages show what can be proven everywhere.
    from provenance.families import FAMILIES
    from provenance.verification import verify

    family = FAMILIES[trace.recipe.model.family]
    model = here.models.of(trace.recipe)
    return verify(family, model, trace, here.sources, extra=family.on_tensorflow)


def report_text(report: "Report") -> str:
    """A report as a person reads it, the worst differences first."""
    verdict = "everything that applies holds" if report.holds else "NOT everything holds"
    lines = [f"Trace {report.trace[:12]} of {report.model}: {verdict}. ({report.seconds:.0f} s)"]
    lines += ["", "Bytes"] if report.bytes else ["", "No code is cited for this model: its equations were computed."]
    for file in report.bytes:
        what = file.problem or f"blob {file.blob[:12]}, from {file.carrier}"
        settled = "" if file.settled or file.problem else " (one of the revision's candidates)"
        lines.append(f"  {_sign(file.holds)}  {file.key}: {what}{settled}")
    lines += ["", "Coverage"] if report.coverage else []
    for coverage in report.coverage:
        named = f"{coverage.mapped} of {coverage.assignments} assignments are sites"
        lines.append(f"  {_sign(coverage.holds)}  {coverage.source}: {named}, {len(coverage.exceptions)} excepted")
        lines += [f"        except {text}" for text in coverage.exceptions]
        lines += [f"        NOT A SITE: {text}" for text in coverage.unmapped]
        if coverage.complete:
            lines += [f"        NOT SEEN: {site}" for site in coverage.unseen]
    lines += ["", "Execution"] if report.executions else []
    for source in dict.fromkeys(execution.source for execution in report.executions):
        mine = [execution for execution in report.executions if execution.source == source]
        produced = sum(execution.ran.name == "PRODUCED" for execution in mine)
        lines.append(
            f"  {_sign(all(e.holds for e in mine))}  {source}: of {len(mine)} citations {produced} hold the line "
            f"that named the tensor, {sum(e.ran.name == 'EXECUTED' for e in mine)} ran without naming it"
        )
        lines += [f"        {e.operation}, lines {e.lines}: {e.ran.value}" for e in mine if not e.holds]
    lines += ["", "Values"]
    for source in dict.fromkeys(parity.source for parity in report.parities):
        lines += _parities(source, [parity for parity in report.parities if parity.source == source])
    for source, reasons in report.departures.items():
        lines += [f"  -  {source}: does not apply: {reason}" for reason in reasons]
    return "\n".join(lines)


def _parities(source: str, parities: "list[Parity]") -> list[str]:
    worst = sorted(parities, key=lambda parity: -parity.severity)
    failing = [parity for parity in worst if not parity.holds]
    lines = [
        f"  {_sign(not failing)}  {source}: {len(parities) - len(failing)} of {len(parities)} tensors "
        "within tolerance",
        f"        {'tensor':<26} {'line':>5} {'max |Δ|':>10} {'relative':>10} {'tolerance':>10}",
    ]
    for parity in worst[: max(_WORST, min(len(failing), 40))]:
        lines.append(
            f"     {'  ' if parity.holds else '✗ '} {parity.address:<26} {parity.line or '':>5} "
            f"{parity.largest_difference:>10.2e} {parity.relative:>10.2e} {parity.tolerance:>10.2e}"
            + (f"  {parity.note}" if parity.note else "")
        )
    return lines


def _sign(holds: bool) -> str:
    return "✓" if holds else "✗"
