"""What the edits of a trace did, as the API gives it."""

import math
from collections.abc import Mapping

from pydantic import BaseModel, Field

from app.schemas import TokenOut
from provenance.effect import Effect, Moved, Shift, Touched
from provenance.lens import Candidate
from provenance.prompt import Token
from provenance.trace import Trace


class TouchedOut(BaseModel):
    """What one edit did to its tensor in one step."""

    edit: str
    address: str
    chosen: int = Field(description="cells that the edit chooses")
    changed: int = Field(description="cells of these that have another value now")
    largest_change: float = Field(description="of the cells that were and are finite")


class StandingOut(BaseModel):
    """Where a token stands in a distribution."""

    rank: int
    probability: float
    logit: float | None = Field(description="null where it is not finite")


class MovedOut(BaseModel):
    """A token that is among the most likely of either run."""

    token: TokenOut
    before: StandingOut
    after: StandingOut


class ShiftOut(BaseModel):
    """The next token's distribution after the last position of a step, before and after the edits."""

    step: int
    position: int
    kl_nats: float | None = Field(description="D(before ‖ after); null where one of them is no distribution")
    same: bool = Field(description="whether every logit is equal bit for bit")
    best_changed: bool = Field(description="whether another token is the most likely one now")
    moved: list[MovedOut] = Field(description="the most likely tokens of both runs")
    problem: str


class EffectOut(BaseModel):
    """What the edits of a trace did, compared with the same run without them."""

    trace: str
    unedited: str
    edits: list[str]
    none: str = Field(description="why the edits have no effect, in a sentence; empty where they have one")
    touched: list[TouchedOut]
    shifts: list[ShiftOut] = Field(description="one for each step that ran the same tokens in both runs")
    kl_along: list[float | None] = Field(description="D(before ‖ after) at each position of these steps, in nats")
    parted_step: int | None = Field(description="the first step that runs another token than the original")


def effect_out(trace: Trace, found: Effect, tokens: Mapping[int, Token]) -> EffectOut:
    """The effect of a trace's edits; `tokens` has those that it names."""
    return EffectOut(
        trace=trace.id,
        unedited=found.original,
        edits=[str(edit) for edit in trace.recipe.edits],
        none=found.none,
        touched=[_touched(touched) for touched in found.touched],
        shifts=[_shift(shift, tokens) for shift in found.shifts],
        kl_along=[_finite(kl) for kl in found.along],
        parted_step=found.parted,
    )


def ids_of(found: Effect) -> list[int]:
    """The ids of the tokens that an effect names, each once."""
    return list(dict.fromkeys(moved.id for shift in found.shifts for moved in shift.moved))


def _touched(touched: Touched) -> TouchedOut:
    return TouchedOut(
        edit=str(touched.edit),
        address=str(touched.address),
        chosen=touched.chosen,
        changed=touched.changed,
        largest_change=touched.largest,
    )


def _shift(shift: Shift, tokens: Mapping[int, Token]) -> ShiftOut:
    return ShiftOut(
        step=shift.position.step,
        position=shift.position.number,
        kl_nats=_finite(shift.kl),
        same=shift.same,
        best_changed=shift.best_changed,
        moved=[_moved(moved, tokens) for moved in shift.moved],
        problem=shift.problem,
    )


def _moved(moved: Moved, tokens: Mapping[int, Token]) -> MovedOut:
    token = tokens[moved.id]
    return MovedOut(
        token=TokenOut(id=token.id, hex=token.bytes.hex(), text=token.text),
        before=_standing(moved.before),
        after=_standing(moved.after),
    )


def _standing(candidate: Candidate) -> StandingOut:
    return StandingOut(rank=candidate.rank, probability=candidate.probability, logit=_finite(candidate.logit))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
