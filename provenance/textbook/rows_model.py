"""Rows outside the block: the input with its positions, and the LayerNorm at the end of a pre-norm model."""

from provenance.catalogue import Across, Intermediate, Kind, Read
from provenance.textbook.config import LEARNED, POSITIONS, PRE_NORM, SINUSOIDAL
from provenance.textbook.rows_shared import gain_and_bias, layer_norm

_INPUT = ("Model", "Input")
_OUTPUT = ("Model", "Output")


def _table(
    site: str, name: str, title: str, description: str, shape: tuple[str, ...], formula: str, *reads: str
) -> Intermediate:
    return Intermediate(
        site=site,
        name=name,
        title=title,
        description=description,
        shape=shape,
        group=_INPUT,
        operation="sinusoids",
        formula=formula,
        points=(),
        inputs=tuple(Read(site) for site in reads),
        variant=SINUSOIDAL,
    )


INPUT = (
    Intermediate(
        site="x",
        name="x",
        title="Input vectors",
        description="What the model is given: a vector for each position, drawn from a seed.",
        shape=("B", "T", "d"),
        group=_INPUT,
        operation="input",
        formula=r"x",
        points=(),
        kind=Kind.INPUT,
        stream=True,
    ),
    _table(
        "pe.pos", "pos", "Position numbers", "Numbers the positions of the longest sequence, as a column.",
        ("C", "1"), r"p = (0, \dots, C - 1)^\top",
    ),
    _table(
        "pe.div", "div", "Frequencies", "How fast each pair of channels turns: from 1 radian a position downwards.",
        ("f",), r"\omega_i = 10000^{-2i/d}",
    ),
    _table(
        "pe.angle", "pos * div", "Angles", "How far each pair of channels has turned at each position, in radians.",
        ("C", "f"), r"\theta_{p,i} = p\,\omega_i", "pe.pos", "pe.div",
    ),
    _table(
        "pe", "self.pe", "Sinusoidal position table",
        "A row for every position: sines in the even channels, cosines in the odd ones.",
        ("C", "d"), r"\mathrm{pe}_{p,2i} = \sin\theta_{p,i}, \quad \mathrm{pe}_{p,2i+1} = \cos\theta_{p,i}",
        "pe.angle",
    ),
    Intermediate(
        site="pe.learned",
        name="self.pe.weight",
        title="Learned position table",
        description="Learned row of the model's width for every position, in the place of the sines.",
        shape=("C", "d"),
        group=_INPUT,
        operation="learned_table",
        formula=r"W_{pe}",
        points=(),
        kind=Kind.PARAMETER,
        variant=LEARNED,
    ),
    Intermediate(
        site="embed.positions",
        name="self.pe[:x.size(1)]",
        title="Positions of the sequence",
        description="The table's rows for the positions that this run has.",
        shape=("T", "d"),
        group=_INPUT,
        operation="take_positions",
        formula=r"p_t = \mathrm{pe}_t",
        points=(),
        inputs=(Read("x"), Read("pe", variant=SINUSOIDAL), Read("pe.learned", variant=LEARNED)),
        variant=POSITIONS,
    ),
    Intermediate(
        site="embed.h",
        name="x + self.pe[:x.size(1)]",
        title="Input with positions",
        description="Vector plus position: the residual stream as it enters the first block.",
        shape=("B", "T", "d"),
        group=_INPUT,
        operation="add_positions",
        formula=r"h_{b,t} = x_{b,t} + p_t",
        points=(),
        inputs=(Read("x"), Read("embed.positions")),
        variant=POSITIONS,
        stream=True,
    ),
)  # fmt: skip

OUTPUT = (
    *gain_and_bias("norm_f", "norm_f", "Final LayerNorm", _OUTPUT, PRE_NORM),
    *layer_norm(
        "norm_f",
        "x",
        "Final LayerNorm",
        (Read("h.resid_post", Across.LAST),),
        Intermediate(
            site="norm_f.out",
            name="self.norm_f(x)",
            title="Normalized final stream",
            description="The residual stream after the last block and the final LayerNorm: the model's result.",
            shape=("B", "T", "d"),
            group=_OUTPUT,
            operation="norm_f",
            formula=r"\hat{x} \odot g + b",
            points=(),
            inputs=(Read("norm_f.normalized"), Read("norm_f.g"), Read("norm_f.b")),
            variant=PRE_NORM,
        ),
    ),
)
