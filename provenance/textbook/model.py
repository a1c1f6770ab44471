"""The textbook transformer in PyTorch, with a tap at every intermediate of the lesson.

It is what the lesson's listing does, with its options: nn.MultiheadAttention, nn.LayerNorm, nn.Linear and
nn.GELU written out, so that each step of them can be seen. Weights lie as in PyTorch, (out, in).

Axes: B batch, T positions, S = T keys, d channels of the residual stream, H heads, h = d / H channels of a
head, m = 4d hidden units of the MLP, C positions of the longest sequence, f = d / 2 frequencies.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear

from provenance.errors import InvalidInput
from provenance.model import Get, Kept, ModelInfo, Readout, Tap, Write
from provenance.names import Address
from provenance.prompt import Drawn
from provenance.textbook.catalogue import CATALOGUE
from provenance.textbook.config import Config
from provenance.textbook.weights import DTYPES, vectors
from provenance.variants import catalogue_of


def _untapped(_: str, tensor: Tensor) -> Tensor:
    return tensor


class Textbook:
    """A textbook transformer whose weights are named by the places at which they are tapped (`h.0.norm1.g`).

    It reads vectors and predicts nothing: its result is the residual stream.
    """

    predicts = False

    def __init__(self, config: Config, weights: Mapping[str, Tensor], info: ModelInfo) -> None:
        self.config = config
        self.weights = weights
        self.info = info
        self.variants = config.variants
        self.catalogue = catalogue_of(CATALOGUE, config.variants)
        self.constants: Mapping[str, int] = config.constants
        self.layers = config.n_layer
        self.context = config.max_len
        self.vocabulary = config.max_len
        self.dtype = DTYPES[info.dtype]

    @property
    def parameter_bytes(self) -> int:
        """What the weights take in memory."""
        return sum(tensor.nbytes for tensor in self.weights.values())

    @torch.inference_mode()
    def begin(self, ids: Tensor, drawn: Drawn | None) -> dict[str, Tensor]:
        """The vectors `x` (B, T, d) of the numbers (1, T): each batch entry takes them from a table of its own.

        Raises InvalidInput where it is not said what the tables are drawn from.
        """
        if drawn is None:
            raise InvalidInput(
                f"{self.info.name!r} reads vectors that are drawn from a seed, and none is given.",
                hint="Give a batch and an input seed.",
            )
        return {"x": vectors(self.config, drawn)[:, ids[0]].to(self.dtype)}

    @torch.inference_mode()
    def forward(self, x: Tensor, tap: Tap | None = None) -> Tensor:
        """The residual stream (B, T, d) that the last block, or the last LayerNorm, makes of vectors (B, T, d)."""
        tap = tap or _untapped
        x = self._embed(x, tap)
        for layer in range(self.layers):
            x = self._block(layer, x, tap)
        return self._norm("norm_f", "norm_f", x, tap) if self.config.norm == "pre" else x

    # --- the pass itself, from bottom to top ---

    def _embed(self, x: Tensor, tap: Tap) -> Tensor:
        x = tap("x", x)  # (B, T, d)
        if not self.config.has_positions:
            return x
        learned = self.config.positions == "learned"
        pe = tap("pe.learned", self.weights["pe.learned"]) if learned else self._sinusoids(tap)  # (C, d)
        positions = tap("embed.positions", pe[: x.shape[1]])  # (T, d)
        return tap("embed.h", x + positions)

    def _sinusoids(self, tap: Tap) -> Tensor:
        width, length = self.config.n_embd, self.config.max_len
        pos = tap("pe.pos", torch.arange(length, dtype=torch.float32).unsqueeze(1))  # (C, 1)
        div = tap("pe.div", torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width)))  # (f)
        angle = tap("pe.angle", pos * div)  # (C, f)
        return tap("pe", torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).to(self.dtype))  # (C, d)

    def _block(self, layer: int, x: Tensor, tap: Tap) -> Tensor:
        at = f"h.{layer}"
        if self.config.norm == "pre":
            a = self._attention(f"{at}.attn", self._norm(f"{at}.pre.norm1", f"{at}.norm1", x, tap), tap)
            x = tap(f"{at}.resid_mid", x + a)  # (B, T, d)
            m = self._mlp(f"{at}.mlp", self._norm(f"{at}.pre.norm2", f"{at}.norm2", x, tap), tap)
            return tap(f"{at}.resid_post", x + m)
        a = self._attention(f"{at}.attn", x, tap)
        x = self._norm(f"{at}.post.norm1", f"{at}.norm1", tap(f"{at}.resid_mid", x + a), tap)
        m = self._mlp(f"{at}.mlp", x, tap)
        return self._norm(f"{at}.post.norm2", f"{at}.norm2", tap(f"{at}.resid_post", x + m), tap)

    def _norm(self, at: str, parameters: str, x: Tensor, tap: Tap) -> Tensor:
        g, b = self._parameter(f"{parameters}.g", tap), self._parameter(f"{parameters}.b", tap)  # (d)
        mean = tap(f"{at}.mean", x.mean(dim=-1, keepdim=True))  # (B, T, 1)
        var = tap(f"{at}.var", (x - mean).square().mean(dim=-1, keepdim=True))  # (B, T, 1)
        normalized = tap(f"{at}.normalized", (x - mean) / torch.sqrt(var + self.config.epsilon))
        return tap(f"{at}.out", normalized * g + b)  # (B, T, d)

    def _linear(self, at: str, x: Tensor, tap: Tap) -> Tensor:
        w, b = self._parameter(f"{at}.w", tap), self._parameter(f"{at}.b", tap)  # (out, in), (out)
        return linear(x, w, b)

    def _parameter(self, at: str, tap: Tap) -> Tensor:
        return tap(at, self.weights[at])

    def _attention(self, at: str, x: Tensor, tap: Tap) -> Tensor:
        qkv = tap(f"{at}.qkv", self._linear(f"{at}.in_proj", x, tap))  # (B, T, 3d)
        by_head = qkv.view(*x.shape[:-1], 3, self.config.n_head, -1).permute(2, 0, 3, 1, 4)  # (3, B, H, T, h)
        q, k, v = (tap(f"{at}.{name}", part) for name, part in zip("qkv", by_head, strict=True))
        weight = self._weight(at, q, k, tap)
        context = tap(f"{at}.context", weight @ v)  # (B, H, T, h)
        merged = tap(f"{at}.merged", context.transpose(1, 2).flatten(2))  # (B, T, d)
        return tap(f"{at}.out", self._linear(f"{at}.out_proj", merged, tap))

    def _weight(self, at: str, q: Tensor, k: Tensor, tap: Tap) -> Tensor:
        raw = tap(f"{at}.score_raw", q @ k.transpose(-2, -1))  # (B, H, T, S)
        root = math.sqrt(self.config.head_dim) if self.config.scaled else 1.0
        score = tap(f"{at}.score", raw / (root * self.config.temperature))
        if self.config.causal:
            mask = tap(f"{at}.mask", torch.ones_like(score[0, 0], dtype=torch.bool).tril())  # (T, S)
            score = tap(f"{at}.score_masked", score.masked_fill(~mask, -math.inf))
        return tap(f"{at}.weight", score.softmax(dim=-1))

    def _mlp(self, at: str, x: Tensor, tap: Tap) -> Tensor:
        hidden = tap(f"{at}.hidden", self._linear(f"{at}.fc", x, tap))  # (B, T, m)
        active = tap(f"{at}.gelu", gelu(hidden))
        return tap(f"{at}.out", self._linear(f"{at}.proj", active, tap))  # (B, T, d)

    # --- the pass in segments, as the recorder runs and replays it ---

    @property
    def segments(self) -> Sequence[str]:
        """The input with its positions, each block, and of a pre-norm model the last LayerNorm."""
        blocks = (f"h.{layer}" for layer in range(self.layers))
        return ("embed", *blocks, "output") if self.config.norm == "pre" else ("embed", *blocks)

    @property
    def residuals(self) -> Sequence[str]:
        """What enters the first block, then what each one hands on."""
        return (self.config.stream_in, *(self._out_of(layer) for layer in range(self.layers)))

    def _out_of(self, layer: int) -> str:
        return Address(self.config.stream_out, layer).place

    def segment_of(self, address: Address) -> str:
        """The segment inside which a tensor is computed."""
        if address.layer is not None:
            return f"h.{address.layer}"
        return "embed" if CATALOGUE.row(address.site).group == ("Model", "Input") else "output"

    @torch.inference_mode()
    def run(self, segment: str, step: Kept, earlier: Sequence[Kept], tap: Tap | None = None) -> dict[str, Tensor]:
        """Run one segment; returns the residual stream as it leaves it. There are no earlier steps."""
        tap = tap or _untapped
        if segment == "embed":
            return {self.config.stream_in: self._embed(step["x"], tap)}
        if segment == "output":
            return {"norm_f.out": self._norm("norm_f", "norm_f", step[self._out_of(self.layers - 1)], tap)}
        layer = int(segment.removeprefix("h."))
        x = step[self._out_of(layer - 1) if layer else self.config.stream_in]
        return {self._out_of(layer): self._block(layer, x, tap)}

    # --- what it does not do ---

    @property
    def writes(self) -> Sequence[Write]:
        """None: there is no logit that they would add up to."""
        return ()

    def unembed(self, x: Tensor) -> Tensor:
        """Raises InvalidInput: there is no vocabulary to give logits for."""
        raise self._predicts_nothing()

    def readout(self, token: int, index: int, get: Get) -> Readout:
        """Raises InvalidInput: there are no logits to read."""
        raise self._predicts_nothing()

    def _predicts_nothing(self) -> InvalidInput:
        return InvalidInput(
            f"{self.info.name!r} has no logits: it reads vectors, and predicts no token.",
            hint="Ask this of a model that reads text.",
        )
