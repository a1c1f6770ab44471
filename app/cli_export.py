"""The command `export`: tensors of a trace as a file, or the trace as a static site."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli_shell import emit, opened, progress_bar, settings_with, trace_id
from provenance.errors import InvalidInput

if TYPE_CHECKING:
    from app.explorer import Explorer
    from app.export.site import Exported
    from provenance.recorder import Progress
    from provenance.trace import Trace

_MANY = (".safetensors", ".npz")
_ONE = (".npy", ".csv")


def export(
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="A trace: its id, 6 or more first digits, or 'latest'.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="PATH", help="A .safetensors or .npz file, a .npy or .csv of one tensor, or a folder."
        ),
    ],
    tensors: Annotated[
        list[str] | None,
        typer.Option("--tensors", metavar="NAMES", help="Only these, apart by commas; any of their names will do."),
    ] = None,
    parameters: Annotated[bool, typer.Option("--parameters", help="Write the learned parameters too.")] = False,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="Where the site will be, for its canonical links.")
    ] = None,
    values: Annotated[bool, typer.Option("--values", help="Give the site every tensor as .npy.")] = False,
    most_pages: Annotated[
        int | None,
        typer.Option("--most-pages", min=1, metavar="N", help="The most pages of a site; 5000 if not given."),
    ] = None,
) -> None:
    """Write tensors as a file, or the trace's pages as a static site.

    Which one the ending of PATH says; a path without one is the folder of a site, which any web host
    can serve and a browser can open from disk.
    """
    kind = out.suffix.lower()
    is_file = kind in (*_MANY, *_ONE)
    if is_file and (base_url is not None or values or most_pages is not None):
        raise InvalidInput(
            "--base-url, --values and --most-pages are for a static site.",
            hint="Name a folder with --out, or leave them out.",
        )
    if not is_file and (tensors or parameters):
        raise InvalidInput(
            f"--tensors and --parameters are for files of tensors, and {str(out)!r} is none.",
            hint=f"Files end in {', '.join((*_MANY, *_ONE))}.",
        )
    if not is_file:
        _site(trace, out, base_url or "", values, most_pages)
        return
    from provenance.export import split_names

    names = tuple(name for text in tensors or () for name in split_names(text))
    with opened(settings_with()) as here:
        recorded = here.store.open(trace_id(here, trace))
        with progress_bar("Writing", "tensors") as progress:
            one = kind in _ONE
            count = (
                _one(here, recorded, out, names) if one else _many(here, recorded, out, names, parameters, progress)
            )
    many = f"{count:,} tensors" if count != 1 else "1 tensor"
    emit(f"{out}: {many} of trace {recorded.id[:12]}, {out.stat().st_size / 1e6:,.1f} MB")


def _many(
    here: "Explorer", trace: "Trace", out: Path, names: tuple[str, ...], parameters: bool, progress: "Progress"
) -> int:
    from provenance.export import chosen, npz_pieces, plan_of, safetensors_pieces, watched, write_whole
    from provenance.models import constants_of

    catalogue, read = here.catalogue(trace), partial(here.tensor, trace)
    addresses = chosen(catalogue, trace, names, parameters=parameters)
    seen = watched(read, len(addresses), progress)
    if out.suffix.lower() == ".npz":
        write_whole(out, npz_pieces(addresses, seen))
    else:
        plan = plan_of(catalogue, constants_of(trace.recipe.model), trace, addresses, read)
        write_whole(out, safetensors_pieces(plan, seen, trace))
    return len(addresses)


def _one(here: "Explorer", trace: "Trace", out: Path, names: tuple[str, ...]) -> int:
    from provenance.export import csv_pieces, npy_bytes, the_one, write_whole

    catalogue = here.catalogue(trace)
    at = the_one(catalogue, trace, names)
    tensor = here.tensor(trace, at)
    is_csv = out.suffix.lower() == ".csv"
    write_whole(out, csv_pieces(catalogue, catalogue.row(at.site), tensor) if is_csv else [npy_bytes(tensor)])
    return 1


def _site(trace: str, out: Path, base_url: str, values: bool, most_pages: int | None) -> None:
    from app.export.site import MOST_PAGES, check_target, export_site

    check_target(out)
    settings = settings_with()
    with opened(settings) as here:
        id = here.store.open(trace_id(here, trace)).id
    with progress_bar("Writing", "pages") as progress:
        done = export_site(
            settings,
            id,
            out,
            base_url=base_url,
            values=values,
            most_pages=most_pages or MOST_PAGES,
            progress=progress,
        )
    emit(_said(done, id))


def _said(done: "Exported", id: str) -> str:
    lines = [
        f"{done.directory}: {done.pages:,} pages of trace {id[:12]}, "
        f"{done.files:,} files, {done.bytes / 1e6:,.1f} MB",
        f"Open {done.directory / 'index.html'} in a browser, or serve the folder from any web host.",
    ]
    if done.left_out:
        kinds = ", ".join(f"{each.pages:,} of {each.kind}" for each in done.left_out)
        lines.append(f"Left out for want of room: {kinds}. --most-pages {done.wanted} takes all.")
    return "\n".join(lines)
