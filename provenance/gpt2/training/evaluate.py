"""The figures of the demo model's card, measured on its shipped weights with the tapped model.

python -m provenance.gpt2.training.evaluate [directory of a checkpoint]
"""

import argparse
import json
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from provenance.gpt2.model import GPT2
from provenance.gpt2.training.data import Ids, Text, probes, tokenize
from provenance.gpt2.training.measures import head_scores, token_losses
from provenance.gpt2.training.train import HELD_OUT_DOCUMENTS, Plan
from provenance.gpt2.weights import read_directory
from provenance.model import ModelInfo
from provenance.prompt import Tokenizer

DEMO = Path(__file__).parent.parent / "demo"
"""Where the shipped checkpoint lies."""

PROBE_SEED, PROBE_HALF = 2, 64
ENOUGH = 0.5
"""Mean attention from which on a head counts as an induction or a previous-token head."""


class Unigram:
    """How often each token occurs in a text; a token that does not occur counts as once."""

    def __init__(self, text: Text, vocabulary: int) -> None:
        counts = np.bincount(text.ids, minlength=vocabulary).astype(np.float64)
        self.counts = counts
        self.probabilities = np.maximum(counts, 1) / np.maximum(counts, 1).sum()

    def losses(self, windows: Ids) -> NDArray[np.float64]:
        """Loss in nats of each token but the first of windows (B, T): (B, T - 1)."""
        losses: NDArray[np.float64] = -np.log(self.probabilities[windows[:, 1:]])
        return losses


class Bigram:
    """How often each token follows another, mixed with the unigram as Witten and Bell do.

    After `a`, seen n times with k different successors, a share k / (n + k) goes to the unigram.
    """

    def __init__(self, text: Text, unigram: Unigram) -> None:
        self.unigram = unigram
        size = len(unigram.counts)
        pairs = text.ids[:-1].astype(np.int64) * size + text.ids[1:]
        self.pairs, self.counts = np.unique(pairs, return_counts=True)
        firsts = self.pairs // size
        self.kinds = np.bincount(firsts, minlength=size)
        self.totals = np.bincount(firsts, weights=self.counts, minlength=size)

    def losses(self, windows: Ids) -> NDArray[np.float64]:
        """Loss in nats of each token but the first of windows (B, T): (B, T - 1)."""
        before, after = windows[:, :-1], windows[:, 1:]
        asked = before * len(self.unigram.counts) + after
        found = np.minimum(np.searchsorted(self.pairs, asked), len(self.pairs) - 1)
        seen = np.where(self.pairs[found] == asked, self.counts[found], 0)
        n, k = self.totals[before], self.kinds[before]
        smooth = self.unigram.probabilities[after]
        known = (seen + k * smooth) / np.maximum(n + k, 1)
        losses: NDArray[np.float64] = -np.log(np.where(n + k > 0, known, smooth))
        return losses


@dataclass(frozen=True, slots=True)
class Head:
    """A head as `layer.head`, with its mean attention to the place it is named for."""

    name: str
    score: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What the card states. Losses in nats a token; see `measure` for each."""

    held_out: float
    unigram: float
    bigram: float
    accuracy: float
    absent: float
    induction: tuple[Head, ...]
    previous: tuple[Head, ...]
    induction_any: tuple[Head, ...]
    previous_any: tuple[Head, ...]
    repeat: dict[str, float]


def load(directory: Path = DEMO) -> GPT2:
    """The tapped model with a checkpoint's weights."""
    config, weights, sha256 = read_directory(directory)
    weights = {place: tensor.float() for place, tensor in weights.items()}
    return GPT2(config, weights, ModelInfo("demo", "gpt2", config.as_json(), sha256, "demo", True, "float32"))


def heads(scores: Tensor) -> tuple[Head, ...]:
    """The heads of scores (L, H) that reach ENOUGH, best first."""
    found = [
        Head(f"{layer}.{head}", round(float(scores[layer, head]), 3))
        for layer in range(scores.shape[0])
        for head in range(scores.shape[1])
        if scores[layer, head] > ENOUGH
    ]
    return tuple(sorted(found, key=lambda head: -head.score))


