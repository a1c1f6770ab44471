"""The map: the computation drawn as dataflow, from the whole model down to one tensor's neighbours."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.explorer import Explorer
from app.map import At, Flow, Graph, Item, level_of, neighbourhood
from app.map_layout import layout
from app.map_parts import Box, Drawing, Frame, Label, Text
from app.pages.frame import layered_title
from app.pages.links import map_url, tensor_url
from app.pages.measures import Measure, at_hand, by_layer, shares
from app.pages.numbers import plural
from app.pages.scope import Link, Scope, step_name
from provenance.catalogue import Across, Group, Intermediate
from provenance.names import Address, is_layered

_HERE, _FEEDS, _READS = "● here", "feeds it ↓", "reads it ↑"


@dataclass(frozen=True, slots=True)
class BarView:
    """One layer in a strip of bars."""

    url: str
    says: str
    current: bool
    x: float
    y: float
    width: float
    height: float
    top: float
    full: float


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node of the drawing, and what it says in words; `kind` are its classes."""

    url: str
    title: str
    says: str
    kind: str
    current: bool
    x: float
    y: float
    width: float
    height: float
    texts: tuple[Text, ...]
    bars: tuple[BarView, ...]
    inputs: tuple[Link, ...]
    readers: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class LineView:
    """What flows along one line, as a link to it."""

    url: str
    says: str
    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class FrameView:
    """A group's frame, with its title as a link; `plate` is about the title's width."""

    url: str
    title: str
    x: float
    y: float
    width: float
    height: float
    plate: float


@dataclass(frozen=True, slots=True)
class MapView:
    """A drawing with its links. `lit` says whether a tensor of it is the present one."""

    id: str
    title: str
    summary: str
    width: float
    height: float
    nodes: tuple[NodeView, ...]
    lines: tuple[LineView, ...]
    frames: tuple[FrameView, ...]
    lit: bool
    measured: bool
    has_parameters: bool
    has_outside: bool


def map_of_group(explorer: Explorer, scope: Scope, group: Group | None, site: str = "") -> MapView:
    """The map of a group, or of the whole model; `site` is the node to light."""
    graph = level_of(scope.catalogue, group, _at(scope))
    title = f"Map of {layered_title(scope, group)}" if group else "Map of the model"
    return _Drawn(explorer, scope, graph, site).view("map", title)


def map_of_tensor(explorer: Explorer, scope: Scope, row: Intermediate) -> MapView:
    """The map of one tensor and its neighbours."""
    graph = neighbourhood(scope.catalogue, row, _at(scope))
    return _Drawn(explorer, scope, graph, row.site).view("neighbours", f"What flows into and out of {row.title}")


def _at(scope: Scope) -> At | None:
    trace = scope.trace
    return At(scope.layer, scope.step, trace.layers, trace.last_step) if trace else None


