"""The command `models`: which there are, what is known of one, and fetching one from the hub."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli_shell import NAME, AsJson, command_group, emit, emit_json, settings_with, waiting
from app.cli_text import table, wrapped
from provenance.errors import Unavailable

if TYPE_CHECKING:
    from app.schemas_models import KeysOut, ModelDetail, ModelOut

_MOST_KEYS = 8

models = command_group("List the models, show one, or fetch its weights.", bare=True)


@models.callback()
def _list_models(context: typer.Context, as_json: AsJson = False) -> None:
    if context.invoked_subcommand:
        return
    from app.schemas_models import ModelOut
    from provenance.models import Models

    found = [ModelOut.of(source) for source in Models(settings_with().model_directories).sources()]
    emit_json(found) if as_json else emit(models_text(found))


@models.command("show")
def show_model(
    name: Annotated[str, typer.Argument(metavar="MODEL", help="A name from `models`, or a checkpoint's folder.")],
    as_json: AsJson = False,
) -> None:
    """Show a model's config, files and hashes, and what became of its checkpoint's keys.

    Nothing is run. Exits with 1 if the weights are here and cannot be loaded.
    """
    from app.schemas_models import ModelDetail
    from provenance.models import Models

    settings = settings_with(name)
    with waiting(f"Reading {settings.model}"):
        found = Models(settings.model_directories).inspect(settings.model)
        out = ModelDetail.inspected(found)
    folder = str(found.source.directory) if found.source.directory and found.source.available else ""
    emit_json(out) if as_json else emit(model_text(out, folder))
    if out.available and out.problem:
        raise typer.Exit(1)


@models.command("fetch")
def fetch_model(
    name: Annotated[str, typer.Argument(metavar="MODEL", help="gpt2, gpt2-medium, gpt2-large or gpt2-xl.")],
) -> None:
    """Download a model's weights from the Hugging Face hub into its cache, and check every hash.

    A download that was cut off goes on where it stopped. This is the only command that fetches weights.
    """
    from provenance.gpt2.hub import fetch

    if not settings_with().network:
        raise Unavailable(
            "Nothing is fetched: TENSOR_PROVENANCE_NETWORK is off.", hint="Switch it on, or copy the weights here."
        )
    fetched = fetch(name, lambda text: print(text, file=sys.stderr, flush=True))
    emit(
        "\n".join(
            [
                f"{name} is here, every file's hash checked: commit {fetched.commit}.",
                f"Record with it: {NAME} record 'Hello world' --model {name}",
            ]
        )
    )


def models_text(models: "Sequence[ModelOut]") -> str:
    """Every model that can be named, one a line, and what to do about those that are not here."""
    name = max(len(model.name) for model in models)
    rows = [(f"{model.name:<{name}}  {'here' if model.available else '-':<4}", model.description) for model in models]
    return table(rows)


def model_text(out: "ModelDetail", folder: str) -> str:
    """One model: where its weights are, its config, and its keys."""
    config = ", ".join(f"{name} {value}" for name, value in (out.config or {}).items())
    rows = [
        ("model", f"{out.name}: {out.description}"),
        ("weights", out.origin if out.available else "not here"),
        ("folder", folder),
        ("parameters", f"{out.parameters:,}" if out.parameters else ""),
        ("config", config),
        ("tokenizer", out.tokenizer),
        *(("file", f"{file.name}, {file.bytes:,} bytes, SHA-256 {file.sha256}") for file in out.files),
        ("weights SHA-256", out.sha256 if out.sha256 and len(out.files) > 1 else ""),
    ]
    parts = [table([(name, text) for name, text in rows if text])]
    if out.keys:
        parts.append(keys_text(out.keys))
    if out.problem:
        parts.append(wrapped(f"It cannot be loaded: {out.problem}" if out.available else out.problem))
    return "\n\n".join(parts)


def keys_text(keys: "KeysOut") -> str:
    """What became of a checkpoint's keys; those in order are counted, all others named."""
    renamed = f", for example {keys.renamed[0].key} as {keys.renamed[0].saved_as}" if keys.renamed else ""
    rows = [
        ("matched", f"{len(keys.matched)}"),
        ("renamed", f"{len(keys.renamed)}{renamed}"),
        ("ignored", _named(keys.ignored)),
        ("missing", _named(keys.missing)),
        ("unexpected", _named(keys.unexpected)),
        ("misshapen", _named(keys.misshapen)),
        *(("warning", warning) for warning in keys.warnings),
    ]
    return f"Keys of the checkpoint\n{table(rows, 2)}"


def _named(keys: "Sequence[str]") -> str:
    if not keys:
        return "0"
    more = f" and {len(keys) - _MOST_KEYS:,} more" if len(keys) > _MOST_KEYS else ""
    return f"{len(keys)}: {', '.join(keys[:_MOST_KEYS])}{more}"
