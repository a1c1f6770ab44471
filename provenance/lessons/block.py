"""The numbers of the chapter on the block, in NumPy and float64, each from recorded tensors."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_erf = np.frompyfunc(math.erf, 1, 1)


def rms(values: Array) -> float:
    """The root mean square of all cells: how large a tensor is, whatever its width."""
    return float(np.sqrt(np.square(values).mean()))


def mean(x: Array) -> Array:
    """The mean of each vector, with the last axis kept as 1."""
    return np.asarray(x.mean(axis=-1, keepdims=True))


def variance(x: Array) -> Array:
    """The mean squared deviation of each vector, with the last axis kept as 1: divided by d, not by d - 1."""
    return np.asarray(np.square(x - mean(x)).mean(axis=-1, keepdims=True))


def layer_norm(x: Array, gain: Array, bias: Array, epsilon: float) -> Array:
    """Each vector with its mean taken off and divided by its deviation, then scaled and moved by channel."""
    return (x - mean(x)) / np.sqrt(variance(x) + epsilon) * gain + bias


def linear(x: Array, weight: Array, bias: Array) -> Array:
    """x (…, in) times a weight (out, in), plus a bias (out)."""
    return np.asarray(x @ weight.T + bias)


def relu(x: Array) -> Array:
    """x where it is positive, else 0."""
    return np.maximum(x, 0.0)


def gelu(x: Array) -> Array:
    """The exact GELU: x times the share of a normal distribution that lies below x."""
    return np.asarray(0.5 * x * (1.0 + np.asarray(_erf(x / math.sqrt(2.0)), dtype=np.float64)))


def gelu_tanh(x: Array) -> Array:
    """GPT-2's GELU, which takes a hyperbolic tangent for the error function."""
    return np.asarray(0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))))


@dataclass(frozen=True, slots=True)
class Apart:
    """Where two arrays differ most, and by how much; `at` is the input there."""

    difference: float
    at: float


def farthest(one: Array, other: Array, at: Array) -> Apart:
    """Where two functions' values differ most, over the inputs `at`."""
    apart = np.abs(one - other)
    where = int(apart.argmax())
    return Apart(float(apart.ravel()[where]), float(at.ravel()[where]))


@dataclass(frozen=True, slots=True)
class Part:
    """One block over a whole run, as RMS: the stream that enters, what its halves add, what leaves it.

    `middle` is the stream that the MLP's output is added to.
    """

    entering: float
    attention: float
    middle: float
    mlp: float
    leaving: float

    @property
    def attention_share(self) -> float:
        """What the attention adds, relative to the stream it is added to."""
        return self.attention / self.entering

    @property
    def mlp_share(self) -> float:
        """What the MLP adds, relative to the stream it is added to."""
        return self.mlp / self.middle


def later_share(weights: Array) -> float:
    """The mean share of its attention that a place gives to places after it, of weights (…, T, S) with S = T."""
    return float(np.triu(weights, 1).sum(axis=-1).mean())


def part(entering: Array, attention: Array, middle: Array, mlp: Array, leaving: Array) -> Part:
    """The sizes of one block."""
    return Part(rms(entering), rms(attention), rms(middle), rms(mlp), rms(leaving))


def stream(parts: Sequence[Part]) -> tuple[float, ...]:
    """The stream before the first block and after each one."""
    return (parts[0].entering, *(block.leaving for block in parts)) if parts else ()


Shape = tuple[int, ...]


def parameters(shapes: Iterable[Shape]) -> int:
    """How many numbers tensors of these shapes hold together."""
    return sum(math.prod(shape) for shape in shapes)


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of a model that "the same pattern at another scale" could mean."""

    layers: int
    width: int
    heads: int
    head_width: int
    context: int
    per_block: int
    total: int

    @classmethod
    def of(cls, constants: Mapping[str, int], layers: int, per_block: int, total: int) -> "Size":
        """The sizes that a family's axes have, and two counts of parameters."""
        return cls(layers, constants["d"], constants["H"], constants["hd"], constants["C"], per_block, total)


SIZES = ("layers", "width", "heads", "head_width", "context", "per_block", "total")
"""The fields of `Size`, in the order in which the chapter lists them."""


def ratios(size: Size, of: Size) -> dict[str, float]:
    """How many times larger a model is than another, field by field."""
    return {name: getattr(size, name) / getattr(of, name) for name in SIZES}
