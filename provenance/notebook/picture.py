"""A small picture of a tensor: its last two axes, the others at their first index."""

from collections.abc import Sequence
from dataclasses import dataclass

from provenance.notebook.cards import number
from provenance.pictures.cells import Array, Mask
from provenance.pictures.colours import Scale, scale_of_blocks, scale_of_summary
from provenance.pictures.paint import heatmap_png
from provenance.pictures.reduce import Blocks, Reduce, reduce_blocks
from provenance.summary import Summary

_ROWS, _COLS = 64, 128
"""The most cells that are drawn, down and across."""
_HIGH, _WIDE, _LARGEST = 192, 512, 16
"""The picture's size in pixels, and the largest cell's."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG, and in words what it shows."""

    png: bytes
    says: str


def picture_of(array: Array, masked: Mask | None, axes: Sequence[str], summary: Summary) -> Picture | None:
    """The heatmap of a tensor; None where it has no cells. `axes` name its axes in order."""
    if not array.size:
        return None
    shown = [n for n, size in enumerate(array.shape) if size > 1][-2:]
    index = tuple(slice(None) if n in shown else 0 for n in range(array.ndim))
    cells, hidden = _plane(array[index]), None if masked is None else _plane(masked[index])
    rows, cols = (-(-size // most) for size, most in zip(cells.shape, (_ROWS, _COLS), strict=True))
    blocks = reduce_blocks(cells, hidden, rows, cols, Reduce.LARGEST)
    scale = scale_of_blocks(blocks) if rows * cols > 1 else scale_of_summary(summary)
    return Picture(heatmap_png(blocks, scale, _cell(blocks)), _says(array.shape, shown, axes, scale, rows * cols > 1))


def _plane(part: Array) -> Array:
    """Cells with rows and columns."""
    return part.reshape(-1, part.shape[-1]) if part.ndim else part.reshape(1, 1)


def _cell(blocks: Blocks) -> tuple[int, int]:
    high, wide = blocks.values.shape
    each = max(1, min(_LARGEST, _HIGH // high, _WIDE // wide))
    return each, each


def _says(shape: Sequence[int], shown: Sequence[int], axes: Sequence[str], scale: Scale, joined: bool) -> str:
    sides = [axes[n] for n in shown]
    what = f"{sides[0]} down, {sides[1]} across" if len(sides) == 2 else f"{''.join(sides) or 'one cell'} across"
    at = [f"{axes[n]} 0" for n, size in enumerate(shape) if size > 1 and n not in shown]
    blocks = "; neighbouring cells joined, the one furthest from zero shown" if joined else ""
    place = f", at {', '.join(at)}" if at else ""
    return f"{what}{place}; colours from {number(scale.low)} to {number(scale.high)}{blocks}"
