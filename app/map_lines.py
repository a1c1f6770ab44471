"""The lines of a map. Between neighbouring rows they run straight down.

All others run in lanes at the sides: what the residual stream hands on at the left, the rest at the
right.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from app.map import Graph
from app.map_parts import LEFT, RIGHT, Box, Line


@dataclass(slots=True)
class _Lanes:
    """Vertical lanes at one side: a node's long lines share one, from the inmost that is free."""

    taken: list[list[tuple[float, float]]] = field(default_factory=list)

    def take(self, top: float, bottom: float) -> int:
        for number, spans in enumerate(self.taken):
            if all(bottom < a or top > b for a, b in spans):
                spans.append((top, bottom))
                return number
        self.taken.append([(top, bottom)])
        return len(self.taken) - 1


def lines_of(graph: Graph, at: Mapping[str, int], boxes: Mapping[str, Box]) -> tuple[Line, ...]:
    """The line of every flow; `at` are the numbers of the nodes' rows."""
    items = {item.key: item for item in graph.items}
    spans: dict[str, list[float]] = {}
    for flow in graph.flows:
        if at[flow.target] != at[flow.source] + 1:
            source = boxes[flow.source]
            spans.setdefault(flow.source, [source.y + source.height]).append(boxes[flow.target].y)
    sides = {"left": _Lanes(), "right": _Lanes()}
    lanes = {}
    for key, ends in sorted(spans.items(), key=lambda found: max(found[1]) - min(found[1])):
        side = "left" if items[key].stream else "right"
        lanes[key] = (side, sides[side].take(min(ends), max(ends)))
    count = {side: len(found.taken) for side, found in sides.items()}
    ports = _ports(graph, boxes)
    found = []
    for flow in graph.flows:
        start, end = boxes[flow.source], boxes[flow.target]
        x = ports[flow.source, flow.target]
        if at[flow.target] == at[flow.source] + 1:
            path = _direct(start, end, x)
        else:
            side, number = lanes[flow.source]
            path = _around(start, end, x, _lane(side, number, count[side]), number)
        found.append(Line(flow.source, flow.target, path))
    return tuple(found)


def _lane(side: str, number: int, count: int) -> float:
    room = min(6.0, 26.0 / max(count, 1))
    return round(LEFT - 6 - number * room if side == "left" else RIGHT + 6 + number * room, 1)


def _ports(graph: Graph, boxes: Mapping[str, Box]) -> dict[tuple[str, str], float]:
    """Where each line enters its target: side by side on the upper edge, in the order of the sources."""
    into: dict[str, list[str]] = {}
    for flow in graph.flows:
        into.setdefault(flow.target, []).append(flow.source)
    ports = {}
    for target, sources in into.items():
        box = boxes[target]
        sources.sort(key=lambda key: boxes[key].middle)
        room = min(box.width * 0.8, 22.0 * (len(sources) - 1))
        for number, source in enumerate(sources):
            share = number / (len(sources) - 1) - 0.5 if len(sources) > 1 else 0.0
            ports[source, target] = round(box.middle + room * share, 1)
    return ports


def _direct(start: Box, end: Box, x: float) -> str:
    from_x = min(max(x, start.x + 10), start.x + start.width - 10) if start.width > 150 else start.middle
    y, to = start.y + start.height, end.y
    half = (to - y) / 2
    if abs(from_x - x) < 0.5:
        return f"M{x:g} {y:g}V{to:g}"
    return f"M{from_x:g} {y:g}C{from_x:g} {y + half:g} {x:g} {to - half:g} {x:g} {to:g}"


def _around(start: Box, end: Box, x: float, lane: float, number: int) -> str:
    """Out below the source, along a lane at the side, and in above the target, with rounded corners."""
    leave = start.y + start.height + 12 + min(number, 3) * 2
    enter = end.y - 11 - min(number, 3) * 2
    side = 1 if lane > start.middle else -1
    from_x = start.middle + side * min(18.0, start.width / 4)
    points = [(from_x, start.y + start.height), (from_x, leave), (lane, leave), (lane, enter), (x, enter), (x, end.y)]
    return _rounded(points)


def _rounded(points: list[tuple[float, float]]) -> str:
    parts = [f"M{points[0][0]:g} {points[0][1]:g}"]
    for (before, corner), (_, after) in pairwise(pairwise(points)):
        sizes = [abs(a[0] - b[0]) + abs(a[1] - b[1]) for a, b in ((before, corner), (corner, after))]
        radius = min(4.0, *(size / 2 for size in sizes))
        near, far = _towards(corner, before, radius), _towards(corner, after, radius)
        parts.append(f"L{near[0]:g} {near[1]:g}Q{corner[0]:g} {corner[1]:g} {far[0]:g} {far[1]:g}")
    parts.append(f"L{points[-1][0]:g} {points[-1][1]:g}")
    return "".join(parts)


def _towards(point: tuple[float, float], other: tuple[float, float], length: float) -> tuple[float, float]:
    dx, dy = other[0] - point[0], other[1] - point[1]
    size = abs(dx) + abs(dy)
    share = length / size if size else 0.0
    return round(point[0] + dx * share, 1), round(point[1] + dy * share, 1)
