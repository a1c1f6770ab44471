"""Libraries that name a model's inner tensors, each beside ours and transformers' forward in one process.

Every peer is imported inside its function: each runs in an environment of its own, where the others are
not installed. All see the same shape; where a peer wraps transformers' model, the very same one.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks import twins
from benchmarks.forward import EAGER, TAPPED, keeping
from benchmarks.machine import versions
from benchmarks.plan import Plan
from benchmarks.timing import Timed, Work, interleaved
from provenance.gpt2.config import Config


@dataclass(frozen=True, slots=True)
class Peer:
    """A library to measure: its release on the registry."""

    name: str
    requirement: str


PEERS = (
    Peer("TransformerLens", "transformer-lens==3.9.0"),
    Peer("torchlens", "torchlens==2.36.1"),
    Peer("nnsight", "nnsight==0.8.1"),
)


_SECONDS = 60
"""How long the rounds of one number of tokens may take. A peer may be twenty times as slow as what is beside it."""
_FEWEST = 5


@dataclass(frozen=True, slots=True)
class Named:
    """How many tensors one way gives a name to."""

    name: str
    tensors: int


@dataclass(frozen=True, slots=True)
class PeerAt:
    """One number of tokens: every way's times in the same rounds."""

    tokens: int
    timed: tuple[Timed, ...]

    def of(self, name: str) -> Timed:
        """The times of one way."""
        return next(timed for timed in self.timed if timed.name == name)


@dataclass(frozen=True, slots=True)
class Peers:
    """One peer: its ways of capturing (others than ours and transformers'), what they name, their times."""

    peer: str
    versions: Mapping[str, str]
    ways: tuple[str, ...]
    named: tuple[Named, ...]
    lengths: tuple[PeerAt, ...]

    def tensors(self, way: str) -> int:
        """How many tensors a way gives a name to."""
        return next(named.tensors for named in self.named if named.name == way)


@dataclass(frozen=True, slots=True)
class Way:
    """One way of capturing: runs on ids and returns what it captured; `count` says how many that are."""

    run: Callable[[torch.Tensor], Any]
    count: Callable[[Any], int]


def measure(plan: Plan, peer: str) -> Peers:
    """Time a peer's ways, ours, and transformers' eager forward, interleaved in one process."""
    torch.set_num_threads(plan.threads)
    model = twins.ours(plan.config)
    twin = twins.theirs(model)
    ways, before = _MAKERS[peer](plan.config, twins.theirs(model))  # a peer may leave its hooks on what it wraps
    ways[TAPPED] = Way(lambda ids: keeping(model, ids), lambda kept: len(kept.keys() - model.weights.keys()) - 1)
    ids = twins.tokens(plan.config, plan.tapped_rounds[0][0])
    named = []
    for name, way in ways.items():
        before(name)
        named.append(Named(name, way.count(way.run(ids))))
        print(f"{name}: {named[-1].tensors} tensors", flush=True)
    lengths = []
    for length, rounds in plan.tapped_rounds:
        works = _works(ways, twin, twins.tokens(plan.config, length))
        once = sum(timed.median for timed in interleaved(works, 1, before=before).values()) / 1e3
        affordable = min(rounds, max(_FEWEST, int(_SECONDS / once)))
        lengths.append(PeerAt(length, tuple(interleaved(works, affordable, 0, before=before).values())))
        ratios = (f"{timed.name} {timed.over(lengths[-1].of(EAGER)):.2f}" for timed in lengths[-1].timed)
        print(f"T = {length}: {'; '.join(ratios)}", flush=True)
    packages = ("torch", "transformers", *(peer.requirement.partition("==")[0] for peer in PEERS))
    return Peers(
        peer, versions(packages), tuple(name for name in ways if name != TAPPED), tuple(named), tuple(lengths)
    )


def _works(ways: Mapping[str, Way], twin: torch.nn.Module, ids: torch.Tensor) -> dict[str, Work]:
    works: dict[str, Work] = {EAGER: torch.inference_mode()(lambda: twin(ids))}
    for name, way in ways.items():
        works[name] = lambda way=way: way.run(ids)  # type: ignore[misc]
    return works


Made = tuple[dict[str, Way], Callable[[str], object]]
"""A peer's ways, and what is done before each way outside the clock."""


def _nothing(_: str) -> None:
    """Most peers need no preparation."""


def _transformer_lens(config: Config, twin: torch.nn.Module) -> Made:
    library: Any = importlib.import_module("transformer_lens")
    settings = library.HookedTransformerConfig(
        n_layers=config.n_layer,
        d_model=config.n_embd,
        n_ctx=config.n_ctx,
        d_head=config.head_dim,
        n_heads=config.n_head,
        d_mlp=config.n_inner,
        d_vocab=config.n_vocab,
        act_fn="gelu_new",
        normalization_type="LN",
        eps=config.epsilon,
        device="cpu",
    )
    hooked = library.HookedTransformer(settings).eval()
    way = Way(torch.inference_mode()(lambda ids: hooked.run_with_cache(ids)), lambda found: len(found[1]))
    return {"TransformerLens, run_with_cache": way}, _nothing


def _torchlens(config: Config, twin: torch.nn.Module) -> Made:
    """It wraps torch's functions for good when it is first used: they are unwrapped for the others."""
    library: Any = importlib.import_module("torchlens")
    wrappers: Any = importlib.import_module("torchlens.backends.torch.wrappers")

    def full(ids: torch.Tensor) -> Any:
        with torch.no_grad():  # it needs tensors that could have a gradient
            return library.trace(twin, ids)

    def light(ids: torch.Tensor) -> Any:
        with torch.no_grad():
            return library.record(twin, ids, default_op=True)

    def before(name: str) -> None:
        wrappers.wrap_torch() if name.startswith("torchlens") else wrappers.unwrap_torch()

    return {"torchlens, full trace": Way(full, len), "torchlens, lightest record": Way(light, len)}, before


def _nnsight(config: Config, twin: torch.nn.Module) -> Made:
    library: Any = importlib.import_module("nnsight")
    wrapped = library.NNsight(twin)

    @torch.inference_mode()
    def cached(ids: torch.Tensor) -> Any:
        found = None
        with wrapped.trace(ids) as tracer:
            found = tracer.cache()
        return found  # noqa: RET504  (inside the block there is nothing yet)

    return {"nnsight, cache of every module": Way(cached, lambda found: len(found.keys()))}, _nothing


_MAKERS: Mapping[str, Callable[[Config, torch.nn.Module], Made]] = {
    "TransformerLens": _transformer_lens,
    "torchlens": _torchlens,
    "nnsight": _nnsight,
}
