"""The command `golden`: the tensors of a trace as the reference file of a port."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli_shell import AsJson, emit, emit_json, opened, progress_bar, settings_with, trace_id
from provenance.errors import InvalidInput
from provenance.names import LARGEST
from provenance.naming import Scheme


def golden(
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="A trace: its id, 6 or more first digits, or 'latest'.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The file to write; .safetensors or .npz says its kind.")
    ],
    names: Annotated[Scheme, typer.Option("--names", help="Whose names the tensors get.")] = Scheme.SITE,
    parameters: Annotated[bool, typer.Option("--parameters", help="Write the learned parameters too.")] = False,
    steps: Annotated[
        str | None, typer.Option("--steps", metavar="0,2-4", help="Only these steps; 0 is the prefill.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a trace's tensors as the reference file of a port.

    A manifest of shapes and hashes stands beside it, as FILE.manifest.json. `compare` reads such files.
    """
    from provenance.golden import manifest_path, write_golden

    wanted = None if steps is None else steps_of(steps)
    if not out.parent.is_dir():
        raise InvalidInput(f"There is no folder {str(out.parent)!r}.", hint="Make it first, or name another.")
    if out.is_dir():
        raise InvalidInput(f"{str(out)!r} is a folder.", hint="Name a file in it: golden.safetensors.")
    with opened(settings_with()) as here:
        recorded = here.store.open(trace_id(here, trace))
        with progress_bar("Writing", "tensors") as progress:
            manifest = write_golden(
                out,
                recorded,
                here.catalogue(recorded),
                names,
                read=lambda address: here.tensor(recorded, address),
                masked=lambda address: here.masked(recorded, address),
                parameters=parameters,
                steps=wanted,
                progress=progress,
            )
    if as_json:
        emit_json(manifest)
        return
    count = f"{len(manifest.tensors):,} tensor{'' if len(manifest.tensors) == 1 else 's'}"
    emit(f"{out}: {count} of trace {recorded.id[:12]}, {out.stat().st_size / 1e6:,.1f} MB, names: {names.value}")
    emit(f"{manifest_path(out)}: their shapes, dtypes and SHA-256")


def steps_of(text: str) -> tuple[int, ...]:
    """Steps written as `0,2-4`. Raises InvalidInput."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = [number for number in (first, last or first) if number.isascii() and number.isdigit()]
        if len(numbers) < 2 or (dash and not last) or int(numbers[1]) > LARGEST or int(numbers[0]) > int(numbers[1]):
            raise InvalidInput(f"--steps {text[:40]!r} is not a list of steps.", hint="Write --steps 0,2-4.")
        found += range(int(numbers[0]), int(numbers[1]) + 1)
    return tuple(dict.fromkeys(found))
