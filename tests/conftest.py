"""Shared fixtures: a tiny GPT-2 whose weights are all different from zero and one, and a trace of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from provenance.digest import digest
from provenance.gpt2.config import Config
from provenance.gpt2.model import GPT2
from provenance.gpt2.weights import shapes
from provenance.model import ModelInfo
from provenance.prompt import Prompt, Token
from provenance.recorder import plan, record
from provenance.store import TraceStore
from provenance.trace import Trace

TINY = Config(n_layer=3, n_head=3, n_embd=48, n_ctx=24, n_vocab=97, n_inner=112, epsilon=1e-4)
"""Three heads of width 16, an MLP that is not four times as wide, and an ε that is not the default."""

PROMPT_IDS = (11, 7, 96, 0, 7, 42)
STEPS = 3
THREADS = 2

# How long an example takes says something of the machine, and nothing of the program.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def tiny_model_of(config: Config = TINY, seed: int = 1, name: str = "tiny", dtype: str = "float32") -> GPT2:
    """A model whose gains and biases are random too, and whose attention is far from uniform."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for place, shape in shapes(config).items():
        drawn = torch.randn(shape, generator=generator)
        weights[place] = 1 + 0.2 * drawn if place.endswith(".g") else 0.15 * drawn
    sha256 = digest(weights)
    weights = {place: tensor.to(getattr(torch, dtype)) for place, tensor in weights.items()}
    return GPT2(config, weights, ModelInfo(name, "gpt2", config.as_json(), sha256, "a test", False, dtype))


def prompt_of(ids: tuple[int, ...] = PROMPT_IDS) -> Prompt:
    """A prompt of given ids; the tokens' bytes are made up."""
    return Prompt(None, tuple(Token(id, b"<%d>" % id) for id in ids))


def recorded(model: GPT2, store: TraceStore, ids: tuple[int, ...] = PROMPT_IDS, steps: int = STEPS) -> Trace:
    """A trace of the model, written to the store and read back."""
    recipe = plan(model, prompt_of(ids), steps=steps, threads=THREADS)
    chosen, tensors = record(model, recipe)
    return store.save(recipe, prompt_of(chosen).tokens, tensors)


@dataclass(frozen=True)
class Tapped:
    """A run of the whole model without the recorder: chosen ids, and every tensor by address."""

    chosen: tuple[int, ...]
    tensors: dict[str, torch.Tensor]


def tapped_run(model: GPT2, ids: tuple[int, ...] = PROMPT_IDS, steps: int = STEPS) -> Tapped:
    """Prefill and greedy decode steps by `forward` alone, with every tensor tapped."""
    tensors: dict[str, torch.Tensor] = {}
    chosen: list[int] = []
    past: list[torch.Tensor] | None = None
    for step in range(steps + 1):

        def tap(place: str, tensor: torch.Tensor, step: int = step) -> torch.Tensor:
            tensors[f"{place}@{step}" if step else place] = tensor
            return tensor

        tokens = torch.tensor([[chosen[-1]] if step else list(ids)])
        logits, presents = model.forward(tokens, past, tap)
        past = presents if past is None else [torch.cat(p, dim=-2) for p in zip(past, presents, strict=True)]
        chosen.append(int(logits[0, -1].argmax()))
    return Tapped(tuple(chosen), tensors)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """Recordings set torch's thread count; each test starts from the same one."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_model() -> GPT2:
    """A GPT-2 of three layers."""
    return tiny_model_of()


@pytest.fixture(scope="session")
def tiny_store(tmp_path_factory: pytest.TempPathFactory) -> TraceStore:
    """The store that holds `tiny_trace`."""
    return TraceStore(tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="session")
def tiny_trace(tiny_model: GPT2, tiny_store: TraceStore) -> Trace:
    """Six tokens and three decode steps of `tiny_model`, read back from `tiny_store`."""
    return recorded(tiny_model, tiny_store)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return Path(__file__).resolve().parents[1]
