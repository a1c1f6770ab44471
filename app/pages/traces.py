"""The list of traces: searched, sorted, a page at a time; and the question before one is deleted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.explorer import Explorer
from app.pages.frame import Frame, frame
from app.pages.links import trace_url, with_query
from app.pages.numbers import Number, count, short
from app.pages.progress import Progress, progress_of
from app.pages.scope import Link, Scope
from provenance.catalogues import OUTLINES
from provenance.edits import Edit
from provenance.inputs import unquoted
from provenance.store import Listed
from provenance.trace import Recipe

_ON_A_PAGE = 50

INPUTS: Mapping[str, str] = {"tokens": "tokens of a text", "vectors": "seeded vectors"}
"""What runs read, as it stands in a URL, and in words."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A trace in the list; `problem` says why it cannot be read, `edits` what was changed in its run."""

    id: str
    url: str
    delete_url: str
    text: str
    chosen: str
    model: str
    untrained: bool
    edits: str
    tokens: int
    steps: int
    predicts: bool
    created_at: str
    megabytes: Number
    problem: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """A recording that waits or runs."""

    text: str
    model: str
    edits: str
    progress: Progress


@dataclass(frozen=True, slots=True)
class Filter:
    """What the list was asked for. `input` is one of `INPUTS` or empty, `sort` is `newest` or `oldest`."""

    query: str = ""
    input: str = ""
    model: str = ""
    sort: str = "newest"
    page: int = 0


@dataclass(frozen=True, slots=True)
class FamilyModels:
    """The models of a family of which there are traces; `family` is its title."""

    family: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TracesPage:
    """The traces that a filter finds, and of how many."""

    frame: Frame
    filter: Filter
    inputs: Mapping[str, str]
    models: tuple[FamilyModels, ...]
    jobs: tuple[JobRow, ...]
    rows: tuple[TraceRow, ...]
    found: int
    total: int
    first: int
    newer: Link | None
    older: Link | None
    unreadable: tuple[TraceRow, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class DeletePage:
    """The question whether a trace shall be deleted."""

    frame: Frame
    row: TraceRow


def traces_page(explorer: Explorer, wanted: Filter) -> TracesPage:
    """The list of traces. Traces that cannot be read are listed whatever the filter is."""
    listed = explorer.store.list()
    good = [found for found in listed if found.record is not None]
    fitting = [found for found in good if _fits(found, wanted)]
    if wanted.sort == "oldest":
        fitting.reverse()
    first = min(wanted.page, max(0, len(fitting) - 1) // _ON_A_PAGE) * _ON_A_PAGE
    return TracesPage(
        frame=frame(Scope.of(explorer), "Traces"),
        filter=wanted,
        inputs=INPUTS,
        models=_models(good),
        jobs=job_rows(explorer),
        rows=tuple(trace_row(found) for found in fitting[first : first + _ON_A_PAGE]),
        found=len(fitting),
        total=len(good),
        first=first + 1,
        newer=_page(wanted, first // _ON_A_PAGE - 1, "previous page") if first else None,
        older=_page(wanted, first // _ON_A_PAGE + 1, "next page") if first + _ON_A_PAGE < len(fitting) else None,
        unreadable=tuple(trace_row(found) for found in listed if found.record is None),
    )


def delete_page(explorer: Explorer, id: str) -> DeletePage:
    """The question before a trace is deleted. Raises UnknownTrace."""
    whole = explorer.store.full_id(id)
    found = next(listed for listed in explorer.store.list() if listed.id == whole)
    return DeletePage(frame(Scope.of(explorer), "Delete a trace"), trace_row(found))


def job_rows(explorer: Explorer) -> tuple[JobRow, ...]:
    """The recordings that wait or run."""
    return tuple(
        JobRow(unquoted(job.recipe, 90), job.recipe.model.name, _edits(job.recipe.edits), progress_of(job))
        for job in explorer.jobs.waiting()
    )


def trace_row(found: Listed) -> TraceRow:
    """A trace as a row of a list."""
    url = trace_url(found.id)
    if found.record is None:
        nothing = ("", "", "", False, "", 0, 0, False, "", count(0))
        return TraceRow(found.id, url, f"{url}/delete", *nothing, found.problem)
    recipe = found.record.recipe
    chosen = "".join(record.token.text for record in found.record.generated)
    size = found.record.tensors_bytes
    return TraceRow(
        id=found.id,
        url=url,
        delete_url=f"{url}/delete",
        text=unquoted(recipe, 90),
        chosen=short(chosen, 48),
        model=recipe.model.name,
        untrained=not recipe.model.trained,
        edits=_edits(recipe.edits),
        tokens=len(recipe.tokens),
        steps=recipe.steps,
        predicts=recipe.drawn is None,
        created_at=found.record.created_at.replace("T", " ")[:16] + " UTC",
        megabytes=Number(_size(size), f"{size} bytes"),
        problem="",
    )


def _size(bytes: int) -> str:
    return f"{bytes / 1e6:.1f} MB" if bytes >= 1e6 else f"{max(1, round(bytes / 1e3))} kB"


def input_of(recipe: Recipe) -> str:
    """What a run read, as a URL says it: one of `INPUTS`."""
    return "vectors" if recipe.drawn else "tokens"


def _models(listed: Iterable[Listed]) -> tuple[FamilyModels, ...]:
    """The models of the traces by family, the known families first."""
    names: dict[str, set[str]] = {family: set() for family in OUTLINES}
    for found in listed:
        if found.record:
            model = found.record.recipe.model
            names.setdefault(model.family, set()).add(model.name)
    return tuple(
        FamilyModels(OUTLINES[family].title if family in OUTLINES else family, tuple(sorted(known)))
        for family, known in names.items()
        if known
    )


def _edits(edits: Iterable[Edit]) -> str:
    return short("; ".join(map(str, edits)), 120)


def _fits(found: Listed, wanted: Filter) -> bool:
    assert found.record is not None
    recipe = found.record.recipe
    if wanted.model not in ("", recipe.model.name) or wanted.input not in ("", input_of(recipe)):
        return False
    query = " ".join(wanted.query.split()).casefold()
    text = " ".join((recipe.text or unquoted(recipe)).split()).casefold()
    return query in text or query in recipe.model.name.casefold() or found.id.startswith(query)


def _page(wanted: Filter, page: int, title: str) -> Link:
    query = with_query(
        "/traces", q=wanted.query or None, input=wanted.input or None, model=wanted.model or None,
        sort=wanted.sort if wanted.sort != "newest" else None, page=page or None,
    )  # fmt: skip
    return Link(query, "", title)
