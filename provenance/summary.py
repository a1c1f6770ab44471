"""Statistics of one tensor, computed in float64 over the cells that mean something."""

import math
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from provenance.errors import InvalidInput

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
BINS = 64

_TAME = (2.0**-500, 2.0**500)
"""Peaks between these can be squared and summed in float64 without overflow or underflow."""

Cells = NDArray[np.float64]
Raw = NDArray[np.bool_ | np.integer | np.floating]


@dataclass(frozen=True, slots=True)
class Quantile:
    """The value below which the fraction `q` of the cells lies, by NumPy's linear method."""

    q: float
    value: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of cells in equal bins from the minimum to the maximum, as numpy.histogram cuts them.

    Bin i holds the cells from `edges[i]` up to, but without, `edges[i + 1]`; the last bin
    includes its upper edge. If all cells are equal, the bins span one unit around their value.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """What one tensor holds, in plain Python values; no number in it is ever NaN or infinite.

    `count_total` counts all cells and is the sum of `count_masked`, `count_finite`, `count_nan`,
    `count_posinf` and `count_neginf`. A masked cell is counted as masked only, whatever it
    holds. `count_zero` is the part of `count_finite` that equals 0 (or -0).

    All statistics are over the finite, unmasked cells; without any they are None, `quantiles`
    is empty and `histogram` is None. True counts as 1, False as 0. `std` is the population's
    (divided by n). Two things can be missing on their own: `histogram`, when float64 cannot cut
    the range into 64 bins, and `l2`, when it is larger than any float64.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str
    count_total: int
    count_finite: int
    count_nan: int
    count_posinf: int
    count_neginf: int
    count_zero: int
    count_masked: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    std: float | None
    l2: float | None
    quantiles: tuple[Quantile, ...]
    histogram: Histogram | None

    def as_json(self) -> dict[str, object]:
        """The same fields as a tree that strict JSON can hold."""
        return asdict(self)


def summarize(tensor: torch.Tensor, masked: torch.Tensor | None = None) -> Summary:
    """Summarise a tensor of any shape and any real dtype.

    `masked` is a boolean tensor, True where a cell is to be left out; it is broadcast to the
    tensor's shape: `[T query, S key]` serves `[B batch, H head, T query, S key]`.
    Raises InvalidInput when it cannot be broadcast, is not boolean, or the tensor is complex.
    """
    if tensor.is_complex():
        raise InvalidInput(f"A complex tensor ({tensor.dtype}) has no summary.", hint="Summarise its parts.")
    cells = _unmasked(tensor, masked)
    unmasked_count = cells.size
    nan_count = posinf_count = neginf_count = 0
    finite = np.isfinite(cells)
    if not finite.all():
        nan_count = int(np.count_nonzero(np.isnan(cells)))
        posinf_count = int(np.count_nonzero(np.isposinf(cells)))
        neginf_count = int(np.count_nonzero(np.isneginf(cells)))
        cells = cells[finite]
    del finite
    values = cells.astype(np.float64)
    minimum, maximum = (float(values.min()), float(values.max())) if values.size else (None, None)
    mean, std, l2 = _moments(values)
    histogram = _histogram(values)
    return Summary(
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=str(tensor.device),
        count_total=tensor.numel(),
        count_finite=values.size,
        count_nan=nan_count,
        count_posinf=posinf_count,
        count_neginf=neginf_count,
        count_zero=values.size - int(np.count_nonzero(values)),
        count_masked=tensor.numel() - unmasked_count,
        minimum=minimum,
        maximum=maximum,
        mean=mean,
        std=std,
        l2=l2,
        quantiles=_quantiles(values),  # last: it reorders the values
        histogram=histogram,
    )


def _unmasked(tensor: torch.Tensor, masked: torch.Tensor | None) -> Raw:
    """The unmasked cells in one row, as NumPy knows them. May share memory with the tensor."""
    plain = tensor.detach().cpu()
    if plain.is_floating_point() and plain.dtype not in (torch.float32, torch.float64):
        plain = plain.float()  # exact, and NumPy has no bfloat16
    array: Raw = plain.numpy()
    if masked is None:
        return array.reshape(-1)
    if masked.dtype != torch.bool:
        raise InvalidInput(f"A mask must be boolean; this one is {masked.dtype}.")
    keep = ~masked.detach().cpu().numpy()
    try:
        kept: Raw = array[np.broadcast_to(keep, array.shape)]
    except ValueError as error:
        raise InvalidInput(
            f"A mask of shape {list(masked.shape)} does not fit a tensor of shape {list(tensor.shape)}."
        ) from error
    return kept


def _moments(values: Cells) -> tuple[float | None, float | None, float | None]:
    """Mean, population standard deviation and L2 norm, scaled where squares would leave float64."""
    if not values.size:
        return None, None, None
    peak = max(abs(float(values.min())), abs(float(values.max())))
    exponent = 0
    if peak and not _TAME[0] < peak < _TAME[1]:
        # A power of two changes no digit. Half of the room is left for the sum.
        exponent = math.frexp(peak)[1]
        values = np.ldexp(values, -exponent)
    mean = math.ldexp(float(values.mean()), exponent)
    std = math.ldexp(float(values.std()), exponent)
    try:
        return mean, std, math.ldexp(math.sqrt(float(np.dot(values, values))), exponent)
    except OverflowError:
        return mean, std, None


def _quantiles(values: Cells) -> tuple[Quantile, ...]:
    """NumPy's linear quantiles. Reorders the values, to spare a copy."""
    if not values.size:
        return ()
    # NumPy subtracts neighbours, which overflows between the two ends of float64's range.
    halved = not np.isfinite(2 * (abs(float(values.min())) + abs(float(values.max()))))
    if halved:
        values *= 0.5
    found = np.quantile(values, QUANTILES, overwrite_input=True)
    return tuple(
        Quantile(q, float(value) * (2.0 if halved else 1.0)) for q, value in zip(QUANTILES, found, strict=True)
    )


def _histogram(values: Cells) -> Histogram | None:
    """numpy.histogram with 64 bins, or None where NumPy finds the range too narrow or too wide."""
    if not values.size:
        return None
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            counts, edges = np.histogram(values, bins=BINS)
    except ValueError:
        return None
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))
