"""Heatmaps as pixels."""

import numpy as np
from numpy.typing import NDArray

from provenance.pictures.colours import HATCH, MASKED, NAN, NEGATIVE, POSITIVE, SIGN, Scale
from provenance.pictures.png import indexed_png
from provenance.pictures.reduce import Blocks

_HATCH_EVERY = 6
_SIGN_FROM = 9
"""The smallest cell, in pixels, that holds a sign."""


def heatmap_png(blocks: Blocks, scale: Scale, cell: tuple[int, int]) -> bytes:
    """Drawn cells as a PNG; each is `cell` pixels high and wide."""
    return indexed_png(paint(scale.numbers(blocks), *cell), scale.palette)


def paint(numbers: NDArray[np.uint8], high: int, wide: int) -> NDArray[np.uint8]:
    """Drawn cells as pixels: masked ones hatched, NaN crossed, infinities with their sign."""
    pixels = numbers.repeat(high, axis=0).repeat(wide, axis=1)
    if (numbers >= MASKED).any():
        down, across = np.ogrid[: pixels.shape[0], : pixels.shape[1]]
        pixels[(pixels == MASKED) & ((down + across) % _HATCH_EVERY == 0)] = HATCH
        if min(high, wide) >= _SIGN_FROM:
            for number, sign in _signs(min(high, wide)).items():
                for row, col in np.argwhere(numbers == number).tolist():
                    size = len(sign)
                    top, left = row * high + (high - size) // 2, col * wide + (wide - size) // 2
                    pixels[top : top + size, left : left + size][sign] = SIGN
    return pixels


def _signs(size: int) -> dict[int, NDArray[np.bool_]]:
    """A cross, a plus and a minus of odd size, a little over half of a cell."""
    size = min(15, size * 3 // 5) | 1
    at = np.arange(size)
    line = np.broadcast_to(at == size // 2, (size, size))
    cross = (at[:, None] == at) | (at[:, None] + at == size - 1)
    return {NAN: cross, POSITIVE: line | line.T, NEGATIVE: line.T}
