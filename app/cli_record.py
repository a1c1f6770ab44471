"""The command that records a prompt or seeded vectors, with changes of tensors where some are asked for."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli_shell import (
    NAME,
    AsJson,
    Batch,
    InputSeed,
    Length,
    ModelName,
    emit,
    emit_json,
    opened,
    progress_bar,
    settings_with,
    waiting,
)
from provenance.errors import InvalidInput, InvalidPrompt

if TYPE_CHECKING:
    from app.explorer import Explorer
    from app.schemas import TraceRequest
    from provenance.trace import Recipe


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
    ids: Annotated[
        str | None, typer.Option(metavar="5,6,7", help="Token ids, or numbers of vectors, in the place of TEXT.")
    ] = None,
    length: Length = None,
    batch: Batch = None,
    input_seed: InputSeed = None,
    edits: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="EDIT",
            help="Change a tensor while it runs: 'h.3.attn.pattern[head=2]=0', '…*=0.5', '…=trace:ID'. "
            "May be given several times.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Record a prompt. The same input gives the same trace, and is not run twice.

    A model that reads no text runs on vectors drawn from a seed: --length, --batch and --input-seed say which.
    With --set the run without the changes is recorded too, and both are compared.
    """
    from app.cli_effect import effect_text
    from app.cli_text import recorded_text
    from app.schemas import trace_of
    from provenance.catalogues import outline_of
    from provenance.vectors import Vectors

    settings = settings_with(model)
    with opened(settings) as here:
        if text is None and ids is None and length is None:
            length = usual_length(here)
        wanted = _request(
            text, ids, length=length, batch=batch, input_seed=input_seed, steps=steps, dtype=dtype, seed=seed,
            temperature=temperature, edits=edits or [],
        )  # fmt: skip
        with waiting(f"Loading {settings.model}"):
            recipe = here.plan(
                wanted.prompt,
                ids=wanted.ids,
                steps=wanted.steps,
                dtype=wanted.dtype,
                seed=wanted.seed,
                temperature=wanted.temperature,
                edits=wanted.edits,
                vectors=Vectors(wanted.length, wanted.batch, wanted.input_seed),
            )
        stored_before = recipe.id in here.store
        with progress_bar("Recording") as progress:
            trace = here.record(recipe, progress)
        out = trace_of(trace.record)
        if as_json:
            emit_json(out)
            return
        did = effect_text(here, trace) if recipe.edits and outline_of(recipe.model).predicts else ""
    known = settings_with().model_directories
    folder = next((str(path) for path in settings.model_directories if path not in known), None)
    server = f"http://{settings.host}:{settings.port}"
    example = _example(recipe)
    emit(recorded_text(out, stored_before=stored_before, server=server, folder=folder, example=example, did=did))


def _example(recipe: "Recipe") -> str:
    """A tensor to look at first, as `show` takes it."""
    from provenance.catalogues import outline_of
    from provenance.models import catalogue_of_model
    from provenance.names import is_layered

    rows = catalogue_of_model(recipe.model).rows
    row = rows[next(site for site in outline_of(recipe.model).start if site in rows and is_layered(site))]
    return f'"{row.name}"' if row.points else row.site


def usual_length(here: "Explorer") -> int | None:
    """How many vectors a run has where nothing is said; None for a model that reads tokens."""
    from provenance.catalogues import Reads
    from provenance.vectors import LENGTH

    return LENGTH if here.models.reads(here.settings.model) is Reads.VECTORS else None


def _request(text: str | None, ids: str | None, **options: object) -> "TraceRequest":
    """The recording that the options ask for. Raises InvalidInput."""
    from pydantic import ValidationError

    from app.schemas import TraceRequest

    if sum(given is not None for given in (text, ids, options["length"])) != 1:
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
