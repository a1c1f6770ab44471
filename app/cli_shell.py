"""What every command shares: output, complaints, progress, and the model that an option names."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from provenance.errors import UnknownModel, UnknownTrace

if TYPE_CHECKING:
    from pydantic import BaseModel

    from app.explorer import Explorer
    from app.settings import Settings
    from provenance.recorder import Progress

NAME = "tensor-provenance"
_PIPE_CLOSED = 141  # as a shell reports a program that SIGPIPE ended

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the API gives it.")]
ModelName = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="A name from `models`, or a checkpoint's folder.")
]

FamilyName = Annotated[
    str | None, typer.Option("--family", metavar="NAME", help="A model family; the first that fits if not given.")
]
Length = Annotated[
    int | None, typer.Option("--length", min=1, metavar="T", help="Positions, for a model that reads vectors: 20.")
]
Batch = Annotated[
    int | None, typer.Option("--batch", min=1, metavar="B", help="Batch entries, for a model that reads vectors: 8.")
]
InputSeed = Annotated[
    int | None, typer.Option("--input-seed", min=0, metavar="N", help="What the vectors are drawn from: 0.")
]


def command_group(help: str, *, bare: bool = False) -> typer.Typer:
    """A group of commands; a `bare` one does something without a command too."""
    return typer.Typer(
        help=help,
        no_args_is_help=not bare,
        invoke_without_command=bare,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def emit(text: str) -> None:
    """Print to standard output; exit in silence where nobody reads it any more."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        sys.exit(drop_output())


def emit_json(value: "BaseModel | Sequence[BaseModel]") -> None:
    """Print as JSON, in ASCII, which no terminal or pipe can spoil."""
    tree: object
    if isinstance(value, Sequence):
        tree = [item.model_dump(mode="json") for item in value]
    else:
        tree = value.model_dump(mode="json")
    emit(json.dumps(tree, indent=2, allow_nan=False))


def complain(message: str, hint: str = "") -> None:
    """Print what was wrong, and what to do, to standard error."""
    with suppress(BrokenPipeError):
        print(f"Error: {message}", *([hint] if hint else []), sep="\n", file=sys.stderr, flush=True)


def drop_output() -> int:
    """Nobody reads standard output any more: lead the rest nowhere. Returns the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _PIPE_CLOSED


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on a terminal what takes a while, and wipe it away after."""
    if not sys.stderr.isatty():
        yield
        return
    print(f"{what} …", end="\r", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(" " * (len(what) + 2), end="\r", file=sys.stderr, flush=True)


@contextmanager
def progress_bar(what: str, unit: str = "segments") -> Iterator["Progress"]:
    """A progress bar on a terminal, for what takes over a second."""
    from tqdm import tqdm

    with tqdm(desc=what, total=1, unit=f" {unit}", delay=1, leave=False, disable=not sys.stderr.isatty()) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show


def settings_with(model: str | None = None, **overrides: object) -> "Settings":
    """Settings, with what options name. `model` may be a checkpoint's folder, which then is on offer.

    Raises UnknownModel for a folder that is not there, InvalidInput for one whose name is taken.
    """
    from app.settings import load_settings

    given = {key: value for key, value in overrides.items() if value is not None}
    if model is None:
        return load_settings(**given)
    is_path = "/" in model or os.sep in model or model in (".", "..", "~")
    if not is_path and not Path(model).is_dir():
        return load_settings(**given, model=model)
    from provenance.models import Models

    directories = load_settings(**given).model_directories
    known = {source.name: source for source in Models(directories).sources()}
    if not is_path and model in known:
        return load_settings(**given, model=model)
    folder = Path(model).expanduser().resolve()
    if not folder.is_dir():
        raise UnknownModel(f"There is no folder {model!r}.", hint=f"`{NAME} models` lists the models by name.")
    Models((*directories, folder))  # refuses a name that is taken
    return load_settings(**given, model=folder.name, model_directories=(*directories, folder))


@contextmanager
def opened(settings: "Settings") -> Iterator["Explorer"]:
    """An explorer, closed at the end."""
    from app.explorer import Explorer

    with closing(Explorer(settings)) as explorer:
        yield explorer


def trace_id(here: "Explorer", wanted: str) -> str:
    """The id of the newest trace for `latest`, else what was given. Raises UnknownTrace."""
    if wanted != "latest":
        return wanted
    stored = here.store.list()
    if not stored:
        raise UnknownTrace("No trace is stored here yet.", hint=f"Record one: {NAME} record 'Hello world'.")
    return stored[0].id
