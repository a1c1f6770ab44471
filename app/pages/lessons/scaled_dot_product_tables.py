"""The tables of the chapter on scaled dot-product attention, computed from the recorded layer 0."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from app.pages.lessons.parts import Row, Table
from app.pages.lessons.reading import Array, Live, Reading
from app.pages.links import lesson_url
from app.pages.numbers import count, measure
from provenance.lessons import scaled_dot_product as by_hand
from provenance.lessons.decoder import future
from provenance.lessons.multi_head import merge_heads, split_heads
from provenance.lessons.options import Options, as_text

SLUG = "scaled-dot-product"
Q, K, V = "h.attn.q", "h.attn.k", "h.attn.v"
RAW, SCORE, MASKED, WEIGHT = "h.attn.score_raw", "h.attn.score", "h.attn.score_masked", "h.attn.weight"
CONTEXT = "h.attn.context"
_TEMPERATURES = (0.25, 0.5, 2.0, 4.0)


@dataclass(frozen=True)
class Run:
    """The recorded tensors of layer 0, and what is computed from them more than once."""

    reading: Reading
    options: Options

    @cached_property
    def visible(self) -> by_hand.Visible | None:
        """True where a query may see a key, by the rule and not by the recorded mask; None without a mask."""
        return ~future(self.options.length) if self.options.causal else None

    def weights(self, width: int, *, scaled: bool = True, temperature: float = 1.0) -> Array:
        """The pattern that the recorded raw scores would give with another divisor."""
        scores = by_hand.scale(self.reading.array(RAW), width, scaled=scaled, temperature=temperature)
        return by_hand.softmax(scores if self.visible is None else np.where(self.visible, scores, -np.inf))

    def live(self, value: float, site: str) -> Live:
        """A measured value with its tensor."""
        return self.reading.live(measure(float(value)), site)


def variances_table(run: Run) -> Table:
    """Measured variances beside those that independence predicts."""
    reading, width, heads = run.reading, run.options.head_width, run.options.heads
    q, k, raw = (reading.array(site) for site in (Q, K, RAW))
    unit_q, unit_k = (split_heads(by_hand.standardised(merge_heads(x)), heads) for x in (q, k))
    unit = by_hand.raw_scores(unit_q, unit_k)
    product = float(q.var() * k.var())
    as_run = run.options.scaled and run.options.temperature == 1
    divided, of = (reading.array(SCORE), SCORE) if as_run else (by_hand.scale(raw, width), RAW)
    rows = (
        Row("q", (run.live(q.var(), Q), None)),
        Row("k", (run.live(k.var(), K), None)),
        Row("q · k as recorded", (run.live(raw.var(), RAW), measure(width * product))),
        Row("q · k divided by √dₖ", (run.live(divided.var(), of), measure(product))),
        Row(
            "q · k, every channel brought to mean 0 and variance 1", (run.live(unit.var(), Q), measure(float(width)))
        ),
        Row("the same divided by √dₖ", (run.live(by_hand.scale(unit, width).var(), Q), measure(1.0))),
    )
    return Table("Variances, measured, and predicted for independent channels", ("", "measured", "predicted"), rows)


def widths_table(run: Run) -> Table:
    """How variance and sharpness go with the number of channels."""
    q, k = (merge_heads(run.reading.array(site)) for site in (Q, K))
    found = by_hand.by_width(q, k, by_hand.widths_up_to(run.options.d))
    rows = tuple(
        Row(
            as_text(each.channels),
            (
                run.live(each.variance, Q),
                count(each.channels),
                run.live(each.scaled_variance, Q),
                run.live(each.largest, Q),
                run.live(each.largest_scaled, Q),
            ),
            current=each.channels == run.options.head_width,
        )
        for each in found
    )
    columns = (
        "channels",
        "variance",
        "predicted",
        "variance with the scale",
        "largest weight",
        "largest weight with the scale",
    )
    caption = "Scores over the first channels of q and k, each brought to mean 0 and variance 1"
    return Table(caption, columns, rows)


def saturation_table(run: Run) -> Table:
    """The softmax with and without the scale, and at other temperatures."""
    options = run.options
    states = dict.fromkeys([(True, 1.0), (False, 1.0), *((True, warm) for warm in _TEMPERATURES)])
    now = (options.scaled, options.temperature)
    rows = []
    for scaled, temperature in states if now in states else (now, *states):
        current = (scaled, temperature) == now
        weights = (
            run.reading.array(WEIGHT)
            if current
            else run.weights(options.head_width, scaled=scaled, temperature=temperature)
        )
        state = options.but(scaled=scaled, temperature=temperature)
        heading = f"{'scaled' if scaled else 'not scaled'}, temperature {as_text(temperature)}"
        url = "" if current else lesson_url(SLUG, state.query)
        rows.append(Row(heading, _softness(run, weights, WEIGHT if current else RAW), url, current))
    columns = ("scores", "entropy, in nats", "as a share of the largest", "largest weight", "can move")
    return Table("How far the softmax is from even, as means over all rows", columns, tuple(rows))


def _softness(run: Run, weights: Array, site: str) -> tuple[Live, ...]:
    found = by_hand.saturation(weights, run.visible)
    return tuple(run.live(value, site) for value in (found.entropy, found.evenness, found.largest, found.movable))


def shapes_table(reading: Reading) -> Table:
    """The shapes from queries, keys and values to what is merged."""
    catalogue = reading.explorer.catalogue(reading.trace)
    sites = (Q, K, V, RAW, WEIGHT, CONTEXT, "h.attn.merged")
    rows = tuple(
        Row(
            catalogue.row(site).title,
            (", ".join(catalogue.row(site).shape), " × ".join(str(size) for size in reading.array(site).shape)),
            reading.url(site),
        )
        for site in sites
    )
    return Table("Shapes", ("tensor", "axes", "here"), rows)


def by_text_table(run: Run) -> Table:
    """The scores divided as the text says, by √d, and as its code does, by the root of q's last axis."""
    options, raw = run.options, run.reading.array(RAW)
    rows = []
    for heading, width in (
        ("by √d, as the text has it", options.d),
        ("by √dₖ, as the code does", options.head_width),
    ):
        found = by_hand.saturation(run.weights(width), run.visible)
        cells = (
            measure(width**0.5),
            run.live(by_hand.scale(raw, width).var(), RAW),
            run.live(found.evenness, RAW),
            run.live(found.largest, RAW),
        )
        rows.append(Row(heading, cells))
    columns = ("raw scores divided", "divisor", "variance", "entropy, as a share of the largest", "largest weight")
    return Table("Two divisors for the same recorded scores, at temperature 1", columns, tuple(rows))


