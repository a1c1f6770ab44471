"""GPT-2 in PyTorch, with a tap at every intermediate that OpenAI's code names.

Follows openai/gpt-2 src/model.py (revision 9b63575ef427), operation by operation and in its
order; the lines are cited by the catalogue. Without a tap it is a plain forward pass.

Axes: B batch, T tokens of this step, P past tokens, S = P + T keys, d channels of the residual
stream, H heads, h = d / H channels of a head, m hidden units of the MLP, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from provenance.gpt2.arithmetic import FRESH, IN_PLACE, Arithmetic
from provenance.gpt2.catalogue import CATALOGUE
from provenance.gpt2.config import Config
from provenance.gpt2.writes import read_by, writes_of
from provenance.model import Get, Kept, ModelInfo, Readout, Tap, Write
from provenance.names import Address
from provenance.prompt import Drawn
from provenance.variants import catalogue_of

MASKED = 1e10
"""What is subtracted from the score of a key that the query may not see."""


def _untapped(_: str, tensor: Tensor) -> Tensor:
    return tensor


def _arithmetic(tap: Tap) -> Arithmetic:
    """In place where nobody looks on. A residual stream is never overwritten: the recorder keeps it."""
    return IN_PLACE if tap is _untapped else FRESH


class GPT2:
    """A GPT-2 whose weights are named by the places at which they are tapped (`h.0.ln_1.g`).

    `checkpoint` is the directory they were read from, where there is one.
    """

    predicts = True

    def __init__(
        self,
        config: Config,
        weights: Mapping[str, Tensor],
        info: ModelInfo,
        checkpoint: Path | None = None,
    ) -> None:
        self.config = config
        self.variants = config.variants
        self.catalogue = catalogue_of(CATALOGUE, config.variants)
        self.checkpoint = checkpoint
        self.weights = weights
        self.info = info
        self.constants: Mapping[str, int] = config.constants
        self.layers = config.n_layer
        self.context = config.n_ctx
        self.vocabulary = config.n_vocab
        nothing = torch.empty(0)
        self._last_masking: tuple[object, tuple[Tensor, Tensor]] = (None, (nothing, nothing))

    @property
    def parameter_bytes(self) -> int:
        """What the weights take in memory."""
        return sum(tensor.nbytes for tensor in self.weights.values())

    @torch.inference_mode()
    def forward(
        self, tokens: Tensor, past: Sequence[Tensor] | None = None, tap: Tap | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Logits (B, T, V) and each layer's new keys and values (B, 2, H, T, h) of tokens (B, T).

        `past` holds each layer's earlier keys and values (B, 2, H, P, h).
        """
        past_length = past[0].shape[-2] if past else 0
        x, wte = self._embed(tokens, past_length, tap or _untapped)
        presents = []
        for layer in range(self.layers):
            x, present = self._block(layer, x, past[layer] if past else None, tap or _untapped)
            presents.append(present)
        return self._output(x, presents, wte, tap or _untapped), presents

    def begin(self, ids: Tensor, drawn: Drawn | None) -> dict[str, Tensor]:
        """The token ids themselves."""
        return {"tokens": ids}

    # --- the pass itself, from bottom to top ---

    def _embed(self, tokens: Tensor, past_length: int, tap: Tap) -> tuple[Tensor, Tensor]:
        tokens = tap("tokens", tokens)  # (B, T)
        wpe = tap("wpe", self.weights["wpe"])  # (C, d)
        wte = tap("wte", self.weights["wte"])  # (V, d)
        by_token = tap("embed.tokens", wte[tokens])  # (B, T, d)
        batch, length = tokens.shape
        numbers = torch.arange(past_length, past_length + length, device=tokens.device)
        positions = tap("positions", numbers.expand(batch, length))  # (B, T)
        by_position = tap("embed.positions", wpe[positions])  # (B, T, d)
        return tap("embed.h", _arithmetic(tap).add(by_token, by_position)), wte

    def _block(self, layer: int, x: Tensor, past: Tensor | None, tap: Tap) -> tuple[Tensor, Tensor]:
        at, op = f"h.{layer}", _arithmetic(tap)
        a, present = self._attention(f"{at}.attn", self._norm(f"{at}.ln_1", x, tap), past, tap)
        x = tap(f"{at}.resid_mid", op.add(a, x))  # (B, T, d)
        m = self._mlp(f"{at}.mlp", self._norm(f"{at}.ln_2", x, tap), tap)
        return tap(f"{at}.resid_post", op.add(m, x)), present

    def _norm(self, at: str, x: Tensor, tap: Tap) -> Tensor:
        op = _arithmetic(tap)
        g, b = tap(f"{at}.g", self.weights[f"{at}.g"]), tap(f"{at}.b", self.weights[f"{at}.b"])  # (d)
        u = tap(f"{at}.u", x.mean(dim=-1, keepdim=True))  # (B, T, 1)
        centred = x - u
        s = tap(f"{at}.s", centred.square().mean(dim=-1, keepdim=True))  # (B, T, 1)
        normalized = tap(f"{at}.normalized", op.mul(centred, torch.rsqrt(s + self.config.epsilon)))
        return tap(f"{at}.out", op.add(op.mul(normalized, g), b))  # (B, T, d)

    def _linear(self, at: str, x: Tensor, tap: Tap) -> Tensor:
        w = tap(f"{at}.w", self.weights[f"{at}.w"])  # (1, in, out)
        b = tap(f"{at}.b", self.weights[f"{at}.b"])  # (out)
        return torch.addmm(b, x.reshape(-1, x.shape[-1]), w[0]).view(*x.shape[:-1], -1)

    def _attention(self, at: str, x: Tensor, past: Tensor | None, tap: Tap) -> tuple[Tensor, Tensor]:
        c = tap(f"{at}.c_attn.c", self._linear(f"{at}.c_attn", x, tap))  # (B, T, 3d)
        by_head = c.view(*x.shape[:-1], 3, self.config.n_head, -1).permute(2, 0, 3, 1, 4)  # (3, B, H, T, h)
        q, k, v = (tap(f"{at}.{name}", part) for name, part in zip("qkv", by_head, strict=True))
        present = tap(f"{at}.present", torch.stack((k, v), dim=1))  # (B, 2, H, T, h)
        if past is not None:
            past = tap(f"{at.removesuffix('.attn')}.past", past)  # (B, 2, H, P, h)
            pk, pv = (tap(f"{at}.p{name}", part) for name, part in zip("kv", past.unbind(1), strict=True))
            k = tap(f"{at}.k_all", torch.cat((pk, k), dim=-2))  # (B, H, S, h)
            v = tap(f"{at}.v_all", torch.cat((pv, v), dim=-2))
        pattern = self._pattern(at, q, k, tap)
        context = tap(f"{at}.context", pattern @ v)  # (B, H, T, h)
        merged = tap(f"{at}.merged", context.transpose(1, 2).flatten(2))  # (B, T, d)
        return tap(f"{at}.out", self._linear(f"{at}.c_proj", merged, tap)), present

    def _pattern(self, at: str, q: Tensor, k: Tensor, tap: Tap) -> Tensor:
        op = _arithmetic(tap)
        w = tap(f"{at}.scores_raw", q @ k.transpose(-1, -2))  # (B, H, T, S)
        w = tap(f"{at}.scores", op.mul(w, self.config.head_dim**-0.5))
        if op.fresh:
            b = self._mask(f"{at}.mask", w, tap)  # (1, 1, T, S)
            w = tap(f"{at}.scores_masked", w * b - MASKED * (1 - b))
        else:
            b, penalty = self._masking(w)
            w = torch.addcmul(penalty, w, b, out=w)  # w·b − masked·(1 − b) in one pass
        x = tap(f"{at}.softmax.x", op.sub(w, w.amax(dim=-1, keepdim=True)))
        ex = tap(f"{at}.softmax.ex", op.exp(x, b))
        return tap(f"{at}.pattern", op.div(ex, ex.sum(dim=-1, keepdim=True)))

    def _mask(self, at: str, w: Tensor, tap: Tap) -> Tensor:
        queries, keys = w.shape[-2:]
        i = tap(f"{at}.i", torch.arange(queries, device=w.device).unsqueeze(1))  # (T, 1)
        j = tap(f"{at}.j", torch.arange(keys, device=w.device))  # (S)
        m = tap(f"{at}.m", i >= j - keys + queries)  # (T, S)
        b = tap(f"{at}.b", m.to(w.dtype))
        return tap(f"{at}.broadcast", b.view(1, 1, queries, keys))

    def _masking(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """The mask b of scores, and −masked·(1 − b); of the layer before, where the shape is the same."""
        of, masking = self._last_masking
        if of != (now := (w.shape[-2:], w.dtype)):
            b = self._mask("", w, _untapped)
            masking = (b, -(MASKED * (1 - b)))
            self._last_masking = (now, masking)
        return masking

    def _mlp(self, at: str, x: Tensor, tap: Tap) -> Tensor:
        c = tap(f"{at}.c_fc.c", self._linear(f"{at}.c_fc", x, tap))  # (B, T, m)
        h = tap(f"{at}.h", _arithmetic(tap).gelu(c))
        return tap(f"{at}.h2", self._linear(f"{at}.c_proj", h, tap))  # (B, T, d)

    def _output(self, x: Tensor, presents: Sequence[Tensor], wte: Tensor, tap: Tap) -> Tensor:
        if tap is not _untapped:
            tap("presents", torch.stack(list(presents), dim=1))  # (B, L, 2, H, T, h)
        h = self._norm("ln_f", x, tap)
        flat = tap("h_flat", h.reshape(-1, h.shape[-1]))  # (B·T, d)
        head = wte if self.config.tied else tap("lm_head.w", self.weights["lm_head.w"])  # (V, d)
        logits = tap("logits_flat", flat @ head.T)  # (B·T, V)
        return tap("logits", logits.view(*x.shape[:-1], -1))  # (B, T, V)

    @torch.inference_mode()
    def unembed(self, x: Tensor) -> Tensor:
        """The logits (…, V) that the output makes of a residual stream (…, d), wherever it was taken."""
        return self._output(x, (), self.weights["wte"], _untapped)

    @property
    def writes(self) -> Sequence[Write]:
        """The two embeddings, then each block's attention and MLP."""
        return writes_of(self.config)

    def readout(self, token: int, index: int, get: Get) -> Readout:
        """How the logit of a token reads the stream at an index of a step, with the recorded scale."""
        return read_by(self.config, token, index, get)

    # --- the pass in segments, as the recorder runs and replays it ---

    @property
    def residuals(self) -> Sequence[str]:
        """What the embedding hands on, then each block."""
        return ("embed.h", *(f"h.{layer}.resid_post" for layer in range(self.layers)))

    @property
    def segments(self) -> Sequence[str]:
        """The embedding, each block, the output."""
        return ("embed", *(f"h.{layer}" for layer in range(self.layers)), "output")

    def segment_of(self, address: Address) -> str:
        """The segment inside which a tensor is computed."""
        if address.layer is not None:
            return f"h.{address.layer}"
        return "embed" if CATALOGUE.row(address.site).group == ("Model", "Embedding") else "output"

    @torch.inference_mode()
    def run(self, segment: str, step: Kept, earlier: Sequence[Kept], tap: Tap | None = None) -> dict[str, Tensor]:
        """Run one segment; returns `embed.h`, a block's output and present, or the logits."""
        tap = tap or _untapped
        if segment == "embed":
            past_length = sum(kept["tokens"].shape[1] for kept in earlier)
            return {"embed.h": self._embed(step["tokens"], past_length, tap)[0]}
        if segment == "output":
            presents = [step[f"h.{layer}.attn.present"] for layer in range(self.layers)]
            x = step[f"h.{self.layers - 1}.resid_post"]
            wte = tap("wte", self.weights["wte"]) if self.config.tied else self.weights["wte"]
            return {"logits": self._output(x, presents, wte, tap)}
        layer = int(segment.removeprefix("h."))
        x = step[f"h.{layer - 1}.resid_post"] if layer else step["embed.h"]
        x, present = self._block(layer, x, self._past(layer, earlier) if earlier else None, tap)
        return {f"{segment}.attn.present": present, f"{segment}.resid_post": x}

    def _past(self, layer: int, earlier: Sequence[Kept]) -> Tensor:
        return torch.cat([step[f"h.{layer}.attn.present"] for step in earlier], dim=-2)
