"""Rows of a block's attention half, in order of computation."""

from provenance.catalogue import Across, Intermediate, Read
from provenance.textbook.config import CAUSAL, POST_NORM, POST_NORM_WITH, POST_NORM_WITHOUT, PRE_NORM, UNMASKED
from provenance.textbook.rows_shared import BLOCK_INPUT, gain_and_bias, layer_norm, norm_out, weight_and_bias

_ATTENTION = ("Transformer block", "Attention")
_NORM = (*_ATTENTION, "LayerNorm 1")
_QKV = (*_ATTENTION, "Q, K, V")
_SCORES = (*_ATTENTION, "Scores")
_WEIGHTS = (*_ATTENTION, "Weights")
_OUTPUT = (*_ATTENTION, "Output")

_SQUARE = ("B", "H", "T", "S")
_FACTORS = (Read("h.attn.q"), Read("h.attn.k"))
_MASK = "h.attn.mask"

_BEFORE = (
    *gain_and_bias("h.norm1", "norm1", "LayerNorm 1", _NORM),
    *layer_norm(
        "h.pre.norm1",
        "x",
        "LayerNorm 1 (pre-norm)",
        tuple(read for read in BLOCK_INPUT if read.variant != POST_NORM),
        norm_out(
            1, "pre", "x", "Normalized attention input",
            "What the attention reads: the residual stream after this block's first LayerNorm.", PRE_NORM, _NORM,
        ),
    ),
)  # fmt: skip

_AFTER = layer_norm(
    "h.post.norm1",
    "x + a",
    "LayerNorm 1 (post-norm)",
    (Read("h.resid_mid"),),
    norm_out(
        1, "post", "x + a", "Normalized stream after attention",
        "The residual stream between the block's halves: their sum, normalized.", POST_NORM, _NORM,
    ),
)  # fmt: skip


def _split(letter: str, title: str, description: str) -> Intermediate:
    return Intermediate(
        site=f"h.attn.{letter}",
        name=letter,
        title=title,
        description=description,
        shape=("B", "H", "T", "hd"),
        group=_QKV,
        operation="in_proj",
        formula=rf"{letter}^{{(h)}}",
        points=(),
        inputs=(Read("h.attn.qkv"),),
    )


_QKV_ROWS = (
    *weight_and_bias(
        "h.attn.in_proj",
        ("self.attn.in_proj_weight", "self.attn.in_proj_bias"),
        "Q, K, V projection",
        ("3d", "d"),
        _QKV,
    ),
    Intermediate(
        site="h.attn.qkv",
        name="F.linear(x, self.attn.in_proj_weight, self.attn.in_proj_bias)",
        title="Fused queries, keys and values",
        description="One projection of what the attention reads, three widths side by side: Q, then K, then V.",
        shape=("B", "T", "3d"),
        group=_QKV,
        operation="in_proj",
        formula=r"x\,W^\top + b",
        points=(),
        inputs=(
            Read("h.pre.norm1.out", variant=PRE_NORM),
            Read("embed.h", Across.FIRST, variant=POST_NORM_WITH),
            Read("x", Across.FIRST, variant=POST_NORM_WITHOUT),
            Read("h.post.norm2.out", Across.PREVIOUS, variant=POST_NORM),
            Read("h.attn.in_proj.w"),
            Read("h.attn.in_proj.b"),
        ),
    ),
    _split("q", "Queries", "What each position looks for, by head."),
    _split("k", "Keys", "What each position offers to be found by, by head."),
    _split("v", "Values", "What each position hands over when attended to, by head."),
)

