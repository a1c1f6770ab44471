"""The steps of a trace as a film: what stood there, what was chosen, and what else could have been."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.numbers import Number
from app.pages.predictions import CandidateView, prediction_of
from app.pages.scope import Link, Stop, step_name, step_says
from app.pages.tokens import step_url, text_before
from provenance.lens import Position, position_of
from provenance.trace import Trace

_ALTERNATIVES = 5
_MOST_SHOTS = 12


@dataclass(frozen=True, slots=True)
class Shot:
    """One step: the text before it, the token chosen at its end, and the most likely ones.

    `cut` says whether the text is only its end. Where `problem` is not empty there are no probabilities.
    """

    step: int
    title: str
    url: str
    current: bool
    text: str
    cut: bool
    chosen: str
    probability: Number | None
    rank: Number | None
    alternatives: tuple[CandidateView, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class Film:
    """The steps: a strip of all, shots of those around the chosen one, and the steps next to it."""

    strip: tuple[Stop, ...]
    shots: tuple[Shot, ...]
    previous: Link | None
    next: Link | None
    left_out: int


def film_of(explorer: Explorer, trace: Trace, at: Position) -> Film:
    """The film of a trace, at the step of a position."""
    steps = trace.last_step + 1
    first = max(0, min(at.step - _MOST_SHOTS // 2, steps - _MOST_SHOTS))
    shown = range(first, min(first + _MOST_SHOTS, steps))
    return Film(
        strip=tuple(
            Stop(f"step-{n}", str(n) if n else "prefill", step_says(trace, n), step_url(trace, n), n == at.step)
            for n in range(steps)
        ),
        shots=tuple(_shot(explorer, trace, step, step == at.step) for step in shown),
        previous=_link(trace, at.step - 1) if at.step else None,
        next=_link(trace, at.step + 1) if at.step + 1 < steps else None,
        left_out=steps - len(shown),
    )


def _link(trace: Trace, step: int) -> Link:
    return Link(step_url(trace, step), "", step_name(step))


def _shot(explorer: Explorer, trace: Trace, step: int, current: bool) -> Shot:
    at = position_of(trace, step)
    found = prediction_of(explorer, trace, at, _ALTERNATIVES)
    text, cut = text_before(trace, at)
    return Shot(
        step=step,
        title=step_name(step).capitalize(),
        url=step_url(trace, step),
        current=current,
        text=text,
        cut=cut,
        chosen=found.next_text,
        probability=found.next.probability if found.next else None,
        rank=found.next.rank if found.next else None,
        alternatives=found.candidates,
        problem=found.problem,
    )
