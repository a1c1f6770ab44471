"""Larger and longer: what a recording costs against tokens and against parameters, and GPT-2 XL's shape."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from benchmarks import twins
from benchmarks.forward import prompt_of
from benchmarks.machine import forget_peak, status_bytes
from benchmarks.plan import Plan
from benchmarks.sizes import stored
from benchmarks.timing import Growth, Timed, growth, interleaved
from provenance.gpt2.config import Config
from provenance.gpt2.model import GPT2
from provenance.names import Address
from provenance.recorder import Replayer, record
from provenance.recorder import plan as recipe_of
from provenance.store import TraceStore

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Cost:
    """One recording: how long it takes, what it keeps, and how long opening one tensor takes."""

    tokens: int
    parameters: int
    recorded: Timed
    kept: int
    opened: Timed


@dataclass(frozen=True, slots=True)
class Lengths:
    """Costs of one model at several numbers of tokens, and how they grow with them."""

    costs: tuple[Cost, ...]
    seconds: Growth
    kept: Growth


@dataclass(frozen=True, slots=True)
class OfSize:
    """The cost of a model of one size."""

    name: str
    cost: Cost


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest model, recorded into a store once, and a tensor of its middle block opened.

    `peak_recording` is the most memory of the whole process while it records, `peak_opening` while it
    stores the trace, reads it back and opens a tensor. Times are in seconds.
    """

    parameters: int
    layers: int
    width: int
    tokens: int
    dtype: str
    weights: int
    made: float
    recorded: float
    kept: int
    stored: float
    opened: float
    opened_bytes: int
    again: float
    peak_recording: int
    peak_opening: int


@torch.inference_mode()
def lengths(plan: Plan) -> Lengths:
    """Record the same model at several numbers of tokens."""
    torch.set_num_threads(plan.threads)
    model = twins.ours(plan.config)
    costs = []
    for length in plan.scaled_lengths:
        costs.append(_cost(model, plan, length))
        print(_told(costs[-1]), flush=True)
    tokens = [cost.tokens for cost in costs]
    return Lengths(
        tuple(costs),
        growth(tokens, [cost.recorded.median for cost in costs]),
        growth(tokens, [cost.kept for cost in costs]),
    )


@torch.inference_mode()
def of_size(plan: Plan, name: str) -> OfSize:
    """Record one size of model, in a process of its own since the large ones fill the memory."""
    torch.set_num_threads(plan.threads)
    found = OfSize(name, _cost(twins.ours(dict(plan.scaled)[name]), plan, plan.scaled_tokens))
    print(f"{name}: {_told(found.cost)}", flush=True)
    return found


def growth_with_size(sizes: tuple[OfSize, ...]) -> Growth:
    """How the time of a recording grows with the number of parameters."""
    return growth([size.cost.parameters for size in sizes], [size.cost.recorded.median for size in sizes])


@torch.inference_mode()
def largest(plan: Plan) -> Largest:
    """Make the largest model's weights in float32, record the longest prompt, store it, open a tensor."""
    torch.set_num_threads(plan.threads)
    with tempfile.TemporaryDirectory() as directory:
        return _largest(plan, plan.largest, Path(directory))


def _largest(plan: Plan, config: Config, directory: Path) -> Largest:
    model, made = _clocked(lambda: twins.ours(config))
    print(f"weights made: {made:.1f} s, {model.parameter_bytes:,} bytes", flush=True)
    forget_peak()
    recipe = recipe_of(model, prompt_of(twins.tokens(config, plan.longest)), threads=plan.threads)
    (chosen, tensors), recorded = _clocked(lambda: record(model, recipe))
    kept = sum(tensor.nbytes for tensor in tensors.values())
    peak_recording = status_bytes("VmHWM")
    print(f"recorded: {recorded:.1f} s, {kept:,} bytes kept, peak {peak_recording:,} bytes", flush=True)
    forget_peak()
    tokens = prompt_of(torch.tensor([chosen])).tokens
    trace, written = _clocked(lambda: TraceStore(directory).save(recipe, tokens, tensors))
    tensors.clear()
    replayer, wanted = Replayer(), Address("h.attn.scores", model.layers // 2, 0)
    tensor, opened = _clocked(lambda: replayer.tensor(model, trace, wanted))
    _, again = _clocked(lambda: replayer.tensor(model, trace, wanted))
    print(f"stored: {written:.1f} s; a tensor opened: {opened:.2f} s", flush=True)
    return Largest(
        parameters=_parameters(model),
        layers=config.n_layer,
        width=config.n_embd,
        tokens=plan.longest,
        dtype=model.info.dtype,
        weights=model.parameter_bytes,
        made=made,
        recorded=recorded,
        kept=kept,
        stored=written,
        opened=opened,
        opened_bytes=tensor.nbytes,
        again=again,
        peak_recording=peak_recording,
        peak_opening=status_bytes("VmHWM"),
    )


def _cost(model: GPT2, plan: Plan, length: int) -> Cost:
    ids = prompt_of(twins.tokens(model.config, length))
    recipe = recipe_of(model, ids, threads=plan.threads)
    with tempfile.TemporaryDirectory() as directory:
        trace = stored(model, plan, length, Path(directory))
        wanted = Address("h.attn.scores", model.layers // 2, 0)
        timed = interleaved(
            {
                "record": lambda: record(model, recipe),
                "open": lambda: Replayer().tensor(model, trace, wanted),
            },
            plan.repeats,
        )
        kept = sum(tensor.nbytes for tensor in trace.tensors.values())
    return Cost(length, _parameters(model), timed["record"], kept, timed["open"])


def _parameters(model: GPT2) -> int:
    return sum(tensor.numel() for tensor in model.weights.values())


def _told(cost: Cost) -> str:
    return (
        f"T = {cost.tokens}, {cost.parameters:,} parameters: recorded in {cost.recorded.median:.1f} ms, "
        f"{cost.kept:,} bytes kept, a tensor opened in {cost.opened.median:.1f} ms"
    )


def _clocked(work: Callable[[], Made]) -> tuple[Made, float]:
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started
