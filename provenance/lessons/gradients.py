"""How a result follows the residual stream at each block: automatic differentiation of the blocks, in float64.

The blocks stand here once more, in torch.nn.functional, and start from the recorded stream: what is
differentiated can be held against what was recorded.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from provenance.textbook.config import Config

Array = NDArray[np.float64]
_STEP = 1e-4


@dataclass(frozen=True, slots=True)
class WayBack:
    """The gradient of one sum of a result, at the stream before the first block and after each one.

    `sizes` are root mean squares. `leaving` (B, T, d) is the stream after the last block, as recomputed.
    `slope` is measured by a step to either side along the gradient of the first stream, whose length is `length`.
    """

    sizes: tuple[float, ...]
    leaving: Array
    slope: float
    length: float

    @property
    def growth(self) -> float:
        """How many times larger the gradient is before the first block than after the last."""
        return self.sizes[0] / self.sizes[-1]


def way_back(config: Config, entering: Array, weights: Mapping[str, Array], seed: int = 0) -> WayBack:
    """Follow a sum of the result's cells, with weights drawn from N(0, 1), back to the stream `entering` (B, T, d).

    `weights` are the parameters by place, as in `h.0.norm1.g`. Over the draws, the mean square of a gradient is
    that of what the result does when each cell of the stream is moved by an independent number of N(0, 1), to
    first order.
    """
    model = _Blocks(config, {place: torch.from_numpy(cells.copy()) for place, cells in weights.items()})
    first = torch.from_numpy(entering.copy())
    drawn = torch.randn(first.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def total(start: Tensor) -> Tensor:
        return (drawn * model.result(model.streams(start)[-1])).sum()

    with torch.enable_grad():
        streams = model.streams(first.requires_grad_())
        gradients = torch.autograd.grad((drawn * model.result(streams[-1])).sum(), streams)
    with torch.no_grad():
        length = gradients[0].norm()
        along = gradients[0] / length
        slope = (total(first + _STEP * along) - total(first - _STEP * along)) / (2 * _STEP)
    return WayBack(
        sizes=tuple(float(gradient.square().mean().sqrt()) for gradient in gradients),
        leaving=streams[-1].detach().numpy(),
        slope=float(slope),
        length=float(length),
    )


@dataclass(frozen=True, slots=True)
class _Blocks:
    config: Config
    weights: Mapping[str, Tensor]

    def streams(self, x: Tensor) -> list[Tensor]:
        """The stream (B, T, d) before the first block and after each one."""
        found = [x]
        for layer in range(self.config.n_layer):
            found.append(self._block(f"h.{layer}", found[-1]))
        return found

    def result(self, x: Tensor) -> Tensor:
        """What the model makes of the stream after its last block."""
        return self._norm("norm_f", x) if self.config.norm == "pre" else x

    def _block(self, at: str, x: Tensor) -> Tensor:
        if self.config.norm == "pre":
            x = x + self._attention(f"{at}.attn", self._norm(f"{at}.norm1", x))
            return x + self._mlp(f"{at}.mlp", self._norm(f"{at}.norm2", x))
        x = self._norm(f"{at}.norm1", x + self._attention(f"{at}.attn", x))
        return self._norm(f"{at}.norm2", x + self._mlp(f"{at}.mlp", x))

    def _norm(self, at: str, x: Tensor) -> Tensor:
        gain, bias = self.weights[f"{at}.g"], self.weights[f"{at}.b"]
        return functional.layer_norm(x, (x.shape[-1],), gain, bias, self.config.epsilon)

    def _linear(self, at: str, x: Tensor) -> Tensor:
        return functional.linear(x, self.weights[f"{at}.w"], self.weights[f"{at}.b"])

    def _attention(self, at: str, x: Tensor) -> Tensor:
        parts = self._linear(f"{at}.in_proj", x).chunk(3, dim=-1)
        q, k, v = (part.view(*x.shape[:-1], self.config.n_head, -1).transpose(1, 2) for part in parts)  # (B, H, T, h)
        root = math.sqrt(self.config.head_dim) if self.config.scaled else 1.0
        context = functional.scaled_dot_product_attention(
            q, k, v, is_causal=self.config.causal, scale=1 / (root * self.config.temperature)
        )
        return self._linear(f"{at}.out_proj", context.transpose(1, 2).flatten(2))

    def _mlp(self, at: str, x: Tensor) -> Tensor:
        return self._linear(f"{at}.proj", functional.gelu(self._linear(f"{at}.fc", x)))
