"""How a reader looks at a tensor: which axes are shown, where the others stand, how close; all from the URL."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from app.explorer import Explorer
from app.pages.links import trace_url, with_query
from app.pictures.heatmap import MOST_COLS, MOST_ROWS, MOST_SMALL
from app.pictures.parts import Heading
from app.pictures.plane import Plane, side
from provenance.axes import Counts
from provenance.catalogue import Catalogue, Intermediate
from provenance.errors import InvalidInput, OutOfRange
from provenance.names import Address
from provenance.pictures.reduce import Reduce
from provenance.trace import Trace

QUERY = "query"
"""What a token axis is called beside a key axis."""

_PLACES = frozenset((*Counts, QUERY))
_NUMBERS = ("r0", "c0", "zoom")
_WORDS = ("rows", "cols", "reduce")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")
Changes = Mapping[str, str | int | None]
"""Parameters of a URL to set; None leaves one out."""
_NONE: Changes = {}
_SQUARE = (Counts.TOKEN, Counts.PAST, Counts.KEY)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a URL asks for, its numbers read but not yet checked against a tensor."""

    words: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    at: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Asked":
        """Read a URL's parameters; those of other things are left alone. Raises InvalidInput."""
        given = {name: text for name, text in query.items() if text}
        return cls(
            {name: given[name] for name in _WORDS if name in given},
            {name: _number(name, given[name]) for name in _NUMBERS if name in given},
            {name: _number(name, text) for name, text in given.items() if name.split(".")[0] in _PLACES},
        )

    @property
    def lasting(self) -> "Asked":
        """What can be asked of the same tensor at another step: no index of tokens, no window."""
        tokens = (QUERY, *_SQUARE)
        return Asked(self.words, {}, {name: at for name, at in self.at.items() if name.split(".")[0] not in tokens})

    def url(self, id: str, address: Address, changes: Changes = _NONE, ending: str = "") -> str:
        """A tensor's page that asks for the same, with some parameters changed; None leaves one out."""
        path = f"{trace_url(id)}/{quote(address.place)}{ending}"
        return with_query(path, **{"step": address.step or None, **self.words, **self.at, **self.numbers, **changes})


@dataclass(frozen=True, slots=True)
class ViewAxis:
    """One axis of one tensor. `symbol` and `name` are made unique where a shape has them twice.

    `label` is the name as a person reads it.
    """

    index: int
    symbol: str
    name: str
    label: str
    size: int
    counts: Counts
    meaning: str


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as it is looked at. `asked` is what the URL says, `chosen` the index of each axis."""

    trace: Trace
    address: Address
    row: Intermediate
    axes: tuple[ViewAxis, ...]
    rows: ViewAxis | None
    cols: ViewAxis | None
    chosen: Mapping[str, int]
    asked: Asked
    reduce: Reduce
    zoom: int

    @property
    def fixed(self) -> tuple[ViewAxis, ...]:
        """The axes that are not shown and have more than one index."""
        return tuple(axis for axis in self.axes if axis not in (self.rows, self.cols) and axis.size > 1)

    @property
    def square(self) -> bool:
        """Whether both shown axes count tokens, so that the picture's cells are squares."""
        return all(axis is not None and axis.counts in _SQUARE for axis in (self.rows, self.cols))

    @property
    def names(self) -> tuple[str, str]:
        """What the rows and columns are."""
        return (self.rows.label if self.rows else "", self.cols.label if self.cols else "")

    def find(self, *counts: Counts) -> ViewAxis | None:
        """The axis that counts such a thing, if there is just one."""
        found = [axis for axis in self.axes if axis.counts in counts]
        return found[0] if len(found) == 1 else None

    def plane(self, *, small: bool = False, **at: int) -> Plane:
        """The cells that are shown; `at` moves axes that are not shown to another index."""
        places = {**self.chosen, **at}
        shown = (self.rows, self.cols)
        square = MOST_ROWS if self.square else MOST_COLS
        most = (MOST_SMALL, MOST_SMALL) if small else (MOST_ROWS, square)
        sides = [
            side(axis.index if axis else None, axis.size if axis else 1, limit)
            if small
            else side(
                axis.index if axis else None,
                axis.size if axis else 1,
                limit,
                self.asked.numbers.get(first, 0),
                self.zoom,
            )
            for axis, limit, first in zip(shown, most, ("r0", "c0"), strict=True)
        ]
        index = tuple(None if axis in shown else places[axis.name] for axis in self.axes)
        return Plane(sides[0], sides[1], index)

    def url(self, changes: Changes = _NONE, ending: str = "") -> str:
        """This page, or with an ending its picture, with some parameters changed."""
        return self.asked.url(self.trace.id, self.address, changes, ending)


def view_of(catalogue: Catalogue, trace: Trace, address: Address, shape: Iterable[int], asked: Asked) -> View:
    """Check what is asked against a tensor. Raises OutOfRange and InvalidInput, each with what would do."""
    row = catalogue.row(address.site)
    axes = axes_of(catalogue, row, shape)
    chosen = _chosen(row, axes, asked)
    rows, cols = _shown(row, axes, asked)
    try:
        reduce = Reduce(asked.words.get("reduce", Reduce.LARGEST))
    except ValueError:
        raise InvalidInput(
            f"Cells cannot be joined by {asked.words['reduce'][:40]!r}.", hint="reduce is maxabs or mean."
        ) from None
    for first, axis in (("r0", rows), ("c0", cols)):
        start = asked.numbers.get(first, 0)
        if start and (axis is None or start >= axis.size):
            name, last = (axis.name, axis.size - 1) if axis else ("row", 0)
            raise OutOfRange(f"{row.site} has no {name} {start}.", hint=f"{first} goes to {last}.")
    return View(trace, address, row, axes, rows, cols, chosen, asked, reduce, max(1, asked.numbers.get("zoom", 1)))


