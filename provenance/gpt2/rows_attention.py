"""Rows of a block's attention from the scores to the residual sum, in order of computation."""

from provenance.catalogue import Intermediate, Point, Read, Steps
from provenance.gpt2.rows_shared import BLOCK_INPUT, module, parameters, scope

_ATTENTION = ("Transformer block", "Attention")
_SCORES = (*_ATTENTION, "Scores")
_MASK = (*_ATTENTION, "Mask")
_PATTERN = (*_ATTENTION, "Pattern")
_OUTPUT = (*_ATTENTION, "Output")

_KEYS = (Read("h.attn.k", steps=Steps.PREFILL), Read("h.attn.k_all", steps=Steps.DECODE))
_VALUES = (Read("h.attn.v", steps=Steps.PREFILL), Read("h.attn.v_all", steps=Steps.DECODE))
_FACTORS = (Read("h.attn.q"), *_KEYS)
_SQUARE = ("B", "H", "T", "S")
_VISIBLE = "h.attn.mask.m"

_SCORE_ROWS = (
    Intermediate(
        site="h.attn.scores_raw",
        name="tf.matmul(q, k, transpose_b=True)",
        title="Raw attention scores",
        description="Dot product of every query with every key, before scaling; later keys not yet masked.",
        shape=_SQUARE,
        group=_SCORES,
        operation="scores",
        formula=r"w_{ij} = q_i \cdot k_j",
        points=(
            Point("attn.multihead_attn", 93, "w"),
            Point("attn.multihead_attn", 93, "tf.matmul(q, k, transpose_b=True)", "call"),
        ),
        inputs=_FACTORS,
        product_of=_FACTORS,
    ),
    Intermediate(
        site="h.attn.scores",
        name="w * tf.rsqrt(tf.cast(v.shape[-1].value, w.dtype))",
        title="Scaled attention scores",
        description="The raw scores divided by the root of the head's width; later keys not yet masked.",
        shape=_SQUARE,
        group=_SCORES,
        operation="scores",
        formula=r"w \leftarrow \frac{w}{\sqrt{d_h}}",
        points=(Point("attn.multihead_attn", 94, "w"),),
        inputs=(Read("h.attn.scores_raw"),),
        product_of=_FACTORS,
    ),
)

_MASK_ROWS = (
    Intermediate(
        site="h.attn.mask.i",
        name="i",
        title="Query index",
        description="Numbers the queries of this step, as a column.",
        shape=("T", "1"),
        group=_MASK,
        operation="mask",
        formula=r"i = (0, \dots, n_d - 1)^\top",
        points=(Point("attention_mask", 63, "i"),),
        inputs=(Read("h.attn.scores"),),
        discrete=True,
    ),
    Intermediate(
        site="h.attn.mask.j",
        name="j",
        title="Key index",
        description="Numbers the keys, past ones included.",
        shape=("S",),
        group=_MASK,
        operation="mask",
        formula=r"j = (0, \dots, n_s - 1)",
        points=(Point("attention_mask", 64, "j"),),
        inputs=(Read("h.attn.scores"),),
        discrete=True,
    ),
    Intermediate(
        site=_VISIBLE,
        name="m",
        title="Visible cells",
        description="True where the key is not later than the query: what the position may see.",
        shape=("T", "S"),
        group=_MASK,
        operation="mask",
        formula=r"m_{ij} = [\,i \ge j - n_s + n_d\,]",
        points=(Point("attention_mask", 65, "m"),),
        inputs=(Read("h.attn.mask.i"), Read("h.attn.mask.j")),
        discrete=True,
    ),
    Intermediate(
        site="h.attn.mask.b",
        name="attention_mask(nd, ns, dtype=w.dtype)",
        title="Mask as numbers",
        description="The visible cells as ones and zeros of the scores' dtype.",
        shape=("T", "S"),
        group=_MASK,
        operation="mask",
        formula=r"b_{ij} = 1 \text{ where } m_{ij}, \text{ else } 0",
        points=(
            Point("attention_mask", 66, "tf.cast(m, dtype)", "return"),
            Point("attn.mask_attn_weights", 86, "b"),
        ),
        inputs=(Read(_VISIBLE),),
    ),
    Intermediate(
        site="h.attn.mask.broadcast",
        name="tf.reshape(b, [1, 1, nd, ns])",
        title="Mask, ready to broadcast",
        description="The same ones and zeros with axes of one for batch and head.",
        shape=("1", "1", "T", "S"),
        group=_MASK,
        operation="mask",
        formula=r"b_{1,1,i,j} = b_{ij}",
        points=(Point("attn.mask_attn_weights", 87, "b"),),
        inputs=(Read("h.attn.mask.b"),),
    ),
)

