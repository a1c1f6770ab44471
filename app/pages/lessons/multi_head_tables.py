"""The tables of the chapter on multi-head attention, computed from the recorded layers of either family."""

from dataclasses import dataclass

from app.pages.lessons.parts import Row, Table, small
from app.pages.lessons.reading import Array, Live, Reading
from app.pages.numbers import measure
from provenance.lessons import multi_head as by_hand
from provenance.lessons.options import Options
from provenance.lessons.scaled_dot_product import Visible, attention, relative

QKV, WEIGHT = "h.attn.qkv", "h.attn.weight"
Q, K, V = "h.attn.q", "h.attn.k", "h.attn.v"
CONTEXT, MERGED, OUT = "h.attn.context", "h.attn.merged", "h.attn.out"
PATTERN = "h.attn.pattern"


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """What a layer's attention reads and gives, whatever the family; `w` is (out, in)."""

    reading: Reading
    layer: int
    weight_site: str
    v: Array
    weight: Array
    merged: Array
    out: Array
    w: Array
    b: Array
    visible: Visible | None

    def loss(self, patterns: Array) -> by_hand.Loss:
        """How far merged heads and output are from the recorded ones with other patterns."""
        return by_hand.loss(patterns, self.v, self.merged, self.out, self.w, self.b)

    def live(self, value: float, site: str) -> Live:
        """A measured value with its tensor in this layer."""
        return self.reading.live(measure(value), site, self.layer)


def textbook_layer(reading: Reading, layer: int) -> AttentionLayer:
    """A layer of the textbook model."""
    sites = (V, WEIGHT, MERGED, OUT, "h.attn.out_proj.w", "h.attn.out_proj.b")
    v, weight, merged, out, w, b = (reading.array(site, layer) for site in sites)
    return AttentionLayer(reading, layer, WEIGHT, v, weight, merged, out, w, b, visible_of(reading))


def gpt2_layers(reading: Reading) -> list[AttentionLayer]:
    """The first, the middle and the last layer; the weight there is stored as (1, in, out)."""
    last = reading.trace.layers - 1
    found = []
    for layer in sorted({0, (last + 1) // 2, last}):
        v, weight, merged, out = (reading.array(site, layer) for site in (V, PATTERN, MERGED, OUT))
        w, b = reading.array("h.attn.c_proj.w", layer)[0].T, reading.array("h.attn.c_proj.b", layer)
        visible = reading.array("h.attn.mask.m", layer).astype(bool)
        found.append(AttentionLayer(reading, layer, PATTERN, v, weight, merged, out, w, b, visible))
    return found


def visible_of(reading: Reading) -> Visible | None:
    """True where a query of the textbook model may see a key; None without a mask."""
    return reading.array("h.attn.mask").astype(bool) if reading.has("h.attn.mask") else None


def shapes_table(reading: Reading) -> Table:
    """The shapes from the fused projection to the output."""
    catalogue = reading.explorer.catalogue(reading.trace)
    rows = tuple(
        Row(
            catalogue.row(site).title,
            (", ".join(catalogue.row(site).shape), " × ".join(str(size) for size in reading.array(site).shape)),
            reading.url(site),
        )
        for site in (QKV, Q, WEIGHT, CONTEXT, MERGED, OUT)
    )
    return Table("Shapes on the way", ("tensor", "axes", "here"), rows)


def distances_table(reading: Reading, apart: Array) -> Table:
    """The distances (H, H) of the heads of layer 0."""
    heads = range(len(apart))
    rows = tuple(
        Row(
            f"head {one}",
            tuple(
                None if one == other else reading.live(measure(float(apart[one, other])), WEIGHT) for other in heads
            ),
        )
        for one in heads
    )
    return Table("How differently two heads look: 0 alike, 1 nowhere alike", ("", *map(str, heads)), rows)


def losses_table(name: str, layers: list[AttentionLayer]) -> Table:
    """For each layer: how differently its heads look, and how far its output is when other patterns are put in."""
    rows = []
    for each in layers:
        mean = each.loss(by_hand.averaged(each.weight))
        apart = by_hand.mean_distance(by_hand.distances(each.weight))
        cells = (
            None if apart is None else each.live(apart, each.weight_site),
            each.live(mean.merged, MERGED),
            each.live(mean.out, OUT),
            each.live(each.loss(by_hand.moved_on(each.weight)).out, OUT),
            each.live(each.loss(by_hand.even(each.weight, each.visible)).out, OUT),
        )
        rows.append(Row(f"layer {each.layer}", cells, each.reading.url(each.weight_site, each.layer)))
    columns = (
        "",
        "distance of heads",
        "one mean pattern: merged",
        "one mean pattern: out",
        "pattern of the head before: out",
        "equal weights: out",
    )
    return Table(f"Relative error in {name} when its heads look otherwise", columns, tuple(rows))


def parameters_of(reading: Reading) -> int:
    """Weights and biases of a layer's attention."""
    sites = ("h.attn.in_proj.w", "h.attn.in_proj.b", "h.attn.out_proj.w", "h.attn.out_proj.b")
    return sum(reading.array(site).size for site in sites)


def single_of(reading: Reading, options: Options) -> Array:
    """The recorded q, k, v attended to as the first listing does: all channels at once, as one head."""
    q, k, v = (by_hand.merge_heads(reading.array(site)) for site in (Q, "h.attn.k", V))
    return attention(
        q, k, v, scaled=options.scaled, temperature=options.temperature, visible=visible_of(reading)
    )  # fmt: skip


def _in_heads(reading: Reading, options: Options) -> Array:
    """The recorded q, k, v attended to as the block does, head by head, and merged."""
    q, k, v = (reading.array(site) for site in (Q, "h.attn.k", V))
    return by_hand.merge_heads(
        attention(q, k, v, scaled=options.scaled, temperature=options.temperature, visible=visible_of(reading))
    )


def listing_table(reading: Reading, options: Options) -> Table:
    """The attention of the first listing beside that of the block."""
    merged, single = reading.array(MERGED), single_of(reading, options)
    heads = _in_heads(reading, options)
    rows = (
        Row(
            "attention(q, k, v), one head",
            (" × ".join(map(str, single.shape)), reading.live(measure(relative(single, merged)), Q)),
        ),
        Row(
            "the block, in heads",
            (" × ".join(map(str, heads.shape)), reading.live(small(relative(heads, merged)), Q)),
        ),
    )
    columns = ("the same q, k, v", "shape of the result", "relative error against the recorded merged heads")
    return Table("Both ways over the recorded queries, keys and values", columns, rows)
