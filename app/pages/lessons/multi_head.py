"""The chapter on multi-head attention: the split, the heads' patterns, the merge, and what one pattern would lose."""

from dataclasses import dataclass

import numpy as np

from app.explorer import Explorer
from app.pages.frame import Frame
from app.pages.lessons.lesson import Lesson, lesson_frame, lesson_of
from app.pages.lessons.multi_head_questions import questions_of
from app.pages.lessons.multi_head_tables import (
    CONTEXT,
    MERGED,
    OUT,
    QKV,
    WEIGHT,
    K,
    Q,
    V,
    distances_table,
    gpt2_layers,
    listing_table,
    losses_table,
    parameters_of,
    shapes_table,
    textbook_layer,
)
from app.pages.lessons.parts import Check, Figure, Place, Question, Table, check, figure, places
from app.pages.lessons.reading import Live, Readings
from app.pages.links import lesson_url
from app.pages.numbers import Number, count
from provenance.lessons import multi_head as by_hand
from provenance.lessons.chapters import chapter
from provenance.lessons.options import Options

CHAPTER = chapter("multi-head")
FIELDS = ("d", "heads", "length", "layers", "norm", "causal", "temperature")


@dataclass(frozen=True, slots=True)
class MultiHeadPage:
    """The chapter. `distances` and their mean are None for one head, `gpt2_losses` where GPT-2 is not here."""

    frame: Frame
    lesson: Lesson
    d: Number
    heads: Number
    width: Number
    projection: Check
    splits: tuple[Check, ...]
    merge: Check
    output: Check
    fused: Figure
    shapes: Table
    patterns: tuple[Figure, ...]
    distances: Table | None
    mean_distance: Live | None
    losses: Table
    one_head_url: str
    parameters: Live
    listing: Table
    places: tuple[Place, ...]
    gpt2_losses: Table | None
    gpt2_name: str
    gpt2_trained: bool
    questions: tuple[Question, ...]


def multi_head_page(explorer: Explorer, options: Options) -> MultiHeadPage:
    """The chapter in a state. Raises Unavailable where its run is not here and cannot be recorded."""
    readings = Readings(explorer)
    reading, gpt2 = readings.textbook(options), readings.gpt2_if_here()
    first = textbook_layer(reading, 0)
    apart = by_hand.distances(first.weight)
    mean = by_hand.mean_distance(apart)
    stream = _stream(options)
    w, b = reading.array("h.attn.in_proj.w"), reading.array("h.attn.in_proj.b")
    heads = options.heads
    of_projection = (stream, "h.attn.in_proj.w", "h.attn.in_proj.b")
    of_output = (MERGED, "h.attn.out_proj.w", "h.attn.out_proj.b")
    merged = by_hand.merge_heads(reading.array(CONTEXT))
    return MultiHeadPage(
        frame=lesson_frame(CHAPTER, reading),
        lesson=lesson_of(CHAPTER, options, FIELDS, reading),
        d=count(options.d),
        heads=count(heads),
        width=count(options.head_width),
        projection=check(
            reading, QKV, 0, by_hand.linear(reading.array(stream), w, b), r"[q \mid k \mid v] = x\,W^\top + b",
            of_projection,
        ),
        splits=tuple(
            check(reading, site, 0, by_hand.split_heads(part, heads), _split(site[-1]), (QKV,))
            for site, part in zip((Q, K, V), np.split(reading.array(QKV), 3, axis=-1), strict=True)
        ),
        merge=check(reading, MERGED, 0, merged, r"m = [c^{(0)} \mid \dots \mid c^{(H-1)}]", (CONTEXT,)),
        output=check(
            reading, OUT, 0, by_hand.linear(first.merged, first.w, first.b), r"a = m\,W^\top + b", of_output
        ),
        fused=figure(reading, QKV, "The fused projection of the first sequence: q, k and v side by side."),
        shapes=shapes_table(reading),
        patterns=tuple(
            figure(reading, WEIGHT, f"head {head}", small=True, head=head) for head in range(heads)
        ),
        distances=distances_table(reading, apart) if heads > 1 else None,
        mean_distance=first.live(mean, WEIGHT) if mean is not None else None,
        losses=losses_table("textbook", [textbook_layer(reading, layer) for layer in range(options.layers)]),
        one_head_url=lesson_url(CHAPTER.slug, options.but(heads=1).query),
        parameters=reading.live(count(parameters_of(reading)), "h.attn.in_proj.w"),
        listing=listing_table(reading, options),
        places=places(explorer, CHAPTER.sites["gpt2"], gpt2),
        gpt2_losses=losses_table(gpt2.trace.recipe.model.name, gpt2_layers(gpt2)) if gpt2 else None,
        gpt2_name=gpt2.trace.recipe.model.name if gpt2 else "",
        gpt2_trained=gpt2 is not None and gpt2.trace.recipe.model.trained,
        questions=questions_of(readings, reading, options),
    )  # fmt: skip


def questions(explorer: Explorer, options: Options) -> tuple[Question, ...]:
    """The chapter's questions with their answers, computed from its runs."""
    readings = Readings(explorer)
    return questions_of(readings, readings.textbook(options), options)


def _split(part: str) -> str:
    return rf"{part}^{{(h)}}_{{t,c}} = {part}_{{t,\;h \cdot d_k + c}}"


def _stream(options: Options) -> str:
    """What the attention of layer 0 reads."""
    if options.norm == "pre":
        return "h.pre.norm1.out"
    return options.config.stream_in
