"""What the chapter on the causal decoder does with a text: the loss of the next token, and the cache."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.pages.lessons.decoder_runs import TextRuns
from app.pages.lessons.parts import Check, Row, Table, small
from app.pages.lessons.reading import Array, Live, Reading
from app.pages.links import compare_url
from app.pages.numbers import Number, count, measure, percent
from app.pages.tokens import position_url
from app.pages.what import mathml
from provenance.lens import position_of
from provenance.lessons import decoder
from provenance.models import constants_of
from provenance.prompt import Token
from provenance.verdict import TOLERANCE

LOSS = r"\ell_t = -\log \frac{e^{z_{t,\,x_{t+1}}}}{\sum_v e^{z_{t,v}}}"
LOGIT = r"z_{t,v} = h_t \cdot \mathrm{wte}_v"
UNTIED = r"z_{t,v} = h_t \cdot W_v"
_BYTES = 4


@dataclass(frozen=True, slots=True)
class LossPart:
    """The loss of each next token of the text; `hardest` and `easiest` are tokens with their losses."""

    table: Table
    checks: tuple[Check, ...]
    mean: Live
    perplexity: Live
    uniform: Live
    vocabulary: Number
    hardest: Token
    hardest_loss: Live
    easiest: Token
    easiest_loss: Live


@dataclass(frozen=True, slots=True)
class CachePart:
    """The same tokens with a cache and in one prefill: how far apart, and what the cache costs and saves."""

    table: Table
    holds: bool
    prompt: int
    steps: int
    positions: int
    compare_url: str
    decoded_url: str
    whole_url: str
    shape: Live
    per_token: Live
    total: Live
    context: Number
    at_context: Number
    at_context_mib: Number
    run_with: Number
    run_without: Number


# --- the loss ---


def loss_part(runs: TextRuns) -> LossPart:
    """The losses of the prompt, from the logits of its prefill."""
    run, tokens = runs.decoded, runs.tokens
    logits = run.array("logits")[0]
    losses = decoder.next_token_losses(logits, [token.id for token in tokens])

    def live(value: float) -> Live:
        return run.live(measure(value), "logits")

    rows = tuple(
        Row(
            f"{t} “{tokens[t].text}”",
            (f"“{tokens[t + 1].text}”", percent(float(np.exp(-loss))), live(float(loss))),
            position_url(run.trace, t),
        )
        for t, loss in enumerate(losses.each)
    )
    hardest, easiest = int(losses.each.argmax()), int(losses.each.argmin())
    return LossPart(
        table=Table("The loss of each next token, in nats", ("At", "follows", "probability", "loss"), rows),
        checks=(_logit_check(run, logits, tokens), _loss_check(run, losses)),
        mean=live(losses.mean),
        perplexity=live(losses.perplexity),
        uniform=live(losses.uniform),
        vocabulary=count(logits.shape[-1]),
        hardest=tokens[hardest + 1],
        hardest_loss=live(float(losses.each[hardest])),
        easiest=tokens[easiest + 1],
        easiest_loss=live(float(losses.each[easiest])),
    )


def _logit_check(run: Reading, logits: Array, tokens: Sequence[Token]) -> Check:
    """The logit of each token that follows, from the final stream and that token's row of the embedding."""
    table = "lm_head.w" if run.has("lm_head.w") else "wte"
    follows = [token.id for token in tokens[1:]]
    latex = LOGIT if table == "wte" else UNTIED
    stream, rows = run.array("ln_f.out")[0, :-1], run.array(table)[follows]
    recorded = logits[np.arange(len(follows)), follows]
    return _check(latex, run, (stream * rows).sum(axis=-1), recorded, ("ln_f.out", table))


def _loss_check(run: Reading, losses: decoder.Losses) -> Check:
    """The same losses as the prediction at each position says them, which is computed elsewhere."""
    positions = [position_of(run.trace, number=t) for t in range(len(losses.each))]
    watched = [run.explorer.distribution(run.trace, at, 1).watched for at in positions]
    theirs = np.array([-np.log(found.probability) if found else np.nan for found in watched])
    sentence = "against the probability that the trace’s page gives at each position, from the same recorded"
    return _check(LOSS, run, losses.each, theirs, ("logits",), sentence)


