"""A forward pass in five ways: transformers' eager one, ours, and ours recorded or with everything tapped."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from benchmarks import twins
from benchmarks.limits import Limits, forward_flops, limits, logit_bytes
from benchmarks.plan import Plan
from benchmarks.timing import Timed, Work, interleaved
from provenance.gpt2.model import GPT2
from provenance.prompt import Prompt, Token
from provenance.recorder import plan as recipe_of
from provenance.recorder import record

EAGER = "transformers, eager"
EAGER_OUTPUTS = "transformers, eager, hidden states and attentions"
PLAIN = "ours, plain"
RECORDED = "ours, recorded"
TAPPED = "ours, everything tapped"


@dataclass(frozen=True, slots=True)
class AtLength:
    """One number of tokens: every way's times, and the least times that this machine allows.

    `largest_difference` is that of our logits to transformers'; `same_bits` says that our logits are
    the same with everything tapped. `named` counts the tensors with a name of their own.
    """

    tokens: int
    timed: tuple[Timed, ...]
    named: int
    limit_ms: float
    tapped_limit_ms: float
    largest_difference: float
    same_bits: bool

    def of(self, name: str) -> Timed | None:
        """The times of one way, where it was run."""
        return next((timed for timed in self.timed if timed.name == name), None)


@dataclass(frozen=True, slots=True)
class Forward:
    """All numbers of tokens under one allocator; transformers keeps keys and values, as it does by default."""

    limits: Limits
    use_cache: bool
    lengths: tuple[AtLength, ...]


@torch.inference_mode()
def measure(plan: Plan) -> Forward:
    """Time all ways at all numbers of tokens, interleaved in one process."""
    torch.set_num_threads(plan.threads)
    bounds = limits(plan.matrix, plan.stream_bytes)
    model = twins.ours(plan.config)
    twin = twins.theirs(model)
    lengths = []
    for length, rounds in plan.rounds:
        measured = _at(model, twin, plan, length, rounds, bounds)
        lengths.append(measured)
        print(told(measured), flush=True)
    return Forward(bounds, bool(twin.config.use_cache), tuple(lengths))


def told(at: AtLength) -> str:
    """One line of what was measured."""
    eager = at.of(EAGER)
    assert eager is not None
    parts = [f"{timed.name} {timed.median:.1f} ms ({timed.over(eager):.3f})" for timed in at.timed]
    return f"T = {at.tokens}: " + "; ".join(parts) + f"; limit {at.limit_ms:.1f} ms"


def keeping(model: GPT2, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Every tensor of a forward by its place, references kept, and the logits as well."""
    kept: dict[str, torch.Tensor] = {}

    def tap(place: str, tensor: torch.Tensor) -> torch.Tensor:
        kept[place] = tensor
        return tensor

    model.forward(ids, tap=tap)
    return kept


def sizes(model: GPT2, ids: torch.Tensor) -> dict[str, int]:
    """Bytes of every computed tensor by its place, from the shapes of a real forward that keeps none."""
    found: dict[str, int] = {}

    def tap(place: str, tensor: torch.Tensor) -> torch.Tensor:
        if place not in model.weights and place != "tokens":
            found[place] = tensor.nbytes
        return tensor

    model.forward(ids, tap=tap)
    return found


def prompt_of(ids: torch.Tensor) -> Prompt:
    """Ids (1, T) as a prompt; the tokens' bytes play no part in a recording."""
    return Prompt(None, tuple(Token(int(id), b"") for id in ids[0]))


def _ways(model: GPT2, twin: torch.nn.Module, ids: torch.Tensor, plan: Plan) -> Mapping[str, Work]:
    recipe = recipe_of(model, prompt_of(ids), threads=plan.threads)
    ways: dict[str, Work] = {
        EAGER: lambda: twin(ids),
        EAGER_OUTPUTS: lambda: twin(ids, output_hidden_states=True, output_attentions=True),
        PLAIN: lambda: model.forward(ids),
        RECORDED: lambda: record(model, recipe),
    }
    if ids.shape[1] <= plan.tapped_up_to:
        ways[TAPPED] = lambda: keeping(model, ids)
    return ways


def _at(model: GPT2, twin: torch.nn.Module, plan: Plan, length: int, rounds: int, bounds: Limits) -> AtLength:
    ids = twins.tokens(plan.config, length)
    logits = model.forward(ids)[0]
    difference = float((logits - twin(ids).logits).abs().max())
    computed = sizes(model, ids)
    same = True
    if length <= plan.tapped_up_to:
        tapped = keeping(model, ids)["logits"]
        same = torch.equal(tapped.view(torch.int32), logits.view(torch.int32))
    del logits
    flops, weights = forward_flops(plan.config, length), model.parameter_bytes
    return AtLength(
        tokens=length,
        timed=tuple(interleaved(_ways(model, twin, ids, plan), rounds).values()),
        named=len(computed),
        limit_ms=1e3 * bounds.seconds(flops, weights, logit_bytes(plan.config, length)),
        tapped_limit_ms=1e3 * bounds.seconds(flops, weights, sum(computed.values())),
        largest_difference=difference,
        same_bits=same,
    )
