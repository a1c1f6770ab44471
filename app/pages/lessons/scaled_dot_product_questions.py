"""The questions of the chapter on scaled dot-product attention."""

from app.pages.lessons.parts import Question, answer, small
from app.pages.lessons.scaled_dot_product_tables import CONTEXT, RAW, SCORE, WEIGHT, Run, V
from app.pages.numbers import count, measure
from provenance.lessons import scaled_dot_product as by_hand
from provenance.lessons.multi_head import even


def questions_of(run: Run) -> tuple[Question, ...]:
    """The questions with their answers, computed from the run."""
    reading, options = run.reading, run.options
    raw, weight, v, context = (reading.array(site) for site in (RAW, WEIGHT, V, CONTEXT))
    width = options.head_width
    as_run = options.scaled and options.temperature == 1
    divided = reading.array(SCORE) if as_run else by_hand.scale(raw, width)
    last = weight[0, 0, -1]
    best = int(last.argmax())
    level = even(weight, run.visible) @ v
    seen = int((last > 0).sum())
    return (
        Question(
            "By what does dividing by √dₖ divide the variance of the scores?",
            answer(
                "By {}, the width of a head: measured, from {} to {}, by a factor of {}.",
                count(width),
                run.live(raw.var(), RAW),
                measure(float(divided.var())),
                measure(float(raw.var() / divided.var()) if divided.any() else None),
            ),
            reading.link(RAW),
        ),
        Question(
            "At which position does the last query of head 0 in the first sequence look most?",
            answer("At position {}, with the weight {}.", count(best), run.live(last[best], WEIGHT)),
            reading.link(WEIGHT),
        ),
        Question(
            "How many values does that query mix in this one step, where a recurrent network takes a step for each?",
            answer(
                "{} of {}." + (" The other weights are too small for float32, and 0." if seen < last.size else ""),
                reading.live(count(seen), WEIGHT),
                count(last.size),
            ),
            reading.link(WEIGHT),
        ),
        Question(
            "How far would the contexts be from the recorded ones if every query weighed all that it sees equally?",
            answer("By {} of their own size (L2 norm).", run.live(by_hand.relative(level, context), CONTEXT)),
            reading.link(CONTEXT),
        ),
        Question(
            "Can a channel of an output be larger than in each of the values that it mixes?",
            answer(
                "No: no weight is negative, and they sum to 1. The furthest that one lies outside is {}; more than 0 "
                "could only be rounding.",
                reading.live(small(max(0.0, by_hand.outside(context, weight, v))), CONTEXT),
            ),
            reading.link(CONTEXT),
        ),
    )
