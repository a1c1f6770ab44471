"""The numbers of the chapter on positions, in NumPy and float64, each from recorded tensors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Similarity:
    """The cosine similarity of the rows i and i + `distance` of a table: its mean over i, and its ends."""

    distance: int
    mean: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """How far it depends on where the pair stands: 0 where the distance says all."""
        return self.high - self.low


def divisors(width: int) -> Array:
    """The frequencies (width / 2) that the positions are multiplied with, from 1 down."""
    return np.asarray(np.exp(np.arange(0, width, 2) * (-math.log(10000.0) / width)))


def table(position: Array, frequencies: Array) -> Array:
    """The sinusoidal table (C, 2f) of positions (C, 1) and frequencies (f): sines and cosines in turn."""
    angle = position * frequencies
    return np.stack((np.sin(angle), np.cos(angle)), axis=-1).reshape(len(position), -1)


def wave_lengths(frequencies: Array) -> Array:
    """After how many positions each pair of channels repeats."""
    return np.asarray(2 * math.pi / frequencies)


def row_norms(rows: Array) -> Array:
    """The length of each row of a table (C, d)."""
    return np.asarray(np.sqrt(np.square(rows).sum(axis=-1)))


def similarities(rows: Array, distances: Sequence[int]) -> tuple[Similarity, ...]:
    """How alike the rows of a table (C, d) are at some distances, each under C. A row of zeros is like none."""
    lengths = row_norms(rows)
    unit = rows / np.where(lengths > 0, lengths, 1.0)[:, None]
    product = unit @ unit.T
    found = []
    for distance in distances:
        along = np.diagonal(product, distance)
        found.append(Similarity(distance, float(along.mean()), float(along.min()), float(along.max())))
    return tuple(found)


def similarity_by_formula(frequencies: Array, distance: int) -> float:
    """What the similarity of two sinusoidal rows must be: the mean cosine of distance × frequency."""
    return float(np.cos(distance * frequencies).mean())


def rotation(frequencies: Array, distance: int) -> Array:
    """The matrix R (d, d) with R · PE(p) = PE(p + distance) for every p: a turn in each pair of channels."""
    width = 2 * len(frequencies)
    angle = distance * frequencies
    sine, cosine = np.arange(0, width, 2), np.arange(1, width, 2)
    turned = np.zeros((width, width))
    turned[sine, sine] = turned[cosine, cosine] = np.cos(angle)
    turned[sine, cosine] = np.sin(angle)
    turned[cosine, sine] = -np.sin(angle)
    return turned


def turned(rows: Array, frequencies: Array, distance: int) -> Array:
    """A table (C, d) whose rows are made by turning those `distance` before them, the first ones those behind.

    `distance` is at most half of C.
    """
    turn = rotation(frequencies, distance)
    on, back = rows[: len(rows) - distance] @ turn.T, rows[distance : 2 * distance] @ turn
    return np.concatenate((back, on))


def shuffled(length: int, seed: int) -> tuple[int, ...]:
    """The numbers 0 to length - 1 in an order of their own, never the given one for two numbers or more."""
    order = np.random.default_rng(seed).permutation(length)
    if length > 1 and (order == np.arange(length)).all():
        order = np.roll(order, 1)
    return tuple(int(number) for number in order)


def largest_difference(one: Array, other: Array) -> float:
    """The largest difference between two arrays of one shape."""
    return float(np.abs(one - other).max()) if one.size else 0.0


@dataclass(frozen=True, slots=True)
class Shuffle:
    """What shuffling the input (B, T, d) did to the output: largest differences, and the largest output.

    `in_place` compares position with position, `in_order` each vector with itself, and `mean` the outputs'
    mean over the positions.
    """

    in_place: float
    in_order: float
    mean: float
    largest: float


def shuffle(output: Array, of_shuffled: Array, order: Sequence[int]) -> Shuffle:
    """Compare the outputs (B, T, d) of an input and of the same input in another order."""
    return Shuffle(
        in_place=largest_difference(output, of_shuffled),
        in_order=largest_difference(output[:, list(order)], of_shuffled),
        mean=largest_difference(output.mean(axis=1), of_shuffled.mean(axis=1)),
        largest=float(np.abs(output).max()),
    )
