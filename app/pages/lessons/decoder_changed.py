"""A changed token in the chapter on the causal decoder: what that does before it, there and after it."""

from dataclasses import dataclass

import numpy as np

from app.pages.lessons.decoder_runs import TextRuns, VectorRuns
from app.pages.lessons.parts import Row, Table, apart
from app.pages.lessons.reading import Array, Live, Reading
from app.pages.links import compare_url
from provenance.lessons import decoder


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

    def largest(which: slice) -> Live:
        block, output = stream.live(run, which), float(logits[which].max(initial=0.0))
        found = float(stream.largest[which].max(initial=0.0))
        return block if found >= output else run.live(apart(output), "logits")

    rows = tuple(
        Row(
            f"{t} “{tokens[t].text}”" + (f" → “{other.trace.recipe.prompt.tokens[t].text}”" if t == at else ""),
            (stream.live(run, slice(t, t + 1)), run.live(apart(logits[t]), "logits")),
            current=t == at,
        )
        for t in range(len(tokens))
    )
    shift = decoder.shift(np.maximum(stream.largest, logits), at)
    return ChangedText(
        table=Table("Largest difference by position", ("Position", "stream after any block", "logits"), rows),
        at=at,
        before=tokens[at].text,
        after=other.trace.recipe.prompt.tokens[at].text,
        stream=shift,
        largest_before=largest(slice(at)),
        largest_after=largest(slice(at, None)),
        length=len(tokens),
        compare_url=compare_url(run.trace.id, other.trace.id),
    )


def changed_vectors(runs: VectorRuns, stream_out: str) -> ChangedVectors:
    """What another vector at one position changes, with the mask and without; `stream_out` leaves a block."""
    at = runs.at
    causal = _over_blocks(runs.causal, runs.causal_other, stream_out)
    unmasked = _over_blocks(runs.unmasked, runs.unmasked_other, stream_out)
    rows = tuple(
        Row(
            f"{t}" + (" (changed)" if t == at else ""),
            (
                causal.live(runs.causal, slice(t, t + 1)),
                unmasked.live(runs.unmasked, slice(t, t + 1)),
            ),
            current=t == at,
        )
        for t in range(len(causal.largest))
    )
    shifts = decoder.shift(causal.largest, at), decoder.shift(unmasked.largest, at)
    return ChangedVectors(
        table=Table("Largest difference after any block", ("Position", "with the mask", "without"), rows),
        at=at,
        length=len(causal.largest),
        causal=shifts[0],
        unmasked=shifts[1],
        causal_before=causal.live(runs.causal, slice(at)),
        unmasked_before=unmasked.live(runs.unmasked, slice(at)),
        causal_compare_url=compare_url(runs.causal.trace.id, runs.causal_other.trace.id),
        unmasked_compare_url=compare_url(runs.unmasked.trace.id, runs.unmasked_other.trace.id),
    )


@dataclass(frozen=True, slots=True)
class _OverBlocks:
    """The largest differences after each block (L) at each position (T) of two runs."""

    site: str
    apart: Array

    @property
    def largest(self) -> Array:
        """The largest difference at each position (T), over all blocks."""
        found: Array = self.apart.max(axis=0)
        return found

    def live(self, reading: Reading, which: slice) -> Live:
        """The largest difference at some positions, with the block after which it is that large."""
        here = self.apart[:, which].max(axis=1, initial=0.0)
        layer = int(here.argmax())
        return reading.live(apart(here[layer]), self.site, layer)


def _over_blocks(one: Reading, other: Reading, site: str) -> _OverBlocks:
    pairs = ((one.array(site, layer), other.array(site, layer)) for layer in range(one.trace.layers))
    return _OverBlocks(site, np.stack([decoder.by_position(a, b) for a, b in pairs]))
