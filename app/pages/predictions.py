"""What the model predicts at a position: candidates with probabilities, entropy, what really follows."""

import math
from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.numbers import Number, count, measure, percent
from app.pages.tokens import hexadecimal, text_before
from provenance.errors import UnknownModel, UnsupportedCheckpoint
from provenance.lens import Candidate, Distribution, Position, sequence
from provenance.trace import Trace

TOP = 10


@dataclass(frozen=True, slots=True)
class CandidateView:
    """One candidate; `bar` is the length of its bar from 0 to 100, `follows` whether it really comes next."""

    rank: Number
    text: str
    id: int
    bytes: str
    probability: Number
    logit: Number
    bar: str
    follows: bool


@dataclass(frozen=True, slots=True)
class Prediction:
    """The next token's distribution at a position. Where `problem` is not empty it stands in its place.

    `text` is the end of what stands before, `next` the token that really follows (None without
    probabilities);
    `chosen` says whether the model chose that one, and `largest` is the entropy of an even choice.
    """

    position: int
    text: str
    cut: bool
    problem: str
    hint: str
    candidates: tuple[CandidateView, ...]
    next_text: str
    next: CandidateView | None
    surprisal: Number
    chosen: bool
    temperature: float
    nats: Number
    bits: Number
    choices: Number
    largest: Number
    vocabulary: Number


def prediction_of(explorer: Explorer, trace: Trace, at: Position, top: int = TOP) -> Prediction:
    """The prediction at a position; says why there is none where the model is gone or gives NaN."""
    try:
        found = explorer.distribution(trace, at, top)
    except (UnknownModel, UnsupportedCheckpoint) as problem:
        return _prediction(explorer, trace, at, Distribution(problem=problem.message), problem.hint)
    return _prediction(explorer, trace, at, found)


def _prediction(explorer: Explorer, trace: Trace, at: Position, found: Distribution, hint: str = "") -> Prediction:
    text, cut = text_before(trace, at)
    follows = sequence(trace)[at.number + 1]
    watched = found.watched
    views = views_of(explorer, trace, (*found.top, *([watched] if watched else [])), follows.id)
    return Prediction(
        position=at.number,
        text=text,
        cut=cut,
        problem=found.problem,
        hint=hint,
        candidates=views[: len(found.top)],
        next_text=follows.text,
        next=views[-1] if watched else None,
        surprisal=measure(-math.log2(watched.probability) if watched and watched.probability else None),
        chosen=at.number + 1 >= len(trace.recipe.tokens),
        temperature=trace.recipe.temperature,
        nats=measure(found.entropy),
        bits=measure(found.bits),
        choices=_choices(found.choices),
        largest=measure(math.log(found.size) if found.size else None),
        vocabulary=count(found.size),
    )


def _choices(value: float | None) -> Number:
    if value is None:
        return Number("–", "none")
    return Number(f"{value:.3g}" if value < 1e3 else count(round(value)).text, repr(value))


def views_of(
    explorer: Explorer, trace: Trace, found: tuple[Candidate, ...], follows: int
) -> tuple[CandidateView, ...]:
    """Candidates as the pages show them; `follows` is the id of the one to mark."""
    tokens = explorer.models.tokens(trace.recipe.model.name, [candidate.id for candidate in found])
    return tuple(
        CandidateView(
            rank=count(candidate.rank),
            text=token.text,
            id=token.id,
            bytes=hexadecimal(token),
            probability=percent(candidate.probability),
            logit=measure(candidate.logit),
            bar=f"{100 * candidate.probability:.2f}",
            follows=token.id == follows,
        )
        for candidate, token in zip(found, tokens, strict=True)
    )
