"""The page of a map: its drawing, and the ways to other layers, steps and levels."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.frame import Frame, frame, is_repeated, layered_title
from app.pages.links import map_url, trace_url
from app.pages.map import MapView, map_of_group
from app.pages.numbers import plural, short
from app.pages.scope import Scope, Stop, step_name, step_says
from app.pages.what import Crumb
from provenance.catalogue import Group
from provenance.trace import Recipe, Trace

_MOST_TRACES = 4


@dataclass(frozen=True, slots=True)
class TraceChoice:
    """A trace whose values the map can show."""

    url: str
    text: str


@dataclass(frozen=True, slots=True)
class MapPage:
    """A map; the trace's fields are empty where none is looked at."""

    frame: Frame
    crumbs: tuple[Crumb, ...]
    map: MapView
    says: str
    table_url: str
    table_text: str
    trace_url: str
    trace_text: str
    step: str
    layers: tuple[Stop, ...]
    steps: tuple[Stop, ...]
    traces: tuple[TraceChoice, ...]


def map_page(explorer: Explorer, slug: str, trace: Trace | None, layer: int, step: int, site: str) -> MapPage:
    """The map of a group, or of the whole model. Raises UnknownSite, OutOfRange."""
    if trace is not None:
        trace.check(step=step, layer=layer)
    scope = Scope.of(explorer, trace, layer, step)
    group = scope.catalogue.group(slug) if slug else None
    if site:
        scope.catalogue.row(site)
    view = map_of_group(explorer, scope, group, site)
    at_layer = group is not None and is_repeated(group)
    return MapPage(
        frame=frame(scope, view.title, group=slug),
        crumbs=_crumbs(scope, group),
        map=view,
        says=_says(scope, group),
        table_url=scope.group_url(group) if group else "/sites",
        table_text="The same as a table, with shapes" if group else "All tensors in a table, with shapes",
        trace_url=trace_url(trace.id) if trace else "",
        trace_text=short(trace.recipe.text or "token ids", 60) if trace else "",
        step=step_name(step),
        layers=_layers(trace, group, layer, step, site) if trace and at_layer else (),
        steps=_steps(trace, group, layer, step, site) if trace else (),
        traces=() if trace else _traces(explorer, scope, group),
    )


def _crumbs(scope: Scope, group: Group | None) -> tuple[Crumb, ...]:
    if group is None:
        return ()
    id = scope.trace.id if scope.trace else None
    above = [found for top in scope.catalogue.tree for found in top.walk()
             if found.path == group.path[: len(found.path)] and found.path != group.path]  # fmt: skip
    whole = Crumb("Map of the model", map_url(None, id, scope.layer, scope.step))
    return (whole, *(Crumb(layered_title(scope, g), map_url(g, id, scope.layer, scope.step)) for g in above))


def _says(scope: Scope, group: Group | None) -> str:
    if group is None:
        return "The whole model, from the token ids to the logits. Click a part to look inside."
    count = sum(1 for row in scope.catalogue if row.group[: len(group.path)] == group.path)
    if any(child.children for child in group.children):
        return f"{plural(count, 'tensor')} in {plural(len(group.children), 'part')}. Click a part to look inside."
    return f"{plural(count, 'tensor')}. Each leads to its page, each line to what flows along it."


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
        TraceChoice(map_url(group, listed.id), _said(listed.record.recipe))
        for listed in explorer.store.list()
        if listed.record is not None and listed.record.recipe.model.family == scope.catalogue.family
    ]
    return tuple(found[:_MOST_TRACES])


def _said(recipe: Recipe) -> str:
    return short(recipe.text or "token ids", 50) + (" (changed)" if recipe.edits else "")
