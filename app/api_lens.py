"""The API of predictions: the next token's distribution, the logit lens, and stopping a recording."""

import math
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from app.api import Here, TraceId, problems
from app.explorer import Explorer
from app.pages.lens import COLUMNS
from app.schemas import TokenOut, TraceOut, trace_of, trace_of_job
from provenance.lens import Candidate, Distribution, Lens, position_of, positions_around, sequence
from provenance.prompt import Token
from provenance.trace import Trace

router = APIRouter()

_Step = Annotated[
    int | None, Query(ge=0, le=1_000_000, description="a step; its last position is taken where none is named")
]
_Position = Annotated[
    int | None, Query(ge=0, le=1_000_000, description="a position of the whole sequence, counted from 0")
]
_Top = Annotated[int, Query(ge=1, le=100, description="how many of the most likely tokens to list")]


class CandidateOut(BaseModel):
    """One token of a distribution."""

    token: TokenOut
    rank: int = Field(description="1 for the most likely; equal logits share a rank")
    logit: float | None = Field(description="null where it is not finite")
    probability: float = Field(description="softmax at temperature 1, in float64; a share of 1")


class NextOut(BaseModel):
    """What the model predicts after a position, from the recorded logits."""

    trace: str
    step: int
    position: int
    token: TokenOut = Field(description="the token at the position")
    vocabulary: int
    temperature: float = Field(description="of the recording; the probabilities are those at 1")
    entropy_nats: float | None
    entropy_bits: float | None
    top: list[CandidateOut] = Field(description="by logit, then by id")
    actual: CandidateOut | None = Field(description="the token that really follows; null without probabilities")
    actual_from: str = Field(description="`prompt`, or `chosen` by the model")
    problem: str = Field(description="why there are no probabilities; else empty")


class LensPositionOut(BaseModel):
    """One position of the lens."""

    position: int
    step: int
    token: TokenOut
    final: TokenOut | None = Field(
        description="what the recorded logits predict; null where they are no distribution"
    )
    first_stage: str | None = Field(description="the first stage that predicts the final token")
    settled_stage: str | None = Field(description="the first stage from which on every stage predicts it")


class LensCellOut(BaseModel):
    """What one stage predicts at one position."""

    agrees: bool = Field(description="whether the most likely token is the final one")
    entropy_nats: float | None
    top: list[CandidateOut]
    final: CandidateOut | None = Field(description="where the final token stands")
    problem: str


class LensStageOut(BaseModel):
    """One row of the lens: a residual stream, read out with the model's own output."""

    stage: str = Field(description="the place of the residual stream, such as h.3.resid_post")
    layer: int | None = Field(description="null for the embedding")
    cells: list[LensCellOut]


class LensOut(BaseModel):
    """The logit lens around a position."""

    trace: str
    positions: list[LensPositionOut]
    stages: list[LensStageOut]
    largest_difference: float = Field(description="of the last stage's logits from the recorded ones")
    tolerance: float
    last_stage_equals_recorded: bool


@router.get("/api/traces/{id}/next", tags=["predictions"], responses=problems(404, 410, 422))
def predict_next(here: Here, id: TraceId, step: _Step = None, position: _Position = None, top: _Top = 10) -> NextOut:
    """The next token's distribution after a position, by default the prompt's last one."""
    trace = here.store.open(id)
    at = position_of(trace, step, position)
    found = here.distribution(trace, at, top)
    tokens = sequence(trace)
    names = _tokens(here, trace, [found])
    return NextOut(
        trace=trace.id,
        step=at.step,
        position=at.number,
        token=_token(tokens[at.number]),
        vocabulary=found.size,
        temperature=trace.recipe.temperature,
        entropy_nats=found.entropy,
        entropy_bits=found.bits,
        top=[_candidate(candidate, names) for candidate in found.top],
        actual=_candidate(found.watched, names) if found.watched else None,
        actual_from="prompt" if at.number + 1 < len(trace.recipe.tokens) else "chosen",
        problem=found.problem,
    )


@router.get("/api/traces/{id}/lens", tags=["predictions"], responses=problems(404, 410, 422))
def look_through_lens(
    here: Here, id: TraceId, step: _Step = None, position: _Position = None, top: _Top = 5
) -> LensOut:
    """The logit lens at up to 12 positions around one, by default around the prompt's last one."""
    trace = here.store.open(id)
    window = positions_around(trace, position_of(trace, step, position), COLUMNS)
    lens = here.lens(trace, window, top)
    names = _tokens(here, trace, [cell for stage in lens.stages for cell in stage.cells])
    return LensOut(
        trace=trace.id,
        positions=[_position(trace, lens, column, names) for column in range(len(window))],
        stages=[
            LensStageOut(
                stage=stage.place,
                layer=stage.layer,
                cells=[_cell(cell, lens.agrees(n, column), names) for column, cell in enumerate(stage.cells)],
            )
            for n, stage in enumerate(lens.stages)
        ],
        largest_difference=lens.largest_difference,
        tolerance=lens.tolerance,
        last_stage_equals_recorded=lens.holds,
    )


@router.post("/api/traces/{id}/cancel", tags=["traces"], responses=problems(404, 410))
def cancel(here: Here, id: TraceId) -> TraceOut:
    """Stop a recording; it ends as failed, with the error `cancelled`. One that has ended stays as it is."""
    job = here.jobs.cancel(id)
    if job is None or job.id in here.store:
        return trace_of(here.store.open(id).record)
    return trace_of_job(job)


def _position(trace: Trace, lens: Lens, column: int, names: dict[int, Token]) -> LensPositionOut:
    position, final = lens.positions[column], lens.final[column]
    first, settled = lens.first(column), lens.settled(column)
    return LensPositionOut(
        position=position.number,
        step=position.step,
        token=_token(sequence(trace)[position.number]),
        final=None if final is None else _token(names[final]),
        first_stage=None if first is None else lens.stages[first].place,
        settled_stage=None if settled is None else lens.stages[settled].place,
    )


def _cell(found: Distribution, agrees: bool, names: dict[int, Token]) -> LensCellOut:
    return LensCellOut(
        agrees=agrees,
        entropy_nats=found.entropy,
        top=[_candidate(candidate, names) for candidate in found.top],
        final=_candidate(found.watched, names) if found.watched else None,
        problem=found.problem,
    )


def _tokens(here: Explorer, trace: Trace, found: list[Distribution]) -> dict[int, Token]:
    """The tokens of all candidates, by id."""
    ids = {candidate.id for each in found for candidate in each.top}
    ids |= {each.watched.id for each in found if each.watched}
    return {token.id: token for token in here.models.tokens(trace.recipe.model.name, sorted(ids))}


def _token(token: Token) -> TokenOut:
    return TokenOut(id=token.id, hex=token.bytes.hex(), text=token.text)


def _candidate(found: Candidate, names: dict[int, Token]) -> CandidateOut:
    return CandidateOut(
        token=_token(names[found.id]),
        rank=found.rank,
        logit=found.logit if math.isfinite(found.logit) else None,
        probability=found.probability,
    )
