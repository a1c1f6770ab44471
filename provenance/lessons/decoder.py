"""The causal decoder's numbers in NumPy, float64: masks, the loss of the next token, two runs side by side.

Axes: B batch, H heads, T positions, S keys, V vocabulary, d channels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

SUBTRACTED = 1e10
"""What GPT-2 subtracts from the score of a hidden key."""

HALVINGS = 150
"""2 to the minus 150 is half of the smallest number of float32, and rounds to 0."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """The weights that queries give to keys that they may not see: how many cells, how many are exactly 0.

    `total` is the sum of those weights over that of all, which is what the future takes of the attention.
    """

    cells: int
    zero: int
    largest: float
    total: float

    @property
    def holds(self) -> bool:
        """Whether each of them is exactly 0."""
        return self.zero == self.cells


@dataclass(frozen=True, slots=True)
class Losses:
    """The loss of each next token (T − 1) in nats, their mean, and what the mean stands for.

    `perplexity` is the number of equally likely tokens that would be as hard to guess. `uniform` is the
    loss of a model that holds all V tokens for equally likely.
    """

    each: Array
    mean: float
    perplexity: float
    uniform: float


@dataclass(frozen=True, slots=True)
class Shift:
    """What a changed token did: the largest difference before its position, there and after it.

    `equal_before` counts the positions before it without any difference, `differ_after` those from it on
    with one.
    """

    at: int
    before: float
    after: float
    equal_before: int
    differ_after: int


def future(length: int) -> Mask:
    """Which keys lie behind a query (T, T): True above the diagonal."""
    return np.triu(np.ones((length, length), dtype=np.bool_), k=1)


def masked(score: Array, visible: Mask) -> Array:
    """Scores (…, T, S) with −∞ where a key is not visible (T, S), as the textbook has it."""
    return np.where(visible, score, -np.inf)


def masked_by_subtraction(score: Array, b: Array) -> Array:
    """Scores (…, T, S) masked as GPT-2 does it, with b (1 visible, 0 hidden)."""
    return score * b - SUBTRACTED * (1 - b)


def softmax(score: Array) -> Array:
    """The weights (…, T, S) of scores; each row must have a score that is finite."""
    ex = np.exp(score - score.max(axis=-1, keepdims=True))
    shares: Array = ex / ex.sum(axis=-1, keepdims=True)
    return shares


def hidden(weight: Array, behind: Mask) -> Hidden:
    """What weights (…, T, S) give to the keys that lie behind their query (T, S)."""
    cells = weight[np.broadcast_to(behind, weight.shape)]
    largest = float(np.abs(cells).max()) if cells.size else 0.0
    return Hidden(cells.size, int((cells == 0).sum()), largest, float(cells.sum() / weight.sum()))


def vanishing_gap() -> float:
    """How far below its row's largest a score must lie for its exponential to be 0 in float32."""
    return HALVINGS * math.log(2)


def next_token_losses(logits: Array, ids: Sequence[int]) -> Losses:
    """The losses of a text's tokens (T) from the logits at its positions (T, V).

    Position t is held against token t + 1, so the last position has no loss. T is 2 or more.
    """
    here, follows = logits[:-1], np.asarray(ids[1:])
    largest = here.max(axis=-1, keepdims=True)
    logs = largest[:, 0] + np.log(np.exp(here - largest).sum(axis=-1))
    each: Array = logs - here[np.arange(len(follows)), follows]
    mean = float(each.mean())
    with np.errstate(over="ignore"):
        perplexity = float(np.exp(mean))
    return Losses(each, mean, perplexity, math.log(logits.shape[-1]))


def by_position(a: Array, b: Array) -> Array:
    """The largest difference at each position (T) of two tensors (…, T, d)."""
    apart = np.moveaxis(np.abs(a - b), -2, 0)
    largest: Array = apart.reshape(len(apart), -1).max(axis=-1)
    return largest


def shift(apart: Array, at: int) -> Shift:
    """What a token that was changed at a position did to all of them (T)."""
    before, after = apart[:at], apart[at:]
    return Shift(
        at=at,
        before=float(before.max()) if at else 0.0,
        after=float(after.max()),
        equal_before=int((before == 0).sum()),
        differ_after=int((after > 0).sum()),
    )


def cache_per_token(present: Sequence[int], layers: int) -> int:
    """The numbers that a cache keeps of each token, from one block's new keys and values (B, 2, H, T, h)."""
    _, two, heads, _, channels = present
    return two * heads * channels * layers


def positions_run(prompt: int, steps: int, *, cached: bool) -> int:
    """How many positions run through the blocks for a prompt and some more tokens."""
    if cached:
        return prompt + steps
    return sum(prompt + step for step in range(steps + 1))
