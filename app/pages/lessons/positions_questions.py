"""The questions of the chapter on positions."""

import numpy as np

from app.explorer import Explorer
from app.pages.lessons.parts import Question, answer, small
from app.pages.lessons.positions_runs import Runs, runs_of
from app.pages.lessons.positions_tables import PositionTable, tables_of
from app.pages.numbers import count, measure
from app.pages.scope import Link
from provenance.lessons import positions as numbers
from provenance.lessons.options import Options


def positions_questions(explorer: Explorer, options: Options) -> tuple[Question, ...]:
    """The chapter's questions with their computed answers."""
    runs = runs_of(explorer, options)
    return questions_of(runs, tables_of(runs))


def questions_of(runs: Runs, tables: tuple[PositionTable, ...]) -> tuple[Question, ...]:
    """The questions, answered from runs that are at hand."""
    read, link = runs.sines, runs.sines.link("pe")
    pe, waves = read.array("pe"), numbers.wave_lengths(read.array("pe.div"))
    norms = numbers.row_norms(pe)
    least = min(numbers.similarities(pe, range(len(pe))), key=lambda one: one.mean)
    following = Link(runs.without.other.trace_url, runs.without.other.trace.recipe.model.name, "the shuffled run")
    found, masked = runs.without.found, runs.causal.found
    return (
        Question(
            "How long is each row of the sinusoidal table, and why are all of them as long?",
            answer(
                "√(d/2) = {}: each pair of channels adds sin² + cos² = 1 to the square of the length, and there are "
                "{} pairs. Measured, the rows are from {} to {} long.",
                measure(float(np.sqrt(pe.shape[1] / 2))),
                count(pe.shape[1] // 2),
                read.live(measure(float(norms.min())), "pe"),
                read.live(measure(float(norms.max())), "pe"),
            ),
            link,
        ),
        Question(
            "At which distance are two rows of the sinusoidal table least alike? Does it matter where they stand?",
            answer(
                "Of the distances from 0 to {}, at {}: their cosine similarity is {}. Where they stand does not "
                "matter: over all pairs at that distance it differs by {}.",
                count(len(pe) - 1),
                count(least.distance),
                read.live(measure(least.mean), "pe"),
                read.live(small(least.spread), "pe"),
            ),
            link,
        ),
        Question(
            "After how many positions does the fastest pair of channels repeat, and the slowest? "
            "Is the table long enough for both?",
            answer(
                "After {} and after {}; the table has {} rows. {}",
                read.live(measure(float(waves.min())), "pe.div"),
                read.live(measure(float(waves.max())), "pe.div"),
                read.live(count(len(pe)), "pe"),
                "The slowest pair never completes a turn, so no two rows are the same."
                if waves.max() > len(pe)
                else "The slowest pair completes a turn.",
            ),
            read.link("pe.div"),
        ),
        Question(
            "The input’s vectors are put into another order, without positions and without a mask. What happens to "
            "the outputs? And with a causal mask?",
            answer(
                "Each output goes with its vector: once they are put into the same order, the largest difference is "
                "{}, rounding" + ("" if runs.without.follows else " that this state magnifies") + ". With a mask it "
                "is {}: the mask lets place t, counted from 0, see t + 1 vectors, and so tells the places apart.",
                runs.without.live(found.in_order),
                runs.causal.live(masked.in_order),
            ),
            following,
        ),
        Question(
            "How many of the numbers in each of the tables are parameters, which training may change?",
            answer(
                "Of the sines none: they follow from p and d. " + "Of “{}” all {}. " * (len(tables) - 1),
                *(
                    part
                    for each in tables[1:]
                    for part in (each.name, each.reading.live(count(each.rows.size), each.site))
                ),
            ),
            tables[-1].reading.link(tables[-1].site),
        ),
    )
