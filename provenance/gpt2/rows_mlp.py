"""Rows of the MLP half of a block, in order of computation."""

from provenance.catalogue import Intermediate, Point, Read
from provenance.gpt2.rows_shared import layer_norm, module, parameters, scope

_MLP = ("Transformer block", "MLP")
_NORM = (*_MLP, "LayerNorm 2")
_EXPAND = (*_MLP, "Expansion")
_PROJECT = (*_MLP, "Projection")

_STREAM = (Read("h.resid_mid"),)

MLP = (
    *layer_norm(
        "h.ln_2",
        _NORM,
        _STREAM,
        128,
        "h.{layer}.ln_2",
        "LayerNorm 2",
        Intermediate(
            site="h.ln_2.out",
            name="norm(x, 'ln_2')",
            title="Normalized MLP input",
            description="What the MLP reads: the residual stream after this block's second LayerNorm.",
            shape=("B", "T", "d"),
            group=_NORM,
            operation="ln_2",
            formula=r"x' \odot g + b",
            points=(
                Point("norm", 37, "x", caller=128),
                Point("norm", 38, "x", "return", caller=128),
                Point("block", 128, "norm(x, 'ln_2')", "argument"),
            ),
            inputs=(Read("h.ln_2.normalized"), Read("h.ln_2.g"), Read("h.ln_2.b")),
            aliases=(module("h.{layer}.ln_2"), scope("h{layer}/ln_2")),
        ),
    ),
    *parameters("h.mlp.c_fc", _EXPAND, 118, "h.{layer}.mlp.c_fc", "Expansion", ("d", "m")),
    Intermediate(
        site="h.mlp.c_fc.c",
        name="conv1d(x, 'c_fc', n_state)",
        title="MLP pre-activation",
        description="The normalized stream projected to the MLP's width, before the GELU.",
        shape=("B", "T", "m"),
        group=_EXPAND,
        operation="c_fc",
        formula=r"x\,w + b",
        points=(
            Point("conv1d", 55, "c", caller=118),
            Point("conv1d", 56, "c", "return", caller=118),
            Point("mlp", 118, "conv1d(x, 'c_fc', n_state)", "argument"),
        ),
        inputs=(Read("h.ln_2.out"), Read("h.mlp.c_fc.w"), Read("h.mlp.c_fc.b")),
        aliases=(module("h.{layer}.mlp.c_fc"), scope("h{layer}/mlp/c_fc")),
    ),
    Intermediate(
        site="h.mlp.h",
        name="gelu(conv1d(x, 'c_fc', n_state))",
        title="MLP activation",
        description="The hidden units after the GELU.",
        shape=("B", "T", "m"),
        group=_EXPAND,
        operation="gelu",
        formula=r"\mathrm{gelu}(x)",
        points=(
            Point(
                "gelu",
                26,
                "0.5 * x * (1 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * tf.pow(x, 3))))",
                "return",
            ),
            Point("mlp", 118, "h"),
        ),
        inputs=(Read("h.mlp.c_fc.c"),),
        aliases=(module("h.{layer}.mlp.act"),),
    ),
    *parameters("h.mlp.c_proj", _PROJECT, 119, "h.{layer}.mlp.c_proj", "MLP projection", ("m", "d")),
    Intermediate(
        site="h.mlp.h2",
        name="h2",
        title="MLP output",
        description="What the MLP adds to the residual stream.",
        shape=("B", "T", "d"),
        group=_PROJECT,
        operation="mlp_c_proj",
        formula=r"h\,w + b",
        points=(
            Point("conv1d", 55, "c", caller=119),
            Point("conv1d", 56, "c", "return", caller=119),
            Point("mlp", 119, "h2"),
            Point("mlp", 120, "h2", "return"),
            Point("block", 128, "m"),
        ),
        inputs=(Read("h.mlp.h"), Read("h.mlp.c_proj.w"), Read("h.mlp.c_proj.b")),
        aliases=(
            module("h.{layer}.mlp.c_proj"),
            module("h.{layer}.mlp"),
            scope("h{layer}/mlp/c_proj"),
        ),
    ),
    Intermediate(
        site="h.resid_post",
        name="x + m",
        title="Residual stream after the block",
        description="The stream as it leaves this block and enters the next one.",
        shape=("B", "T", "d"),
        group=_PROJECT,
        operation="add_mlp",
        formula=r"x + m",
        points=(Point("block", 129, "x"), Point("model", 164, "h")),
        inputs=(Read("h.resid_mid"), Read("h.mlp.h2")),
        aliases=(module("h.{layer}"),),
        stream=True,
    ),
)
