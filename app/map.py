"""The computation as a graph to draw: which tensors and groups are its nodes, and what flows between them.

Everything follows from the catalogue's rows, edges and groups. `map_layout` gives the nodes their places.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, takewhile

from provenance.catalogue import Across, Catalogue, Group, Intermediate, Read
from provenance.names import is_layered


@dataclass(frozen=True, slots=True)
class At:
    """A layer and step of a trace, and how many layers it has and which step is its last."""

    layer: int
    step: int
    layers: int
    last_step: int


@dataclass(frozen=True, slots=True)
class Item:
    """One node: a tensor, or several tensors of a group drawn as one.

    `across` says from where a node outside is seen; `ahead` that it reads what is inside. `frame` is
    the group in whose frame the node stands.
    """

    key: str
    rows: tuple[Intermediate, ...]
    group: Group | None = None
    frame: Group | None = None
    inside: bool = True
    across: Across = Across.SAME
    ahead: bool = False

    @property
    def stream(self) -> bool:
        """Whether the node is a tensor on the residual stream."""
        return self.group is None and self.rows[0].stream

    @property
    def repeated(self) -> bool:
        """Whether the node's tensors exist once in every layer."""
        return all(is_layered(row.site) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Flow:
    """What flows from one node to another: the edges of the catalogue behind it, by site."""

    source: str
    target: str
    edges: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in order of computation, and the flows between them."""

    items: tuple[Item, ...]
    flows: tuple[Flow, ...]


@dataclass(frozen=True, slots=True)
class _Spot:
    """One end of an edge: a row, and from where it is seen; outside it is a node of its own."""

    row: Intermediate
    across: Across = Across.SAME
    ahead: bool = False
    inside: bool = True


_FAR = (Across.PREVIOUS, Across.EARLIER)
"""Edges that come from before all that is drawn, or lead behind it."""


def level_of(catalogue: Catalogue, group: Group | None, at: At | None = None) -> Graph:
    """The map of a group, or of the whole model: groups where it holds groups of groups, else tensors."""
    top = () if group is None else group.path
    rows = [row for row in catalogue if row.group[: len(top)] == top and (at is None or row.steps.cover(at.step))]
    edges = list(_edges(catalogue, rows, at, whole=group is None))
    outside = _outside(catalogue, _spots_outside(edges), top)
    return _graph(catalogue, [*_inside(catalogue, rows, group), *dict.fromkeys(outside.values())], edges, outside)


def neighbourhood(catalogue: Catalogue, row: Intermediate, at: At | None = None) -> Graph:
    """The map of one tensor: what it is computed from, what is computed from it, and the edges between."""
    edges = list(_edges(catalogue, [row], at))
    outside = {spot: _single(spot) for spot in _spots_outside(edges)}
    found = {(spot.row.site, spot.across): spot for spot in outside if not (spot.ahead and spot.across in _FAR)}
    for spot in outside:
        for read in spot.row.inputs if spot.across is Across.SAME else ():
            if (source := found.get((read.site, read.across))) and _seen(read, at):
                edges.append((source, spot))
    return _graph(catalogue, [Item(row.site, (row,)), *outside.values()], edges, outside)


# --- edges ---


def _edges(
    catalogue: Catalogue, rows: list[Intermediate], at: At | None, whole: bool = False
) -> Iterator[tuple[_Spot, _Spot]]:
    """Edges of the catalogue that start or end in these rows; `whole` sees all layers at once."""
    own = {row.site for row in rows}
    for reader in catalogue:
        for read in reader.inputs:
            source = catalogue.row(read.site)
            if whole or (read.across is Across.SAME and {reader.site, read.site} <= own):
                if {reader.site, read.site} <= own and (at is None or read.steps.cover(at.step)):
                    yield _Spot(source, read.across), _Spot(reader)
                continue
            if reader.site in own and _seen(read, at):
                yield _Spot(source, read.across, inside=False), _Spot(reader)
            if read.site in own and _seen(read, at, ahead=True) and _lives(reader, read, at):
                yield _Spot(source), _Spot(reader, read.across, ahead=True, inside=False)


def _lives(reader: Intermediate, read: Read, at: At | None) -> bool:
    return at is None or read.across is Across.EARLIER or reader.steps.cover(at.step)


def _seen(read: Read, at: At | None, *, ahead: bool = False) -> bool:
    """Whether an edge exists at a place: to a reader there, or (`ahead`) from a source there."""
    if at is None:
        return True
    if not (ahead and read.across is Across.EARLIER) and not read.steps.cover(at.step):
        return False
    match read.across:
        case Across.FIRST:
            return ahead or at.layer == 0
        case Across.PREVIOUS:
            return at.layer + 1 < at.layers if ahead else at.layer > 0
        case Across.LAST:
            return not ahead or at.layer == at.layers - 1
        case Across.EARLIER:
            return at.step < at.last_step if ahead else at.step > 0
    return True


def _spots_outside(edges: list[tuple[_Spot, _Spot]]) -> tuple[_Spot, ...]:
    return tuple(dict.fromkeys(spot for edge in edges for spot in edge if not spot.inside))


# --- nodes ---


def _inside(catalogue: Catalogue, rows: list[Intermediate], group: Group | None) -> Iterator[Item]:
    """Neighbouring rows of one group as nodes; tensors of the residual stream stand alone.

    The whole model shows its uppermost groups; a group of groups of groups shows those two below it,
    inside frames; every other group shows its tensors.
    """
    above = 0 if group is None else len(group.path)
    joined = group is None or any(child.children for child in group.children)
    depth = 1 if group is None else above + 2

    def run_of(row: Intermediate) -> tuple[str, ...]:
        alone = not joined or (group is not None and row.stream)
        return (row.site,) if alone else row.group[:depth]

    for _, found in groupby(rows, key=run_of):
        run = tuple(found)
        first = run[0]
        path = _shared(row.group for row in run)
        framed = group is not None and len(first.group) > above and not first.stream
        yield Item(
            key=first.site if len(run) == 1 else f"{'/'.join(path)}#{first.site}",
            rows=run,
            group=None if len(run) == 1 else _group(catalogue, path),
            frame=_group(catalogue, first.group[: above + 1]) if framed else None,
        )


def _outside(catalogue: Catalogue, spots: tuple[_Spot, ...], top: tuple[str, ...]) -> dict[_Spot, Item]:
    """Nodes around a group: single tensors, or their group where more than two lie in one."""
    found = {spot: _single(spot) for spot in spots}
    places: dict[tuple[tuple[str, ...], int, Across | None], list[_Spot]] = {}
    for spot in spots:
        if not spot.row.stream or spot.ahead:
            path = spot.row.group[: len(_shared((top, spot.row.group))) + 1]
            side = _side(spot.across, spot.ahead)
            places.setdefault((path, side, spot.across if side else None), []).append(spot)
    for (path, side, across), members in places.items():
        rows = tuple({spot.row.site: spot.row for spot in members}.values())
        if len(rows) > 2:
            first = members[0]
            once = not any(is_layered(row.site) for row in rows)
            group = _group(catalogue, _shared(row.group for row in rows) if once else path)
            key = f"{group.slug}|{across.name.lower()}{'|ahead' if side > 0 else ''}" if across else group.slug
            item = Item(key, rows, group, None, False, first.across, first.ahead)
            found |= dict.fromkeys(members, item)
    return found


def _single(spot: _Spot) -> Item:
    key = f"{spot.row.site}|{spot.across.name.lower()}{'|ahead' if spot.ahead else ''}"
    return Item(key, (spot.row,), None, None, False, spot.across, spot.ahead)


def _side(across: Across, ahead: bool) -> int:
    """Whether something lies before (-1) or behind (1) all that is drawn, or neither."""
    return 0 if across not in _FAR else 1 if ahead else -1


def _shared(paths: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The deepest path that all paths start with."""
    columns = zip(*paths, strict=False)
    return tuple(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, columns))


def _group(catalogue: Catalogue, path: tuple[str, ...]) -> Group:
    return next(group for top in catalogue.tree for group in top.walk() if group.path == path)


def _graph(
    catalogue: Catalogue, items: list[Item], edges: list[tuple[_Spot, _Spot]], outside: dict[_Spot, Item]
) -> Graph:
    order = {site: number for number, site in enumerate(catalogue.rows)}
    of = {row.site: item for item in items if item.inside for row in item.rows}
    flows: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    for source, target in edges:
        start, end = ((of[spot.row.site] if spot.inside else outside[spot]).key for spot in (source, target))
        if start != end or source.across in _FAR:
            flows.setdefault((start, end), {})[source.row.site, target.row.site] = None

    def place(item: Item) -> tuple[int, int]:
        return (0 if item.inside else _side(item.across, item.ahead), order[item.rows[0].site])

    return Graph(
        tuple(sorted(items, key=place)),
        tuple(Flow(start, end, tuple(behind)) for (start, end), behind in flows.items()),
    )