class _Drawn:
    """One drawing in the making."""

    def __init__(self, explorer: Explorer, scope: Scope, graph: Graph, site: str) -> None:
        self.explorer, self.scope, self.graph = explorer, scope, graph
        lit = [item for item in graph.items if item.inside and any(row.site == site for row in item.rows)]
        self.lit = lit[0].key if lit else ""
        self.feeds = {flow.source for flow in graph.flows if flow.target == self.lit} - {self.lit}
        self.reads = {flow.target for flow in graph.flows if flow.source == self.lit} - {self.lit}
        self.links = {item.key: self._link(item) for item in graph.items}
        self.strips = {item.key: self._strip(item) for item in graph.items}
        self.measures = {item.key: self._measure(item) for item in graph.items}

    def view(self, id: str, title: str) -> MapView:
        drawing: Drawing = layout(self.graph, {item.key: self._label(item) for item in self.graph.items})
        items = {item.key: item for item in self.graph.items}
        nodes = tuple(self._node(items[box.key], box) for box in drawing.boxes)
        flows = {(flow.source, flow.target): flow for flow in self.graph.flows}
        return MapView(
            id=id,
            title=title,
            summary=f"{plural(len(nodes), 'node')} and {plural(len(flows), 'line')}, from top to bottom.",
            width=drawing.width,
            height=drawing.height,
            nodes=nodes,
            lines=tuple(self._line(flows[line.source, line.target], items, line.path) for line in drawing.lines),
            frames=tuple(self._frame(frame) for frame in drawing.frames),
            lit=bool(self.lit),
            measured=any(self.measures.values()) or any(self.strips.values()),
            has_parameters=any("parameter" in node.kind for node in nodes),
            has_outside=not all(item.inside for item in self.graph.items),
        )

    # --- what a node says, and where it leads ---

    def _address(self, item: Item) -> Address | None:
        """The tensor that a single node stands for, in the trace; None without one."""
        trace, row, layer, step = self.scope.trace, item.rows[0], self.scope.layer, self.scope.step
        if trace is None:
            return None
        match item.across:
            case Across.PREVIOUS:
                layer += 1 if item.ahead else -1
            case Across.FIRST if item.ahead:
                layer = 0
            case Across.LAST if not item.ahead:
                layer = trace.layers - 1
            case Across.EARLIER:
                step += 1 if item.ahead else -1
        return Address(row.site, layer if is_layered(row.site) else None, step)

    def _place(self, item: Item) -> str:
        """Where a node outside lies: `layer 2`."""
        if item.inside:
            return ""
        address = self._address(item)
        match item.across:
            case Across.PREVIOUS | Across.FIRST | Across.LAST if address and address.layer is not None:
                return f"layer {address.layer}"
            case Across.EARLIER if address:
                return f"{step_name(address.step)}{' and later' if item.ahead else ' and earlier'}".replace(
                    "prefill and earlier", "prefill"
                )
            case Across.PREVIOUS:
                return "the next layer" if item.ahead else "the layer before"
            case Across.FIRST if not self.scope.trace:
                return "in layer 0"
            case Across.LAST if not self.scope.trace:
                return "after the last layer" if item.ahead else "the last layer"
            case Across.EARLIER:
                return "later steps" if item.ahead else "earlier steps"
            case Across.EVERY if not item.ahead:
                return "of every layer"
        return ""

    def _link(self, item: Item) -> Link:
        trace, address = self.scope.trace, self._address(item)
        row, place = item.rows[0], self._place(item)
        if item.group is not None:
            layer = address.layer if address and address.layer is not None else self.scope.layer
            step = address.step if address else 0
            url = map_url(item.group, trace.id if trace else None, layer, step, family=self.scope.family)
            return Link(url, "", item.group.path[-1], place)
        url = tensor_url(trace.id, address) if trace and address else self.scope.url(row)
        return Link(url, row.name, row.title, place)

    def _label(self, item: Item) -> Label:
        link = self.links[item.key]
        known = self.measures[item.key]
        name = link.name if item.group is None and len(link.name) <= 24 else ""
        place = link.place
        if item.group is not None and item.inside:
            place = plural(len(item.rows), "tensor")
            if item.repeated and self.scope.trace and not item.frame:
                place = f"× {self.scope.trace.layers} layers"
            elif item.repeated and not item.frame:
                layers = self.scope.constants.get("L")
                place = f"× {layers} layers" if layers else "in every layer"
        mark = _HERE if item.key == self.lit else _FEEDS if item.key in self.feeds else ""
        mark = mark or (_READS if item.key in self.reads else "")
        strip = self.strips[item.key]
        return Label(link.title, name, place, known.text if known else "", mark, shares(strip))

    def _measure(self, item: Item) -> Measure | None:
        address = self._address(item)
        if self.scope.trace is None or address is None or item.group is not None:
            return None
        return at_hand(self.explorer, self.scope.trace, address)

    def _strip(self, item: Item) -> tuple[Measure, ...]:
        """The measures of all layers, for what is wide enough to show them."""
        rows = [row for row in item.rows if row.stream and is_layered(row.site)]
        if self.scope.trace is None or not rows or not item.inside or (item.group is not None and item.frame):
            return ()
        return by_layer(self.explorer, self.scope.trace, rows[-1].site, self.scope.step)

    # --- parts ---

    def _node(self, item: Item, box: Box) -> NodeView:
        link = self.links[item.key]
        place = f", {link.place}" if link.place else ""
        part = {True: ", this tensor"}.get(item.key == self.lit, "")
        part = part or (", feeds it" if item.key in self.feeds else ", reads it" if item.key in self.reads else "")
        known = self.measures[item.key]
        kind = "group" if item.group else item.rows[0].kind.value
        stacked = item.group is not None and item.inside and item.repeated and not item.frame
        classes = [kind] + ["stream"] * item.stream + ["outside"] * (not item.inside) + ["stacked"] * stacked
        classes += ["lit"] * (item.key == self.lit) + ["feeds"] * (item.key in self.feeds)
        classes += ["reads"] * (item.key in self.reads)
        return NodeView(
            url=link.url,
            title=link.title,
            says=f"{link.title}{place}{part}{', ' + known.text if known else ''}",
            kind=" ".join(classes),
            current=item.key == self.lit,
            x=box.x,
            y=box.y,
            width=box.width,
            height=box.height,
            texts=box.texts,
            bars=self._bars(item, box),
            inputs=tuple(self.links[flow.source] for flow in self.graph.flows if flow.target == item.key),
            readers=tuple(self.links[flow.target] for flow in self.graph.flows if flow.source == item.key),
        )

    def _bars(self, item: Item, box: Box) -> tuple[BarView, ...]:
        trace, strip = self.scope.trace, self.strips[item.key]
        if trace is None or not strip:
            return ()
        row = [row for row in item.rows if row.stream][-1]

        def url(layer: int) -> str:
            if item.group is not None:
                return map_url(item.group, trace.id, layer, self.scope.step)
            return tensor_url(trace.id, Address(row.site, layer, self.scope.step))

        whole = item.group is not None
        return tuple(
            BarView(
                url(bar.layer),
                f"layer {bar.layer}: {row.title}, {strip[bar.layer].text}",
                not whole and bar.layer == self.scope.layer,
                bar.x, bar.y, bar.width, bar.height, bar.top, bar.full,
            )
            for bar in box.bars
        )  # fmt: skip

    def _line(self, flow: Flow, items: Mapping[str, Item], path: str) -> LineView:
        source = items[flow.source]
        sites = tuple(dict.fromkeys(site for site, _ in flow.edges))
        link = self.links[flow.source]
        url, title = link.url, link.title
        if source.group is not None and len(sites) == 1:
            row = self.scope.catalogue.row(sites[0])
            url, title = self.scope.url(row), row.title
        kind = "stream" if any(self.scope.catalogue.row(site).stream for site in sites) else "plain"
        if self.lit in (flow.source, flow.target) and self.lit:
            kind += " feeds" if flow.target == self.lit else " reads"
        return LineView(url, f"{title} → {self.links[flow.target].title}", kind, path)

    def _frame(self, frame: Frame) -> FrameView:
        url = self.scope.map_url(self.scope.catalogue.group(frame.slug))
        plate = 16 + sum(9.5 if letter.isupper() else 6.2 for letter in frame.title)
        return FrameView(url, frame.title, frame.x, frame.y, frame.width, frame.height, round(plate, 1))
