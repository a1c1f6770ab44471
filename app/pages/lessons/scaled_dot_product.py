"""The chapter on scaled dot-product attention: why the scores are scaled, and that the rest is a weighted mean."""

from dataclasses import dataclass

import numpy as np

from app.explorer import Explorer
from app.pages.frame import Frame
from app.pages.lessons.lesson import Lesson, lesson_frame, lesson_of
from app.pages.lessons.parts import Check, Figure, Place, Question, Table, check, figure, places, small
from app.pages.lessons.reading import Live, Readings
from app.pages.lessons.scaled_dot_product_questions import questions_of
from app.pages.lessons.scaled_dot_product_tables import (
    CONTEXT,
    MASKED,
    RAW,
    SCORE,
    WEIGHT,
    K,
    Q,
    Run,
    V,
    beside_gpt2_table,
    by_text_table,
    saturation_table,
    shapes_table,
    variances_table,
    widths_table,
)
from app.pages.numbers import Number, count, measure
from provenance.lessons import scaled_dot_product as by_hand
from provenance.lessons.chapters import chapter
from provenance.lessons.options import Options, as_text

CHAPTER = chapter("scaled-dot-product")
FIELDS = ("d", "heads", "length", "causal", "scaled", "temperature")


@dataclass(frozen=True, slots=True)
class ScaledDotProductPage:
    """The chapter. `gpt2_table` is None where the default model cannot be run here."""

    frame: Frame
    lesson: Lesson
    width: Number
    root: Number
    product: Check
    scaling: Check
    masking: Check | None
    weights: Check
    mixing: Check
    whole: Check
    variances: Table
    widths: Table
    saturation: Table
    pattern: Figure
    shapes: Table
    off_one: Live
    outside: Live
    spread: Live
    spread_mixed: Live
    by_text: Table
    places: tuple[Place, ...]
    gpt2_table: Table | None
    gpt2_name: str
    gpt2_trained: bool
    questions: tuple[Question, ...]


def scaled_dot_product_page(explorer: Explorer, options: Options) -> ScaledDotProductPage:
    """The chapter in a state. Raises Unavailable where its run is not here and cannot be recorded."""
    readings = Readings(explorer)
    run = Run(readings.textbook(options), options)
    gpt2 = readings.gpt2_if_here()
    reading = run.reading
    q, k, v = (reading.array(site) for site in (Q, K, V))
    scaled, warm = options.scaled, options.temperature
    divided = by_hand.scale(reading.array(RAW), options.head_width, scaled=scaled, temperature=warm)
    whole = by_hand.attention(q, k, v, scaled=scaled, temperature=warm, visible=run.visible)
    entering = MASKED if options.causal else SCORE
    context, weight = reading.array(CONTEXT), reading.array(WEIGHT)
    return ScaledDotProductPage(
        frame=lesson_frame(CHAPTER, reading),
        lesson=lesson_of(CHAPTER, options, FIELDS, reading),
        width=count(options.head_width),
        root=measure(options.head_width**0.5),
        product=check(reading, RAW, 0, by_hand.raw_scores(q, k), r"r_{ij} = q_i \cdot k_j", (Q, K)),
        scaling=check(reading, SCORE, 0, divided, _scaling(options), (RAW,)),
        masking=_masking(run),
        weights=check(
            reading, WEIGHT, 0, by_hand.softmax(reading.array(entering)),
            r"w_{ij} = \frac{e^{s_{ij}}}{\sum_k e^{s_{ik}}}", (entering,),
        ),
        mixing=check(reading, CONTEXT, 0, weight @ v, r"c_i = \sum_j w_{ij}\,v_j", (WEIGHT, V)),
        whole=check(
            reading, CONTEXT, 0, whole, r"\mathrm{attention}(q, k, v) = \mathrm{softmax}(s)\,v", (Q, K, V)
        ),
        variances=variances_table(run),
        widths=widths_table(run),
        saturation=saturation_table(run),
        pattern=figure(reading, WEIGHT, "Attention weights of head 0 in the first sequence; each row sums to 1."),
        shapes=shapes_table(reading),
        off_one=reading.live(small(by_hand.off_one(weight)), WEIGHT),
        outside=reading.live(small(max(0.0, by_hand.outside(context, weight, v))), CONTEXT),
        spread=run.live(v.std(), V),
        spread_mixed=run.live(context.std(), CONTEXT),
        by_text=by_text_table(run),
        places=places(explorer, CHAPTER.sites["gpt2"], gpt2),
        gpt2_table=beside_gpt2_table(run, gpt2) if gpt2 else None,
        gpt2_name=gpt2.trace.recipe.model.name if gpt2 else "",
        gpt2_trained=gpt2 is not None and gpt2.trace.recipe.model.trained,
        questions=questions_of(run),
    )  # fmt: skip


def questions(explorer: Explorer, options: Options) -> tuple[Question, ...]:
    """The chapter's questions with their answers, computed from its run."""
    return questions_of(Run(Readings(explorer).textbook(options), options))


def _scaling(options: Options) -> str:
    below = (r"\sqrt{d_k}" if options.scaled else "1") + (r"\,\tau" if options.temperature != 1 else "")
    chosen = rf", \quad d_k = {options.head_width}" if options.scaled else ""
    warm = rf", \quad \tau = {as_text(options.temperature)}" if options.temperature != 1 else ""
    return rf"s_{{ij}} = \frac{{r_{{ij}}}}{{{below}}}{chosen}{warm}"


def _masking(run: Run) -> Check | None:
    if run.visible is None:
        return None
    hidden = np.where(run.visible, run.reading.array(SCORE), -np.inf)
    return check(run.reading, MASKED, 0, hidden, r"s_{ij} \leftarrow -\infty \text{ where } j > i", (SCORE,))
