"""What a model predicts at a position: the next token's distribution, and the same after every block.

The logit lens applies the model's own output (its final LayerNorm and unembedding) to the residual
stream as it stands after each block. After the last block that is the model's prediction itself.

Axes: P positions, d channels of the residual stream, V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from provenance.errors import OutOfRange
from provenance.model import Model
from provenance.names import Address
from provenance.prompt import Token
from provenance.trace import Trace
from provenance.verdict import TOLERANCE

_ROWS_AT_ONCE = 128
"""Rows of logits that are held at one time: 25 MB for GPT-2's vocabulary."""

_SMALLEST_LOG = -1e4
"""In the place of log 0, so that a probability of 0 adds nothing to an entropy."""


@dataclass(frozen=True, slots=True)
class Position:
    """A token that a trace has run: its number in the whole sequence, the step that ran it, its index there."""

    number: int
    step: int
    index: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One token of a distribution. `rank` is 1 for the most likely; equal logits share it."""

    id: int
    logit: float
    probability: float
    rank: int


@dataclass(frozen=True, slots=True)
class Distribution:
    """The softmax of one row of logits over a vocabulary of `size` tokens, in float64.

    `top` is ordered by logit, then by id. `entropy` is in nats. `watched` is the token that was asked
    for. Where the logits are no distribution, `problem` says why, and the rest is empty.
    """

    size: int = 0
    top: tuple[Candidate, ...] = ()
    entropy: float | None = None
    watched: Candidate | None = None
    problem: str = ""

    @property
    def best(self) -> int | None:
        """The id of the most likely token."""
        return self.top[0].id if self.top else None

    @property
    def bits(self) -> float | None:
        """The entropy in bits."""
        return None if self.entropy is None else self.entropy / math.log(2)

    @property
    def choices(self) -> float | None:
        """How many equally likely tokens would be as uncertain: e to the entropy."""
        return None if self.entropy is None else math.exp(self.entropy)


@dataclass(frozen=True, slots=True)
class Stage:
    """One row of the lens: the place of a residual stream, and what it predicts at each position."""

    place: str
    layer: int | None
    cells: tuple[Distribution, ...]


@dataclass(frozen=True, slots=True)
class Lens:
    """The logit lens at some positions. Every cell watches the `final` token of its column.

    `final` is what the recorded logits predict (None where they are no distribution).
    `largest_difference` is that of the last stage's logits from the recorded ones, and `holds` says
    that it lies within `tolerance`.
    """

    positions: tuple[Position, ...]
    final: tuple[int | None, ...]
    stages: tuple[Stage, ...]
    largest_difference: float
    tolerance: float
    holds: bool

    def agrees(self, stage: int, column: int) -> bool:
        """Whether a stage predicts what the model finally does."""
        final = self.final[column]
        return final is not None and self.stages[stage].cells[column].best == final

    def first(self, column: int) -> int | None:
        """The first stage that predicts the final token."""
        return next((n for n in range(len(self.stages)) if self.agrees(n, column)), None)

    def settled(self, column: int) -> int | None:
        """The first stage from which on every stage predicts the final token."""
        found = None
        for number in reversed(range(len(self.stages))):
            if not self.agrees(number, column):
                break
            found = number
        return found


# --- positions ---


def sequence(trace: Trace) -> tuple[Token, ...]:
    """The prompt's tokens, then those that the model chose; the last one was not run."""
    return (*trace.recipe.prompt.tokens, *trace.generated)


def position_of(trace: Trace, step: int | None = None, number: int | None = None) -> Position:
    """The position of that number; without one the last of the step, or of the prefill.

    Raises OutOfRange for what the trace has not run, and where the step did not run the position.
    """
    prompt = len(trace.recipe.tokens)
    if step is not None:
        trace.check(step=step)
    if number is None:
        return Position(prompt - 1 + step, step, 0) if step else Position(prompt - 1, 0, prompt - 1)
    last = prompt - 1 + trace.last_step
    if not 0 <= number <= last:
        raise OutOfRange(
            f"Trace {trace.id[:12]} has not run a position {number}.", hint=f"It has run positions 0 to {last}."
        )
    found = Position(number, 0, number) if number < prompt else Position(number, number - prompt + 1, 0)
    if step is not None and step != found.step:
        where = f"decode step {found.step}" if found.step else "the prefill"
        raise OutOfRange(
            f"Position {number} was not run in step {step}, but in {where}.", hint="Give one of the two only."
        )
    return found


