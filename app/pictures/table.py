"""The value table: a readable part of a tensor, every cell exact behind its rounded text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.pages.numbers import rounded
from app.pictures.parts import Heading
from provenance.pictures.cells import Array, Mask, exact

ROWS = 16
COLUMNS = 12
"""The most cells of a value table, down and across."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One value: as it is read, exactly, and what it is (`value`, `masked`, `nan` or `infinite`)."""

    text: str
    exact: str
    kind: str = "value"


@dataclass(frozen=True, slots=True)
class ValueTable:
    """A readable part of a tensor; `part` says which, `has_masked` whether a cell is masked."""

    part: str
    row_axis: str
    column_axis: str
    columns: tuple[Heading, ...]
    rows: tuple[tuple[Heading, tuple[Cell, ...]], ...]
    has_masked: bool


def value_table(
    cells: Array,
    hidden: Mask | None,
    axes: tuple[str, str],
    rows: Sequence[Heading],
    columns: Sequence[Heading],
    sizes: tuple[int, int],
) -> ValueTable:
    """The upper left part of a matrix (rows, columns), at most 16 by 12 cells.

    `hidden` is None or a boolean matrix of the same shape; `rows` and `columns` head at least the
    cells that are shown; `axes` and `sizes` name the two axes and say how long they are in full.
    """
    down, across = min(cells.shape[0], ROWS), min(cells.shape[1], COLUMNS)
    shown = cells[:down, :across]
    mask = hidden[:down, :across] if hidden is not None else np.zeros(shown.shape, dtype=bool)
    digits = _digits(shown[~mask])
    lines = [
        tuple(_cell(value, bool(hides), digits) for value, hides in zip(line, hiding, strict=True))
        for line, hiding in zip(shown, mask, strict=True)
    ]
    parts = (_part(axes[0], rows[:down], sizes[0]), _part(axes[1], columns[:across], sizes[1]))
    return ValueTable(
        part=" × ".join(part for part in parts if part) or "the only one",
        row_axis=axes[0] or "row",
        column_axis=axes[1] or "column",
        columns=tuple(columns[:across]),
        rows=tuple(zip(rows[:down], lines, strict=True)),
        has_masked=bool(mask.any()),
    )


def _cell(value: np.generic, masked: bool, digits: int | None) -> Cell:
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


def _digits(values: Array) -> int | None:
    """Decimals that suit all cells of a table; None where their sizes differ too much for that."""
    if not np.issubdtype(values.dtype, np.floating):
        return None
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max()) if finite.size else 0.0
    if not 0.01 <= largest < 10_000:
        return None
    return max(0, 3 - max(0, math.floor(math.log10(largest)))) if largest >= 1 else 4


def _part(axis: str, headings: Sequence[Heading], size: int) -> str:
    if not axis or not headings:
        return ""
    first, last = headings[0].index, headings[-1].index
    extent = f"{axis} {first}–{last}" if first != last else f"{axis} {first}"
    return extent if len(headings) == size else f"{extent} of {size}"
