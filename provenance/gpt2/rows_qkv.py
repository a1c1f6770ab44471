"""Rows of a block from its first LayerNorm to the keys and values of the cache."""

from provenance.catalogue import Across, Intermediate, Kind, Point, Read, Steps
from provenance.gpt2.rows_shared import BLOCK_INPUT, layer_norm, module, parameters, scope

_ATTENTION = ("Transformer block", "Attention")
_NORM = (*_ATTENTION, "LayerNorm 1")
_QKV = (*_ATTENTION, "Q, K, V")
_CACHE = (*_ATTENTION, "KV cache")


def _split(letter: str, title: str, description: str) -> Intermediate:
    return Intermediate(
        site=f"h.attn.{letter}",
        name=letter,
        title=title,
        description=description,
        shape=("B", "H", "T", "hd"),
        group=_QKV,
        operation="c_attn",
        formula=rf"{letter}^{{(h)}} = c_{{{letter}, h}}",
        points=(Point("attn", 103, letter),),
        inputs=(Read("h.attn.c_attn.c"),),
    )


def _past(letter: str, title: str) -> Intermediate:
    return Intermediate(
        site=f"h.attn.p{letter}",
        name=f"p{letter}",
        title=title,
        description="What the cache kept from all earlier positions, in decode steps only.",
        shape=("B", "H", "P", "hd"),
        group=_CACHE,
        operation="append",
        formula=r"[p_k, p_v] = \mathrm{past}",
        points=(Point("attn", 106, f"p{letter}"),),
        inputs=(Read("h.past"),),
        steps=Steps.DECODE,
    )  # fmt: skip


def _grown(letter: str, line: int, title: str) -> Intermediate:
    return Intermediate(
        site=f"h.attn.{letter}_all",
        name=letter,
        title=title,
        description="Past and new positions together, one longer with every decode step.",
        shape=("B", "H", "S", "hd"),
        group=_CACHE,
        operation="append",
        formula=rf"[p_{letter}; {letter}]",
        points=(Point("attn", line, letter),),
        inputs=(Read(f"h.attn.p{letter}"), Read(f"h.attn.{letter}")),
        steps=Steps.DECODE,
    )


_LN_1 = layer_norm(
    "h.ln_1",
    _NORM,
    BLOCK_INPUT,
    126,
    "h.{layer}.ln_1",
    "LayerNorm 1",
    Intermediate(
        site="h.ln_1.out",
        name="norm(x, 'ln_1')",
        title="Normalized attention input",
        description="What the attention reads: the residual stream after this block's first LayerNorm.",
        shape=("B", "T", "d"),
        group=_NORM,
        operation="ln_1",
        formula=r"x' \odot g + b",
        points=(
            Point("norm", 37, "x", caller=126),
            Point("norm", 38, "x", "return", caller=126),
            Point("block", 126, "norm(x, 'ln_1')", "argument"),
        ),
        inputs=(Read("h.ln_1.normalized"), Read("h.ln_1.g"), Read("h.ln_1.b")),
        aliases=(module("h.{layer}.ln_1"), scope("h{layer}/ln_1")),
    ),
)

_QKV_ROWS = (
    *parameters("h.attn.c_attn", _QKV, 102, "h.{layer}.attn.c_attn", "Q, K, V projection", ("d", "3d")),
    Intermediate(
        site="h.attn.c_attn.c",
        name="c",
        title="Fused queries, keys and values",
        description="One projection of the normalized input, three widths side by side: Q, then K, then V.",
        shape=("B", "T", "3d"),
        group=_QKV,
        operation="c_attn",
        formula=r"c = x\,w + b",
        points=(
            Point("conv1d", 55, "c", caller=102),
            Point("conv1d", 56, "c", "return", caller=102),
            Point("attn", 102, "c"),
        ),
        inputs=(Read("h.ln_1.out"), Read("h.attn.c_attn.w"), Read("h.attn.c_attn.b")),
        aliases=(module("h.{layer}.attn.c_attn"), scope("h{layer}/attn/c_attn")),
    ),
    _split("q", "Queries", "What each position looks for, by head."),
    _split("k", "Keys", "What each new position offers to be found by, by head."),
    _split("v", "Values", "What each new position hands over when attended to, by head."),
)

_PAST = Intermediate(
    site="h.past",
    name="past",
    title="Past keys and values of a layer",
    description="This layer's part of the cache, from all earlier positions, in decode steps only.",
    shape=("B", "2", "H", "P", "hd"),
    group=_CACHE,
    operation="past",
    formula=r"\mathrm{past}_\ell",
    points=(Point("model", 163, "past"),),
    inputs=(Read("h.attn.present", Across.EARLIER),),
    kind=Kind.INPUT,
    steps=Steps.DECODE,
)

_CACHE_ROWS = (
    Intermediate(
        site="h.attn.present",
        name="present",
        title="New keys and values",
        description="The keys and values of this step's positions, as they enter the cache.",
        shape=("B", "2", "H", "T", "hd"),
        group=_CACHE,
        operation="present",
        formula=r"[k, v]",
        points=(
            Point("attn", 104, "present"),
            Point("block", 126, "present"),
            Point("model", 164, "present"),
        ),
        inputs=(Read("h.attn.k"), Read("h.attn.v")),
    ),
    _PAST,
    _past("k", "Past keys"),
    _past("v", "Past values"),
    _grown("k", 107, "All keys"),
    _grown("v", 108, "All values"),
)

QKV = (*_LN_1, *_QKV_ROWS, *_CACHE_ROWS)
