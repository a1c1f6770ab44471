"""GPT-2 in NumPy: one prefill that keeps every tensor worth comparing, and five faults to look for.

    python gpt2_numpy.py CHECKPOINT 464,2068,7586 port.safetensors [FAULT]

FAULT is gelu, mask, epsilon, swap or scale; without it the port is right. It needs NumPy, and
safetensors to read and write files.

Tensors are kept under the name that came to hand first: a hook of TransformerLens, a module of
transformers, or an address of Tensor Provenance. `tensor-provenance compare` knows all three.
Axes: T tokens, d channels of the residual stream, H heads, h = d / H channels of a head, m hidden
units of the MLP, V vocabulary. There is no batch axis.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import erf, pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

Array = np.ndarray[Any, np.dtype[Any]]
FAULTS = ("gelu", "mask", "epsilon", "swap", "scale")


@dataclass
class Port:
    """A GPT-2 with the keys of Hugging Face's checkpoint; `kept` fills as it runs."""

    weights: Mapping[str, Array]
    heads: int
    epsilon: float = 1e-5
    fault: str | None = None
    kept: dict[str, Array] = field(default_factory=dict)

    def keep(self, name: str, value: Array) -> Array:
        """Note a tensor under a name, and go on with it."""
        self.kept[name] = np.ascontiguousarray(value)
        return value

    def prefill(self, ids: list[int]) -> Array:
        """The logits (T, V) of token ids (T)."""
        wte, wpe = self.weights["wte.weight"], self.weights["wpe.weight"]  # (V, d), (positions, d)
        # Both embeddings and their sum are (T, d).
        x = self.keep("embed.h", self.keep("hook_embed", wte[ids]) + self.keep("hook_pos_embed", wpe[: len(ids)]))
        for layer in range(sum(key.endswith(".ln_1.weight") for key in self.weights)):
            x = self.block(layer, x)
        # Most checkpoints have no output matrix (V, d) of their own, and use wte.
        return self.keep("lm_head", self.norm("ln_f", x) @ self.weights.get("lm_head.weight", wte).T)

    def block(self, layer: int, x: Array) -> Array:
        """Attention and MLP, each added to the residual stream (T, d)."""
        at = f"h.{layer}"
        x = self.keep(f"{at}.resid_mid", x + self.attention(layer, self.norm(f"{at}.ln_1", x)))
        hidden = self.gelu(f"{at}.mlp.h", self.linear(f"{at}.mlp.c_fc", self.norm(f"{at}.ln_2", x)))  # (T, m)
        return self.keep(f"transformer.{at}", x + self.linear(f"{at}.mlp.c_proj", hidden))

    def norm(self, at: str, x: Array) -> Array:
        """LayerNorm of each position."""
        u = self.keep(f"{at}.u", x.mean(axis=-1, keepdims=True))  # (T, 1)
        s = self.keep(f"{at}.s", np.square(x - u).mean(axis=-1, keepdims=True))  # (T, 1), without ε
        epsilon = 1e-6 if self.fault == "epsilon" else self.epsilon
        normalized = self.keep(f"{at}.normalized", (x - u) / np.sqrt(s + epsilon))  # (T, d)
        return self.keep(f"transformer.{at}", normalized * self.weights[f"{at}.weight"] + self.weights[f"{at}.bias"])

    def linear(self, at: str, x: Array) -> Array:
        """A projection; its weight has inputs before outputs."""
        return self.keep(f"transformer.{at}", x @ self.weights[f"{at}.weight"] + self.weights[f"{at}.bias"])

    def attention(self, layer: int, x: Array) -> Array:
        """Causal self-attention: what each position (T, d) reads from itself and those before."""
        at, hook, tokens = f"h.{layer}.attn", f"blocks.{layer}.attn.hook", len(x)
        c = self.linear(f"{at}.c_attn", x).reshape(tokens, 3, self.heads, -1)  # (T, 3, H, h)
        order = (1, 0, 2) if self.fault == "swap" else (0, 1, 2)
        q, k, v = (self.keep(f"{hook}_{name}", c[:, i]) for name, i in zip("qkv", order, strict=True))
        scores = self.keep(f"{at}.scores_raw", np.einsum("qhc,khc->hqk", q, k))  # (H, T, T)
        scores = self.keep(f"{at}.scores", scores / (1.0 if self.fault == "scale" else sqrt(q.shape[-1])))
        # Row and column 0 are the first query and the first key; k is how far a query sees past itself.
        visible = self.keep(f"{at}.mask.m", np.tri(tokens, k=int(self.fault == "mask"), dtype=np.bool_))  # (T, T)
        scores = self.keep(f"{hook}_attn_scores", np.where(visible, scores, np.float32(-np.inf)))
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        pattern = self.keep(f"{hook}_pattern", powers / powers.sum(axis=-1, keepdims=True))
        mixed = self.keep(f"{hook}_z", np.einsum("hqk,khc->qhc", pattern, v))  # (T, H, h)
        return self.linear(f"{at}.c_proj", mixed.reshape(tokens, -1))

    def gelu(self, name: str, x: Array) -> Array:
        """GPT-2's activation, by the tanh; the fault is the exact form, x times the normal distribution."""
        if self.fault == "gelu":
            return self.keep(name, 0.5 * x * (1 + np.vectorize(erf, otypes=[x.dtype])(x / sqrt(2))))
        return self.keep(name, 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x))))


def load(directory: Path, fault: str | None = None) -> Port:
    """The port of a checkpoint in Hugging Face's format, computing in float32."""
    if fault not in (None, *FAULTS):
        raise ValueError(f"{fault!r} is none of {', '.join(FAULTS)}")
    config = json.loads((directory / "config.json").read_text())
    stored = load_file(directory / "model.safetensors")
    weights = {key.removeprefix("transformer."): value.astype(np.float32) for key, value in stored.items()}
    return Port(weights, config["n_head"], config["layer_norm_epsilon"], fault)


if __name__ == "__main__":
    checkpoint, ids, out, *fault = sys.argv[1:]
    port = load(Path(checkpoint), *fault)
    port.prefill([int(id) for id in ids.split(",")])
    save_file(port.kept, out)
