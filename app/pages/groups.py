"""The hierarchy: the whole tree, and a page for each group."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.families import FamilyLink, family_links
from app.pages.frame import Frame, frame, is_repeated, layered_title
from app.pages.links import group_url, sites_url, trace_url
from app.pages.scope import Scope, Stop, step_name, step_says
from app.pages.what import AxisChip, Crumb, axis_chips, crumbs
from provenance.catalogue import Group, Intermediate, Steps
from provenance.catalogues import Outline
from provenance.errors import UnknownModel, UnsupportedCheckpoint
from provenance.inputs import said
from provenance.trace import Trace


@dataclass(frozen=True, slots=True)
class Row:
    """A tensor in a list. `concrete` is its shape in the trace, `note` the steps, or the kind of model, that
    it is limited to.
    """

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
    """The whole hierarchy of a family; `example` is the model whose shapes are shown."""

    frame: Frame
    families: tuple[FamilyLink, ...]
    example: str
    sections: tuple[Section, ...]
    count: int


@dataclass(frozen=True, slots=True)
class GroupPage:
    """One group; the trace's fields are empty where none is looked at, and `families` where one is."""

    frame: Frame
    families: tuple[FamilyLink, ...]
    crumbs: tuple[Crumb, ...]
    section: Section
    map_url: str
    trace_url: str
    trace_text: str
    step: str
    layers: tuple[Stop, ...]
    steps: tuple[Stop, ...]


def sites_page(explorer: Explorer, family: str = "") -> SitesPage:
    """All tensors of a family by group. Raises UnknownFamily."""
    scope = Scope.of(explorer, family=family)
    return SitesPage(
        frame=frame(scope, "All tensors"),
        families=family_links(scope, lambda other: sites_url(other.catalogue.family)),
        example=scope.outline.example_model,
        sections=sections_of(scope),
        count=len(scope.catalogue.rows),
    )


def sections_of(scope: Scope) -> tuple[Section, ...]:
    """The hierarchy with its tensors."""
    return tuple(_section(scope, group, {}) for group in scope.catalogue.tree)


def group_page(
    explorer: Explorer, slug: str, trace: Trace | None, layer: int, step: int, family: str = ""
) -> GroupPage:
    """One group. Raises UnknownSite, or OutOfRange for a layer or step that the trace lacks."""
    if trace is not None:
        trace.check(step=step, layer=layer)
    scope = Scope.of(explorer, trace, layer, step, family)
    group = scope.catalogue.group(slug)
    layers: tuple[Stop, ...] = ()
    steps: tuple[Stop, ...] = ()
    if trace is not None and is_repeated(group):
        layers = tuple(
            Stop(f"layer-{n}", str(n), f"layer {n}", group_url(group, trace.id, n, step), n == layer)
            for n in range(trace.layers)
        )
    if trace is not None and scope.outline.predicts:
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
        families=() if trace else family_links(scope, lambda other: _elsewhere(other, slug)),
        crumbs=crumbs(scope, group.path[:-1]),
        section=_section(scope, group, _shapes(explorer, scope, group)),
        map_url=scope.map_url(group),
        trace_url=trace_url(trace.id) if trace else "",
        trace_text=said(trace.recipe) if trace else "",
        step=step_name(step),
        layers=layers,
        steps=steps,
    )


def _elsewhere(other: Outline, slug: str) -> str:
    """The group of the same name in another family, or all its tensors."""
    family = other.catalogue.family
    groups = {group.slug: group for top in other.catalogue.tree for group in top.walk()}
    return group_url(groups[slug], family=family) if slug in groups else sites_url(family)


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
        note=_note(scope, row),
    )


def _note(scope: Scope, row: Intermediate) -> str:
    steps = [] if row.steps is Steps.ALL else [row.steps.value]
    return ", ".join([*steps, *([row.variant] if row.variant and scope.trace is None else [])])


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
