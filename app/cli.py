"""The command line. Exit codes: 0 done, 1 failed, 2 asked for what is not there or cannot be.

What takes long to import is imported inside the commands, so that `--help` answers at once.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from app import cli_cite, cli_lists, cli_models, cli_verify
from app.cli_shell import (
    NAME,
    AsJson,
    command_group,
    complain,
    drop_output,
    emit,
    emit_json,
    opened,
    progress_bar,
    settings_with,
    trace_id,
    waiting,
)
from provenance.errors import InvalidAddress, InvalidInput, InvalidPrompt, NotFound, ProvenanceError, Unavailable

if TYPE_CHECKING:
    import socket

    from app.schemas import TraceRequest
    from app.settings import Settings
    from provenance.catalogue import Intermediate
    from provenance.names import Address
    from provenance.trace import Trace


commands = command_group("Every tensor inside GPT-2: what it is, its value, and the pinned source lines that say so.")
commands.add_typer(cli_lists.sources, name="sources")
commands.add_typer(cli_lists.traces, name="traces")
commands.add_typer(cli_models.models, name="models")
commands.command()(cli_verify.verify)
commands.command()(cli_cite.cite)
commands.command()(cli_lists.repin)

ModelName = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="A name from `models`, or a checkpoint's folder.")
]


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
) -> None:
    """Start the server and print its address.

    What no option names is read from the environment (TENSOR_PROVENANCE_PORT, …).
    """
    settings = settings_with(model, host=host, port=port, data_directory=data_directory)
    with _listen(settings) as listening:
        import uvicorn

        from app.main import create_app
        from provenance.models import Models

        Models(settings.model_directories).checkpoints.source(settings.model)
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        emit(f"Tensor Provenance is at http://{shown}:{listening.getsockname()[1]} (Ctrl+C stops it)")
        config = uvicorn.Config(create_app(settings), log_level="warning")
        with suppress(KeyboardInterrupt):  # the way to stop it, so no failure
            uvicorn.Server(config).run(sockets=[listening])


def _listen(settings: "Settings") -> "socket.socket":
    """Take the port before anything is loaded. Raises Unavailable."""
    import socket

    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise Unavailable(
            f"Cannot listen on {settings.host}, port {settings.port}: {reason}.",
            hint="Choose another with --host and --port; port 0 takes a free one.",
        ) from None


# --- record ---


@commands.command()
def record(
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="The prompt; '-' reads standard input, without its last line end."),
    ] = None,
    steps: Annotated[int, typer.Option(min=0, metavar="N", help="Decode steps after the prompt.")] = 0,
    model: ModelName = None,
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="float32 or bfloat16.")] = "float32",
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Used at temperatures over 0.")] = 0,
    temperature: Annotated[float, typer.Option(min=0, metavar="T", help="0 takes the most likely token.")] = 0.0,
    ids: Annotated[str | None, typer.Option(metavar="5,6,7", help="Token ids in the place of TEXT.")] = None,
    as_json: AsJson = False,
) -> None:
    """Record a prompt. The same input gives the same trace, and is not run twice."""
    from app.cli_text import recorded_text
    from app.schemas import trace_of

    wanted = _request(text, ids, steps=steps, dtype=dtype, seed=seed, temperature=temperature)
    settings = settings_with(model)
    with opened(settings) as here:
        with waiting(f"Loading {settings.model}"):
            recipe = here.plan(
                wanted.prompt,
                ids=wanted.ids,
                steps=wanted.steps,
                dtype=wanted.dtype,
                seed=wanted.seed,
                temperature=wanted.temperature,
            )
        stored_before = recipe.id in here.store
        with progress_bar("Recording") as progress:
            out = trace_of(here.record(recipe, progress).record)
    if as_json:
        emit_json(out)
        return
    known = settings_with().model_directories
    folder = next((str(path) for path in settings.model_directories if path not in known), None)
    server = f"http://{settings.host}:{settings.port}"
    emit(recorded_text(out, stored_before=stored_before, server=server, folder=folder))


def _request(text: str | None, ids: str | None, **options: object) -> "TraceRequest":
    """The recording that the options ask for. Raises InvalidInput."""
    from pydantic import ValidationError

    from app.schemas import TraceRequest

    if (text is None) == (ids is None):
        raise InvalidPrompt("Give either TEXT or --ids.", hint=f"For example: {NAME} record 'Hello world'.")
    try:
        numbers = None if ids is None else [int(part) for part in ids.replace(",", " ").split()]
    except ValueError:
        raise InvalidPrompt(f"--ids {ids!r} is not a list of numbers.", hint="Write --ids 5,6,7.") from None
    prompt = _standard_input() if text == "-" else text
    try:
        return TraceRequest.model_validate({"prompt": prompt, "ids": numbers, **options})
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInput(f"{first['loc'][0]} cannot be {str(first['input'])[:40]}: {first['msg']}.") from None


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise InvalidPrompt(f"Standard input is not UTF-8 text: {error}.") from None


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
    as_json: AsJson = False,
) -> None:
    """Show what a tensor is, and which pinned lines say so.

    With --trace: its shape and its values in numbers, as that trace has them.
    """
    from app.cli_text import site_text, summary_text
    from app.schemas import site_of, summary_of
    from provenance.lookup import find
    from provenance.models import EXAMPLE_CONSTANTS, constants_of

    with opened(settings_with()) as here:
        if trace is None:
            if layer is not None or step is not None:
                raise InvalidInput("--layer and --step choose a tensor of a trace.", hint="Add --trace latest.")
            catalogue = here.catalogue()
            row, _ = find(catalogue, name)
            site = site_of(catalogue, row, EXAMPLE_CONSTANTS[catalogue.family])
            emit_json(site) if as_json else emit(site_text(site))
            return
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
