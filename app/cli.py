"""The command line. Exit codes: 0 done, 1 failed, 2 asked for what is not there or cannot be.

What takes long to import is imported inside the commands, so that `--help` answers at once.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from app import (
    cli_attribute,
    cli_cite,
    cli_compare,
    cli_doctor,
    cli_export,
    cli_golden,
    cli_lists,
    cli_models,
    cli_record,
    cli_verify,
)
from app.cli_shell import (
    NAME,
    AsJson,
    FamilyName,
    ModelName,
    command_group,
    complain,
    drop_output,
    emit,
    emit_json,
    opened,
    settings_with,
    trace_id,
    waiting,
)
from provenance.errors import InvalidAddress, InvalidInput, NotFound, ProvenanceError, Unavailable

if TYPE_CHECKING:
    import socket

    from app.settings import Settings
    from provenance.catalogue import Intermediate
    from provenance.names import Address
    from provenance.trace import Trace


commands = command_group("Every tensor inside GPT-2: what it is, its value, and the pinned source lines that say so.")
commands.add_typer(cli_lists.sources, name="sources")
commands.add_typer(cli_lists.traces, name="traces")
commands.add_typer(cli_models.models, name="models")
commands.command()(cli_record.record)
commands.command()(cli_verify.verify)
commands.command()(cli_compare.compare)
commands.command()(cli_attribute.attribute)
commands.command()(cli_golden.golden)
commands.command()(cli_export.export)
commands.command()(cli_cite.cite)
commands.command()(cli_doctor.doctor)
commands.command()(cli_lists.repin)
commands.command()(cli_lists.sites)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a character shows its code: output never fails for it.
        with suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    code = 0
    try:
        commands(arguments, prog_name=NAME)
    except ProvenanceError as error:
        code = 2 if isinstance(error, InvalidInput | NotFound) else 1
        complain(error.message, error.hint)
    except OSError as error:
        if error.errno is None:  # not the system's: a fault of ours
            raise
        code = 1
        complain(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}.")
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            code = drop_output()
    sys.exit(code)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        emit(f"{NAME} {version(NAME)}")
        raise typer.Exit


@commands.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


# --- serve ---


@commands.command()
def serve(
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, metavar="N", help="Port; 0 takes a free one.")] = None,
    data_directory: Annotated[Path | None, typer.Option(metavar="PATH", help="Where traces are stored.")] = None,
    model: ModelName = None,
    workers: Annotated[int | None, typer.Option(min=1, max=64, metavar="N", help="Web workers.")] = None,
    read_only: Annotated[bool | None, typer.Option("--read-only", help="Show traces, and take no changes.")] = None,
) -> None:
    """Start the server and print its address.

    What no option names is read from the environment (TENSOR_PROVENANCE_PORT, …).
    """
    settings = settings_with(
        model, host=host, port=port, data_directory=data_directory, workers=workers, read_only=read_only
    )
    with _listen(settings) as listening:
        from app.collector import starting

        with starting():
            from provenance.models import Models

        Models(settings.model_directories).check_here(settings.model)
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        emit(f"Tensor Provenance is at http://{shown}:{listening.getsockname()[1]} (Ctrl+C stops it)")
        with suppress(KeyboardInterrupt):  # the way to stop it, so no failure
            _serve(settings, listening)


def _serve(settings: "Settings", listening: "socket.socket") -> None:
    if settings.workers > 1:
        from app import workers

        workers.serve(settings, listening, emit)
        return
    from app.allocator import keep_freed_memory
    from app.collector import starting

    keep_freed_memory()
    with starting():
        from app import serving
        from app.main import create_app

        app = create_app(settings)
    serving.serve(app, settings, listening)


def _listen(settings: "Settings") -> "socket.socket":
    """Take the port before anything is loaded. Raises Unavailable."""
    import socket

    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listening = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise Unavailable(
            f"Cannot listen on {settings.host}, port {settings.port}: {reason}.",
            hint="Choose another with --host and --port; port 0 takes a free one.",
        ) from None
    # asyncio sets this only on sockets that name their protocol. Without it an answer's body waits
    # until the reader's system has acknowledged its headers, and that may take it 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


# --- show ---


@commands.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A site, an address, OpenAI's expression, or another name.")
    ],
    trace: Annotated[
        str | None, typer.Option(metavar="ID", help="A trace: its id, 6 or more first digits, or 'latest'.")
    ] = None,
    layer: Annotated[int | None, typer.Option(min=0, metavar="L", help="Which block, counted from 0.")] = None,
    step: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="0 is the prefill, n the n-th decode step.")
    ] = None,
    family: FamilyName = None,
    as_json: AsJson = False,
) -> None:
    """Show what a tensor is, and which pinned lines say so.

    With --trace: its shape and its values in numbers, as that trace has them.
    """
    from app.cli_text import site_text, summary_text
    from app.families import find_in_families
    from app.schemas import site_of
    from app.schemas_tensor import summary_of
    from provenance.lookup import find
    from provenance.models import constants_of

    with opened(settings_with()) as here:
        if trace is None:
            if layer is not None or step is not None:
                raise InvalidInput("--layer and --step choose a tensor of a trace.", hint="Add --trace latest.")
            row, outline = find_in_families(name, family or "")
            site = site_of(outline.catalogue, row, outline.example)
            emit_json(site) if as_json else emit(site_text(site))
            return
        if family is not None:
            raise InvalidInput("A trace has its own model family.", hint="Leave --family out.")
        recorded = here.store.open(trace_id(here, trace))
        catalogue = here.catalogue(recorded)
        constants = constants_of(recorded.recipe.model)
        row, named = find(catalogue, name)
        at = _address(row, named, layer, step, recorded)
        with waiting(f"Computing {at}"):
            summary = here.summary(recorded, at)
            check = None if str(at) in recorded.tensors else here.check(recorded, at)
    out = summary_of(catalogue, recorded, at, constants, summary, check)
    emit_json(out) if as_json else emit(summary_text(out, site_of(catalogue, row, constants)))


def _address(
    row: "Intermediate", named: "Address | None", layer: int | None, step: int | None, trace: "Trace"
) -> "Address":
    """The tensor that the name and the options choose together. Raises InvalidAddress."""
    from provenance.names import Address, is_layered

    named_layer, named_step = (named.layer, named.step) if named else (None, 0)
    if layer is not None and named_layer not in (None, layer):
        raise InvalidAddress(f"The name says layer {named_layer}, and --layer says {layer}.")
    if step is not None and named_step not in (0, step):
        raise InvalidAddress(f"The name says step {named_step}, and --step says {step}.")
    layer = named_layer if layer is None else layer
    if layer is None and is_layered(row.site):
        raise InvalidAddress(
            f"{row.site!r} exists once in every layer.",
            hint=f"Say which: --layer 0 to --layer {trace.layers - 1}.",
        )
    return Address(row.site, layer, named_step if step is None else step)


if __name__ == "__main__":
    main()
