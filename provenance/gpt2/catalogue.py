"""GPT-2's catalogue: every named intermediate of the forward pass, in order of computation."""

from collections.abc import Mapping

from provenance.axes import Axis, Counts
from provenance.catalogue import Catalogue
from provenance.gpt2.hooks import with_hooks
from provenance.gpt2.operations import OPERATIONS
from provenance.gpt2.rows_attention import ATTENTION
from provenance.gpt2.rows_mlp import MLP
from provenance.gpt2.rows_model import EMBEDDING, OUTPUT
from provenance.gpt2.rows_qkv import QKV

AXES = (
    Axis("B", "batch", "prompts run together", Counts.BATCH),
    Axis("T", "", "tokens of this step: the prompt's in the prefill, 1 in a decode step", Counts.TOKEN, decode="1"),
    Axis("S", "", "keys: past tokens and this step's", Counts.KEY, decode="P+1"),
    Axis("P", "", "past tokens, held in the KV cache", Counts.PAST),
    Axis("B·T", "", "batch and tokens on one axis", Counts.TOKEN, decode="B"),
    Axis("d", "d", "channels of the residual stream", Counts.CHANNEL),
    Axis("3d", "3d", "queries, keys and values side by side", Counts.CHANNEL),
    Axis("m", "mlp", "hidden units of the MLP", Counts.CHANNEL),
    Axis("H", "head", "attention heads", Counts.HEAD),
    Axis("hd", "head_dim", "channels of one head", Counts.CHANNEL),
    Axis("V", "vocab", "tokens of the vocabulary", Counts.ENTRY),
    Axis("C", "context", "positions of the longest context", Counts.POSITION),
    Axis("L", "layer", "transformer blocks", Counts.LAYER),
    Axis("2", "k/v", "keys, then values", Counts.PART),
    Axis("1", "", "an axis of one", Counts.ONE),
)

CATALOGUE = Catalogue("gpt2", with_hooks((*EMBEDDING, *QKV, *ATTENTION, *MLP, *OUTPUT)), OPERATIONS, AXES)

GPT2_SMALL: Mapping[str, int] = {
    "d": 768, "3d": 2304, "m": 3072, "H": 12, "hd": 64, "V": 50257, "C": 1024, "L": 12, "2": 2, "1": 1,
}  # fmt: skip
"""The axes of `gpt2`, for pages that show the architecture without a trace."""
