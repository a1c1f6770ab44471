"""How GPT-2's operations cite the two pinned files, and the evidence that several of them share."""

from provenance.catalogue import Evidence, Operation
from provenance.citation import cite
from provenance.gpt2.pins import OPENAI, TRANSFORMERS

Lines = tuple[str, int] | tuple[str, int, int]


def openai(claim: str, *spans: Lines, label: str = OPENAI.label) -> Evidence:
    """A claim about openai/gpt-2, with `(anchor, line)` or `(anchor, first, last)` spans."""
    return Evidence(claim, label, cite(OPENAI, *spans))


def transformers(claim: str, *spans: Lines) -> Evidence:
    """A claim about huggingface/transformers, with spans as above."""
    return Evidence(claim, TRANSFORMERS.label, cite(TRANSFORMERS, *spans))


NORM = openai(
    "LayerNorm is written out: mean, mean squared deviation, division by the root with ε = 10⁻⁵, then gain and bias.",
    ("norm", 28, 38),
)
LINEAR = openai(
    "One helper holds a learned matrix and a bias, and applies them to the last axis.",
    ("conv1d", 50, 56),
    label="linear-operation",
)


def layer_norm(id: str, title: str, made: Lines, used: Lines) -> Operation:
    """A LayerNorm; `made` and `used` are where transformers creates and calls its module."""
    return Operation(
        id=id,
        title=title,
        formula=r"\mathrm{norm}(x) = \frac{x - u}{\sqrt{s + \epsilon}} \odot g + b",
        evidence=(
            NORM,
            transformers("nn.LayerNorm does the whole step, with ε taken from the config.", made, used),
        ),
        difference="OpenAI computes mean and variance in visible steps with ε = 10⁻⁵ fixed; transformers calls one "
        "fused LayerNorm with the config's ε.",
    )