_PATTERN_ROWS = (
    Intermediate(
        site="h.attn.scores_masked",
        name="mask_attn_weights(w)",
        title="Masked attention scores",
        description="The scaled scores, with −10¹⁰ in the place of every later key.",
        shape=_SQUARE,
        group=_SCORES,
        operation="apply_mask",
        formula=r"w \odot b - 10^{10}\,(1 - b)",
        points=(
            Point("attn.mask_attn_weights", 88, "w"),
            Point("attn.mask_attn_weights", 89, "w", "return"),
            Point("attn.multihead_attn", 96, "w"),
        ),
        inputs=(Read("h.attn.scores"), Read("h.attn.mask.broadcast")),
        masked_by=_VISIBLE,
    ),
    Intermediate(
        site="h.attn.softmax.x",
        name="x - tf.reduce_max(x, axis=axis, keepdims=True)",
        title="Scores below the maximum",
        description="Each row's scores minus its largest, so that the exponentials cannot overflow.",
        shape=_SQUARE,
        group=_PATTERN,
        operation="softmax",
        formula=r"x_{ij} = w_{ij} - \max_j w_{ij}",
        points=(Point("softmax", 21, "x"),),
        inputs=(Read("h.attn.scores_masked"),),
        masked_by=_VISIBLE,
    ),
    Intermediate(
        site="h.attn.softmax.ex",
        name="ex",
        title="Exponentials",
        description="The exponentials of each row: 1 at its maximum, 0 at masked cells.",
        shape=_SQUARE,
        group=_PATTERN,
        operation="softmax",
        formula=r"e^{x_{ij}}",
        points=(Point("softmax", 22, "ex"),),
        inputs=(Read("h.attn.softmax.x"),),
        masked_by=_VISIBLE,
    ),
    Intermediate(
        site="h.attn.pattern",
        name="softmax(w)",
        title="Attention pattern",
        description="How much each query attends to each key; every row sums to 1.",
        shape=_SQUARE,
        group=_PATTERN,
        operation="softmax",
        formula=r"w_{ij} = \frac{e^{x_{ij}}}{\sum_k e^{x_{ik}}}",
        points=(
            Point("softmax", 23, "ex / tf.reduce_sum(ex, axis=axis, keepdims=True)", "return"),
            Point("attn.multihead_attn", 97, "w"),
        ),
        inputs=(Read("h.attn.softmax.ex"),),
        masked_by=_VISIBLE,
    ),
)

_OUTPUT_ROWS = (
    Intermediate(
        site="h.attn.context",
        name="multihead_attn(q, k, v)",
        title="Context by head",
        description="For each query the values, weighed by its row of the pattern.",
        shape=("B", "H", "T", "hd"),
        group=_OUTPUT,
        operation="context",
        formula=r"a_i = \sum_j w_{ij}\,v_j",
        points=(
            Point("attn.multihead_attn", 98, "a"),
            Point("attn.multihead_attn", 99, "a", "return"),
            Point("attn", 109, "a"),
        ),
        inputs=(Read("h.attn.pattern"), *_VALUES),
    ),
    Intermediate(
        site="h.attn.merged",
        name="merge_heads(a)",
        title="Merged heads",
        description="The heads' contexts side by side, as wide as the model.",
        shape=("B", "T", "d"),
        group=_OUTPUT,
        operation="merge",
        formula=r"[a^{(1)} \mid \dots \mid a^{(H)}]",
        points=(
            Point("merge_states", 48, "tf.reshape(x, start + [a * b])", "return"),
            Point("attn.merge_heads", 81, "merge_states(tf.transpose(x, [0, 2, 1, 3]))", "return"),
            Point("attn", 110, "a"),
        ),
        inputs=(Read("h.attn.context"),),
    ),
    *parameters("h.attn.c_proj", _OUTPUT, 111, "h.{layer}.attn.c_proj", "Output projection", ("d", "d")),
    Intermediate(
        site="h.attn.out",
        name="conv1d(a, 'c_proj', n_state)",
        title="Attention output",
        description="What the attention adds to the residual stream.",
        shape=("B", "T", "d"),
        group=_OUTPUT,
        operation="c_proj",
        formula=r"a\,w + b",
        points=(
            Point("conv1d", 55, "c", caller=111),
            Point("conv1d", 56, "c", "return", caller=111),
            Point("attn", 111, "a"),
            Point("block", 126, "a"),
        ),
        inputs=(Read("h.attn.merged"), Read("h.attn.c_proj.w"), Read("h.attn.c_proj.b")),
        aliases=(
            module("h.{layer}.attn.c_proj"),
            module("h.{layer}.attn"),
            scope("h{layer}/attn/c_proj"),
        ),
    ),
    Intermediate(
        site="h.resid_mid",
        name="x + a",
        title="Residual stream after attention",
        description="The stream between the block's halves: its input plus the attention's output.",
        shape=("B", "T", "d"),
        group=_OUTPUT,
        operation="add_attention",
        formula=r"x + a",
        points=(Point("block", 127, "x"),),
        inputs=(*BLOCK_INPUT, Read("h.attn.out")),
        stream=True,
    ),
)

ATTENTION = (*_SCORE_ROWS, *_MASK_ROWS, *_PATTERN_ROWS, *_OUTPUT_ROWS)
