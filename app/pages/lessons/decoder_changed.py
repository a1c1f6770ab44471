"""A changed token in the chapter on the causal decoder: what that does before it, there and after it."""

from dataclasses import dataclass

import numpy as np

from app.pages.lessons.decoder_runs import TextRuns, VectorRuns
from app.pages.lessons.parts import Row, Table, small
from app.pages.lessons.reading import Array, Live, Reading
from app.pages.links import compare_url
from app.pages.numbers import Number, measure
from provenance.lessons import decoder

_READABLE = 1e-3


@dataclass(frozen=True, slots=True)
class ChangedText:
    """The text with one token changed: what that did, position by position, to stream and logits."""

    table: Table
    at: int
    before: str
    after: str
    stream: decoder.Shift
    largest_before: Live
    largest_after: Live
    length: int
    compare_url: str


@dataclass(frozen=True, slots=True)
class ChangedVectors:
    """One changed vector, with and without the mask: what it did, position by position."""

    table: Table
    at: int
    length: int
    causal: decoder.Shift
    unmasked: decoder.Shift
    causal_before: Live
    unmasked_before: Live
    causal_compare_url: str
    unmasked_compare_url: str


def changed_text(runs: TextRuns) -> ChangedText:
    """What another token at one position changes, in every block and in the logits."""
    run, other, at, tokens = runs.decoded, runs.other, runs.at, runs.tokens
    stream = _over_blocks(run, other, "h.resid_post")
    logits = decoder.by_position(run.array("logits"), other.array("logits"))
    last = run.trace.layers - 1
    rows = tuple(
        Row(
            f"{t} “{tokens[t].text}”" + (f" → “{other.trace.recipe.prompt.tokens[t].text}”" if t == at else ""),
            (run.live(difference(stream[t]), "h.resid_post", last), run.live(difference(logits[t]), "logits")),
            current=t == at,
        )
        for t in range(len(tokens))
    )
    shift = decoder.shift(np.maximum(stream, logits), at)
    return ChangedText(
        table=Table("Largest difference by position", ("Position", "stream after any block", "logits"), rows),
        at=at,
        before=tokens[at].text,
        after=other.trace.recipe.prompt.tokens[at].text,
        stream=shift,
        largest_before=run.live(difference(shift.before), "logits"),
        largest_after=run.live(difference(shift.after), "logits"),
        length=len(tokens),
        compare_url=compare_url(run.trace.id, other.trace.id),
    )


def changed_vectors(runs: VectorRuns, stream_out: str) -> ChangedVectors:
    """What another vector at one position changes, with the mask and without; `stream_out` leaves a block."""
    at, last = runs.at, runs.causal.trace.layers - 1
    causal = _over_blocks(runs.causal, runs.causal_other, stream_out)
    unmasked = _over_blocks(runs.unmasked, runs.unmasked_other, stream_out)
    rows = tuple(
        Row(
            f"{t}" + (" (changed)" if t == at else ""),
            (
                runs.causal.live(difference(causal[t]), stream_out, last),
                runs.unmasked.live(difference(unmasked[t]), stream_out, last),
            ),
            current=t == at,
        )
        for t in range(len(causal))
    )
    shifts = decoder.shift(causal, at), decoder.shift(unmasked, at)
    return ChangedVectors(
        table=Table("Largest difference after any block", ("Position", "with the mask", "without"), rows),
        at=at,
        length=len(causal),
        causal=shifts[0],
        unmasked=shifts[1],
        causal_before=runs.causal.live(difference(shifts[0].before), stream_out, last),
        unmasked_before=runs.unmasked.live(difference(shifts[1].before), stream_out, last),
        causal_compare_url=compare_url(runs.causal.trace.id, runs.causal_other.trace.id),
        unmasked_compare_url=compare_url(runs.unmasked.trace.id, runs.unmasked_other.trace.id),
    )


def _over_blocks(one: Reading, other: Reading, site: str) -> Array:
    """The largest difference at each position (T), over all blocks."""
    layers = range(one.trace.layers)
    apart: Array = np.max([decoder.by_position(one.array(site, n), other.array(site, n)) for n in layers], axis=0)
    return apart


def difference(value: float) -> Number:
    """A difference to read: small ones by their power of ten, others as any measure."""
    return measure(float(value)) if value >= _READABLE else small(float(value))
