"""Writing the static site of one trace: the app's own pages, asked for in this process, as files.

index.html                              the first page
trace.html, trace/…                     the trace, its tensors, lens and verdict
sites/…, groups/…, map/…                the architecture, alone and seen from the trace
sources/…, cite/…                       who says so, and how to cite
static/…                                styles and scripts
tensor-provenance-export.json           what this folder is
"""

import asyncio
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from fastapi import FastAPI

from app.explorer import Explorer
from app.export.ask import fetch, started
from app.export.plan import LeftOut, Plan, addresses, plan_of
from app.export.rewrite import NEEDS_THE_APP, Rewriter
from app.main import create_app
from app.settings import Settings, version
from provenance.errors import InvalidInput
from provenance.inputs import said
from provenance.places import traces_below
from provenance.recorder import Progress
from provenance.store import TraceStore
from provenance.trace import Trace

MARKER = "tensor-provenance-export.json"
MOST_PAGES = 5000


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: pages, all files, their bytes, and the pages that the limit kept out."""

    directory: Path
    pages: int
    files: int
    bytes: int
    left_out: tuple[LeftOut, ...]

    @property
    def wanted(self) -> int:
        """Pages that there would be without a limit."""
        return self.pages + sum(each.pages for each in self.left_out)


def export_site(
    settings: Settings,
    id: str,
    directory: Path,
    *,
    base_url: str = "",
    values: bool = False,
    most_pages: int = MOST_PAGES,
    progress: Progress | None = None,
) -> Exported:
    """Write the static site of a stored trace, whole or not at all; an earlier export is replaced.

    Raises InvalidInput for a folder that holds anything else, UnknownTrace, Unavailable.
    """
    check_target(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.partial-", dir=directory.parent))
    try:
        with alone(settings, id) as own:
            writer = _Writer(id, partial, base_url, values, most_pages, progress or (lambda done, total: None))
            exported = asyncio.run(writer.run(create_app(own), directory))
        partial.chmod(0o755)
        _put_in_place(partial, directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return exported


def check_target(directory: Path) -> None:
    """Raise InvalidInput unless the folder is missing, empty, or an export of ours."""
    if directory.exists() and not directory.is_dir():
        raise InvalidInput(f"{directory} is a file.", hint="Name a folder for the static site.")
    if directory.is_dir() and any(directory.iterdir()) and not (directory / MARKER).is_file():
        raise InvalidInput(
            f"{directory} is not empty, and no export of this app.", hint="Name a new folder, or empty that one."
        )


@contextmanager
def alone(settings: Settings, id: str) -> Iterator[Settings]:
    """Settings of an app that knows this trace only, so that no other one is named in its pages.

    Of a run that was changed it knows the one without the changes, too: its pages tell them apart.
    """
    everything = traces_below(settings.data_directory)
    recipe = TraceStore(everything).open(id).recipe
    ids = {id, recipe.unedited.id} if recipe.edits else {id}
    with tempfile.TemporaryDirectory(prefix="tensor-provenance-") as folder:
        traces = traces_below(Path(folder))
        traces.mkdir()
        for known in ids:
            if (everything / known).is_dir():
                (traces / known).symlink_to((everything / known).resolve(), target_is_directory=True)
        yield settings.model_copy(update={"data_directory": Path(folder), "example": False})


class _Writer:
    def __init__(
        self, id: str, folder: Path, base_url: str, values: bool, most_pages: int, progress: Progress
    ) -> None:
        self.id = id
        self.folder = folder
        self.base_url = base_url
        self.values = values
        self.most_pages = most_pages
        self.progress = progress

    async def run(self, app: FastAPI, directory: Path) -> Exported:
        """Write everything; `directory` is where it will stand."""
        async with started(app):
            here: Explorer = app.state.explorer
            trace = here.store.open(self.id)
            plan = await asyncio.to_thread(self._prepared, here, trace)
            made_at = datetime.now(UTC)
            rewriter = Rewriter(trace, plan.files, _note(trace, made_at), self.values, self.base_url)
            for done, (url, file) in enumerate(plan.files.items()):
                page = (await fetch(app, url)).body.decode()
                self._write(file, rewriter.page(url, page).encode())
                self.progress(done, len(plan.files))
            for url, file in rewriter.needed.items():
                self._write(file, (await fetch(app, url)).body)
            self._write(MARKER, _marker(trace, made_at, plan).encode())
        written = [path for path in self.folder.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in written)
        return Exported(directory, len(plan.files), len(written), size, plan.left_out)

    def _prepared(self, here: Explorer, trace: Trace) -> Plan:
        """The plan, once every tensor is summed up: pages then show all that can be seen from them."""
        for address in addresses(here, trace):
            here.summary(trace, address)
        return plan_of(here, trace, self.most_pages)

    def _write(self, file: str, content: bytes) -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _note(trace: Trace, made_at: datetime) -> str:
    """The sentence at the foot of every page, as HTML."""
    text = f" {escape(said(trace.recipe))}" if trace.recipe.text or trace.recipe.drawn else ""
    return (
        f"This is a static export of the trace{text} <code>{trace.id[:12]}</code>, made on "
        f'<time datetime="{made_at.isoformat(timespec="seconds")}">{made_at:%Y-%m-%d}</time> by Tensor Provenance '
        f"{escape(version())}. {NEEDS_THE_APP}"
    )


def _marker(trace: Trace, made_at: datetime, plan: Plan) -> str:
    content = {
        "what": "static export of a trace by Tensor Provenance",
        "trace": trace.id,
        "version": version(),
        "made_at": made_at.isoformat(timespec="seconds"),
        "pages": len(plan.files),
        "left_out": {each.kind: each.pages for each in plan.left_out},
    }
    return json.dumps(content, indent=1) + "\n"


def _put_in_place(partial: Path, directory: Path) -> None:
    """Move a finished export to its place; an earlier one goes only then."""
    if not directory.exists():
        partial.rename(directory)
        return
    before = Path(tempfile.mkdtemp(prefix=f".{directory.name}.before-", dir=directory.parent))
    directory.rename(before / "export")
    try:
        partial.rename(directory)
    except OSError:
        (before / "export").rename(directory)
        raise
    finally:
        shutil.rmtree(before, ignore_errors=True)
