"""The page of a map: its drawing, and the ways to other layers, steps and levels."""

from dataclasses import dataclass, replace

from app.explorer import Explorer
from app.pages.families import FamilyLink, family_links
from app.pages.frame import Frame, frame, is_repeated, layered_title
from app.pages.links import map_url, sites_url, trace_url
from app.pages.map import MapView, map_of_group
from app.pages.numbers import plural
from app.pages.scope import Scope, Stop, step_name, step_says
from app.pages.what import Crumb
from provenance.catalogue import Group
from provenance.catalogues import Outline, Reads
from provenance.inputs import said
from provenance.trace import Recipe, Trace
from provenance.variants import catalogue_of

_MOST_TRACES = 4


@dataclass(frozen=True, slots=True)
class TraceChoice:
    """A trace whose values the map can show."""

    url: str
    text: str
    model: str


@dataclass(frozen=True, slots=True)
class MapPage:
    """A map; the trace's fields are empty where none is looked at."""

    frame: Frame
    crumbs: tuple[Crumb, ...]
    map: MapView
    says: str
    families: tuple[FamilyLink, ...]
    table_url: str
    table_text: str
    trace_url: str
    trace_text: str
    step: str
    layers: tuple[Stop, ...]
    steps: tuple[Stop, ...]
    traces: tuple[TraceChoice, ...]


def map_page(
    explorer: Explorer, slug: str, trace: Trace | None, layer: int, step: int, site: str, family: str = ""
) -> MapPage:
    """The map of a group, or of the whole model. Raises UnknownSite, OutOfRange."""
    if trace is not None:
        trace.check(step=step, layer=layer)
    scope = Scope.of(explorer, trace, layer, step, family)
    group = scope.catalogue.group(slug) if slug else None
    if site:
        scope.catalogue.row(site)
    framed = frame(scope, "", group=slug)
    scope = _of_the_example(scope, group, site)
    group = scope.catalogue.group(slug) if slug else None
    view = map_of_group(explorer, scope, group, site)
    at_layer = group is not None and is_repeated(group)
    return MapPage(
        frame=replace(framed, title=view.title),
        crumbs=_crumbs(scope, group),
        map=view,
        says=_says(scope, group),
        families=() if trace else family_links(scope, lambda other: _elsewhere(other, slug)),
        table_url=scope.group_url(group) if group else sites_url(scope.family),
        table_text="The same as a table, with shapes" if group else "All tensors in a table, with shapes",
        trace_url=trace_url(trace.id) if trace else "",
        trace_text=said(trace.recipe) if trace else "",
        step=step_name(step),
        layers=_layers(trace, group, layer, step, site) if trace and at_layer else (),
        steps=_steps(trace, group, layer, step, site) if trace and scope.outline.predicts else (),
        traces=() if trace else _traces(explorer, scope, group),
    )


def _of_the_example(scope: Scope, group: Group | None, site: str) -> Scope:
    """The family as its example model has it, where that has what is looked at; else with all its variants."""
    if scope.trace is not None:
        return scope
    catalogue = catalogue_of(scope.catalogue, scope.outline.example_variants)
    has_group = group is None or any(row.group[: len(group.path)] == group.path for row in catalogue)
    return replace(scope, catalogue=catalogue) if has_group and (not site or site in catalogue.rows) else scope


def _elsewhere(other: Outline, slug: str) -> str:
    """The map of another family: of the group of the same name, or of the whole model."""
    groups = {group.slug: group for top in other.catalogue.tree for group in top.walk()}
    return map_url(groups.get(slug), family=other.catalogue.family)


def _crumbs(scope: Scope, group: Group | None) -> tuple[Crumb, ...]:
    if group is None:
        return ()
    above = [found for top in scope.catalogue.tree for found in top.walk()
             if found.path == group.path[: len(found.path)] and found.path != group.path]  # fmt: skip
    whole = Crumb("Map of the model", scope.map_url())
    return (whole, *(Crumb(layered_title(scope, g), scope.map_url(g)) for g in above))


def _says(scope: Scope, group: Group | None) -> str:
    like = ""
    if scope.trace is None and len(scope.catalogue.rows) < len(scope.outline.catalogue.rows):
        like = f" Drawn as in {scope.outline.example_model}: other models of the family have or lack some tensors."
    if group is None:
        first = "token ids" if scope.outline.reads is Reads.TOKENS else "vectors that it reads"
        last = "logits" if scope.outline.predicts else "last block’s output"
        return f"The whole model, from the {first} to the {last}. Click a part to look inside.{like}"
    count = sum(1 for row in scope.catalogue if row.group[: len(group.path)] == group.path)
    if any(child.children for child in group.children):
        parts = plural(len(group.children), "part")
        return f"{plural(count, 'tensor')} in {parts}. Click a part to look inside.{like}"
    return f"{plural(count, 'tensor')}. Each leads to its page, each line to what flows along it.{like}"


def _layers(trace: Trace, group: Group | None, layer: int, step: int, site: str) -> tuple[Stop, ...]:
    return tuple(
        Stop(f"layer-{n}", str(n), f"layer {n}", map_url(group, trace.id, n, step, site or None), n == layer)
        for n in range(trace.layers)
    )


def _steps(trace: Trace, group: Group | None, layer: int, step: int, site: str) -> tuple[Stop, ...]:
    return tuple(
        Stop(
            f"step-{n}",
            str(n) if n else "prefill",
            step_says(trace, n),
            map_url(group, trace.id, layer, n, site or None),
            n == step,
        )
        for n in range(trace.last_step + 1)
    )


def _traces(explorer: Explorer, scope: Scope, group: Group | None) -> tuple[TraceChoice, ...]:
    found = [
        TraceChoice(map_url(group, listed.id), _said(listed.record.recipe), listed.record.recipe.model.name)
        for listed in explorer.store.list()
        if listed.record is not None and listed.record.recipe.model.family == scope.catalogue.family
    ]
    return tuple(found[:_MOST_TRACES])


def _said(recipe: Recipe) -> str:
    return said(recipe, 50) + (" (changed)" if recipe.edits else "")
