"""Profiles: how large the cells are row by row, and which columns are the largest."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from app.pages.numbers import Number, measure, rounded
from app.pictures.parts import Mark
from provenance.pictures.cells import Array, Mask, exact

MOST_POINTS = 160
"""The most points of a profile; longer ones join rows."""
TOP = 8
_AT_ONCE = 1 << 21
_WIDTH, _HEIGHT = 640.0, 130.0

Names = Callable[[int], str]
"""Says what stands at an index: `3 “ fox”`."""


@dataclass(frozen=True, slots=True)
class Point:
    """One row, or several joined: its share of the width, and its read-out."""

    x: float
    width: float
    says: str


@dataclass(frozen=True, slots=True)
class ProfilePicture:
    """RMS by row as a line, minimum to maximum as a band; both as SVG paths."""

    width: float
    height: float
    band: str
    line: str
    zero: float
    points: tuple[Point, ...]
    low: str
    high: str
    ticks: tuple[Mark, ...]
    joined: int
    alternative: str


@dataclass(frozen=True, slots=True)
class Leader:
    """One of the largest columns: its RMS, its share of the largest one's, and its strongest cell."""

    index: int
    name: str
    rms: Number
    share: float
    peak: Number
    peak_at: str


def row_profile(
    cells: Array, hidden: Mask | None, axis: str, names: Names, sums: "Sums | None" = None
) -> ProfilePicture | None:
    """The profile of a matrix's rows; None for fewer than two rows or where nothing is finite."""
    rows = cells.shape[0]
    sums = sums or sums_of(cells, hidden)
    if rows < 2 or not sums.row_counts.any():
        return None
    joined = -(-rows // MOST_POINTS)
    starts = np.arange(0, rows, joined)
    counted = np.add.reduceat(sums.row_counts, starts)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        rms = np.sqrt(np.add.reduceat(sums.row_squares, starts) / counted)
    low, high = np.minimum.reduceat(sums.lows, starts), np.maximum.reduceat(sums.highs, starts)
    bottom, top = min(0.0, float(low.min())), max(0.0, float(high.max()), float(np.nanmax(rms)))
    if not 0 < top - bottom < np.inf:
        return None
    step = _WIDTH / len(starts)
    middles = [round((n + 0.5) * step, 2) for n in range(len(starts))]

    def level(value: float) -> float:
        return round(_HEIGHT * (top - value) / (top - bottom), 2)

    def name(point: int) -> str:
        first, last = point * joined, min(rows, (point + 1) * joined) - 1
        return names(first) if first == last else f"{names(first)} to {names(last)}"

    drawn = [n for n in range(len(starts)) if counted[n]]
    return ProfilePicture(
        width=_WIDTH,
        height=_HEIGHT,
        band=_path([(middles[n], level(high[n])) for n in drawn] + [(middles[n], level(low[n])) for n in drawn[::-1]])
        + "Z",
        line=_path([(middles[n], level(rms[n])) for n in drawn]),
        zero=level(0.0),
        points=tuple(
            Point(
                round(n * step, 2),
                round(step, 2),
                f"{axis} {name(n)}: RMS {rounded(rms[n])}, from {rounded(low[n])} to {rounded(high[n])}",
            )
            for n in drawn
        ),
        low=rounded(bottom),
        high=rounded(top),
        ticks=_ticks(rows, joined, step),
        joined=joined,
        alternative=_alternative(axis, rms, drawn, name, rows),
    )


def largest_columns(
    cells: Array, hidden: Mask | None, names: Names, row_names: Names, most: int = TOP, sums: "Sums | None" = None
) -> tuple[Leader, ...]:
    """The columns with the largest RMS, the largest first."""
    sums = sums or sums_of(cells, hidden)
    if not sums.column_counts.any():
        return ()
    with np.errstate(over="ignore"):
        rms = np.sqrt(sums.column_squares / np.maximum(sums.column_counts, 1))
    # Sorting only what can be among them: there may be as many columns as a vocabulary has entries.
    found = np.flatnonzero(rms >= np.partition(rms, -most)[-most]) if len(rms) > most else np.arange(len(rms))
    order = [int(n) for n in found[np.argsort(-rms[found], kind="stable")][:most] if sums.column_counts[n]]
    leaders = []
    for column in order:
        usable = _usable(cells[:, column], None if hidden is None else hidden[:, column])
        values = np.where(usable, cells[:, column], 0)
        row = int(np.argmax(np.abs(values)))
        share = float(rms[column] / rms[order[0]]) if 0 < rms[order[0]] < np.inf else 0.0
        peak = Number(rounded(float(values[row])), exact(values[row]))
        leaders.append(
            Leader(column, names(column), measure(float(rms[column])), round(share, 4), peak, row_names(row))
        )
    return tuple(leaders)


@dataclass(frozen=True, slots=True)
class Sums:
    """Counts and sums of squares by row and column, and each row's ends, over usable cells."""

    row_counts: Array
    row_squares: Array
    lows: Array
    highs: Array
    column_counts: Array
    column_squares: Array


def sums_of(cells: Array, hidden: Mask | None) -> Sums:
    """The sums of a matrix, in parts that fit the memory."""
    every = max(1, _AT_ONCE // max(1, cells.shape[1]))
    by_row: list[tuple[Array, ...]] = []
    column_counts, column_squares = np.zeros(cells.shape[1], dtype=np.int64), np.zeros(cells.shape[1])
    for at in range(0, cells.shape[0], every):
        part = cells[at : at + every]
        usable = _usable(part, None if hidden is None else hidden[at : at + every])
        wide = part.astype(np.float64)
        if not (whole := bool(usable.all())):
            wide = np.where(usable, wide, 0.0)
        with np.errstate(over="ignore"):
            squares = np.square(wide)
            column_squares += squares.sum(0)
            row_squares = squares.sum(1)
        column_counts += usable.sum(0)
        low, high = (wide if whole else np.where(usable, wide, end) for end in (np.inf, -np.inf))
        by_row.append((usable.sum(1), row_squares, low.min(1), high.max(1)))
    counts, sums, lows, highs = (np.concatenate(parts) for parts in zip(*by_row, strict=True))
    return Sums(counts, sums, lows, highs, column_counts, column_squares)


def _usable(cells: Array, hidden: Mask | None) -> Mask:
    usable: Mask = np.isfinite(cells) if hidden is None else np.isfinite(cells) & ~hidden
    return usable


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _ticks(rows: int, joined: int, step: float) -> tuple[Mark, ...]:
    every = next(n for n in (lead * 10**power for power in range(9) for lead in (1, 2, 5)) if rows / n <= 10)
    return tuple(Mark(round((row // joined + 0.5) * step, 2), str(row)) for row in range(0, rows, every))


def _alternative(axis: str, rms: Array, drawn: list[int], name: Names, rows: int) -> str:
    most = max(drawn, key=lambda n: float(rms[n]))
    least = min(drawn, key=lambda n: float(rms[n]))
    return (
        f"RMS by {axis}, {rows} in all: largest {rounded(float(rms[most]))} at {axis} {name(most)}, "
        f"smallest {rounded(float(rms[least]))} at {axis} {name(least)}."
    )