def axes_of(catalogue: Catalogue, row: Intermediate, shape: Iterable[int]) -> tuple[ViewAxis, ...]:
    """The axes of a tensor, each with a name of its own."""
    axes = [catalogue.axes[symbol] for symbol in row.shape]
    has_keys = any(axis.counts is Counts.KEY for axis in axes)
    names = [QUERY if has_keys and axis.counts is Counts.TOKEN else axis.counts.value for axis in axes]
    seen: Counter[str] = Counter()
    found = []
    for index, (axis, size) in enumerate(zip(axes, shape, strict=True)):
        name = names[index]
        parts = []
        for part in (axis.symbol, name):
            seen[part] += 1
            parts.append(part if seen[part] == 1 else f"{part}.{seen[part]}")
        label = f"{parts[0]} {name}" if names.count(name) > 1 else name
        if axis.counts is Counts.PART:
            label = axis.name or name
        found.append(ViewAxis(index, parts[0], parts[1], label, size, axis.counts, axis.meaning))
    return tuple(found)


def headings_along(explorer: Explorer, view: View, axis: ViewAxis | None, indices: Iterable[int]) -> list[Heading]:
    """What stands at some indices of an axis, with the tokens where it counts such."""
    wanted = list(indices)
    if axis is None:
        return [Heading(str(index)) for index in wanted]
    if axis.counts is Counts.ENTRY:
        found = explorer.models.tokens(view.trace.recipe.model.name, wanted)
        return [Heading(str(token.id), token.text) for token in found]
    tokens = tokens_along(view.trace, axis.counts, view.address.step)
    return [Heading(str(index), tokens[index] if index < len(tokens) else "") for index in wanted]


def tokens_along(trace: Trace, counts: Counts, step: int) -> tuple[str, ...]:
    """The tokens' texts that an axis counts: this step's, the past ones, or both."""
    if counts not in _SQUARE:
        return ()
    new = tuple(token.text for token in trace.tokens_of(step))
    past = tuple(token.text for before in range(step) for token in trace.tokens_of(before))
    return {Counts.TOKEN: new, Counts.PAST: past, Counts.KEY: past + new}[counts]


def plural_of(name: str, number: int = 2) -> str:
    """`channel` or `channels`; `queries`."""
    if number == 1 or name == "k/v":
        return name
    first, _, last = name.rpartition(" ")
    odd = {"query": "queries", "batch": "batches", "entry": "entries"}
    return f"{first} {odd.get(last, f'{last}s')}".strip()


def _chosen(row: Intermediate, axes: tuple[ViewAxis, ...], asked: Asked) -> dict[str, int]:
    """The index of every axis: as asked, else the first; of this step's tokens the last."""
    by_name = {axis.name: axis for axis in axes}
    for name, index in asked.at.items():
        if name not in by_name:
            raise OutOfRange(f"{row.site} has no {plural_of(name)}.", hint=f"Leave the {name} out.")
        size = by_name[name].size
        if index >= size:
            has = f"It has {plural_of(name)} 0 to {size - 1}." if size > 1 else f"It has {name} 0 only."
            raise OutOfRange(f"{row.site} has no {name} {index}.", hint=has if size else f"It has no {name}.")
    return {
        axis.name: asked.at.get(axis.name, max(0, axis.size - 1) if axis.counts is Counts.TOKEN else 0)
        for axis in axes
    }


def _shown(row: Intermediate, axes: tuple[ViewAxis, ...], asked: Asked) -> tuple[ViewAxis | None, ViewAxis | None]:
    """The axes of rows and columns: as asked, else the last two that are not axes of one."""
    by_symbol = {axis.symbol: axis for axis in axes}
    wanted: dict[str, ViewAxis | None] = {}
    for word in ("rows", "cols"):
        symbol = asked.words.get(word)
        if symbol is not None and symbol not in by_symbol:
            hint = f"Its axes are {', '.join(by_symbol)}." if by_symbol else "It is a single number."
            raise InvalidInput(f"{row.site} has no axis {symbol[:40]!r}.", hint=hint)
        wanted[word] = by_symbol[symbol] if symbol is not None else None
    if wanted["rows"] is not None and wanted["rows"] == wanted["cols"]:
        raise InvalidInput("Rows and columns cannot be the same axis.", hint=f"Choose two of {', '.join(by_symbol)}.")
    long = [axis for axis in axes if axis.counts is not Counts.ONE] or list(axes)
    ones = [axis for axis in axes if axis not in long]
    usual = [axis for axis in (*ones, *long) if axis not in wanted.values()]
    cols = wanted["cols"] or (usual.pop() if usual else None)
    rows = wanted["rows"] or (usual.pop() if usual and usual[-1].counts is not Counts.ONE else None)
    return rows, cols


def _number(name: str, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise InvalidInput(f"{name} must be a whole number from 0 on, not {text[:40]!r}.")
    return int(text)
