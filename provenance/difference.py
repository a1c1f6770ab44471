"""How two tensors differ: the figures of one comparison, and whether they agree within a tolerance.

The tolerance is relative to the largest value compared with, so that it means the same for scores of
0.1 and for a residual stream of 3,000. Whole numbers and truth values must be equal.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from provenance.names import Address

RELATIVE = 2e-5
"""What is tolerated of float32: max|Δ| ≤ 2e-5 · max|reference|."""

_LAST_PLACES = 16
"""What is tolerated of coarser types, in their last places: the exponential of a score enlarges its rounding."""

HIDDEN = 100.0
"""A score that lies this far below every visible one is masked: its exponential is 0 in float32 beside them."""

_CELLS_AT_ONCE = 1 << 21
"""Cells that are widened to float64 at one time."""


class Status(StrEnum):
    """What came out of one comparison."""

    SAME = "same"
    """equal bit for bit"""
    WITHIN = "within"
    """equal within the tolerance"""
    DIFFERS = "differs"
    UNFIT = "unfit"
    """not compared: the shapes do not fit, and `note` says how"""


@dataclass(frozen=True, slots=True)
class Difference:
    """One tensor `a` (the reference) against another, `b`.

    `name` is what the other side calls it. `compared` counts the cells that were compared: masked ones
    are left out. `largest` is max|a − b| over the finite ones, `relative` that over max|a|, `cosine` that
    of the two as vectors (None where one is zero). `first` is the index of the first cell, in row-major
    order, that differs by more than `tolerance`, or is finite on one side only.
    """

    address: Address
    name: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    dtypes: tuple[str, str]
    status: Status
    compared: int = 0
    largest: float = 0.0
    relative: float = 0.0
    cosine: float | None = None
    tolerance: float = 0.0
    first: tuple[int, ...] | None = None
    first_values: tuple[float, float] | None = None
    note: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the two are equal, bit for bit or within the tolerance."""
        return self.status in (Status.SAME, Status.WITHIN)


def tolerated(a: torch.dtype, b: torch.dtype) -> float:
    """The relative tolerance of two dtypes where none is asked for: the coarser one's last place decides."""
    floats = [dtype for dtype in (a, b) if dtype.is_floating_point]
    return max([RELATIVE, *(_LAST_PLACES * torch.finfo(dtype).eps for dtype in floats)])


