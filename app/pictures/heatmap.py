"""The heatmap as parts: its size, the labels along its sides, its legend, and what it says in words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.pages.numbers import Number, count, measure, rounded
from app.pictures.parts import Heading, visible
from app.pictures.plane import Plane, Side
from provenance.pictures.cells import Array, Mask, exact
from provenance.pictures.colours import MASKED, NAN, NEGATIVE, POSITIVE, Scale, other
from provenance.summary import Summary

Says = Callable[[int, int], str]
"""Says `token 3 “ fox”` for a side (0 rows, 1 columns) and an index."""

MOST_ROWS, MOST_COLS = 192, 256
"""The most cells that are drawn, down and across."""
MOST_SMALL = 96
"""The same for both sides of a small picture."""
_WIDE, _HIGH, _SQUARE, _LARGEST, _STRIP = 768, 400, 576, 48, 44
_LABELLED = 36
"""The most cells of a side that have a label each."""
_TICKS = 8
_STOPS = 16


@dataclass(frozen=True, slots=True)
class Tick:
    """A label beside the picture: where (in per cent of the side), short, and in full."""

    at: float
    text: str
    full: str


@dataclass(frozen=True, slots=True)
class Ticks:
    """The labels of one side; `dense` where a narrow screen leaves out every other one.

    `room` is how many pixels high slanted labels are.
    """

    axis: str
    shown: tuple[Tick, ...]
    tokens: bool
    dense: bool
    room: int


@dataclass(frozen=True, slots=True)
class Swatch:
    """A colour of its own for cells that are no plain value, its sign, word and number of cells."""

    kind: str
    colour: str
    sign: str
    word: str
    cells: Number


@dataclass(frozen=True, slots=True)
class Legend:
    """What the colours mean: stops from low to high, the labels of the ends, and a sentence on limits."""

    stops: tuple[tuple[float, str], ...]
    low: Number
    middle: Number
    high: Number
    limits: str
    swatches: tuple[Swatch, ...]


def cell_size(plane: Plane, *, square: bool, small: bool = False) -> tuple[int, int]:
    """Pixels of a drawn cell, down and across."""
    rows, cols = max(1, plane.rows.drawn), max(1, plane.cols.drawn)
    if small:
        each = max(1, min(MOST_SMALL // rows, MOST_SMALL // cols))
        return each, each
    if square and rows > 1:
        each = max(1, min(_LARGEST, _SQUARE // rows, _SQUARE // cols))
        return each, each
    wide = max(1, min(_LARGEST, _WIDE // cols))
    return max(1, min(_STRIP if rows == 1 else 28, _HIGH // rows)), wide


def legend(scale: Scale, summary: Summary, ends: tuple[float, float] | None) -> Legend:
    """What the colours mean. `ends` are those of the drawn cells where these are joined ones."""
    swatches = [
        Swatch("masked", other(MASKED), "", "masked", count(summary.count_masked)),
        Swatch("nan", other(NAN), "×", "NaN", count(summary.count_nan)),
        Swatch("infinite", other(POSITIVE), "+", "+Inf", count(summary.count_posinf)),
        Swatch("infinite", other(NEGATIVE), "−", "−Inf", count(summary.count_neginf)),
    ]
    middle = 0.0 if scale.diverging else scale.low / 2 + scale.high / 2
    return Legend(
        stops=tuple((round(n / _STOPS, 4), scale.css(n / _STOPS)) for n in range(_STOPS + 1)),
        low=measure(scale.low),
        middle=measure(middle),
        high=measure(scale.high),
        limits=_limits(scale, summary, ends),
        swatches=tuple(swatch for swatch in swatches if swatch.cells.exact != "0"),
    )


def _limits(scale: Scale, summary: Summary, ends: tuple[float, float] | None) -> str:
    if not summary.quantiles:
        return "No cell is finite and unmasked."
    if summary.dtype == "bool":
        return "True counts as 1, False as 0."
    from_to = "Colours end, on both sides of zero, at the further of the 1 % and 99 % quantiles"
    if not scale.diverging:
        start = "0" if scale.low == 0 else "the 1 % quantile"
        from_to = f"No value is negative. Colours go from {start} to the 99 % quantile"
    low, high = ends or (summary.minimum or 0.0, summary.maximum or 0.0)
    beyond = [rounded(end) for end, over in ((low, low < scale.low), (high, high > scale.high)) if over]
    clipped = f" Values beyond, as far as {' and '.join(beyond)}, take the end’s colour." if beyond else ""
    over = "of the cells as they are drawn here" if ends else "of the whole tensor’s finite, unmasked cells"
    return f"{from_to} {over}.{clipped}"


def ticks(axis: str, side: Side, headings: Sequence[Heading]) -> Ticks:
    """The labels of a side: one for each cell where there is room, else at round numbers.

    `headings` are those of `tick_indices`, in that order.
    """
    tokens = any(heading.token for heading in headings)
    every = side.count <= _LABELLED and side.block == 1
    shown = []
    for index, heading in zip(tick_indices(side), headings, strict=True):
        middle = (index - side.first) // side.block + 0.5
        text = heading.index
        if heading.token:
            text = visible(heading.token) if every else f"{heading.index} {visible(heading.token, 9)}"
        shown.append(Tick(round(100 * middle / side.drawn, 3), text, str(heading)))
    room = 14 + round(6.4 * max((len(tick.text) for tick in shown), default=0)) if tokens else 20
    return Ticks(axis, tuple(shown), tokens, len(shown) > _LABELLED // 2, room)


def tick_indices(side: Side) -> tuple[int, ...]:
    """The indices along a side that have a label."""
    if side.count <= _LABELLED and side.block == 1:
        return tuple(range(side.first, side.first + side.count))
    step = next(step for step in _round_steps() if side.count / step <= _TICKS)
    first = -(-side.first // step) * step
    return tuple(range(first, side.first + side.count, step))


def _round_steps() -> list[int]:
    return [lead * 10**power for power in range(9) for lead in (1, 2, 5)]


def alternative(array: Array, hidden: Mask | None, plane: Plane, names: tuple[str, str], says: Says) -> str:
    """What a heatmap shows, in words: its size, and where its largest and smallest values stand."""
    cells = plane.take(array)
    mask = None if hidden is None else plane.take(hidden)
    rows, cols = (_extent(name, side) for name, side in zip(names, (plane.rows, plane.cols), strict=True))
    size = " by ".join(part for part in (rows, cols) if part) or "one value"
    usable = np.isfinite(cells) if mask is None else np.isfinite(cells) & ~mask
    if not usable.any():
        return f"Heatmap of {size}. No cell is finite and unmasked."
    every = bool(usable.all())
    high = np.unravel_index(int(np.argmax(cells if every else np.where(usable, cells, -np.inf))), cells.shape)
    low = np.unravel_index(int(np.argmin(cells if every else np.where(usable, cells, np.inf))), cells.shape)

    def at(place: tuple[np.intp, ...]) -> str:
        row, col = plane.rows.first + int(place[0]), plane.cols.first + int(place[1])
        return ", ".join(part for part in (says(0, row), says(1, col)) if part)

    return (
        f"Heatmap of {size}. Largest value {exact(cells[high])} at {at(high)}; "
        f"smallest {exact(cells[low])} at {at(low)}."
    )


def _extent(name: str, side: Side) -> str:
    if side.axis is None:
        return ""
    return f"{name} {side.first}–{side.last}" if side.count > 1 else f"{name} {side.first}"
