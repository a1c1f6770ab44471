"""Pictures as parts: what is drawn and where; the templates turn them into SVG and tables."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from app.pages.numbers import Number, count, rounded
from provenance.summary import Histogram, Summary

ROWS = 16
COLUMNS = 12
"""The most cells of a value table, down and across."""

_WIDTH, _HEIGHT = 640.0, 150.0
_MARKS = {0.05: "5 %", 0.5: "median", 0.95: "95 %"}


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a histogram, in the picture's units; `says` is its read-out."""

    x: float
    y: float
    width: float
    height: float
    says: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A named place on the value axis; `anchor` keeps its text inside the picture."""

    x: float
    text: str
    anchor: str = "middle"


@dataclass(frozen=True, slots=True)
class HistogramPicture:
    """A histogram to draw; `alternative` says in words what it shows."""

    width: float
    height: float
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[Mark, ...]
    bins: int
    most: Number
    alternative: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One value: as it is read, exactly, and what it is (`value`, `masked`, `nan` or `infinite`)."""

    text: str
    exact: str
    kind: str = "value"


@dataclass(frozen=True, slots=True)
class Heading:
    """The label of a row or column: its index, and the token that stands there, if one does."""

    index: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class ValueTable:
    """A readable part of a tensor; `part` says which, `has_masked` whether a cell is masked."""

    part: str
    row_axis: str
    column_axis: str
    columns: tuple[Heading, ...]
    rows: tuple[tuple[Heading, tuple[Cell, ...]], ...]
    has_masked: bool


def histogram(summary: Summary) -> HistogramPicture | None:
    """The picture of a summary's histogram; None where it has none."""
    found = summary.histogram
    if found is None or not max(found.counts):
        return None
    low, high = found.edges[0], found.edges[-1]
    quantiles = {quantile.q: quantile.value for quantile in summary.quantiles}
    marks = [Mark(_across(quantiles[q], low, high), text) for q, text in _MARKS.items() if q in quantiles]
    ticks = [Mark(0.0, rounded(low), "start"), Mark(_WIDTH, rounded(high), "end")]
    if low < 0 < high and 0.12 < -low / (high - low) < 0.88:
        ticks.insert(1, Mark(_across(0.0, low, high), "0"))
    return HistogramPicture(
        width=_WIDTH,
        height=_HEIGHT,
        bars=_bars(found),
        marks=tuple(marks),
        ticks=tuple(ticks),
        bins=len(found.counts),
        most=count(max(found.counts)),
        alternative=_alternative(summary, found),
    )


def value_table(
    values: torch.Tensor,
    masked: torch.Tensor | None,
    row_axis: str,
    column_axis: str,
    rows: Sequence[Heading],
    columns: Sequence[Heading],
) -> ValueTable:
    """The upper left part of a matrix (rows, columns), at most 16 by 12 cells.

    `masked` is None or a boolean matrix of the same shape; `rows` and `columns` head at least the
    cells that are shown.
    """
    height, width = values.shape
    down, across = min(height, ROWS), min(width, COLUMNS)
    shown = values[:down, :across]
    hidden = masked[:down, :across] if masked is not None else torch.zeros(shown.shape, dtype=torch.bool)
    digits = _digits(shown[~hidden])
    cells = [
        tuple(_cell(value, bool(hides), digits) for value, hides in zip(line, mask, strict=True))
        for line, mask in zip(shown, hidden, strict=True)
    ]
    return ValueTable(
        part=_part(row_axis, down, height) + " × " + _part(column_axis, across, width),
        row_axis=row_axis,
        column_axis=column_axis,
        columns=tuple(columns[:across]),
        rows=tuple(zip(rows[:down], cells, strict=True)),
        has_masked=bool(hidden.any()),
    )


def exact(value: torch.Tensor) -> str:
    """One cell in the fewest digits that give it back in its own dtype."""
    if value.dtype == torch.bool or not value.is_floating_point():
        return str(value.item())
    wide = value if value.dtype == torch.float64 else value.float()
    return str(wide.numpy()[()])


def _cell(value: torch.Tensor, masked: bool, digits: int | None) -> Cell:
    number = value.item()
    if masked:
        return Cell("·", f"masked ({exact(value)})", "masked")
    if not isinstance(number, float):
        return Cell(str(number), str(number))
    if math.isnan(number):
        return Cell("NaN", "nan", "nan")
    if math.isinf(number):
        return Cell("+Inf" if number > 0 else "−Inf", str(number), "infinite")
    text = rounded(number) if digits is None else f"{number:.{digits}f}"
    return Cell("0" if number == 0 else text, exact(value))


def _digits(values: torch.Tensor) -> int | None:
    """Decimals that suit all cells of a table; None where their sizes differ too much for that."""
    if not values.is_floating_point():
        return None
    finite = values[torch.isfinite(values)].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    if not 0.01 <= largest < 10_000:
        return None
    return max(0, 3 - max(0, math.floor(math.log10(largest)))) if largest >= 1 else 4


def _part(axis: str, shown: int, size: int) -> str:
    first_to_last = f"{axis} 0–{shown - 1}" if shown > 1 else f"{axis} 0"
    return first_to_last if shown == size else f"{first_to_last} of {size}"


def _across(value: float, low: float, high: float) -> float:
    return round((value - low) / (high - low) * _WIDTH, 2)


def _bars(found: Histogram) -> tuple[Bar, ...]:
    most, step = max(found.counts), _WIDTH / len(found.counts)
    bars = []
    for index, number in enumerate(found.counts):
        if number:
            height = max(1.0, number / most * _HEIGHT)
            low, high = rounded(found.edges[index]), rounded(found.edges[index + 1])
            cells = "1 cell" if number == 1 else f"{number:,} cells"
            bars.append(
                Bar(
                    round(index * step + 0.5, 2),
                    round(_HEIGHT - height, 2),
                    round(step - 1.0, 2),
                    round(height, 2),
                    f"{low} to {high}: {cells}",
                )
            )
    return tuple(bars)


def _alternative(summary: Summary, found: Histogram) -> str:
    fullest = max(range(len(found.counts)), key=found.counts.__getitem__)
    low, high = rounded(found.edges[fullest]), rounded(found.edges[fullest + 1])
    quantiles = {quantile.q: rounded(quantile.value) for quantile in summary.quantiles}
    return (
        f"Histogram of {summary.count_finite:,} values from {rounded(found.edges[0])} to "
        f"{rounded(found.edges[-1])}. Half of them lie between {quantiles[0.25]} and {quantiles[0.75]}, "
        f"the median is {quantiles[0.5]}. The fullest of {len(found.counts)} bins, {low} to {high}, holds "
        f"{found.counts[fullest]:,}."
    )
