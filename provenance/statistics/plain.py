"""Statistics with NumPy, in float64: of any real dtype, and of float32 until the machine code is ready."""

import math

import numpy as np
from numpy.typing import NDArray

from provenance.statistics import BINS, QUANTILES, Statistics

_TAME = (2.0**-500, 2.0**500)
"""Peaks between these can be squared and summed in float64 without overflow or underflow."""

Cells = NDArray[np.float64]


def statistics(values: Cells) -> Statistics:
    """Statistics of finite cells [n], n > 0. Reorders the values, to spare a copy."""
    minimum, maximum = float(values.min()), float(values.max())
    mean, std, l2 = _moments(values, max(abs(minimum), abs(maximum)))
    edges, counts = _histogram(values)
    zeros = values.size - int(np.count_nonzero(values))
    return Statistics(zeros, minimum, maximum, mean, std, l2, _quantiles(values), edges, counts)


def _moments(values: Cells, peak: float) -> tuple[float, float, float | None]:
    """Mean, population standard deviation and L2 norm, scaled where squares would leave float64."""
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


def _quantiles(values: Cells) -> tuple[float, ...]:
    """NumPy's linear quantiles. Reorders the values."""
    # NumPy subtracts neighbours, which overflows between the two ends of float64's range.
    halved = not np.isfinite(2 * (abs(float(values.min())) + abs(float(values.max()))))
    if halved:
        values *= 0.5
    found = np.quantile(values, QUANTILES, overwrite_input=True)
    return tuple(float(value) * (2.0 if halved else 1.0) for value in found)


def _histogram(values: Cells) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """numpy.histogram with 64 bins, or nothing where NumPy finds the range too narrow or too wide."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            counts, edges = np.histogram(values, bins=BINS)
    except ValueError:
        return (), ()
    return tuple(edges.tolist()), tuple(counts.tolist())
