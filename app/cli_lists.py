"""Commands about what is here: stored traces, tensors by name, and the cited source files."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli_shell import AsJson, FamilyName, command_group, emit, emit_json, opened, settings_with, trace_id, waiting

if TYPE_CHECKING:
    from app.cli_sources import SourceOut

sources = command_group("See whether the cited source files are here, and get them.")
traces = command_group("List the stored traces, or delete one.", bare=True)


@traces.callback()
def _list_traces(context: typer.Context, as_json: AsJson = False) -> None:
    if context.invoked_subcommand:
        return
    from app.cli_text import traces_text
    from app.schemas import trace_of_listed

    with opened(settings_with()) as here:
        found = [trace_of_listed(listed) for listed in here.store.list()]
    emit_json(found) if as_json else emit(traces_text(found))


@traces.command("delete")
def delete_trace(
    trace: Annotated[str, typer.Argument(metavar="ID", help="Its id, 6 or more first digits, or 'latest'.")],
) -> None:
    """Delete a stored trace."""
    with opened(settings_with()) as here:
        id = here.store.full_id(trace_id(here, trace))
        here.store.delete(id)
    emit(f"Trace {id} is deleted.")


def sites(family: FamilyName = None, as_json: AsJson = False) -> None:
    """List every tensor of a model family, as it is computed."""
    from app.cli_text import sites_text
    from app.schemas import site_of
    from provenance.catalogues import outline_named

    outline = outline_named(family or "")
    found = [site_of(outline.catalogue, row, outline.example) for row in outline.catalogue]
    emit_json(found) if as_json else emit(sites_text(found))


@sources.command("status")
def source_status(as_json: AsJson = False) -> None:
    """Show where each cited file was found.

    Nothing goes over the network. Exits with 1 if a file is not here.
    """
    from app.cli_sources import status
    from provenance.gpt2.pins import PINS

    _report_sources(status(settings_with(), PINS), as_json=as_json)


@sources.command("fetch")
def source_fetch(
    archives: Annotated[
        bool, typer.Option(help="Download a carrying package where nothing here has the file.")
    ] = True,
    git: Annotated[bool, typer.Option(help="Ask the git host for what is still open.")] = True,
    as_json: AsJson = False,
) -> None:
    """Get the cited files.

    First from what is installed, then from the package registry, then from the git host, which
    alone can tell which bytes a revision holds where two releases differ. Exits with 1 if a file cannot be had.
    """
    from app.cli_sources import fetch
    from provenance.gpt2.pins import PINS

    settings = settings_with()
    if not settings.network and (archives or git):
        print("Nothing is asked over the network: TENSOR_PROVENANCE_NETWORK is off.", file=sys.stderr)
        archives = git = False
    files = []
    for number, pin in enumerate(PINS, 1):
        with waiting(f"Fetching {number} of {len(PINS)}: {pin.repository} {pin.path}"):
            files.append(fetch(settings, pin, archives=archives, git=git))
    _report_sources(files, as_json=as_json)


def repin(
    repository: Annotated[str, typer.Argument(metavar="REPO", help="owner/name of a cited file, or its label.")],
    target: Annotated[
        str, typer.Argument(metavar="REVISION_OR_PACKAGE", help="40 hex digits, a version, or distribution==version.")
    ],
    write: Annotated[bool, typer.Option("--write", help="Rewrite the pin and its citations in a checkout.")] = False,
    revision: Annotated[
        str | None, typer.Option(metavar="HEX", help="With --write: the revision that a release was made from.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how the citations stand in another revision.

    Or in another release of the package that carries the file. Exits with 1 if the text of one
    changed, or if one vanished.
    """
    from app.cli_repin import repin as compare
    from app.cli_repin import repin_text

    with waiting(f"Comparing with {target}"):
        out = compare(settings_with(), repository, target, write=write, revision=revision)
    emit_json(out) if as_json else emit(repin_text(out))
    if not out.holds:
        raise typer.Exit(1)


def _report_sources(files: "Sequence[SourceOut]", *, as_json: bool) -> None:
    from app.cli_text import sources_text

    emit_json(files) if as_json else emit(sources_text(files))
    if not all(file.at_hand for file in files):
        raise typer.Exit(1)
