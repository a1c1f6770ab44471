"""What a trace keeps, what recording takes, and what a tensor costs to have again."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks import twins
from benchmarks.forward import prompt_of, sizes
from benchmarks.machine import forget_peak, status_bytes
from benchmarks.plan import Plan
from benchmarks.timing import Timed, interleaved
from provenance.gpt2.model import GPT2
from provenance.names import Address
from provenance.recorder import Replayer, record, replay
from provenance.recorder import plan as recipe_of
from provenance.store import TraceStore
from provenance.trace import Recipe, Trace

BLOCK, BLOCK_TAPPED = "one block's forward", "the same block replayed, everything tapped"
CACHED = "a tensor from the cache"


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes of a trace beside the bytes of every named tensor that it gives back, parameters left out."""

    tokens: int
    kept: int
    all: int
    named: int

    @property
    def share(self) -> float:
        """Kept bytes over all bytes."""
        return self.kept / self.all


@dataclass(frozen=True, slots=True)
class Peak:
    """Memory of a process that makes weights and records once.

    `before` is resident before there are weights (Python, torch); `peak` the most that was resident
    while it recorded; `block` all intermediates of one block.
    """

    tokens: int
    weights: int
    block: int
    before: int
    peak: int

    @property
    def taken(self) -> int:
        """What weights and recording took at the peak."""
        return self.peak - self.before

    @property
    def allowed(self) -> float:
        """The weights, a quarter more, and one block's intermediates."""
        return 1.25 * self.weights + self.block


@dataclass(frozen=True, slots=True)
class Again:
    """A block replayed against the same block's forward, and tensors read from the cache, at one length."""

    tokens: int
    forward: Timed
    replayed: Timed
    cached: Timed
    bit_for_bit: bool


@dataclass(frozen=True, slots=True)
class Sizes:
    """Kept bytes, and replays, under one allocator."""

    kept: Kept
    again: tuple[Again, ...]


@torch.inference_mode()
def measure(plan: Plan) -> Sizes:
    """Record, count, replay. The peak is measured by `peak`, in a process of its own."""
    torch.set_num_threads(plan.threads)
    model = twins.ours(plan.config)
    kept = _kept(model, plan)
    print(f"T = {kept.tokens}: {kept.kept:,} of {kept.all:,} bytes kept ({kept.share:.2%})", flush=True)
    again = []
    for length, rounds in plan.rounds:
        one = _again(model, plan, length, rounds)
        ratio = one.replayed.over(one.forward)
        print(f"T = {length}: replay {ratio:.3f} of the forward, cached {one.cached.median:.4f} ms", flush=True)
        again.append(one)
    return Sizes(kept, tuple(again))


@torch.inference_mode()
def peak(plan: Plan) -> Peak:
    """Memory of recording the longest prompt once, in this process, which has done nothing else."""
    torch.set_num_threads(plan.threads)
    before = status_bytes("VmRSS")
    model = twins.ours(plan.config)
    ids = twins.tokens(plan.config, plan.longest)
    forget_peak()
    record(model, _recipe(model, plan, plan.longest))
    most = status_bytes("VmHWM")
    block = sum(size for place, size in sizes(model, ids).items() if place.startswith("h.0."))
    measured = Peak(plan.longest, model.parameter_bytes, block, before, most)
    print(f"T = {plan.longest}: {measured.taken:,} bytes at the peak, {measured.allowed:,.0f} allowed", flush=True)
    return measured


def stored(model: GPT2, plan: Plan, length: int, directory: Path) -> Trace:
    """A recording of seeded random ids, written to a store and read back."""
    recipe = _recipe(model, plan, length)
    chosen, tensors = record(model, recipe)
    return TraceStore(directory).save(recipe, prompt_of(torch.tensor([chosen])).tokens, tensors)


def _recipe(model: GPT2, plan: Plan, length: int) -> Recipe:
    return recipe_of(model, prompt_of(twins.tokens(model.config, length)), threads=plan.threads)


def _kept(model: GPT2, plan: Plan) -> Kept:
    _, tensors = record(model, _recipe(model, plan, plan.longest))
    every = sizes(model, twins.tokens(plan.config, plan.longest))
    return Kept(plan.longest, sum(tensor.nbytes for tensor in tensors.values()), sum(every.values()), len(every))


def _again(model: GPT2, plan: Plan, length: int, rounds: int) -> Again:
    layer = model.layers // 2
    segment = f"h.{layer}"
    with tempfile.TemporaryDirectory() as directory:
        trace = stored(model, plan, length, Path(directory))
        kept = trace.kept(0)
        bit_for_bit = replay(model, trace, segment, 0).check.bit_for_bit
        timed = interleaved(
            {
                BLOCK: lambda: model.run(segment, kept, ()),
                BLOCK_TAPPED: lambda: replay(model, trace, segment, 0),
            },
            rounds,
        )
        replayer = Replayer()
        wanted = Address("h.attn.pattern", layer, 0)
        replayer.tensor(model, trace, wanted)
        cached = interleaved({CACHED: lambda: replayer.tensor(model, trace, wanted)}, max(rounds, 20))
    return Again(length, timed[BLOCK], timed[BLOCK_TAPPED], cached[CACHED], bit_for_bit)