def positions_around(trace: Trace, centre: Position, most: int) -> tuple[Position, ...]:
    """At most that many neighbouring positions, the centre among them."""
    length = len(trace.recipe.tokens) + trace.last_step
    first = max(0, min(centre.number - most // 2, length - most))
    return tuple(position_of(trace, number=number) for number in range(first, min(first + most, length)))


# --- distributions ---


def distribution(logits: Tensor, top: int, watch: int | None = None) -> Distribution:
    """The distribution of logits (V), with its `top` most likely tokens and the watched one's place."""
    wide = logits.detach().double()
    if problem := _problem(wide):
        return Distribution(wide.numel(), problem=problem)
    logs = torch.log_softmax(wide, dim=-1)
    likely = logs.exp()

    def candidate(id: int) -> Candidate:
        rank = 1 + int((wide > wide[id]).sum())
        return Candidate(id, float(wide[id]), float(likely[id]), rank)

    return Distribution(
        size=wide.numel(),
        top=tuple(candidate(id) for id in _largest(wide, top)),
        entropy=max(0.0, -float((likely * logs.clamp_min(_SMALLEST_LOG)).sum())),
        watched=None if watch is None else candidate(watch),
    )


def _problem(logits: Tensor) -> str:
    """Why a softmax of these logits says nothing; empty where it does."""
    nan, infinite = int(logits.isnan().sum()), int(logits.isposinf().sum())
    if nan:
        return f"{nan} of the {logits.numel()} logits are not a number (NaN), so there are no probabilities."
    if infinite:
        return f"{infinite} of the {logits.numel()} logits are +Inf, so there are no probabilities."
    if bool(logits.isneginf().all()):
        return "Every logit is −Inf, so there are no probabilities."
    return ""


def _largest(logits: Tensor, top: int) -> list[int]:
    """The ids of the largest logits; of equal ones the lowest ids, as argmax has it."""
    values, found = logits.topk(min(top, logits.numel()))
    reached = logits >= values[-1]
    ids: list[int] = (found if int(reached.sum()) == len(found) else reached.nonzero().flatten()).tolist()
    ids.sort(key=lambda id: (-float(logits[id]), id))
    return ids[:top]


# --- the lens ---


@torch.inference_mode()
def logit_lens(model: Model, trace: Trace, positions: Sequence[Position], recorded: Tensor, top: int) -> Lens:
    """The lens at some positions; `recorded` holds the trace's own logits there (P, V)."""
    torch.set_num_threads(trace.recipe.threads)
    final = tuple(distribution(row, 1).best for row in recorded)
    streams = residuals(trace, model.residuals, positions)  # (stages, P, d)
    cells: list[tuple[Distribution, ...]] = []
    at_once = max(1, _ROWS_AT_ONCE // len(positions))
    for first in range(0, len(streams), at_once):
        logits = model.unembed(streams[first : first + at_once])  # (some stages, P, V)
        cells += [
            tuple(distribution(row, top, watch) for row, watch in zip(stage, final, strict=True)) for stage in logits
        ]
        last = logits[-1]
    stages = tuple(
        Stage(place, Address.parse(place).layer, found) for place, found in zip(model.residuals, cells, strict=True)
    )
    difference, tolerance, holds = _compare(last, recorded)
    return Lens(tuple(positions), final, stages, difference, tolerance, holds)


def residuals(trace: Trace, places: Sequence[str], positions: Sequence[Position]) -> Tensor:
    """The kept residual streams at some places and positions: (places, P, d)."""
    kept = {position.step: trace.kept(position.step) for position in positions}
    return torch.stack([torch.stack([kept[p.step][place][0, p.index] for p in positions]) for place in places])


def _compare(ours: Tensor, recorded: Tensor) -> tuple[float, float, bool]:
    """The largest difference of the finite cells, the tolerance, and whether all cells agree."""
    finite = ours.isfinite() & recorded.isfinite()
    tolerance = tolerance_of(recorded[finite])
    difference = float((ours.double() - recorded.double())[finite].abs().max()) if finite.any() else 0.0
    rest = torch.equal(ours[~finite].nan_to_num(), recorded[~finite].nan_to_num())
    return difference, tolerance, rest and difference <= tolerance


def tolerance_of(recorded: Tensor) -> float:
    """How far logits computed anew may lie from recorded ones (finite, any shape)."""
    largest = float(recorded.double().abs().max()) if recorded.numel() else 0.0
    # Half precision rounds at its own last place; fp32 within the tolerance that all verdicts use.
    return max(TOLERANCE, 2 * torch.finfo(recorded.dtype).eps) * max(1.0, largest)