def difference(
    address: Address,
    a: Tensor,
    b: Tensor,
    *,
    name: str = "",
    visible: Tensor | None = None,
    relative: float | None = None,
    hidden: bool = False,
    scale: float = 0.0,
) -> Difference:
    """Compare two tensors of one shape; `visible` is True at the cells that count, broadcast over leading axes.

    `hidden` says that the other cells must be masked scores on both sides, whatever fills them. `scale` is
    what max|a| counts as where it is smaller: the size of the terms of a sum that cancels.
    """
    shapes, dtypes = (tuple(a.shape), tuple(b.shape)), (_dtype(a), _dtype(b))
    name = name or str(address)

    def unfit(note: str) -> Difference:
        return Difference(address, name, shapes, dtypes, Status.UNFIT, note=note)

    if a.shape != b.shape:
        return unfit(f"shapes differ: {list(a.shape)} and {list(b.shape)}")
    if a.is_complex() or b.is_complex():
        return unfit("complex numbers are not compared")
    cells = a.numel() if visible is None else int(visible.sum()) * (a.numel() // max(1, visible.numel()))
    pairs = _Pairs(a, b, visible)
    found = pairs.figures()
    exact = not (a.is_floating_point() or b.is_floating_point())
    allowed = tolerated(a.dtype, b.dtype) if relative is None else relative
    reference = max(found.reference, scale)
    tolerance = 0.0 if exact else allowed * reference
    shown = pairs.shown(found.lowest) if hidden and visible is not None else None
    first = None if found.same else pairs.first(tolerance)
    if shown is not None and shown.any():
        index = int(shown.flatten().to(torch.uint8).argmax())
        first = index if first is None else min(first, index)
    notes = []
    if found.unlike:
        notes.append(f"{_cells(found.unlike)} finite on one side only, or infinite differently")
    if shown is not None and shown.any():
        notes.append(f"{_cells(int(shown.sum()))} masked on one side only")
    status = Status.DIFFERS if first is not None else Status.SAME if found.same else Status.WITHIN
    at = None if first is None else _unravel(first, a.shape)
    return Difference(
        address,
        name,
        shapes,
        dtypes,
        status,
        cells,
        found.largest,
        found.largest / reference if reference else found.largest,
        found.cosine,
        tolerance,
        at,
        None if at is None else (float(a[at]), float(b[at])),
        "; ".join(notes),
    )


@dataclass(slots=True)
class _Figures:
    """What one pass over the cells finds; `lowest` is the smallest finite value of the reference."""

    same: bool = True
    reference: float = 0.0
    largest: float = 0.0
    lowest: float = float("inf")
    unlike: int = 0
    cosine: float | None = None


class _Pairs:
    """Two tensors cell by cell, in row-major order, and which of the cells count."""

    def __init__(self, a: Tensor, b: Tensor, visible: Tensor | None) -> None:
        self.alike = a.dtype == b.dtype
        self.exact = not (a.is_floating_point() or b.is_floating_point())
        self.one_object = a is b
        self.shape = a.shape
        self.a, self.b = a.reshape(-1), b.reshape(-1)
        self.visible = None if visible is None else visible.expand(a.shape)
        self.counted = None if self.visible is None else self.visible.reshape(-1)

    def _parts(self) -> Iterator[tuple[int, Tensor, Tensor, Tensor | None]]:
        for start in range(0, len(self.a), _CELLS_AT_ONCE):
            cut = slice(start, start + _CELLS_AT_ONCE)
            yield start, self.a[cut], self.b[cut], None if self.counted is None else self.counted[cut]

    def figures(self) -> _Figures:
        """One pass; where all cells have equal bits, only what the cosine and the tolerance need."""
        found = _Figures(same=self.alike)
        dot = squares = other_squares = 0.0
        for _, a, b, counted in self._parts():
            if counted is not None:
                a, b = a[counted], b[counted]
            same = self.alike and (self.one_object or _same_bits(a, b))
            found.same = found.same and same
            wide = a.double()
            other = wide if same else b.double()
            finite = wide.isfinite() if same else wide.isfinite() & other.isfinite()
            if not finite.all():
                if not same:
                    odd = ~finite & ~((wide == other) | (wide.isnan() & other.isnan()))
                    found.unlike += int(odd.sum())
                wide, other = wide[finite], wide[finite] if same else other[finite]
            if not wide.numel():
                continue
            found.reference = max(found.reference, float(wide.abs().max()))
            found.lowest = min(found.lowest, float(wide.min()))
            found.largest = max(found.largest, 0.0 if same else float((wide - other).abs().max()))
            dot += float(wide @ other)
            squares += float(wide @ wide)
            other_squares += float(other @ other)
        norms = squares**0.5 * other_squares**0.5
        found.cosine = max(-1.0, min(1.0, dot / norms)) if norms else None
        return found

    def first(self, tolerance: float) -> int | None:
        """The flat index of the first cell that counts and differs by more."""
        for start, a, b, counted in self._parts():
            wide, other = a.double(), b.double()
            alike = (wide == other) | (wide.isnan() & other.isnan())
            wrong = ~alike & ~((wide - other).abs() <= tolerance)
            if self.exact and self.alike:  # whole numbers over 2^53 are not all float64
                wrong = a != b
            if counted is not None:
                wrong &= counted
            if wrong.any():
                return start + int(wrong.to(torch.uint8).argmax())
        return None

    def shown(self, lowest: float) -> Tensor:
        """The cells that do not count, and hold no masked score on one of the sides."""
        assert self.visible is not None
        a, b = self.a.view(self.shape), self.b.view(self.shape)
        far = lowest - HIDDEN
        return ~self.visible & ~((a.double() <= far) & (b.double() <= far))


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _cells(number: int) -> str:
    return "1 cell is" if number == 1 else f"{number:,} cells are"


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """NaN is equal to the same NaN, and 0 is not −0."""
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def _unravel(index: int, shape: torch.Size) -> tuple[int, ...]:
    found = []
    for size in reversed(shape):
        index, rest = divmod(index, size)
        found.append(rest)
    return tuple(reversed(found))
