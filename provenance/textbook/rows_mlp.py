"""Rows of a block's MLP half, in order of computation."""

from provenance.catalogue import Intermediate, Read
from provenance.textbook.config import POST_NORM, PRE_NORM
from provenance.textbook.rows_shared import gain_and_bias, layer_norm, norm_out, weight_and_bias

_MLP = ("Transformer block", "MLP")
_NORM = (*_MLP, "LayerNorm 2")
_EXPAND = (*_MLP, "Expansion")
_PROJECT = (*_MLP, "Projection")

MLP = (
    *gain_and_bias("h.norm2", "norm2", "LayerNorm 2", _NORM),
    *layer_norm(
        "h.pre.norm2",
        "x",
        "LayerNorm 2 (pre-norm)",
        (Read("h.resid_mid"),),
        norm_out(
            2, "pre", "x", "Normalized MLP input",
            "What the MLP reads: the residual stream after this block's second LayerNorm.", PRE_NORM, _NORM,
        ),
    ),
    *weight_and_bias(
        "h.mlp.fc", ("self.mlp[0].weight", "self.mlp[0].bias"), "Expansion", ("m", "d"), _EXPAND
    ),
    Intermediate(
        site="h.mlp.hidden",
        name="self.mlp[0](x)",
        title="MLP pre-activation",
        description="What the MLP reads, projected to four times the width, before the GELU.",
        shape=("B", "T", "m"),
        group=_EXPAND,
        operation="fc",
        formula=r"x\,W^\top + b",
        points=(),
        inputs=(
            Read("h.pre.norm2.out", variant=PRE_NORM),
            Read("h.post.norm1.out", variant=POST_NORM),
            Read("h.mlp.fc.w"),
            Read("h.mlp.fc.b"),
        ),
    ),
    Intermediate(
        site="h.mlp.gelu",
        name="self.mlp[1](self.mlp[0](x))",
        title="MLP activation",
        description="The hidden units after the GELU, in its exact form.",
        shape=("B", "T", "m"),
        group=_EXPAND,
        operation="gelu",
        formula=r"\mathrm{gelu}(x)",
        points=(),
        inputs=(Read("h.mlp.hidden"),),
    ),
    *weight_and_bias(
        "h.mlp.proj", ("self.mlp[2].weight", "self.mlp[2].bias"), "MLP projection", ("d", "m"), _PROJECT
    ),
    Intermediate(
        site="h.mlp.out",
        name="self.mlp(x)",
        title="MLP output",
        description="What the MLP adds to the residual stream.",
        shape=("B", "T", "d"),
        group=_PROJECT,
        operation="proj",
        formula=r"m = h\,W^\top + b",
        points=(),
        inputs=(Read("h.mlp.gelu"), Read("h.mlp.proj.w"), Read("h.mlp.proj.b")),
    ),
    Intermediate(
        site="h.resid_post",
        name="x + self.mlp(x)",
        title="Residual stream after the MLP",
        description="The stream between the halves plus the MLP's output; a pre-norm block hands it on.",
        shape=("B", "T", "d"),
        group=_PROJECT,
        operation="add_mlp",
        formula=r"x + m",
        points=(),
        inputs=(
            Read("h.resid_mid", variant=PRE_NORM),
            Read("h.post.norm1.out", variant=POST_NORM),
            Read("h.mlp.out"),
        ),
        stream=True,
    ),
    *layer_norm(
        "h.post.norm2",
        "x + self.mlp(x)",
        "LayerNorm 2 (post-norm)",
        (Read("h.resid_post"),),
        norm_out(
            2, "post", "x + self.mlp(x)", "Normalized stream after the MLP",
            "The stream as it leaves a post-norm block and enters the next one.", POST_NORM, _NORM,
        ),
    ),
)  # fmt: skip
