"""The hierarchy: the whole tree, and a page for each group."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.frame import Frame, frame, is_repeated, layered_title
from app.pages.links import group_url, map_url, trace_url
from app.pages.numbers import short
from app.pages.scope import Scope, Stop, step_name, step_says
from app.pages.what import AxisChip, Crumb, axis_chips, crumbs
from provenance.catalogue import Group, Intermediate, Steps
from provenance.errors import UnknownModel, UnsupportedCheckpoint
from provenance.trace import Trace


@dataclass(frozen=True, slots=True)
class Row:
    """A tensor in a list. `concrete` is its shape in the trace, `note` the steps it is limited to."""

    url: str
    site: str
    name: str
    title: str
    description: str
    kind: str
    axes: tuple[AxisChip, ...]
    concrete: str
    note: str


@dataclass(frozen=True, slots=True)
class Section:
    """A group with its tensors, and the groups below it."""

    id: str
    title: str
    url: str
    rows: tuple[Row, ...]
    sections: tuple["Section", ...]
    count: int


@dataclass(frozen=True, slots=True)
class SitesPage:
    """The whole hierarchy."""

    frame: Frame
    sections: tuple[Section, ...]
    count: int


@dataclass(frozen=True, slots=True)
class GroupPage:
    """One group; the trace's fields are empty where none is looked at."""

    frame: Frame
    crumbs: tuple[Crumb, ...]
    section: Section
    map_url: str
    trace_url: str
    trace_text: str
    step: str
    layers: tuple[Stop, ...]
    steps: tuple[Stop, ...]


def sites_page(explorer: Explorer) -> SitesPage:
    """All tensors by group."""
    scope = Scope.of(explorer)
    return SitesPage(frame(scope, "All tensors"), sections_of(scope), len(scope.catalogue.rows))


def sections_of(scope: Scope) -> tuple[Section, ...]:
    """The hierarchy with its tensors."""
    return tuple(_section(scope, group, {}) for group in scope.catalogue.tree)


def group_page(explorer: Explorer, slug: str, trace: Trace | None, layer: int, step: int) -> GroupPage:
    """One group. Raises UnknownSite, or OutOfRange for a layer or step that the trace lacks."""
    if trace is not None:
        trace.check(step=step, layer=layer)
    scope = Scope.of(explorer, trace, layer, step)
    group = scope.catalogue.group(slug)
    layers: tuple[Stop, ...] = ()
    steps: tuple[Stop, ...] = ()
    if trace is not None and is_repeated(group):
        layers = tuple(
            Stop(f"layer-{n}", str(n), f"layer {n}", group_url(group, trace.id, n, step), n == layer)
            for n in range(trace.layers)
        )
    if trace is not None:
        steps = tuple(
            Stop(
                f"step-{n}",
                str(n) if n else "prefill",
                step_says(trace, n),
                group_url(group, trace.id, layer, n),
                n == step,
            )
            for n in range(trace.last_step + 1)
        )
    return GroupPage(
        frame=frame(scope, _title(scope, group), group=slug),
        crumbs=crumbs(scope, group.path[:-1]),
        section=_section(scope, group, _shapes(explorer, scope, group)),
        map_url=map_url(group, trace.id if trace else None, layer, step),
        trace_url=trace_url(trace.id) if trace else "",
        trace_text=short(trace.recipe.text or "token ids", 60) if trace else "",
        step=step_name(step),
        layers=layers,
        steps=steps,
    )


def _title(scope: Scope, group: Group) -> str:
    return layered_title(scope, group) if len(group.path) == 1 else f"{group.path[-1]} ({group.path[-2]})"


def _section(scope: Scope, group: Group, shapes: dict[str, str]) -> Section:
    return Section(
        id="group-" + group.slug.replace("/", "-"),
        title=layered_title(scope, group),
        url=scope.group_url(group),
        rows=tuple(_row(scope, row, shapes.get(row.site, "")) for row in group.rows),
        sections=tuple(_section(scope, child, shapes) for child in group.children),
        count=sum(len(below.rows) for below in group.walk()),
    )


def _row(scope: Scope, row: Intermediate, concrete: str) -> Row:
    decode = row.steps is Steps.DECODE or scope.step > 0
    return Row(
        url=scope.url(row),
        site=row.site,
        name=row.name,
        title=row.title,
        description=row.description,
        kind=row.kind.value,
        axes=axis_chips(scope, row, decode=decode),
        concrete=concrete,
        note="" if row.steps is Steps.ALL else row.steps.value,
    )


def _shapes(explorer: Explorer, scope: Scope, group: Group) -> dict[str, str]:
    """The shapes in the trace's present layer and step; empty where the model is not here."""
    shapes: dict[str, str] = {}
    if scope.trace is None:
        return shapes
    for below in group.walk():
        for row in below.rows:
            address = scope.address(row)
            if address is None or address.step != scope.step:
                continue
            try:
                shapes[row.site] = str(list(explorer.tensor(scope.trace, address).shape))
            except (UnknownModel, UnsupportedCheckpoint):
                return {}
    return shapes
