"""Which page each chapter has: its template, the fields of its form, its page and its questions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.explorer import Explorer
from app.pages.lessons import (
    block,
    block_questions,
    decoder,
    multi_head,
    positions,
    positions_questions,
    scaled_dot_product,
)
from app.pages.lessons.parts import Question
from provenance.lessons.options import Options


@dataclass(frozen=True, slots=True)
class Content:
    """A chapter's content. `page` makes what its template shows, `questions` answers its questions alone."""

    template: str
    fields: tuple[str, ...]
    page: Callable[[Explorer, Options], Any]
    questions: Callable[[Explorer, Options], tuple[Question, ...]]


CONTENTS: Mapping[str, Content] = {
    "scaled-dot-product": Content(
        "lesson_scaled_dot_product.html",
        scaled_dot_product.FIELDS,
        scaled_dot_product.scaled_dot_product_page,
        scaled_dot_product.questions,
    ),
    "multi-head": Content(
        "lesson_multi_head.html", multi_head.FIELDS, multi_head.multi_head_page, multi_head.questions
    ),
    "positions": Content(
        "lesson_positions.html",
        positions.FIELDS,
        positions.positions_page,
        positions_questions.positions_questions,
    ),
    "block": Content("lesson_block.html", block.FIELDS, block.block_page, block_questions.block_questions),
    "decoder": Content("lesson_decoder.html", decoder.FIELDS, decoder.decoder_page, decoder.decoder_questions),
}
"""The content of each chapter, by its slug, in the order in which they are read."""
