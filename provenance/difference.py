"""How two tensors differ: the figures of one comparison, and whether they agree within a tolerance.

The tolerance is relative to the largest value compared with, so that it means the same for scores of
0.1 and for a residual stream of 3,000. Whole numbers and truth values must be equal.
"""

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from provenance.names import Address

RELATIVE = 2e-5
"""What is tolerated of float32: max|Δ| ≤ 2e-5 · max|reference|. Coarser types have their own last place."""


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
    return max([RELATIVE, *(4 * torch.finfo(dtype).eps for dtype in floats)])


def difference(
    address: Address,
    a: Tensor,
    b: Tensor,
    *,
    name: str = "",
    visible: Tensor | None = None,
    relative: float | None = None,
) -> Difference:
    """Compare two tensors of one shape; `visible` is True at the cells that count, broadcast over leading axes."""
    shapes, dtypes = (tuple(a.shape), tuple(b.shape)), (_dtype(a), _dtype(b))
    name = name or str(address)
    if a.shape != b.shape:
        note = f"shapes differ: {list(a.shape)} and {list(b.shape)}"
        return Difference(address, name, shapes, dtypes, Status.UNFIT, note=note)
    counted = torch.ones_like(a, dtype=torch.bool) if visible is None else visible.expand(a.shape)
    cells = int(counted.sum())
    if a.dtype == b.dtype and torch.equal(a[counted], b[counted]):
        return Difference(address, name, shapes, dtypes, Status.SAME, cells, cosine=_cosine(a[counted], b[counted]))
    exact = not (a.is_floating_point() or b.is_floating_point())
    wide, other = a.double(), b.double()
    finite = wide.isfinite() & other.isfinite() & counted
    reference = float(wide[finite].abs().max()) if finite.any() else 0.0
    allowed = tolerated(a.dtype, b.dtype) if relative is None else relative
    tolerance = 0.0 if exact else allowed * reference
    apart = (wide - other).abs()
    unlike = counted & ~finite & ~((wide == other) | (wide.isnan() & other.isnan()))
    wrong = (finite & (apart > tolerance)) | unlike
    largest = float(apart[finite].max()) if finite.any() else 0.0
    first = _first(wrong)
    return Difference(
        address,
        name,
        shapes,
        dtypes,
        Status.WITHIN if first is None else Status.DIFFERS,
        cells,
        largest,
        largest / reference if reference else largest,
        _cosine(wide[finite], other[finite]),
        tolerance,
        first,
        None if first is None else (float(wide[first]), float(other[first])),
        f"{int(unlike.sum())} cells are finite on one side only, or infinite differently" if unlike.any() else "",
    )


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _first(wrong: Tensor) -> tuple[int, ...] | None:
    if not wrong.any():
        return None
    index = int(wrong.flatten().to(torch.uint8).argmax())
    return tuple(int(n) for n in torch.unravel_index(torch.tensor(index), wrong.shape))


def _cosine(a: Tensor, b: Tensor) -> float | None:
    one, other = a.flatten().double(), b.flatten().double()
    norms = float(one.norm() * other.norm())
    return max(-1.0, min(1.0, float(one @ other) / norms)) if norms else None
