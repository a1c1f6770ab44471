"""Many cells drawn as one: by their mean, or by the one that is furthest from zero."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

from provenance.pictures.cells import Array, Mask

_AT_ONCE = 1 << 21
"""The most cells that are worked on at once, to spare memory."""


class Reduce(StrEnum):
    """How a block of cells becomes one."""

    LARGEST = "maxabs"
    MEAN = "mean"

    @property
    def says(self) -> str:
        """The way in words."""
        return "the mean of" if self is Reduce.MEAN else "the one furthest from zero among"


class Is(IntEnum):
    """What a drawn cell is."""

    VALUE = 0
    MASKED = 1
    NAN = 2
    POSITIVE = 3
    NEGATIVE = 4


@dataclass(frozen=True, slots=True)
class Blocks:
    """Drawn cells: a finite value for each, and what it is (`Is`); the value counts where it is VALUE."""

    values: NDArray[np.float64]
    kinds: NDArray[np.uint8]


def reduce_blocks(cells: Array, hidden: Mask | None, rows: int, cols: int, how: Reduce) -> Blocks:
    """Cells (rows, columns) in blocks of `rows` by `cols`; blocks at the end may be smaller.

    A block with a NaN is NaN, else one with an infinity is infinite, so that no reduction hides
    them; masked cells are left out, and a block of nothing else is masked.
    """
    every = max(1, _AT_ONCE // max(1, rows * cells.shape[1])) * rows
    parts = [
        _reduce(cells[at : at + every], None if hidden is None else hidden[at : at + every], rows, cols, how)
        for at in range(0, cells.shape[0], every)
    ]
    return Blocks(np.concatenate([part.values for part in parts]), np.concatenate([part.kinds for part in parts]))


def _reduce(cells: Array, hidden: Mask | None, rows: int, cols: int, how: Reduce) -> Blocks:
    wide = cells.astype(np.float64)
    shown = np.ones(wide.shape, dtype=bool) if hidden is None else ~hidden
    usable = shown & np.isfinite(wide)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if how is Reduce.MEAN:
            counted = _over(np.add, usable.astype(np.float64), rows, cols)
            values = _over(np.add, np.where(usable, wide, 0.0), rows, cols) / counted
        else:
            high = _over(np.maximum, np.where(usable, wide, -np.inf), rows, cols)
            low = _over(np.minimum, np.where(usable, wide, np.inf), rows, cols)
            values = np.where(high >= -low, high, low)
    kinds = np.where(_over(np.logical_or, usable, rows, cols), np.uint8(Is.VALUE), np.uint8(Is.MASKED))
    if not usable.all():
        for kind, found in (
            (Is.NEGATIVE, np.isneginf(wide)),
            (Is.POSITIVE, np.isposinf(wide)),
            (Is.NAN, np.isnan(wide)),
        ):
            kinds[_over(np.logical_or, found & shown, rows, cols)] = kind
    return Blocks(np.where(kinds == Is.VALUE, values, 0.0), kinds.astype(np.uint8))


def _over(ufunc: np.ufunc, cells: Array, rows: int, cols: int) -> Array:
    for axis, block in enumerate((rows, cols)):
        if block > 1:
            cells = ufunc.reduceat(cells, np.arange(0, cells.shape[axis], block), axis=axis)
    return cells
