"""GPT-2's operations in order of computation, each with its direct evidence in both sources.

Line numbers and anchors are facts about the pinned files; a test resolves every anchor on the
verified blobs. The claims and formulas are ours.
"""

from provenance.catalogue import Operation
from provenance.gpt2.evidence import LINEAR, layer_norm, openai, transformers
from provenance.gpt2.operations_attention import ATTENTION

OPERATIONS = (
    Operation(
        id="input",
        title="Token input",
        formula=r"X \in \{0, \dots, V - 1\}^{B \times T}",
        evidence=(
            openai("The token ids are the model's argument X; it has a batch and a sequence axis.",
                    ("model:batch", 150)),
            transformers("The ids are viewed as batch × sequence before anything else is done.",
                          ("GPT2Model.forward:input_shape..input_ids", 548, 549)),
        ),
    ),
    Operation(
        id="past",
        title="KV cache: past",
        formula=r"\mathrm{past}_\ell = [K_\ell, V_\ell] \text{ of all earlier steps}",
        evidence=(
            openai("The cache of the earlier steps is taken apart by layer; without one, each layer gets None.",
                    ("model:pasts", 161), ("model:for", 163)),
            transformers("The cache is an object that every layer asks for its own keys and values.",
                          ("GPT2Attention.forward:if..curr_past_key_values#3", 155, 164)),
        ),
        difference="OpenAI receives one tensor for all layers; transformers passes one cache object along.",
    ),
    Operation(
        id="tables",
        title="Embedding tables",
        formula=r"W_{te} \in \mathbb{R}^{V \times d}, \quad W_{pe} \in \mathbb{R}^{C \times d}",
        evidence=(
            openai("Two learned tables are declared: positions (wpe) and tokens (wte).",
                    ("model:wpe..wte", 152, 155)),
            transformers("The same two tables are nn.Embedding modules.",
                          ("GPT2Model.__init__:self.wte..self.wpe", 492, 493)),
        ),
    ),
    Operation(
        id="positions",
        title="Position numbering",
        formula=r"p_t = P + t, \quad t = 0, \dots, T - 1",
        evidence=(
            openai("Positions count on from the length of the past, the same for every batch entry.",
                    ("expand_tile", 135, 139), ("positions_for", 141, 144)),
            transformers("Positions count on from what the cache has seen, with one row for the batch.",
                          ("GPT2Model.forward:past_seen_tokens..position_ids#2", 572, 574)),
        ),
        difference="OpenAI tiles the positions over the batch; transformers keeps one row and lets it broadcast.",
    ),
    Operation(
        id="embed_tokens",
        title="Token embedding lookup",
        formula=r"e_t = W_{te}[X_t]",
        evidence=(
            openai("A row of wte is gathered for each token id.", ("model:h", 157)),
            transformers("wte is applied to the token ids.", ("GPT2Model.forward:inputs_embeds", 569)),
        ),
    ),
    Operation(
        id="embed_positions",
        title="Position embedding lookup",
        formula=r"r_t = W_{pe}[p_t]",
        evidence=(
            openai("A row of wpe is gathered for each position.", ("model:h", 157)),
            transformers("wpe is applied to the position ids.", ("GPT2Model.forward:position_embeds", 576)),
        ),
    ),
    Operation(
        id="embed_sum",
        title="Embedding sum",
        formula=r"h_t = e_t + r_t",
        evidence=(
            openai("Token and position rows are added: this starts the residual stream.", ("model:h", 157)),
            transformers("The two embeddings are added.", ("GPT2Model.forward:hidden_states", 577)),
        ),
    ),
    Operation(
        id="norm_parameters",
        title="LayerNorm parameters",
        formula=r"g, b \in \mathbb{R}^{d}",
        evidence=(
            openai("Gain g starts at one and bias b at zero; both have the width of the last axis.",
                    ("norm:g..b", 32, 33)),
            transformers("Both parameters live in the nn.LayerNorm modules of the block and of the model's end.",
                          ("GPT2Block.__init__:self.ln_1", 252), ("GPT2Block.__init__:self.ln_2", 254),
                          ("GPT2Model.__init__:self.ln_f", 497)),
        ),
    ),
    Operation(
        id="linear_parameters",
        title="Projection parameters",
        formula=r"w \in \mathbb{R}^{1 \times n_x \times n_f}, \quad b \in \mathbb{R}^{n_f}",
        evidence=(
            openai("The matrix is stored as (1, inputs, outputs), beside a bias of the output's width.",
                    ("conv1d:w..b", 53, 54)),
            transformers("Conv1D modules keep (inputs, outputs) matrices: c_attn, c_proj and the MLP's two.",
                          ("GPT2Attention.__init__:self.c_attn#2..self.c_proj", 106, 107),
                          ("GPT2MLP.__init__:self.c_fc..self.c_proj", 233, 234)),
        ),
    ),
    *ATTENTION,
    layer_norm("ln_2", "Pre-MLP LayerNorm",
                ("GPT2Block.__init__:self.ln_2", 254),
                ("GPT2Block.forward:residual#3..hidden_states#5", 303, 304)),
    Operation(
        id="c_fc",
        title="MLP expansion",
        formula=r"c = x\,w + b",
        evidence=(
            LINEAR,
            openai("The MLP's first projection widens the stream, four times in GPT-2.", ("mlp:h", 118)),
            transformers("c_fc is applied first.", ("GPT2MLP.forward:hidden_states", 239)),
        ),
    ),
    Operation(
        id="gelu",
        title="GELU",
        formula=r"\mathrm{gelu}(x) = \frac{x}{2}\left(1 + \tanh\left(\sqrt{2/\pi}\,(x + 0.044715\,x^3)\right)\right)",
        evidence=(
            openai("GELU in its tanh form.", ("gelu", 25, 26), ("mlp:h", 118)),
            transformers("The activation is chosen by name from the config (gelu_new, the tanh form).",
                          ("GPT2MLP.__init__:self.act", 235), ("GPT2MLP.forward:hidden_states#2", 240)),
        ),
        difference="OpenAI writes the tanh form out; transformers takes the form that the config names.",
    ),
    Operation(
        id="mlp_c_proj",
        title="MLP projection",
        formula=r"m = h\,w + b",
        evidence=(
            LINEAR,
            openai("The second projection returns to the model's width.", ("mlp:h2", 119)),
            transformers("c_proj is applied last.", ("GPT2MLP.forward:hidden_states#3", 241)),
        ),
    ),
    Operation(
        id="add_mlp",
        title="MLP residual sum",
        formula=r"x \leftarrow x + m",
        evidence=(
            openai("The MLP's output is added to the residual stream, which leaves the block.", ("block:x#2", 129)),
            transformers("The same sum.", ("GPT2Block.forward:hidden_states#6", 307)),
        ),
    ),
    Operation(
        id="presents",
        title="KV cache: presents",
        formula=r"\mathrm{presents} = \mathrm{stack}_\ell(\mathrm{present}_\ell)",
        evidence=(
            openai("The new keys and values of all layers are stacked into one result.",
                    ("model:presents", 160), ("model:presents.append..results['present']", 165, 166)),
            transformers("The cache object is the result, where the caller asked for one.",
                          ("GPT2Model.forward:past_key_values#3", 624)),
        ),
        difference="OpenAI returns one stacked tensor; transformers returns the cache object.",
    ),
    layer_norm("ln_f", "Final LayerNorm",
                ("GPT2Model.__init__:self.ln_f", 497),
                ("GPT2Model.forward:hidden_states#5", 620)),
    Operation(
        id="head_parameters",
        title="Output parameters",
        formula=r"W_{o} \in \mathbb{R}^{V \times d}",
        evidence=(
            openai("OpenAI's code has no such matrix: it multiplies by the token table again.",
                    ("model:logits", 171)),
            transformers("lm_head holds a matrix of its own wherever the config does not tie it.",
                          ("GPT2LMHeadModel.__init__:self.lm_head", 643)),
        ),
        difference="OpenAI's output is always tied to the token table; transformers' is where the config says so.",
    ),
    Operation(
        id="unembed",
        title="Unembedding",
        formula=r"\mathrm{logits} = h\,W_{te}^\top",
        evidence=(
            openai("The stream is flattened and multiplied with the token table itself: the output is tied.",
                    ("model:h_flat..logits#2", 170, 172)),
            transformers("lm_head is a linear layer without bias, whose weight is tied to wte.",
                          ("GPT2LMHeadModel.__init__:self.lm_head", 643),
                          ("GPT2LMHeadModel.forward:logits", 698)),
        ),
        difference="OpenAI flattens batch and positions first; transformers multiplies the three-dimensional stream.",
    ),
)  # fmt: skip
