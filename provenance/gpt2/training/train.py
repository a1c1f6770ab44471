"""Train the demo model: seeded, resumable, from nothing but this repository and GPT-2's tokenizer.

    python -m provenance.gpt2.training.train build/demo

writes into that directory the text, the state (every few minutes; run again to resume), the
training curve, and at the end the checkpoint in Hugging Face's format.
"""

import argparse
import csv
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from provenance.gpt2.config import Config
from provenance.gpt2.training.data import Batch, Mix, Text, batch, tokenize
from provenance.gpt2.training.measures import Look, look
from provenance.gpt2.training.network import hidden, initial, loss
from provenance.prompt import Tokenizer

DEMO = Config(n_layer=4, n_head=4, n_embd=128, n_ctx=256, n_vocab=50257, n_inner=512)
HELD_OUT_DOCUMENTS = 4000
COLUMNS = ("step", "seconds", "training", "held_out", "induction", "score", "previous", "score")


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that decides what training gives."""

    config: Config = field(default=DEMO)
    seed: int = 0
    documents: int = 200_000
    steps: int = 2800
    copying: int = 1000
    tokens_per_step: int = 2048
    first_lengths: tuple[int, ...] = (32, 64)
    lengths: tuple[int, ...] = (64, 128, 64, 256)
    peak: float = 3e-3
    warmup: int = 100
    sampled: int = 256

    def rate(self, step: int) -> float:
        """The learning rate: up in a straight line, level while copying is learned, then down a cosine."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        done = max(0, step - self.copying) / max(1, self.steps - self.copying)
        return self.peak * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))

    def mix(self, step: int) -> Mix:
        """At first nothing but repeats, of few kinds of tokens and then of more; then mostly text."""
        if step < self.copying:
            return Mix(occurring=1.0, every=0.0, kinds=64 * 2 ** (step // 150), evenly=True)
        return Mix(occurring=0.3, every=0.06, kinds=self.config.n_vocab)

    def batch(self, text: Text, step: int) -> Batch:
        """The batch of a step; the lengths take turns."""
        lengths = self.first_lengths if step < self.copying else self.lengths
        length = lengths[step % len(lengths)]
        rows = self.tokens_per_step // length
        return batch(text, self.config.n_vocab, self.seed, step, rows, length, self.mix(step))


class Training:
    """A model in training: parameters, optimiser, and how many steps are done."""

    def __init__(self, plan: Plan, text: Text) -> None:
        self.plan = plan
        self.text = text
        self.step = 0
        self.parameters = initial(plan.config, plan.seed)
        self.occurring = torch.from_numpy(text.occurring)
        self.absent = np.setdiff1d(np.arange(plan.config.n_vocab), text.occurring)
        self.optimizer = torch.optim.AdamW(
            list(self.parameters.values()), lr=plan.peak, betas=(0.9, 0.98), weight_decay=0.0, fused=True
        )

    def advance(self) -> float:
        """Do one step; returns its loss."""
        part = self.plan.batch(self.text, self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.rate(self.step)
        learned = torch.from_numpy(part.learned)
        states = hidden(self.parameters, self.plan.config, torch.from_numpy(part.tokens))[learned]
        targets = torch.from_numpy(part.targets)[learned]
        candidates, sampled = self._candidates(part)
        value = loss(states, targets, self.parameters["wte.weight"], candidates, sampled, len(self.absent))
        self.optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), 1.0)
        self.optimizer.step()
        self.step += 1
        return value.item()

    def _candidates(self, part: Batch) -> tuple[Tensor, int]:
        """The tokens of this step's softmax, and how many of them stand for all that never occur.

        While copying is learned: the batch's. Then: all that occur in the text, some others at
        random, and any others that the batch asks for.
        """
        if self.step < self.plan.copying:
            return torch.from_numpy(np.unique(part.targets)), 0
        random = np.random.default_rng((self.plan.seed, self.step, 1))
        some = random.choice(self.absent, min(self.plan.sampled, len(self.absent)), replace=False)
        drawn = np.union1d(some, np.setdiff1d(part.targets[part.learned], self.text.occurring))
        return torch.cat((self.occurring, torch.from_numpy(drawn))), len(drawn)

    def save(self, path: Path) -> None:
        """Write the state; an interrupted write leaves the earlier state whole."""
        state = {
            "plan": json.dumps(asdict(self.plan)), "step": self.step,
            "parameters": {key: tensor.detach() for key, tensor in self.parameters.items()},
            "optimizer": self.optimizer.state_dict(),
        }  # fmt: skip
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        os.replace(partial, path)

    def restore(self, path: Path) -> None:
        """Go on from a saved state. Raises ValueError where it belongs to another plan."""
        state = torch.load(path, weights_only=True)
        if state["plan"] != json.dumps(asdict(self.plan)):
            raise ValueError(f"The state in {path} was made by another plan; move it away to start anew.")
        self.step = state["step"]
        with torch.no_grad():
            for key, tensor in self.parameters.items():
                tensor.copy_(state["parameters"][key])
        self.optimizer.load_state_dict(state["optimizer"])


def export(parameters: dict[str, Tensor], config: Config, directory: Path) -> None:
    """Write a checkpoint in Hugging Face's format, its weights in float16."""
    directory.mkdir(parents=True, exist_ok=True)
    halves = {key: tensor.detach().half().contiguous() for key, tensor in parameters.items()}
    save_file(halves, directory / "model.safetensors", metadata={"format": "pt"})
    data = {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": config.n_vocab,
        "n_positions": config.n_ctx, "n_embd": config.n_embd, "n_layer": config.n_layer,
        "n_head": config.n_head, "n_inner": config.n_inner, "activation_function": "gelu_new",
        "layer_norm_epsilon": config.epsilon, "tie_word_embeddings": True, "bos_token_id": 50256,
        "eos_token_id": 50256, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
        "torch_dtype": "float16",
    }  # fmt: skip
    (directory / "config.json").write_text(json.dumps(data, indent=2) + "\n")


def prepare(plan: Plan, directory: Path) -> tuple[Text, Text]:
    """The training text and a little held-out text, made once and then read back."""
    texts = []
    for name, documents in (("training", plan.documents), ("held_out", HELD_OUT_DOCUMENTS)):
        path = directory / f"{name}.npz"
        if not path.exists():
            text = tokenize(plan.seed, documents, Tokenizer.load(), held_out=name == "held_out")
            partial = path.with_suffix(".partial.npz")
            np.savez(partial, ids=text.ids, starts=text.starts)
            os.replace(partial, path)
        stored = np.load(path)
        texts.append(Text(stored["ids"], stored["starts"]))
    return texts[0], texts[1]


def run(plan: Plan, directory: Path, every: int, save_seconds: float) -> Iterator[tuple[int, float, float, Look]]:
    """Train to the end; yields, every so many steps, the step, seconds, training loss and a look."""
    directory.mkdir(parents=True, exist_ok=True)
    text, held_out = prepare(plan, directory)
    training, state = Training(plan, text), directory / "state.pt"
    if state.exists():
        training.restore(state)
    windows = torch.from_numpy(held_out.windows(32, plan.config.n_ctx))
    losses: list[float] = []
    start = saved = time.monotonic()
    while training.step < plan.steps:
        losses.append(training.advance())
        if training.step % every == 0 or training.step == plan.steps:
            seen = look(training.parameters, plan.config, windows, text.occurring)
            yield training.step, time.monotonic() - start, sum(losses) / len(losses), seen
            losses = []
        if time.monotonic() - saved > save_seconds or training.step == plan.steps:
            training.save(state)
            saved = time.monotonic()
    export(training.parameters, plan.config, directory / "checkpoint")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train the demo model, or go on training it.")
    parser.add_argument("directory", type=Path, help="where text, state, curve and checkpoint go")
    parser.add_argument("--every", type=int, default=200, help="steps between lines of the curve")
    parser.add_argument("--steps", type=int, default=Plan().steps)
    parser.add_argument("--seed", type=int, default=Plan().seed)
    parser.add_argument("--threads", type=int, default=1, help="other counts give other last digits")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    plan = replace(Plan(), seed=asked.seed, steps=asked.steps)
    asked.directory.mkdir(parents=True, exist_ok=True)
    with (asked.directory / "curve.csv").open("a", newline="") as stream:
        curve = csv.writer(stream)
        if stream.tell() == 0:
            curve.writerow(COLUMNS)
        for step, seconds, trained, seen in run(plan, asked.directory, asked.every, save_seconds=120):
            row = (step, round(seconds), f"{trained:.3f}", *seen.cells())
            curve.writerow(row)
            stream.flush()
            print(*row, sep="\t", flush=True)


if __name__ == "__main__":
    main()