def beside_gpt2_table(run: Run, gpt2: Reading) -> Table:
    """The same measures in the default model's layer 0."""
    there = gpt2.array("h.attn.mask.m").astype(bool)
    sides = (
        (run.reading, RAW, SCORE, WEIGHT, run.visible),
        (gpt2, "h.attn.scores_raw", "h.attn.scores", "h.attn.pattern", there),
    )
    measured = []
    for reading, raw_site, score_site, weight_site, visible in sides:
        q, k, raw, score = (reading.array(site) for site in (Q, K, raw_site, score_site))
        soft = by_hand.saturation(reading.array(weight_site), visible)
        values = (
            (q.var(), Q), (k.var(), K), (raw.var(), raw_site), (q.shape[-1] * q.var() * k.var(), Q),
            (score.var(), score_site), (soft.evenness, weight_site), (soft.largest, weight_site),
        )  # fmt: skip
        cells = (reading.live(measure(float(value)), site) for value, site in values)
        measured.append((reading.live(count(q.shape[-1]), Q), *cells))
    headings = (
        "width of a head dₖ", "variance of q", "variance of k", "variance of q · k", "predicted if independent",
        "variance after scaling", "entropy, as a share of the largest", "largest weight",
    )  # fmt: skip
    rows = tuple(Row(heading, tuple(pair)) for heading, *pair in zip(headings, *measured, strict=True))
    return Table("Layer 0 of both models", ("", "here", gpt2.trace.recipe.model.name), rows)
