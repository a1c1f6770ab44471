"""The operations of the textbook transformer. Their evidence is their formulas alone."""

from collections.abc import Iterator, Mapping

from provenance.catalogue import Operation

_NORM = r"\mathrm{norm}(x) = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \odot g + b"
_LINEAR = r"y = x\,W^\top + b"

_FORMULAS: Mapping[str, tuple[str, str]] = {
    "input": ("Input vectors", r"x \in \mathbb{R}^{B \times T \times d}, \quad x_{b,t} \sim \mathcal{N}(0, 1)"),
    "sinusoids": (
        "Sinusoidal position table",
        r"\mathrm{pe}_{p,2i} = \sin(p\,\omega_i), \quad \mathrm{pe}_{p,2i+1} = \cos(p\,\omega_i)",
    ),
    "learned_table": ("Learned position table", r"W_{pe} \in \mathbb{R}^{C \times d}"),
    "take_positions": ("Positions of the sequence", r"p_t = \mathrm{pe}_t, \quad t = 0, \dots, T - 1"),
    "add_positions": ("Adding the positions", r"h_{b,t} = x_{b,t} + p_t"),
    "norm_parameters": ("LayerNorm parameters", r"g, b \in \mathbb{R}^{d}"),
    "linear_parameters": (
        "Projection parameters",
        r"W \in \mathbb{R}^{n_{out} \times n_{in}}, \quad b \in \mathbb{R}^{n_{out}}",
    ),
    "pre_norm_1": ("LayerNorm before attention", _NORM),
    "in_proj": ("Q, K, V projection", r"[q \mid k \mid v] = x\,W^\top + b"),
    "scores": ("Attention scores", r"s = \frac{q\,k^\top}{\sqrt{d_k}}"),
    "mask": ("Causal mask", r"m_{ij} = [\,j \le i\,]"),
    "apply_mask": ("Masking the scores", r"s_{ij} \leftarrow -\infty \text{ where } \neg\, m_{ij}"),
    "softmax": ("Softmax", r"\mathrm{softmax}(s)_{ij} = \frac{e^{s_{ij}}}{\sum_k e^{s_{ik}}}"),
    "context": ("Weighted sum of values", r"c = w\,v"),
    "merge": ("Merging the heads", r"[c^{(1)} \mid \dots \mid c^{(H)}]"),
    "out_proj": ("Attention output projection", _LINEAR),
    "add_attention": ("Attention residual sum", r"x + a"),
    "post_norm_1": ("LayerNorm after the attention's sum", _NORM),
    "pre_norm_2": ("LayerNorm before the MLP", _NORM),
    "fc": ("MLP expansion", _LINEAR),
    "gelu": ("GELU", r"\mathrm{gelu}(x) = \frac{x}{2}\left(1 + \mathrm{erf}\left(\frac{x}{\sqrt{2}}\right)\right)"),
    "proj": ("MLP projection", _LINEAR),
    "add_mlp": ("MLP residual sum", r"x + m"),
    "post_norm_2": ("LayerNorm after the MLP's sum", _NORM),
    "norm_f": ("Final LayerNorm", _NORM),
}


def _operations() -> Iterator[Operation]:
    for id, (title, formula) in _FORMULAS.items():
        yield Operation(id=id, title=title, formula=formula, evidence=())


OPERATIONS = tuple(_operations())
