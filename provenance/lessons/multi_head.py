"""What it means to split attention into heads: the split, the merge, and what agreeing heads would lose.

Arrays are float64. Axes: B sequences, H heads, T queries, S keys, c channels of a head, d = H · c.
"""

from dataclasses import dataclass

import numpy as np

from provenance.lessons.scaled_dot_product import Array, Visible, relative


def split_heads(x: Array, heads: int) -> Array:
    """(B, T, d) as (B, H, T, c): each head has its run of channels."""
    batch, length, d = x.shape
    return x.reshape(batch, length, heads, d // heads).transpose(0, 2, 1, 3)


def merge_heads(x: Array) -> Array:
    """(B, H, T, c) as (B, T, d): the heads side by side. The inverse of `split_heads`."""
    batch, heads, length, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * width)


def linear(x: Array, weight: Array, bias: Array) -> Array:
    """x Wᵀ + b: (…, in), (out, in), (out) give (…, out)."""
    product: Array = x @ weight.T + bias
    return product


def averaged(weights: Array) -> Array:
    """Every head's pattern (B, H, T, S) replaced by the mean of all heads'."""
    return np.broadcast_to(weights.mean(axis=1, keepdims=True), weights.shape)


def moved_on(weights: Array) -> Array:
    """Every head with the pattern of the head before it."""
    return np.roll(weights, 1, axis=1)


def even(weights: Array, visible: Visible | None = None) -> Array:
    """Equal weights over the keys that count; `visible` (T, S) is True there, None where all do."""
    counts = np.ones(weights.shape[-2:]) if visible is None else visible.astype(np.float64)
    return np.broadcast_to(counts / counts.sum(axis=-1, keepdims=True), weights.shape)


@dataclass(frozen=True, slots=True)
class Loss:
    """How far the results are from the recorded ones, relative to them, when other patterns are put in."""

    merged: float
    out: float


def loss(patterns: Array, v: Array, merged: Array, out: Array, weight: Array, bias: Array) -> Loss:
    """Attend with other patterns (B, H, T, S) to the same values (B, H, S, c), and project with the same weights."""
    again = merge_heads(patterns @ v)
    return Loss(relative(again, merged), relative(linear(again, weight, bias), out))


def distances(weights: Array) -> Array:
    """How differently each two heads look (H, H): half the sum of |w − w'| over the keys, a mean over queries.

    0 where two heads weigh alike, 1 where they have no key in common.
    """
    heads = weights.shape[1]
    found = np.zeros((heads, heads))
    for one in range(heads):
        apart = np.abs(weights - weights[:, one : one + 1]).sum(axis=-1) / 2
        found[one] = apart.mean(axis=(0, 2))
    return found


def mean_distance(apart: Array) -> float | None:
    """The mean over all pairs of different heads; None where there is one head."""
    heads = apart.shape[0]
    return float(apart.sum() / (heads * (heads - 1))) if heads > 1 else None
