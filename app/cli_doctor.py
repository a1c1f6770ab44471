"""The command that looks whether all is well here, and says what to do where it is not."""

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli_shell import AsJson, emit, emit_json, waiting
from app.cli_text import wrapped

if TYPE_CHECKING:
    from app.findings import Diagnosis

_MARKS = {"fine": "✓", "attention": "!", "wrong": "✗"}


def doctor(
    deep: Annotated[bool, typer.Option("--deep", help="Read every stored byte; this may take minutes.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Move what cannot be read into quarantine, and remove leftovers.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check data, sources, models and settings, and say what to do.

    Exits with 1 if anything needs attention. --repair deletes nothing that can be read.
    """
    from app.doctor import diagnose

    with waiting("Looking at everything"):
        diagnosis = diagnose(deep=deep, repairing=repair)
    emit_json(diagnosis) if as_json else emit(diagnosis_text(diagnosis))
    if not diagnosis.is_fine:
        raise typer.Exit(1)


def diagnosis_text(diagnosis: "Diagnosis") -> str:
    """All findings by area, each with a mark, and the sum of them."""
    lines: list[str] = []
    for area, findings in groupby(diagnosis.findings, key=lambda finding: finding.area):
        lines.append(area)
        for finding in findings:
            lines.append(wrapped(f"{_MARKS[finding.level]} {finding.what}", 2, 2))
            if finding.advice:
                lines.append(wrapped(finding.advice, 4))
        lines.append("")
    needing = sum(finding.level != "fine" for finding in diagnosis.findings)
    if not needing:
        return "\n".join([*lines, "Nothing needs attention."])
    return "\n".join([*lines, f"{needing} {'thing needs' if needing == 1 else 'things need'} attention."])
