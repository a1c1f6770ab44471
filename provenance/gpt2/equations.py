"""GPT-2's formulas in NumPy and float64, each from its recorded inputs alone.

This shares no code with the model; `verify` compares the two. Every function receives `read`,
which gives a recorded input by its site, and returns what the site's tensor should be.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Inputs:
    """The recorded inputs of one tensor by site, the sizes of the model's axes, and its ε."""

    arrays: Mapping[str, tuple[Array, ...]]
    sizes: Mapping[str, int]
    epsilon: float

    def __call__(self, site: str) -> Array:
        """The one input at that site."""
        (array,) = self.arrays[site]
        return array

    def all(self, site: str) -> tuple[Array, ...]:
        """All inputs at that site: of every layer, or of every earlier step."""
        return self.arrays.get(site, ())

    def either(self, *sites: str) -> Array:
        """The input that this layer or step has out of several."""
        (found,) = (array for site in sites for array in self.arrays.get(site, ()))
        return found


Equation = Callable[[Inputs], Array]


def _array(values: Any) -> Array:
    return np.asarray(values, dtype=np.float64)


def _norm(at: str, *stream: str) -> dict[str, Equation]:
    def mean(read: Inputs) -> Array:
        x = read.either(*stream)
        return _array(np.einsum("btd->bt", x)[..., None] / x.shape[-1])

    def variance(read: Inputs) -> Array:
        deviation = read.either(*stream) - read(f"{at}.u")
        return _array(np.einsum("btd,btd->bt", deviation, deviation)[..., None] / deviation.shape[-1])

    def normalized(read: Inputs) -> Array:
        return (read.either(*stream) - read(f"{at}.u")) / np.sqrt(read(f"{at}.s") + read.epsilon)

    def affine(read: Inputs) -> Array:
        return read(f"{at}.g") * read(f"{at}.normalized") + read(f"{at}.b")

    return {f"{at}.u": mean, f"{at}.s": variance, f"{at}.normalized": normalized, f"{at}.out": affine}


def _linear(out: str, source: str, at: str) -> dict[str, Equation]:
    return {
        out: lambda read: np.einsum("bti,oij->btj", read(source), read(f"{at}.w"), optimize=True) + read(f"{at}.b")
    }


