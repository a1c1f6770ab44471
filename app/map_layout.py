"""Places for the nodes and lines of a map: rows from top to bottom, narrow enough for a phone.

A node's row follows from what it reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from app.map import Graph, Item
from app.map_lines import lines_of
from app.map_parts import LEFT, RIGHT, WIDTH, Bar, Box, Drawing, Frame, Label, Text

_LINE = 15.5
_CHARACTER = 6.4
_GAP = 36.0
_COLUMNS = 3


@dataclass(slots=True)
class _Row:
    """Nodes side by side; `frame` is the group around them."""

    items: list[Item]
    frame: str = ""
    title: str = ""
    top: float = 0.0
    bottom: float = 0.0


def layout(graph: Graph, labels: Mapping[str, Label]) -> Drawing:
    """Give every node of a graph its place; `labels` are by the nodes' keys."""
    rows = _rows(graph)
    boxes: dict[str, Box] = {}
    first = {item.key for item in rows[0].items}
    y = 24.0 if any(flow.target in first for flow in graph.flows) else 4.0
    for before, row in zip([None, *rows], rows, strict=False):
        opens = bool(row.frame) and (before is None or before.frame != row.frame)
        y += 26.0 if opens else 8.0 if before is not None and before.frame != row.frame else 0.0
        row.top = y
        for box in _boxes(row, labels, y):
            boxes[box.key] = box
        row.bottom = max(boxes[item.key].y + boxes[item.key].height for item in row.items)
        y = row.bottom + _GAP
    at = {item.key: number for number, row in enumerate(rows) for item in row.items}
    lines = lines_of(graph, at, boxes)
    # A line that leaves the last row turns below it, and is drawn whole.
    room = 22.0 if any(at[flow.source] == len(rows) - 1 for flow in graph.flows) else 14.0
    return Drawing(WIDTH, y - _GAP + room, tuple(boxes[item.key] for item in graph.items), _frames(rows), lines)


def _rows(graph: Graph) -> list[_Row]:
    """Nodes in rows: each below what it reads in its run of one frame, at most three side by side."""
    rows: list[_Row] = []
    runs: list[list[Item]] = []
    for item in graph.items:
        alone = item.stream or not item.inside
        together = runs and _band(runs[-1][-1]) == _band(item) and (not alone or item.stream or not item.inside)
        if together:
            runs[-1].append(item)
        else:
            runs.append([item])
    for run in runs:
        depths = _depths(run, graph)
        for depth in sorted(set(depths.values())):
            found = [item for item in run if depths[item.key] == depth]
            frame = run[0].frame
            for start in range(0, len(found), _COLUMNS):
                part = found[start : start + _COLUMNS]
                rows.append(_Row(part, frame.slug if frame else "", frame.path[-1] if frame else ""))
    return rows


def _band(item: Item) -> object:
    return (item.frame.slug if item.frame else "", item.inside, item.stream, not item.inside and item.ahead)


def _depths(run: list[Item], graph: Graph) -> dict[str, int]:
    """How far down each node of a run stands; what reads nothing stands right above its first reader."""
    keys = {item.key for item in run}
    order = {item.key: number for number, item in enumerate(run)}
    inner = [
        (flow.source, flow.target)
        for flow in graph.flows
        if {flow.source, flow.target} <= keys and order[flow.source] < order[flow.target]
    ]
    reading = {flow.target for flow in graph.flows}
    depths: dict[str, int] = {}
    for item in run:
        depths[item.key] = max((depths[a] + 1 for a, b in inner if b == item.key), default=0)
    for item in run:
        readers = [depths[b] for a, b in inner if a == item.key]
        if item.key not in reading and readers:
            depths[item.key] = max(0, min(readers) - 1)
    return depths


def _boxes(row: _Row, labels: Mapping[str, Label], y: float) -> list[Box]:
    stream = all(item.stream for item in row.items)
    left, right = (LEFT, RIGHT) if stream else (LEFT + 6, RIGHT - 6)
    count = len(row.items)
    gap = 8.0
    width = (right - left - gap * (count - 1)) / count
    if count == 1 and not stream:
        width = 226.0
    start = left if stream else (left + right - width * count - gap * (count - 1)) / 2
    made = [_texts(labels[item.key], width) for item in row.items]
    height = max(_height(lines, labels[item.key]) for lines, item in zip(made, row.items, strict=True))
    found = []
    for number, (item, lines) in enumerate(zip(row.items, made, strict=True)):
        x = start + number * (width + gap)
        label = labels[item.key]
        used = _height(lines, label)
        top = y + (height - used) / 2 + 4.0
        texts = tuple(
            Text(round(x + width / 2, 1), round(top + _LINE * (at + 0.75), 1), text, kind)
            for at, (text, kind) in enumerate(lines)
        )
        bars = _bars(label, x + 10, top + _LINE * len(lines) + 4, width - 20)
        found.append(Box(item.key, round(x, 1), round(y, 1), round(width, 1), round(height, 1), texts, bars))
    return found


def _height(lines: list[tuple[str, str]], label: Label) -> float:
    return _LINE * len(lines) + 8.0 + (30.0 if label.bars else 0.0)


def _texts(label: Label, width: float) -> list[tuple[str, str]]:
    most = max(6, int((width - 8) / _CHARACTER))
    lines = [(text, "title") for text in _wrapped(label.title, most)]
    if label.name:
        fits = int((width - 8) / 7.4)
        name = label.name if len(label.name) <= fits else label.name[: fits - 1] + "…"
        lines.append((name, "name"))
    for text, kind in ((label.place, "place"), (label.measure, "measure"), (label.mark, "mark")):
        lines += [(part, kind) for part in _wrapped(text, most)]
    return lines


def _wrapped(text: str, most: int) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _bars(label: Label, x: float, y: float, width: float) -> tuple[Bar, ...]:
    count = len(label.bars)
    step = width / count if count else 0.0
    return tuple(
        Bar(
            layer=layer,
            x=round(x + layer * step + step * 0.12, 2),
            y=round(y + 26 * (1 - share), 2),
            width=round(step * 0.76, 2),
            height=round(max(26 * share, 0.5), 2),
            top=round(y, 2),
            full=26.0,
        )
        for layer, share in enumerate(label.bars)
    )


def _frames(rows: list[_Row]) -> tuple[Frame, ...]:
    runs: list[list[_Row]] = []
    for row in rows:
        if runs and runs[-1][0].frame == row.frame:
            runs[-1].append(row)
        else:
            runs.append([row])
    return tuple(
        Frame(
            run[0].frame,
            run[0].title,
            LEFT,
            round(run[0].top - 22, 1),
            RIGHT - LEFT,
            round(run[-1].bottom - run[0].top + 30, 1),
        )
        for run in runs
        if run[0].frame
    )