def _check(
    latex: str, run: Reading, ours: Array, theirs: Array, of: tuple[str, ...],
    sentence: str = "recomputed from the recorded",
) -> Check:  # fmt: skip
    difference = float(np.abs(ours - theirs).max())
    tolerance = TOLERANCE * max(1.0, float(np.abs(theirs).max()))
    return Check(
        formula=mathml(latex),
        sentence=sentence,
        of=tuple(run.link(site) for site in of),
        difference=small(difference),
        tolerance=small(tolerance),
        holds=difference <= tolerance,
        link=run.link("logits"),
    )


# --- the cache ---


@dataclass(frozen=True, slots=True)
class _Pair:
    """A tensor of one layer and decode step, with the cache and without; the same position in both."""

    layer: int | None
    step: int
    cached: Array
    whole: Array

    @property
    def difference(self) -> float:
        return float(np.abs(self.cached - self.whole).max())


def cache_part(runs: TextRuns) -> CachePart:
    """The decode steps of a run beside the same positions of one prefill."""
    run, prompt, steps = runs.decoded, len(runs.tokens), runs.decoded.trace.last_step
    layers = run.trace.layers
    rows = tuple(_cache_row(runs, title, site) for title, site in _COMPARED)
    present = run.array("h.attn.present", step=1).shape
    per_token = decoder.cache_per_token(present, layers)
    context = constants_of(run.trace.recipe.model)["C"]
    return CachePart(
        table=Table(
            "Every decoded position, with the cache and in one prefill",
            ("Tensor", "largest difference", "tolerance", "within it"),
            rows,
        ),
        holds=all(row.cells[-1] == "yes" for row in rows),
        prompt=prompt,
        steps=steps,
        positions=prompt + steps,
        compare_url=compare_url(runs.whole.trace.id, run.trace.id),
        decoded_url=run.trace_url,
        whole_url=runs.whole.trace_url,
        shape=run.live(Number(" × ".join(map(str, present)), str(list(present))), "h.attn.present", step=1),
        per_token=run.live(count(per_token), "h.attn.present", step=1),
        total=run.live(count(per_token * (prompt + steps)), "h.attn.present", step=steps),
        context=count(context),
        at_context=count(per_token * context),
        at_context_mib=measure(per_token * context * _BYTES / 2**20),
        run_with=count(decoder.positions_run(prompt, steps, cached=True)),
        run_without=count(decoder.positions_run(prompt, steps, cached=False)),
    )


_COMPARED = (
    ("Keys", "h.attn.k"),
    ("Values", "h.attn.v"),
    ("Stream after each block", "h.resid_post"),
    ("Logits", "logits"),
)


def _cache_row(runs: TextRuns, title: str, site: str) -> Row:
    pairs = _pairs(runs, site)
    worst = max(pairs, key=lambda pair: pair.difference)
    largest = max(float(np.abs(pair.whole).max()) for pair in pairs)
    tolerance = TOLERANCE * max(1.0, largest)
    live = runs.decoded.live(small(worst.difference), site, worst.layer, worst.step)
    within = "yes" if worst.difference <= tolerance else "no"
    return Row(title, (live, small(tolerance), within), runs.decoded.url(site, worst.layer, worst.step))


def _pairs(runs: TextRuns, site: str) -> list[_Pair]:
    prompt, run, whole = len(runs.tokens), runs.decoded, runs.whole
    layers: Sequence[int | None] = (None,) if site == "logits" else range(run.trace.layers)
    return [
        _Pair(
            layer,
            step,
            run.array(site, layer, step)[..., 0, :],
            whole.array(site, layer)[..., prompt + step - 1, :],
        )
        for layer in layers
        for step in range(1, run.trace.last_step + 1)
    ]