def held_out_loss(model: GPT2, windows: Ids, occurring: Ids) -> tuple[float, float, float]:
    """Mean loss, share of tokens guessed right, and the probability given to all but `occurring`."""
    totals = torch.zeros(3, dtype=torch.float64)
    known = torch.from_numpy(occurring)
    for part in torch.split(torch.from_numpy(windows), 4):
        logits, _ = model.forward(part)
        scores, targets = logits[:, :-1], part[:, 1:]
        total = scores.logsumexp(dim=-1)  # (B, T - 1)
        loss = total - scores.gather(-1, targets[..., None])[..., 0]
        right = scores.argmax(dim=-1) == targets
        absent = -torch.expm1(scores[..., known].logsumexp(dim=-1) - total)
        totals += torch.stack([values.double().sum() for values in (loss, right, absent)])
    mean = totals / windows[:, 1:].size
    return float(mean[0]), float(mean[1]), float(mean[2])


def repeat_losses(model: GPT2, sequences: Ids) -> dict[str, float]:
    """Mean loss on sequences (B, 2·half) by stretch of positions; the second half repeats the first.

    Position `half` holds the first token of the repeat, which nothing announces.
    """
    losses = token_losses(model, torch.from_numpy(sequences))  # position p is at p - 1
    half = sequences.shape[1] // 2
    edges = (1, half, half + 1, half + 2, half + 4, half + 8, half + 16, 2 * half)
    return {
        str(start) if end == start + 1 else f"{start}-{end - 1}": round(
            float(losses[:, start - 1 : end - 1].mean()), 3
        )
        for start, end in pairwise(edges)
    }


def measure(model: GPT2, text: Text, held_out: Text, windows: int = 400, rows: int = 32) -> Figures:
    """All figures, from the training text, held-out text and seeded random sequences.

    The baselines are fitted on the training text and judged on the very tokens that the model is
    judged on. `absent` is the probability that goes to tokens which never occur in the text.
    """
    vocabulary = model.vocabulary
    judged = held_out.windows(windows, model.context)
    unigram = Unigram(text, vocabulary)
    bigram = Bigram(text, unigram)
    loss, accuracy, absent = held_out_loss(model, judged, text.occurring)
    sequences = probes(PROBE_SEED, text.occurring, rows, PROBE_HALF)
    scores = head_scores(model, sequences)
    of_any = head_scores(model, probes(PROBE_SEED, np.arange(vocabulary), rows, PROBE_HALF))
    return Figures(
        held_out=round(loss, 3),
        unigram=round(float(unigram.losses(judged).mean()), 3),
        bigram=round(float(bigram.losses(judged).mean()), 3),
        accuracy=round(accuracy, 3),
        absent=round(absent, 5),
        induction=heads(scores.induction),
        previous=heads(scores.previous),
        induction_any=heads(of_any.induction),
        previous_any=heads(of_any.previous),
        repeat=repeat_losses(model, sequences),
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure the figures of the demo model's card.")
    parser.add_argument("directory", type=Path, nargs="?", default=DEMO)
    directory = parser.parse_args().directory
    plan, tokenizer = Plan(), Tokenizer.load()
    text = tokenize(plan.seed, plan.documents, tokenizer)
    held_out = tokenize(plan.seed, HELD_OUT_DOCUMENTS, tokenizer, held_out=True)
    figures = asdict(measure(load(directory), text, held_out))
    sizes = {
        "training_tokens": len(text.ids), "training_sha256": text.sha256, "held_out_tokens": len(held_out.ids),
        "held_out_sha256": held_out.sha256, "occurring_tokens": len(text.occurring),
    }  # fmt: skip
    print(json.dumps(figures | sizes, indent=2))


if __name__ == "__main__":
    main()
