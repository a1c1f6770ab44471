"""Scaled dot-product attention in NumPy, and what its scale is good for: variances, saturation, mixing.

Arrays are float64. Axes: B sequences, H heads, T queries, S keys, c channels of a head.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Visible = NDArray[np.bool_]
"""True where a query may see a key."""


def raw_scores(q: Array, k: Array) -> Array:
    """Each query's dot product with each key: (…, T, c), (…, S, c) give (…, T, S)."""
    product: Array = q @ np.swapaxes(k, -1, -2)
    return product


def scale(raw: Array, width: int, *, scaled: bool = True, temperature: float = 1.0) -> Array:
    """The scores that enter the softmax: divided by the root of the width, unless unscaled, and a temperature."""
    return raw / (math.sqrt(width) if scaled else 1.0) / temperature


def softmax(scores: Array) -> Array:
    """The weights of each row, which sum to 1; a score of −∞ has the weight 0. At least one must be finite."""
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return weights


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    scaled: bool = True,
    temperature: float = 1.0,
    visible: Visible | None = None,
) -> Array:
    """The whole of it: (…, T, c), (…, S, c), (…, S, c) give (…, T, c). `visible` (T, S): True where a key counts."""
    scores = scale(raw_scores(q, k), q.shape[-1], scaled=scaled, temperature=temperature)
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    mixed: Array = softmax(scores) @ v
    return mixed


@dataclass(frozen=True, slots=True)
class Width:
    """Dot products over `channels` of them: their variance, and how sharp a softmax of them is.

    `largest` and `largest_scaled` are means of the largest weight of a row, without and with the scale.
    """

    channels: int
    variance: float
    scaled_variance: float
    largest: float
    largest_scaled: float


def standardised(x: Array) -> Array:
    """Every channel (the last axis) with mean 0 and variance 1 over all other axes; a constant one is 0."""
    axes = tuple(range(x.ndim - 1))
    spread = x.std(axis=axes)
    result: Array = (x - x.mean(axis=axes)) / np.where(spread > 0, spread, 1.0)
    return result


def by_width(q: Array, k: Array, widths: Iterable[int]) -> tuple[Width, ...]:
    """Scores over the first channels of q (B, T, d) and k (B, S, d), each channel brought to unit variance.

    For independent channels the variance of a dot product over n of them is n.
    """
    q, k = standardised(q), standardised(k)
    found = []
    for width in widths:
        raw = raw_scores(q[..., :width], k[..., :width])
        even = scale(raw, width)
        found.append(
            Width(
                width,
                float(raw.var()),
                float(even.var()),
                saturation(softmax(raw)).largest,
                saturation(softmax(even)).largest,
            )
        )
    return tuple(found)


def widths_up_to(d: int) -> tuple[int, ...]:
    """1, 2, 4 … and d itself."""
    powers = [1 << n for n in range(d.bit_length()) if 1 << n < d]
    return (*powers, d)


@dataclass(frozen=True, slots=True)
class Saturation:
    """How far rows of weights are from even, as means over the rows.

    `entropy` is in nats; `evenness` is it as a part of what equal weights over the same keys would have;
    `movable` is the trace of the softmax's Jacobian, 1 − Σw²: how much the scores can still move the weights.
    """

    entropy: float
    evenness: float
    largest: float
    movable: float


def saturation(weights: Array, visible: Visible | None = None) -> Saturation:
    """Measure rows of weights (…, T, S); `visible` (T, S) is True where a key counts, None where all do.

    Evenness leaves out rows with a single key.
    """
    logs = np.log(np.where(weights > 0, weights, 1.0))
    entropy = -(weights * logs).sum(axis=-1)
    keys = np.broadcast_to(weights.shape[-1] if visible is None else visible.sum(axis=-1), entropy.shape)
    several = keys > 1
    even = entropy[several] / np.log(keys[several])
    return Saturation(
        entropy=float(entropy.mean()),
        evenness=float(even.mean()) if even.size else 0.0,
        largest=float(weights.max(axis=-1).mean()),
        movable=float((1 - (weights**2).sum(axis=-1)).mean()),
    )


def off_one(weights: Array) -> float:
    """How far the sum of a row is from 1, at most."""
    return float(np.abs(weights.sum(axis=-1) - 1).max())


def outside(context: Array, weights: Array, v: Array) -> float:
    """By how much an output leaves the range of the values that it mixes, at most; 0 or less where none does.

    Takes context (B, H, T, c), weights (B, H, T, S), v (B, H, S, c). A mix with weights that sum to 1 cannot.
    """
    largest = -np.inf
    for mixed, weight, values in zip(context, weights, v, strict=True):  # one sequence at a time, to be small
        counts = (weight > 0)[..., None]
        each = values[:, None]
        low = np.where(counts, each, np.inf).min(axis=-2)
        high = np.where(counts, each, -np.inf).max(axis=-2)
        largest = max(largest, float(np.maximum(low - mixed, mixed - high).max()))
    return largest


def relative(found: Array, reference: Array) -> float:
    """The difference of two arrays as a part of the reference, both measured by their L2 norms."""
    size = float(np.linalg.norm(reference))
    return float(np.linalg.norm(found - reference)) / size if size else 0.0