_SCORE_ROWS = (
    Intermediate(
        site="h.attn.score_raw",
        name="q @ k.transpose(-2, -1)",
        title="Raw attention scores",
        description="Dot product of every query with every key, before scaling.",
        shape=_SQUARE,
        group=_SCORES,
        operation="scores",
        formula=r"r_{ij} = q_i \cdot k_j",
        points=(),
        inputs=_FACTORS,
        product_of=_FACTORS,
    ),
    Intermediate(
        site="h.attn.score",
        name="score",
        title="Scaled attention scores",
        description="The raw scores over the root of the head's width (in an unscaled model 1) and the temperature.",
        shape=_SQUARE,
        group=_SCORES,
        operation="scores",
        formula=r"s_{ij} = \frac{r_{ij}}{c\,\tau}, \quad c = \sqrt{d_k} \text{ or } 1",
        points=(),
        inputs=(Read("h.attn.score_raw"),),
        product_of=_FACTORS,
    ),
    Intermediate(
        site=_MASK,
        name="torch.ones_like(score[0, 0], dtype=torch.bool).tril()",
        title="Causal mask",
        description="True where the key is not later than the query: what the position may see.",
        shape=("T", "S"),
        group=_SCORES,
        operation="mask",
        formula=r"m_{ij} = [\,j \le i\,]",
        points=(),
        inputs=(Read("h.attn.score"),),
        variant=CAUSAL,
        discrete=True,
    ),
    Intermediate(
        site="h.attn.score_masked",
        name="score.masked_fill(~mask, -math.inf)",
        title="Masked attention scores",
        description="The scaled scores, with −∞ in the place of every later key.",
        shape=_SQUARE,
        group=_SCORES,
        operation="apply_mask",
        formula=r"s_{ij} \text{ where } m_{ij}, \text{ else } -\infty",
        points=(),
        inputs=(Read("h.attn.score"), Read(_MASK)),
        masked_by=_MASK,
        variant=CAUSAL,
    ),
    Intermediate(
        site="h.attn.weight",
        name="weight",
        title="Attention weights",
        description="How much each query attends to each key; every row sums to 1.",
        shape=_SQUARE,
        group=_WEIGHTS,
        operation="softmax",
        formula=r"w_{ij} = \frac{e^{s_{ij}}}{\sum_k e^{s_{ik}}}",
        points=(),
        inputs=(Read("h.attn.score", variant=UNMASKED), Read("h.attn.score_masked", variant=CAUSAL)),
        masked_by=_MASK,
    ),
)

_OUTPUT_ROWS = (
    Intermediate(
        site="h.attn.context",
        name="weight @ v",
        title="Context by head",
        description="For each query the values, weighed by its row of the weights.",
        shape=("B", "H", "T", "hd"),
        group=_OUTPUT,
        operation="context",
        formula=r"c_i = \sum_j w_{ij}\,v_j",
        points=(),
        inputs=(Read("h.attn.weight"), Read("h.attn.v")),
    ),
    Intermediate(
        site="h.attn.merged",
        name="(weight @ v).transpose(1, 2).flatten(2)",
        title="Merged heads",
        description="The heads' contexts side by side, as wide as the model.",
        shape=("B", "T", "d"),
        group=_OUTPUT,
        operation="merge",
        formula=r"[c^{(1)} \mid \dots \mid c^{(H)}]",
        points=(),
        inputs=(Read("h.attn.context"),),
    ),
    *weight_and_bias(
        "h.attn.out_proj",
        ("self.attn.out_proj.weight", "self.attn.out_proj.bias"),
        "Output projection",
        ("d", "d"),
        _OUTPUT,
    ),
    Intermediate(
        site="h.attn.out",
        name="a",
        title="Attention output",
        description="What the attention adds to the residual stream.",
        shape=("B", "T", "d"),
        group=_OUTPUT,
        operation="out_proj",
        formula=r"a = c\,W^\top + b",
        points=(),
        inputs=(Read("h.attn.merged"), Read("h.attn.out_proj.w"), Read("h.attn.out_proj.b")),
    ),
    Intermediate(
        site="h.resid_mid",
        name="x + a",
        title="Residual stream after attention",
        description="The stream that entered the block plus the attention's output.",
        shape=("B", "T", "d"),
        group=_OUTPUT,
        operation="add_attention",
        formula=r"x + a",
        points=(),
        inputs=(*BLOCK_INPUT, Read("h.attn.out")),
        stream=True,
    ),
)

ATTENTION = (*_BEFORE, *_QKV_ROWS, *_SCORE_ROWS, *_OUTPUT_ROWS, *_AFTER)
