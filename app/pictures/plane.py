"""Which cells of a tensor a picture shows: two axes, a window of each, the other axes at one index."""

from dataclasses import dataclass

import numpy as np

from provenance.pictures.cells import Array


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two shown axes: its place in the shape (None where the tensor has no such axis).

    The window holds `count` cells from `first` on; a drawn cell stands for `block` of them.
    """

    axis: int | None
    size: int
    first: int
    count: int
    block: int

    @property
    def drawn(self) -> int:
        """How many cells are drawn."""
        return -(-self.count // self.block)

    @property
    def last(self) -> int:
        """The index of the window's last cell."""
        return self.first + self.count - 1

    @property
    def whole(self) -> "Side":
        """The same axis without a window, every cell drawn."""
        return Side(self.axis, self.size, 0, self.size, 1)


@dataclass(frozen=True, slots=True)
class Plane:
    """A part of a tensor with two axes. `at` is the index of every axis that is not shown."""

    rows: Side
    cols: Side
    at: tuple[int | None, ...]

    @property
    def whole(self) -> "Plane":
        """The same two axes without a window."""
        return Plane(self.rows.whole, self.cols.whole, self.at)

    @property
    def pieces(self) -> tuple[str, ...]:
        """An index for every axis, `R` and `C` for the shown ones: `0`, `3`, `R`, `C`."""
        shown = {self.rows.axis: "R", self.cols.axis: "C"}
        return tuple(shown.get(axis, str(index)) for axis, index in enumerate(self.at))

    def take(self, array: Array) -> Array:
        """The window's cells (rows, columns); shares memory with the tensor."""
        index: list[int | slice] = [index or 0 for index in self.at]
        for side in (self.rows, self.cols):
            if side.axis is not None:
                index[side.axis] = slice(side.first, side.first + side.count)
        found = array[tuple(index)]
        if self.rows.axis is not None and self.cols.axis is not None:
            return found.T if self.rows.axis > self.cols.axis else found
        return np.reshape(found, (-1, 1) if self.cols.axis is None else (1, -1))


def side(axis: int | None, size: int, most: int, first: int = 0, zoom: int = 1) -> Side:
    """A window that begins at `first` where it fits, and of which at most `most` cells are drawn.

    Zoom 1 shows the whole axis, zoom n about the n-th part of it, but never fewer than `most` cells.
    """
    count = min(size, max(most, -(-size // zoom)))
    return Side(axis, size, max(0, min(first, size - count)), count, max(1, -(-count // most)))
