"""The questions of the chapter on multi-head attention."""

from app.pages.lessons.multi_head_tables import MERGED, OUT, WEIGHT, AttentionLayer, parameters_of, textbook_layer
from app.pages.lessons.parts import Question, answer
from app.pages.lessons.reading import Array, Reading, Readings
from app.pages.numbers import count, plural
from provenance.lessons import multi_head as by_hand
from provenance.lessons.options import Options


def questions_of(readings: Readings, reading: Reading, options: Options) -> tuple[Question, ...]:
    """The questions with their answers, computed from the run, and from the same with one head, or two."""
    first = textbook_layer(reading, 0)
    apart = by_hand.distances(first.weight)
    mean = first.loss(by_hand.averaged(first.weight))
    others = 2 if options.heads == 1 else 1
    other = readings.textbook(options.but(heads=others))
    parameters, of_other = parameters_of(reading), parameters_of(other)
    patterns = first.weight.shape[0] * first.weight.shape[1] * reading.trace.layers
    asked = [
        Question(
            "How many attention patterns does this run have?",
            answer(
                "{}, one for each sequence, head and layer: {} × {} × {}.",
                reading.live(count(patterns), WEIGHT),
                *(count(size) for size in first.weight.shape[:2]),
                count(reading.trace.layers),
            ),
            reading.link(WEIGHT),
        ),
        Question(
            "Does an attention with more heads have more parameters?",
            answer(
                "{}. With {} a layer’s attention has {} parameters, with {} {}.",
                "No" if parameters == of_other else "Yes",
                plural(options.heads, "head"),
                reading.live(count(parameters), "h.attn.in_proj.w"),
                plural(others, "head"),
                other.live(count(of_other), "h.attn.in_proj.w"),
            ),
            reading.link("h.attn.in_proj.w"),
        ),
        Question(
            "What is lost in layer 0 when all heads share their mean pattern?",
            answer(
                "The merged heads are off by {} of their size (L2 norm), the attention’s output by {}.",
                first.live(mean.merged, MERGED),
                first.live(mean.out, OUT),
            ),
            reading.link(OUT),
        ),
    ]
    if options.heads > 1:
        asked.append(_furthest(first, apart))
    return tuple(asked)


def _furthest(first: AttentionLayer, apart: Array) -> Question:
    one, other = divmod(int(apart.argmax()), len(apart))
    return Question(
        "Which two heads of layer 0 look most differently?",
        answer(
            "Heads {} and {}: they are {} apart, where 0 is alike and 1 has no key in common.",
            count(min(one, other)),
            count(max(one, other)),
            first.live(float(apart[one, other]), WEIGHT),
        ),
        first.reading.link(WEIGHT),
    )
