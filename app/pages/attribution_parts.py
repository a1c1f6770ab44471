"""The parts of an attribution: signed bars, the writes in order, the grid of heads, the largest terms."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from app.pages.links import tensor_url
from app.pages.numbers import Number, measure
from provenance.attribution import Attribution, Term
from provenance.names import Address
from provenance.trace import Trace

_LEVELS = 9
_WIDTH = 200.0
_THINNEST = 0.6


@dataclass(frozen=True, slots=True)
class SignedBar:
    """A bar from `zero` to one side, in a picture 200 wide; `plus` is the right side."""

    x: float
    width: float
    zero: float
    plus: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One value with its bar; `so_far` is the sum of all before and with it, where that is shown."""

    title: str
    url: str
    number: Number
    bar: SignedBar
    so_far: Number | None = None


@dataclass(frozen=True, slots=True)
class GridCell:
    """One term: its number to read, its page, and its shade: `p` or `n` with 0 to 9. Without a url there is none."""

    text: str
    exact: str
    says: str
    url: str
    shade: str


@dataclass(frozen=True, slots=True)
class GridRow:
    """One layer and its sum."""

    layer: int
    cells: tuple[GridCell, ...]
    sum: Number


@dataclass(frozen=True, slots=True)
class Grid:
    """Each layer's terms side by side: `columns` are their names, the heads' as numbers."""

    columns: tuple[str, ...]
    heads: int
    rows: tuple[GridRow, ...]


_Key = tuple[str, int | None, bool]


def shares_of(found: Attribution) -> tuple[Line, ...]:
    """What each kind of term adds, and the offset."""
    sums = {**found.by_kind, "offset": found.offset}
    bars = _bars(list(sums.values()))
    return tuple(
        Line(_capital(kind), "", _decimal(value), bar) for (kind, value), bar in zip(sums.items(), bars, strict=True)
    )


def lines_of(trace: Trace, found: Attribution) -> tuple[Line, ...]:
    """The offset, then every write in order of computation, each with the sum so far."""
    writes: dict[tuple[int | None, str], list[Term]] = {}
    for term in found.terms:
        writes.setdefault((term.layer, term.writer), []).append(term)
    titles = ["Offset"]
    urls = [_url(trace, found, found.offset_place)]
    values = [found.offset]
    for (layer, writer), terms in writes.items():
        titles.append(_capital(writer) if layer is None else f"Layer {layer}, {writer}")
        urls.append(_url(trace, found, terms[0].write))
        values.append(math.fsum(term.value for term in terms))
    so_far = [math.fsum(values[: n + 1]) for n in range(len(values))]
    return tuple(
        Line(title, url, _decimal(value), bar, _decimal(so))
        for title, url, value, bar, so in zip(titles, urls, values, _bars(values), so_far, strict=True)
    )


def leaders_of(trace: Trace, found: Attribution, most: int) -> tuple[Line, ...]:
    """The terms furthest from zero."""
    terms = found.largest(most)
    return tuple(
        Line(_capital(_name(term)), _url(trace, found, term.place, term.head), _decimal(term.value), bar)
        for term, bar in zip(terms, _bars([term.value for term in terms]), strict=True)
    )


def grid_of(trace: Trace, found: Attribution) -> Grid:
    """Layers by terms."""
    layers: dict[int, dict[_Key, Term]] = {}
    for term in found.terms:
        if term.layer is not None:
            layers.setdefault(term.layer, {})[_key(term)] = term
    keys = tuple(dict.fromkeys(key for terms in layers.values() for key in terms))
    largest = max((abs(term.value) for terms in layers.values() for term in terms.values()), default=0.0)
    sums = found.by_layer
    rows = tuple(
        GridRow(
            layer,
            tuple(_cell(trace, found, terms.get(key), largest) for key in keys),
            _decimal(sums[layer]),
        )
        for layer, terms in layers.items()
    )
    return Grid(tuple(_column(key) for key in keys), sum(key[1] is not None for key in keys), rows)


def _key(term: Term) -> _Key:
    return term.writer, term.head, term.shared


def _column(key: _Key) -> str:
    writer, head, shared = key
    return str(head) if head is not None else "bias" if shared else writer


def _cell(trace: Trace, found: Attribution, term: Term | None, largest: float) -> GridCell:
    if term is None:
        return GridCell("", "", "", "", "p0")
    level = round(_LEVELS * abs(term.value) / largest) if largest else 0
    decimals = max(0, 2 - math.floor(math.log10(largest))) if largest else 2
    return GridCell(
        text=f"{term.value:+.{min(decimals, 9)}f}",
        exact=repr(term.value),
        says=_name(term),
        url=_url(trace, found, term.place, term.head),
        shade=f"{'p' if term.value >= 0 else 'n'}{level}",
    )


def _name(term: Term) -> str:
    """A term as a person says it."""
    where = "" if term.layer is None else f"layer {term.layer}, "
    if term.head is not None:
        return f"{where}head {term.head}"
    return f"{where}{term.kind}"


def _url(trace: Trace, found: Attribution, place: str, head: int | None = None) -> str:
    address = Address.parse(place)
    return tensor_url(trace.id, Address(address.site, address.layer, found.position.step), head)


def _bars(values: Iterable[float]) -> tuple[SignedBar, ...]:
    """Bars on one scale: from the smallest value to the largest, 0 always among them."""
    listed = list(values)
    low, high = min([0.0, *listed]), max([0.0, *listed])
    unit = _WIDTH / (high - low) if high > low else 0.0
    zero = -low * unit
    bars = []
    for value in listed:
        wide = max(_THINNEST, abs(value) * unit)
        left = zero if value >= 0 else zero - wide
        bars.append(SignedBar(round(left, 2), round(wide, 2), round(zero, 2), value >= 0))
    return tuple(bars)


def _decimal(value: float) -> Number:
    """Four decimals with their sign, so that a column of them can be added up by eye."""
    return Number(f"{value:+.4f}", repr(value)) if abs(value) < 1e6 else measure(value)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
