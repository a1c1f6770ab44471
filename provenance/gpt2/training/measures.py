"""What is measured of a model: its loss, and which of its heads look where."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from provenance.gpt2.config import Config
from provenance.gpt2.model import GPT2
from provenance.gpt2.training.data import Ids, probes
from provenance.gpt2.training.network import keys
from provenance.model import ModelInfo


@dataclass(frozen=True, slots=True)
class Scores:
    """Mean attention of each head (L, H) to the token it should look at, on repeated sequences.

    `induction` is to the token after the earlier occurrence of the present one, `previous` to the
    token before.
    """

    induction: Tensor
    previous: Tensor


@dataclass(frozen=True, slots=True)
class Look:
    """Held-out loss in nats, and the best heads as `layer.head` with their score."""

    held_out: float
    induction: tuple[str, float]
    previous: tuple[str, float]

    def cells(self) -> tuple[str, ...]:
        """As a line of the training curve."""
        heads = (self.induction, self.previous)
        return (f"{self.held_out:.3f}", *(cell for head, score in heads for cell in (head, f"{score:.2f}")))


def tapped(parameters: Mapping[str, Tensor], config: Config) -> GPT2:
    """The tapped model on parameters in training, so that what is measured is what will be shown."""
    weights = {}
    for place, key in keys(config).items():
        tensor = parameters[key].detach()
        weights[place] = tensor.unsqueeze(0) if place.endswith(".w") else tensor
    info = ModelInfo("in training", "gpt2", config.as_json(), "", "in training", True, "float32")
    return GPT2(config, weights, info)


def head_scores(model: GPT2, sequences: Ids) -> Scores:
    """Score every head on sequences (B, 2·half) whose second half is the first again."""
    patterns: dict[str, Tensor] = {}

    def tap(place: str, tensor: Tensor) -> Tensor:
        if place.endswith(".attn.pattern"):
            patterns[place] = tensor
        return tensor

    model.forward(torch.from_numpy(sequences), tap=tap)
    half = sequences.shape[1] // 2
    later = torch.arange(half, 2 * half)
    stacked = torch.stack([patterns[f"h.{layer}.attn.pattern"] for layer in range(model.layers)])
    induction = stacked[..., later, later - half + 1]  # (L, B, H, half)
    every = torch.arange(1, 2 * half)
    previous = stacked[..., every, every - 1]  # (L, B, H, 2·half - 1)
    return Scores(induction.mean(dim=(1, 3)), previous.mean(dim=(1, 3)))


def best(scores: Tensor) -> tuple[str, float]:
    """The head (`layer.head`) of the highest score (L, H), and that score."""
    layer, head = divmod(int(scores.argmax()), scores.shape[1])
    return f"{layer}.{head}", float(scores[layer, head])


def look(parameters: Mapping[str, Tensor], config: Config, windows: Tensor, occurring: Ids) -> Look:
    """Measure on held-out windows (B, T) and on new random sequences of the text's tokens."""
    model = tapped(parameters, config)
    total = [token_losses(model, part).mean() for part in torch.split(windows, 8)]
    half = min(64, config.n_ctx // 2, len(occurring))
    scores = head_scores(model, probes(1, occurring, 8, half))
    return Look(float(torch.stack(total).mean()), best(scores.induction), best(scores.previous))


def token_losses(model: GPT2, tokens: Tensor) -> Tensor:
    """Loss in nats of each token but the first (B, T - 1), over the whole vocabulary."""
    logits, _ = model.forward(tokens)
    scores = logits[:, :-1].log_softmax(dim=-1)
    return -scores.gather(-1, tokens[:, 1:, None])[..., 0]
