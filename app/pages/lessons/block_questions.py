"""The questions of the chapter on the block."""

from app.explorer import Explorer
from app.pages.lessons.block_runs import Runs, runs_of
from app.pages.lessons.block_sizes import total_live
from app.pages.lessons.parts import Question, answer
from app.pages.numbers import count, measure, percent
from provenance.lessons.options import Options


def block_questions(explorer: Explorer, options: Options) -> tuple[Question, ...]:
    """The chapter's questions with their computed answers."""
    return questions_of(runs_of(explorer, options))


def questions_of(runs: Runs) -> tuple[Question, ...]:
    """The questions, answered from runs that are at hand."""
    return (_growth(runs), _way_back(runs), _largest_write(runs), _gelu(runs), _share(runs), _scale(runs))


def _growth(runs: Runs) -> Question:
    post, pre = runs.post, runs.pre
    return Question(
        "How large is the stream after the last block, relative to before the first, with the norms before the "
        "halves, and with the norms after the sums?",
        answer(
            "Before: {} times, from {} to {}. After: {} times, from {} to {}; there the last thing that happens to "
            "the stream is a norm.",
            measure(pre.growth),
            pre.start,
            pre.end,
            measure(post.growth),
            post.start,
            post.end,
        ),
        pre.reading.link(pre.sites.leaving, len(pre.parts) - 1),
    )


def _way_back(runs: Runs) -> Question:
    post, pre = runs.backs
    return Question(
        "A sum of the result’s numbers with random weights has a gradient at each place of the stream. How large is "
        "it before the first block, relative to after the last, with the norms before the halves, and with the norms "
        "after the sums?",
        answer(
            "Before: {} times as large, {} against {}. After: {} times, {} against {}.",
            pre.growth,
            pre.at(0),
            pre.at(len(runs.pre.parts)),
            post.growth,
            post.at(0),
            post.at(len(runs.post.parts)),
        ),
        pre.run.reading.link(pre.run.sites.first),
    )


def _largest_write(runs: Runs) -> Question:
    here = runs.here
    attention = max(range(len(here.parts)), key=lambda block: here.parts[block].attention_share)
    mlp = max(range(len(here.parts)), key=lambda block: here.parts[block].mlp_share)
    wins = here.parts[attention].attention_share > here.parts[mlp].mlp_share
    name, block = ("the attention", attention) if wins else ("the MLP", mlp)
    return Question(
        f"In the {here.name} run: which half of which block adds most, relative to the stream it adds to?",
        answer(
            "{} of block {}, with {} of the stream’s size; the most that {} adds is {}, in block {}.",
            name.capitalize() if name != "the MLP" else "The MLP",
            count(block),
            here.attention_share(block) if wins else here.mlp_share(block),
            "the MLP" if wins else "the attention",
            here.mlp_share(mlp) if wins else here.attention_share(attention),
            count(mlp if wins else attention),
        ),
        here.reading.link(here.sites.attention if wins else here.sites.mlp, block),
    )


def _gelu(runs: Runs) -> Question:
    return Question(
        "The listing’s GELU is exact, GPT-2’s is the tanh form. How far are they apart on what this run’s MLP reads?",
        answer(
            "At most {}, where the input is {}.",
            runs.gelus.difference,
            runs.gelus.at,
        ),
        runs.main.link("h.mlp.hidden"),
    )


def _share(runs: Runs) -> Question:
    mlp = next(half for half in runs.halves if half.name == "MLP")
    total = sum(half.total for half in runs.halves)
    return Question(
        "Which share of a block’s parameters lies in its MLP?",
        answer(
            "{}: {} of {}. Of the matrices alone it is 8d² of 12d², two thirds, whatever d is.",
            percent(mlp.total / total),
            runs.main.live(count(mlp.total), mlp.site),
            total_live(runs.main, runs.halves),
        ),
        runs.main.link(mlp.site),
    )


def _scale(runs: Runs) -> Question:
    sizes = runs.sizes
    nearest = [part for found in sizes.nearest for part in found]
    return Question(
        "The lesson text has GPT-2’s 124M as the same pattern at “the 10x the scale”. Which of its sizes is nearest "
        "to ten times this model’s?",
        answer(
            "Nearest: " + " and ".join(["{}, {} times"] * len(sizes.nearest)) + ". It has {} times the blocks, "
            "{} times the heads, and {} times the parameters.",
            *nearest,
            sizes.times("layers"),
            sizes.times("heads"),
            sizes.times("total"),
        ),
        runs.main.link(runs.halves[0].site),
    )