def _field(read: Inputs, index: int) -> Array:
    c = read("h.attn.c_attn.c")
    batch, length, width = c.shape
    size, heads = width // 3, read.sizes["H"]
    part = c[..., index * size : (index + 1) * size]
    return np.moveaxis(part.reshape(batch, length, heads, size // heads), 2, 1)


def _positions(read: Inputs) -> Array:
    tokens = read("tokens")
    past = sum(present.shape[-2] for present in read.all("presents"))
    return np.broadcast_to(past + np.arange(tokens.shape[1], dtype=np.float64), tokens.shape)


def _lookup(table: str, indices: str) -> Equation:
    return lambda read: read(table)[read(indices).astype(np.int64)]


def _queries(read: Inputs) -> Array:
    return np.arange(read("h.attn.scores").shape[-2], dtype=np.float64).reshape(-1, 1)


def _keys(read: Inputs) -> Array:
    return np.arange(read("h.attn.scores").shape[-1], dtype=np.float64)


def _visible(read: Inputs) -> Array:
    i, j = read("h.attn.mask.i"), read("h.attn.mask.j")
    return np.asarray(j - len(j) <= i - len(i), dtype=np.float64)


def _gelu(read: Inputs) -> Array:
    x = read("h.mlp.c_fc.c")
    return _array(x / 2 + x / 2 * np.tanh((x + 0.044715 * x * x * x) * np.sqrt(2 / np.pi)))


def _scores(read: Inputs) -> Array:
    keys = read.either("h.attn.k", "h.attn.k_all")
    return _array(np.einsum("bhqc,bhkc->bhqk", read("h.attn.q"), keys, optimize=True))


def _scaled(read: Inputs) -> Array:
    return _array(read("h.attn.scores_raw") / np.sqrt(read.sizes["hd"]))


def _pattern(read: Inputs) -> Array:
    ex = read("h.attn.softmax.ex")
    return _array(ex / np.add.reduce(ex, axis=-1)[..., None])


def _context(read: Inputs) -> Array:
    values = read.either("h.attn.v", "h.attn.v_all")
    return _array(np.einsum("bhqk,bhkc->bhqc", read("h.attn.pattern"), values, optimize=True))


def _merged(read: Inputs) -> Array:
    context = read("h.attn.context")
    return np.concatenate([context[:, head] for head in range(context.shape[1])], axis=-1)


def _concat(*sites: str) -> Equation:
    return lambda read: np.concatenate([read(site) for site in sites], axis=-2)


def _half(index: int) -> Equation:
    return lambda read: read("h.past")[:, index]


EQUATIONS: Mapping[str, Equation] = {
    "positions": _positions,
    "embed.tokens": _lookup("wte", "tokens"),
    "embed.positions": _lookup("wpe", "positions"),
    "embed.h": lambda read: read("embed.positions") + read("embed.tokens"),
    "h.past": lambda read: np.concatenate(read.all("h.attn.present"), axis=-2),
    **_norm("h.ln_1", "embed.h", "h.resid_post"),
    **_linear("h.attn.c_attn.c", "h.ln_1.out", "h.attn.c_attn"),
    "h.attn.q": lambda read: _field(read, 0),
    "h.attn.k": lambda read: _field(read, 1),
    "h.attn.v": lambda read: _field(read, 2),
    "h.attn.present": lambda read: np.stack((read("h.attn.k"), read("h.attn.v")), axis=1),
    "h.attn.pk": _half(0),
    "h.attn.pv": _half(1),
    "h.attn.k_all": _concat("h.attn.pk", "h.attn.k"),
    "h.attn.v_all": _concat("h.attn.pv", "h.attn.v"),
    "h.attn.scores_raw": _scores,
    "h.attn.scores": _scaled,
    "h.attn.mask.i": _queries,
    "h.attn.mask.j": _keys,
    "h.attn.mask.m": _visible,
    "h.attn.mask.b": lambda read: np.where(read("h.attn.mask.m") > 0, 1.0, 0.0),
    "h.attn.mask.broadcast": lambda read: read("h.attn.mask.b")[None, None],
    "h.attn.scores_masked": lambda read: np.where(
        read("h.attn.mask.broadcast") > 0, read("h.attn.scores"), -1e10
    ),
    "h.attn.softmax.x": lambda read: (
        read("h.attn.scores_masked") - np.maximum.reduce(read("h.attn.scores_masked"), axis=-1)[..., None]
    ),
    "h.attn.softmax.ex": lambda read: np.exp(read("h.attn.softmax.x")),
    "h.attn.pattern": _pattern,
    "h.attn.context": _context,
    "h.attn.merged": _merged,
    **_linear("h.attn.out", "h.attn.merged", "h.attn.c_proj"),
    "h.resid_mid": lambda read: read("h.attn.out") + read.either("embed.h", "h.resid_post"),
    **_norm("h.ln_2", "h.resid_mid"),
    **_linear("h.mlp.c_fc.c", "h.ln_2.out", "h.mlp.c_fc"),
    "h.mlp.h": _gelu,
    **_linear("h.mlp.h2", "h.mlp.h", "h.mlp.c_proj"),
    "h.resid_post": lambda read: read("h.mlp.h2") + read("h.resid_mid"),
    "presents": lambda read: np.stack(read.all("h.attn.present"), axis=1),
    **_norm("ln_f", "h.resid_post"),
    "h_flat": lambda read: np.concatenate(list(read("ln_f.out")), axis=0),
    "logits_flat": lambda read: np.einsum(
        "nd,vd->nv", read("h_flat"), read.either("wte", "lm_head.w"), optimize=True
    ),
    "logits": lambda read: read("logits_flat").reshape(1, -1, read("logits_flat").shape[-1]),
}  # fmt: skip
