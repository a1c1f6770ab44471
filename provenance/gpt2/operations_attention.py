"""The operations of a block's attention half, with their evidence."""

from provenance.catalogue import Operation
from provenance.gpt2.evidence import LINEAR, layer_norm, openai, transformers

ATTENTION = (
    layer_norm("ln_1", "Pre-attention LayerNorm",
                ("GPT2Block.__init__:self.ln_1", 252),
                ("GPT2Block.forward:residual..hidden_states", 272, 273)),
    Operation(
        id="c_attn",
        title="Fused Q, K, V projection",
        formula=r"c = x\,w + b, \quad [q \mid k \mid v] = c",
        evidence=(
            LINEAR,
            openai("One projection of three times the width is split into queries, keys and values by head.",
                    ("attn:with..present", 101, 104)),
            transformers("c_attn runs once; its three fields are viewed by head and transposed.",
                          ("GPT2Attention.forward:query_states#2..query_states#3", 185, 191)),
        ),
        difference="transformers also names the three fields before they are split into heads.",
    ),
    Operation(
        id="present",
        title="KV cache: present",
        formula=r"\mathrm{present} = \mathrm{stack}(k, v)",
        evidence=(
            openai("The new keys and values are stacked, to be handed back to the caller.", ("attn:present", 104)),
            transformers("The new keys and values are given to the cache.",
                          ("GPT2Attention.forward:key_states#6", 196)),
        ),
        difference="OpenAI stacks keys and values into one tensor; transformers hands both to a cache.",
    ),
    Operation(
        id="append",
        title="KV cache: append",
        formula=r"k \leftarrow [p_k; k], \quad v \leftarrow [p_v; v]",
        evidence=(
            openai("With a past, its keys and values are put in front of the new ones.",
                    ("attn:if#2..v#2", 105, 108)),
            transformers("The cache hands back old and new keys and values together.",
                          ("GPT2Attention.forward:key_states#6", 196)),
        ),
        difference="OpenAI concatenates in the attention itself; transformers lets its cache do it.",
    ),
    Operation(
        id="scores",
        title="Attention scores",
        formula=r"w = \frac{q\,k^\top}{\sqrt{d_h}}",
        evidence=(
            openai("Every query is multiplied with every key, then scaled by one over the root of the head's width.",
                    ("attn.multihead_attn:w..w#2", 93, 94)),
            transformers("Product and scaling stand in one expression; the factor was computed once.",
                          ("eager_attention_forward:attn_weights", 58),
                          ("GPT2Attention.__init__:self.scaling..self.scaling#2", 96, 98)),
        ),
        difference="OpenAI names the raw product before it scales; transformers does both in one expression.",
    ),
    Operation(
        id="mask",
        title="Causal mask",
        formula=r"m_{ij} = [\,i \ge j - n_s + n_d\,]",
        evidence=(
            openai("Ones stand where the key is not later than the query, counted from the lower right corner.",
                    ("attention_mask", 58, 66), ("attn.mask_attn_weights:nd..b#2", 85, 87)),
            transformers("A library function makes the mask; it holds 0 and the dtype's minimum, to be added.",
                          ("GPT2Model.forward:causal_mask", 583, 589)),
        ),
        difference="OpenAI multiplies with 1 or 0; transformers adds 0 or the dtype's minimum.",
    ),
    Operation(
        id="apply_mask",
        title="Masking the scores",
        formula=r"w \leftarrow w \odot b - 10^{10}\,(1 - b)",
        evidence=(
            openai("Scores of later keys are replaced by −10¹⁰; the others stay as they are.",
                    ("attn.mask_attn_weights", 83, 89)),
            transformers("The mask is added to the scores.",
                          ("eager_attention_forward:if#2..attn_weights#2", 60, 61)),
        ),
        difference="Masked cells hold −10¹⁰ at OpenAI, the score plus the dtype's minimum in transformers.",
    ),
    Operation(
        id="softmax",
        title="Softmax",
        formula=r"\mathrm{softmax}(x)_j = \frac{e^{x_j - \max x}}{\sum_k e^{x_k - \max x}}",
        evidence=(
            openai("Softmax in three steps: subtract the row's maximum, exponentiate, divide by the row's sum.",
                    ("softmax", 20, 23), ("attn.multihead_attn:w#4", 97)),
            transformers("One fused softmax over the last axis.", ("eager_attention_forward:attn_weights#3", 63)),
        ),
        difference="OpenAI takes three visible steps; transformers calls one fused softmax.",
    ),
    Operation(
        id="context",
        title="Weighted sum of values",
        formula=r"a = w\,v",
        evidence=(
            openai("The pattern's rows weigh the values.", ("attn.multihead_attn:a", 98)),
            transformers("The same product.", ("eager_attention_forward:attn_output", 69)),
        ),
    ),
    Operation(
        id="merge",
        title="Merging the heads",
        formula=r"a = [a^{(1)} \mid \dots \mid a^{(H)}]",
        evidence=(
            openai("Heads move behind the positions and are laid side by side.",
                    ("merge_states", 45, 48), ("attn.merge_heads", 79, 81), ("attn:a#2", 110)),
            transformers("A transpose, and a reshape in the calling function.",
                          ("eager_attention_forward:attn_output#2", 70),
                          ("GPT2Attention.forward:attn_output#3", 222)),
        ),
        difference="OpenAI merges in one function; transformers transposes in one and reshapes in its caller.",
    ),
    Operation(
        id="c_proj",
        title="Attention output projection",
        formula=r"a \leftarrow a\,w + b",
        evidence=(
            LINEAR,
            openai("The merged heads pass one more projection of the model's width.", ("attn:a#3", 111)),
            transformers("c_proj is applied to the merged heads.", ("GPT2Attention.forward:attn_output#4", 223)),
        ),
    ),
    Operation(
        id="add_attention",
        title="Attention residual sum",
        formula=r"x \leftarrow x + a",
        evidence=(
            openai("The attention's output is added to the residual stream.", ("block:x", 127)),
            transformers("The same sum, with the kept input as residual.",
                          ("GPT2Block.forward:hidden_states#2", 282)),
        ),
    ),
)  # fmt: skip
