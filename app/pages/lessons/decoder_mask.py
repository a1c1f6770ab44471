"""The mask in the chapter on the causal decoder: the textbook's, GPT-2's, and none at all."""

from dataclasses import dataclass, replace

import numpy as np

from app.pages.lessons.decoder_runs import TextRuns, VectorRuns
from app.pages.lessons.parts import Check, Figure, Row, Table, check, figure, small
from app.pages.lessons.reading import Array, Live, Reading
from app.pages.numbers import Number, count, measure, percent
from provenance.lessons import decoder
from provenance.verdict import TOLERANCE

MASKED = r"m_{tj} = s_{tj} \;\; (j \le t), \qquad m_{tj} = -\infty \;\; (j > t)"
WEIGHTS = r"w = \mathrm{softmax}(m)"
SUBTRACTED = r"m = w\,b - 10^{10}\,(1 - b)"


@dataclass(frozen=True, slots=True)
class Gpt2Mask:
    """What GPT-2 does to hidden scores: `filled` of the `cells` of one layer are −10¹⁰, whatever stood there.

    `subtracted` recomputes the masked scores; `check` puts −∞ in the place of −10¹⁰ and compares the weights.
    """

    figures: tuple[Figure, ...]
    filled: Live
    cells: Number
    subtracted: Check
    check: Check


@dataclass(frozen=True, slots=True)
class MaskPart:
    """The mask: pictures, checks, and what the keys after a query get. `gpt2` is None where it is not here.

    `gap` is how far below its row's largest a score's weight is 0 in float32. `each` counts the hidden cells
    of one head, `future_share` is what the listing, without a mask, gives to the future.
    """

    figures: tuple[Figure, ...]
    checks: tuple[Check, ...]
    gpt2: Gpt2Mask | None
    table: Table
    gap: Number
    each: Live
    future_share: Live
    length: int


def mask_part(runs: VectorRuns, text: TextRuns | None) -> MaskPart:
    """The mask of the textbook's causal run, of the default model's, and the listing's run without one."""
    causal, length = runs.causal, runs.causal.array("h.attn.mask").shape[0]
    visible = causal.array("h.attn.mask") != 0
    score = decoder.masked(causal.array("h.attn.score"), ~decoder.future(length))
    rows = [
        _row("Textbook, −∞", causal, "h.attn.weight"),
        *([_row("GPT-2, −10¹⁰", text.decoded, "h.attn.pattern")] if text else []),
        _row("Textbook without a mask", runs.unmasked, "h.attn.weight"),
    ]
    return MaskPart(
        figures=(
            figure(causal, "h.attn.mask", "The mask: what each position may see"),
            figure(causal, "h.attn.score_masked", "Masked scores of head 0"),
            figure(causal, "h.attn.weight", "Weights of head 0"),
        ),
        checks=(
            check(causal, "h.attn.score_masked", 0, score, MASKED, ("h.attn.score",)),
            check(causal, "h.attn.weight", 0, decoder.softmax(score), WEIGHTS, ("h.attn.score",)),
        ),
        gpt2=_gpt2(text.decoded) if text else None,
        table=Table(
            "What the keys after a query get, over all layers and heads",
            ("Run", "weights on the future", "exactly 0", "largest", "share of all weight"),
            tuple(rows),
        ),
        gap=measure(decoder.vanishing_gap()),
        each=causal.live(count(int((~visible).sum())), "h.attn.mask"),
        future_share=runs.unmasked.live(percent(_over_layers(runs.unmasked, "h.attn.weight").total), "h.attn.weight"),
        length=length,
    )


def _gpt2(run: Reading) -> Gpt2Mask:
    visible = run.array("h.attn.mask.m") != 0
    hidden = run.array("h.attn.scores_masked")[..., ~visible]
    of = ("h.attn.scores",)
    weights = decoder.softmax(decoder.masked(run.array("h.attn.scores"), ~decoder.future(len(visible))))
    return Gpt2Mask(
        figures=(
            figure(run, "h.attn.scores_masked", "GPT-2’s masked scores, head 0"),
            figure(run, "h.attn.pattern", "GPT-2’s pattern, head 0"),
        ),
        filled=run.live(count(int((hidden == -decoder.SUBTRACTED).sum())), "h.attn.scores_masked"),
        cells=count(hidden.size),
        subtracted=_subtracted(run),
        check=check(run, "h.attn.pattern", 0, weights, WEIGHTS, of, "recomputed with −∞ from the recorded"),
    )


def _subtracted(run: Reading) -> Check:
    """The masked scores made from the scores and the rule; tolerated as scores are, not as −10¹⁰ would be."""
    scores, masked = run.array("h.attn.scores"), run.array("h.attn.scores_masked")
    made = decoder.masked_by_subtraction(scores, np.where(decoder.future(scores.shape[-1]), 0.0, 1.0))
    tolerance = TOLERANCE * max(1.0, float(np.abs(scores).max()))
    found = check(run, "h.attn.scores_masked", 0, made, SUBTRACTED, ("h.attn.scores",))
    return replace(found, tolerance=small(tolerance), holds=float(np.abs(made - masked).max()) <= tolerance)


def _row(heading: str, run: Reading, site: str) -> Row:
    found = _over_layers(run, site)
    cells = (count(found.cells), count(found.zero), measure(found.largest), percent(found.total))
    return Row(heading, tuple(run.live(cell, site) for cell in cells))


def _over_layers(run: Reading, site: str) -> decoder.Hidden:
    weights: Array = np.stack([run.array(site, layer) for layer in range(run.trace.layers)])
    return decoder.hidden(weights, decoder.future(weights.shape[-1]))
