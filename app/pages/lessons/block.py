"""The chapter on the block: the residual stream, where its norms stand, and the MLP."""

from dataclasses import dataclass

import numpy as np

from app.explorer import Explorer
from app.pages.frame import Frame
from app.pages.lessons.block_gradients import Back, gradient_table
from app.pages.lessons.block_questions import questions_of
from app.pages.lessons.block_runs import Gelus, Runs, runs_of
from app.pages.lessons.block_sizes import Sizes, halves_table, total_live
from app.pages.lessons.block_streams import stream_chart, stream_table
from app.pages.lessons.lesson import Lesson, lesson_frame, lesson_of
from app.pages.lessons.parts import Check, Place, Question, Row, Table, check, places, small
from app.pages.lessons.reading import Array, Live, Reading
from app.pages.numbers import Number, count, measure
from app.pictures.curves import CurvesPicture
from provenance.lessons import block as numbers
from provenance.lessons.chapters import chapter
from provenance.lessons.options import Options

SLUG = "block"
FIELDS = ("norm", "causal", "layers", "d", "heads", "length")

_GPT2_SITES = (
    "h.ln_1.out", "h.attn.out", "h.resid_mid", "h.ln_2.out", "h.mlp.c_fc.c", "h.mlp.h", "h.mlp.h2", "h.resid_post",
    "ln_f.out",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Norm:
    """The first LayerNorm of block 0, checked, and what it makes of its input."""

    before: bool
    checks: tuple[Check, ...]
    rms_before: Live
    rms_after: Live
    largest_mean: Live
    from_one: Live
    expected: Live
    epsilon: Number


@dataclass(frozen=True, slots=True)
class Mlp:
    """The MLP of block 0, checked, and its widths as recorded."""

    checks: tuple[Check, ...]
    width: Live
    hidden: Live
    times: Number
    gelus: Gelus
    from_relu: Live
    from_relu_at: Number


@dataclass(frozen=True, slots=True)
class InGpt2:
    """The default model's stream, and its GELU."""

    name: str
    trained: bool
    chart: CurvesPicture | None
    stream: Table
    check: Check
    gelus: Gelus


@dataclass(frozen=True, slots=True)
class BlockPage:
    """The chapter. `no_gpt2` says why the default model is not shown, where it is not."""

    frame: Frame
    lesson: Lesson
    sums: tuple[Check, ...]
    norm: Norm
    chart: CurvesPicture | None
    stream: Table
    post_start: Live
    post_end: Live
    pre_start: Live
    pre_end: Live
    weights_apart: Live
    backs: tuple[Back, Back]
    gradients: Table
    blocks: Number
    placements: Table
    mlp: Mlp
    halves: Table
    block_total: Live
    sizes: Sizes
    gpt2: InGpt2 | None
    no_gpt2: str
    places: tuple[Place, ...]
    questions: tuple[Question, ...]


def block_page(explorer: Explorer, options: Options) -> BlockPage:
    """The chapter in a state. Raises Unavailable and Busy where a run cannot be had."""
    runs = runs_of(explorer, options)
    both = (runs.post, runs.pre)
    gpt2 = runs.gpt2
    return BlockPage(
        frame=lesson_frame(chapter(SLUG), runs.main),
        lesson=lesson_of(chapter(SLUG), options, FIELDS, runs.main),
        sums=_sums(runs.main, options),
        norm=_norm(runs.main, options),
        chart=stream_chart(both),
        stream=stream_table(both),
        post_start=runs.post.start,
        post_end=runs.post.end,
        pre_start=runs.pre.start,
        pre_end=runs.pre.end,
        weights_apart=_weights_apart(runs),
        backs=runs.backs,
        gradients=gradient_table(runs.backs),
        blocks=count(options.layers),
        placements=_placements(runs),
        mlp=_mlp(runs, options),
        halves=halves_table(runs.main, runs.halves, options.d),
        block_total=total_live(runs.main, runs.halves),
        sizes=runs.sizes,
        gpt2=_in_gpt2(runs),
        no_gpt2=runs.no_gpt2,
        places=places(explorer, _GPT2_SITES, gpt2.reading if gpt2 else None),
        questions=questions_of(runs),
    )


def _weights_apart(runs: Runs) -> Live:
    """The largest difference between the two runs' matrices of block 0."""
    post, pre = runs.post.reading, runs.pre.reading
    sites = ("h.attn.in_proj.w", "h.attn.out_proj.w", "h.mlp.fc.w", "h.mlp.proj.w")
    apart = max(float(np.abs(post.array(site) - pre.array(site)).max()) for site in sites)
    return pre.live(small(apart), sites[0])


def _entering(options: Options) -> str:
    return options.config.stream_in


def _sums(read: Reading, options: Options) -> tuple[Check, ...]:
    stream, middle = _entering(options), "h.resid_mid" if options.norm == "pre" else "h.post.norm1.out"
    return (
        check(
            read,
            "h.resid_mid",
            0,
            read.array(stream) + read.array("h.attn.out"),
            r"x' = x + a",
            (stream, "h.attn.out"),
        ),
        check(
            read,
            "h.resid_post",
            0,
            read.array(middle) + read.array("h.mlp.out"),
            r"x'' = x' + m" if options.norm == "pre" else r"x'' = \mathrm{norm}(x') + m",
            (middle, "h.mlp.out"),
        ),
    )


def _norm(read: Reading, options: Options) -> Norm:
    before = options.norm == "pre"
    at, source = ("h.pre.norm1", _entering(options)) if before else ("h.post.norm1", "h.resid_mid")
    x, gain, bias = read.array(source), read.array("h.norm1.g"), read.array("h.norm1.b")
    epsilon = options.config.epsilon
    normal, variances = read.array(f"{at}.normalized"), numbers.variance(read.array(f"{at}.normalized"))
    return Norm(
        before=before,
        checks=(
            check(read, f"{at}.mean", 0, numbers.mean(x), r"\mu = \frac{1}{d} \sum_{i=1}^{d} x_i", (source,)),
            check(
                read,
                f"{at}.var",
                0,
                numbers.variance(x),
                r"\sigma^2 = \frac{1}{d} \sum_{i=1}^{d} (x_i - \mu)^2",
                (source,),
            ),
            check(
                read,
                f"{at}.out",
                0,
                numbers.layer_norm(x, gain, bias, epsilon),
                r"\mathrm{norm}(x) = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \odot g + b",
                (source, "h.norm1.g", "h.norm1.b"),
            ),
        ),
        rms_before=read.live(measure(numbers.rms(x)), source),
        rms_after=read.live(measure(numbers.rms(read.array(f"{at}.out"))), f"{at}.out"),
        largest_mean=read.live(small(float(np.abs(numbers.mean(normal)).max())), f"{at}.normalized"),
        from_one=read.live(small(float(np.abs(1 - variances).max())), f"{at}.normalized"),
        expected=read.live(small(float((epsilon / (numbers.variance(x) + epsilon)).max())), source),
        epsilon=small(epsilon),
    )


def _mlp(runs: Runs, options: Options) -> Mlp:
    read = runs.main
    source = "h.pre.norm2.out" if options.norm == "pre" else "h.post.norm1.out"
    hidden = read.array("h.mlp.hidden")
    weight = read.array("h.mlp.fc.w")
    relu = numbers.farthest(numbers.gelu(hidden), numbers.relu(hidden), hidden)
    return Mlp(
        checks=(
            _linear(read, "h.mlp.hidden", source, "h.mlp.fc", r"h = x\,W_1^\top + b_1"),
            check(
                read,
                "h.mlp.gelu",
                0,
                numbers.gelu(hidden),
                r"\mathrm{gelu}(h) = \frac{h}{2}\left(1 + \mathrm{erf}\left(\frac{h}{\sqrt{2}}\right)\right)",
                ("h.mlp.hidden",),
            ),
            _linear(read, "h.mlp.out", "h.mlp.gelu", "h.mlp.proj", r"m = \mathrm{gelu}(h)\,W_2^\top + b_2"),
        ),
        width=read.live(count(weight.shape[1]), "h.mlp.fc.w"),
        hidden=read.live(count(weight.shape[0]), "h.mlp.fc.w"),
        times=measure(weight.shape[0] / weight.shape[1]),
        gelus=runs.gelus,
        from_relu=read.live(measure(relu.difference), "h.mlp.hidden"),
        from_relu_at=measure(relu.at),
    )


def _linear(read: Reading, site: str, source: str, at: str, latex: str) -> Check:
    made: Array = numbers.linear(read.array(source), read.array(f"{at}.w"), read.array(f"{at}.b"))
    return check(read, site, 0, made, latex, (source, f"{at}.w", f"{at}.b"))


def _placements(runs: Runs) -> Table:
    """The lesson's listing beside its prose."""

    def row(name: str, read: Reading, options: Options) -> Row:
        last, out = options.layers - 1, options.config.stream_out
        later = numbers.later_share(read.array("h.attn.weight"))
        cells = (
            read.live(measure(later), "h.attn.weight"),
            read.live(measure(numbers.rms(read.array(out, last))), out, last),
        )
        current = (options.norm, options.causal) == (runs.options.norm, runs.options.causal)
        return Row(name, cells, read.trace_url, current)

    return Table(
        caption="The same matrices and input, as the listing and as the prose have it: the share of attention "
        "that goes to later places in block 0, and the RMS of the stream after the last block",
        columns=("Block", "to later places", "RMS"),
        rows=(
            row("listing: post-norm, no mask", runs.listing, runs.options.but(norm="post", causal=False)),
            row("prose: pre-norm, causal", runs.prose, runs.options.but(norm="pre", causal=True)),
        ),
    )


def _in_gpt2(runs: Runs) -> InGpt2 | None:
    if runs.gpt2 is None or runs.gpt2_gelus is None:
        return None
    read = runs.gpt2.reading
    model = read.trace.recipe.model
    return InGpt2(
        name=model.name,
        trained=model.trained,
        chart=stream_chart((runs.gpt2,)),
        stream=stream_table((runs.gpt2,)),
        check=check(
            read,
            "h.mlp.h",
            0,
            numbers.gelu_tanh(read.array("h.mlp.c_fc.c")),
            r"\mathrm{gelu}(x) \approx \frac{x}{2}\left(1 + "
            r"\tanh\left(\sqrt{2/\pi}\,(x + 0.044715\,x^3)\right)\right)",
            ("h.mlp.c_fc.c",),
        ),
        gelus=runs.gpt2_gelus,
    )
