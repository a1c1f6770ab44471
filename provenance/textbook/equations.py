"""The textbook transformer's formulas in NumPy and float64, each from its recorded inputs alone.

This shares no code with the model; `verify` compares the two. Every function receives `read`, which gives a
recorded input by its site, and returns what the site's tensor should be.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provenance.model import Model
from provenance.textbook.config import Config

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Inputs:
    """The recorded inputs of one tensor by site, and the model's options."""

    arrays: Mapping[str, tuple[Array, ...]]
    config: Config

    def __call__(self, *sites: str) -> Array:
        """The one input that there is at these sites; which it is depends on layer and variant."""
        (found,) = (array for site in sites for array in self.arrays.get(site, ()))
        return found


Equation = Callable[[Inputs], Array]

_ENTERING = ("embed.h", "x", "h.resid_post", "h.post.norm2.out")
"""The sites at which the residual stream enters a block, by position, layer and variant."""


def equation(model: Model, site: str, arrays: Mapping[str, tuple[Array, ...]]) -> Array | None:
    """What a site's tensor should be, from its recorded inputs by site; None where it is no computation."""
    compute = EQUATIONS.get(site)
    return None if compute is None else compute(Inputs(arrays, Config.from_json(model.info.config)))


def _array(values: object) -> Array:
    return np.asarray(values, dtype=np.float64)


def _norm(at: str, parameters: str, *stream: str) -> dict[str, Equation]:
    def mean(read: Inputs) -> Array:
        x = read(*stream)
        return _array(np.einsum("btd->bt", x)[..., None] / x.shape[-1])

    def variance(read: Inputs) -> Array:
        deviation = read(*stream) - read(f"{at}.mean")
        return _array(np.einsum("btd,btd->bt", deviation, deviation)[..., None] / deviation.shape[-1])

    def normalized(read: Inputs) -> Array:
        return _array((read(*stream) - read(f"{at}.mean")) * (read(f"{at}.var") + read.config.epsilon) ** -0.5)

    def affine(read: Inputs) -> Array:
        return read(f"{parameters}.b") + read(f"{parameters}.g") * read(f"{at}.normalized")

    return {f"{at}.mean": mean, f"{at}.var": variance, f"{at}.normalized": normalized, f"{at}.out": affine}


def _linear(out: str, at: str, *sources: str) -> dict[str, Equation]:
    return {
        out: lambda read: np.einsum("bti,oi->bto", read(*sources), read(f"{at}.w"), optimize=True) + read(f"{at}.b")
    }


def _frequencies(read: Inputs) -> Array:
    width = read.config.n_embd
    return _array([10_000 ** (-channel / width) for channel in range(0, width, 2)])


def _sines(read: Inputs) -> Array:
    angle = read("pe.angle")
    table = np.empty((len(angle), 2 * angle.shape[1]))
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)
    return table


def _field(index: int) -> Equation:
    def field(read: Inputs) -> Array:
        qkv, heads = read("h.attn.qkv"), read.config.n_head
        batch, length, width = qkv.shape
        size = width // 3
        part = qkv[..., index * size : (index + 1) * size]
        return np.moveaxis(part.reshape(batch, length, heads, size // heads), 2, 1)

    return field


def _scaled(read: Inputs) -> Array:
    width = read.config.n_embd // read.config.n_head
    return _array(read("h.attn.score_raw") * (width**-0.5 if read.config.scaled else 1) / read.config.temperature)


def _visible(read: Inputs) -> Array:
    queries, keys = read("h.attn.score").shape[-2:]
    return _array([[key <= query for key in range(keys)] for query in range(queries)])


def _weight(read: Inputs) -> Array:
    score = read("h.attn.score", "h.attn.score_masked")
    powers = np.exp(score - np.maximum.reduce(score, axis=-1)[..., None])
    return _array(powers / np.add.reduce(powers, axis=-1)[..., None])


def _merged(read: Inputs) -> Array:
    context = read("h.attn.context")
    return np.concatenate([context[:, head] for head in range(context.shape[1])], axis=-1)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(read: Inputs) -> Array:
    x = read("h.mlp.hidden")
    return _array(x * (1 + _erf(x / math.sqrt(2))) / 2)


EQUATIONS: Mapping[str, Equation] = {
    "pe.pos": lambda read: np.arange(read.config.max_len, dtype=np.float64).reshape(-1, 1),
    "pe.div": _frequencies,
    "pe.angle": lambda read: np.outer(read("pe.pos"), read("pe.div")),
    "pe": _sines,
    "embed.positions": lambda read: read("pe", "pe.learned")[: read("x").shape[1]],
    "embed.h": lambda read: read("embed.positions") + read("x"),
    **_norm("h.pre.norm1", "h.norm1", *_ENTERING),
    **_linear("h.attn.qkv", "h.attn.in_proj", "h.pre.norm1.out", *_ENTERING),
    "h.attn.q": _field(0),
    "h.attn.k": _field(1),
    "h.attn.v": _field(2),
    "h.attn.score_raw": lambda read: np.einsum("bhqc,bhkc->bhqk", read("h.attn.q"), read("h.attn.k"), optimize=True),
    "h.attn.score": _scaled,
    "h.attn.mask": _visible,
    "h.attn.score_masked": lambda read: np.where(read("h.attn.mask") > 0, read("h.attn.score"), -math.inf),
    "h.attn.weight": _weight,
    "h.attn.context": lambda read: np.einsum(
        "bhqk,bhkc->bhqc", read("h.attn.weight"), read("h.attn.v"), optimize=True
    ),
    "h.attn.merged": _merged,
    **_linear("h.attn.out", "h.attn.out_proj", "h.attn.merged"),
    "h.resid_mid": lambda read: read("h.attn.out") + read(*_ENTERING),
    **_norm("h.post.norm1", "h.norm1", "h.resid_mid"),
    **_norm("h.pre.norm2", "h.norm2", "h.resid_mid"),
    **_linear("h.mlp.hidden", "h.mlp.fc", "h.pre.norm2.out", "h.post.norm1.out"),
    "h.mlp.gelu": _gelu,
    **_linear("h.mlp.out", "h.mlp.proj", "h.mlp.gelu"),
    "h.resid_post": lambda read: read("h.mlp.out") + read("h.resid_mid", "h.post.norm1.out"),
    **_norm("h.post.norm2", "h.norm2", "h.resid_post"),
    **_norm("norm_f", "norm_f", "h.resid_post"),
}
"""The equation of every site that is computed."""
