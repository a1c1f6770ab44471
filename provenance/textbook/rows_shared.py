"""Rows that the textbook transformer needs several times: those of a LayerNorm, and a projection's parameters."""

from provenance.catalogue import Across, Intermediate, Kind, Read
from provenance.textbook.config import NO_POSITIONS, POSITIONS, POST_NORM, PRE_NORM

BLOCK_INPUT = (
    Read("embed.h", Across.FIRST, variant=POSITIONS),
    Read("x", Across.FIRST, variant=NO_POSITIONS),
    Read("h.resid_post", Across.PREVIOUS, variant=PRE_NORM),
    Read("h.post.norm2.out", Across.PREVIOUS, variant=POST_NORM),
)
"""The residual stream entering a block: the input with its positions, or the output of the block before."""


def _parameter(
    site: str,
    name: str,
    title: str,
    description: str,
    shape: tuple[str, ...],
    group: tuple[str, ...],
    variant: str = "",
) -> Intermediate:
    letter = site[-1]
    return Intermediate(
        site=site,
        name=name,
        title=title,
        description=description,
        shape=shape,
        group=group,
        operation="norm_parameters" if "norm" in site else "linear_parameters",
        formula="W" if letter == "w" else letter,
        points=(),
        kind=Kind.PARAMETER,
        variant=variant,
    )


def gain_and_bias(
    at: str, module: str, title: str, group: tuple[str, ...], variant: str = ""
) -> tuple[Intermediate, Intermediate]:
    """The parameters of one LayerNorm."""
    gain = "Learned factor of each channel, applied after the normalisation."
    bias = "Learned offset of each channel, added last."
    return (
        _parameter(f"{at}.g", f"self.{module}.weight", f"{title} gain", gain, ("d",), group, variant),
        _parameter(f"{at}.b", f"self.{module}.bias", f"{title} bias", bias, ("d",), group, variant),
    )


def weight_and_bias(
    at: str, names: tuple[str, str], title: str, widths: tuple[str, str], group: tuple[str, ...]
) -> tuple[Intermediate, Intermediate]:
    """The parameters of one projection; `widths` are the axis symbols of output and input."""
    weight = "Learned matrix, with outputs before inputs."
    bias = "Learned offset of each output channel."
    return (
        _parameter(f"{at}.w", names[0], f"{title} weight", weight, widths, group),
        _parameter(f"{at}.b", names[1], f"{title} bias", bias, widths[:1], group),
    )


def layer_norm(
    at: str, argument: str, title: str, reads: tuple[Read, ...], out: Intermediate
) -> tuple[Intermediate, ...]:
    """The rows of one LayerNorm: mean, variance, the normalised stream, and the given output row.

    `argument` is the expression that it is applied to.
    """
    of = argument if argument.isidentifier() else f"({argument})"
    mean, variance = f"{of}.mean(-1, keepdim=True)", f"{of}.var(-1, keepdim=True, correction=0)"

    def row(part: str, name: str, what: str, sentence: str, formula: str, *own: str) -> Intermediate:
        return Intermediate(
            site=f"{at}.{part}",
            name=name,
            title=f"{title} {what}",
            description=sentence,
            shape=("B", "T", "d" if part == "normalized" else "1"),
            group=out.group,
            operation=out.operation,
            formula=formula,
            points=(),
            inputs=(*reads, *(Read(f"{at}.{site}") for site in own)),
            variant=out.variant,
        )

    return (
        row(
            "mean", mean, "mean", "Mean over the channels of each position.", r"\mu = \frac{1}{d} \sum_{i=1}^{d} x_i"
        ),
        row(
            "var", variance, "variance", "Mean squared deviation from the mean at each position, before ε is added.",
            r"\sigma^2 = \frac{1}{d} \sum_{i=1}^{d} (x_i - \mu)^2", "mean",
        ),
        row(
            "normalized", f"({argument} - mean) / torch.sqrt(var + eps)", "before gain and bias",
            "The stream with mean 0 and standard deviation 1 at each position, up to ε.",
            r"\hat{x} = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}", "mean", "var",
        ),
        out,
    )  # fmt: skip


def norm_out(
    number: int, when: str, argument: str, title: str, description: str, variant: str, group: tuple[str, ...]
) -> Intermediate:
    """What a block's first or second LayerNorm gives: before a half (`pre`), or after its sum (`post`)."""
    at, parameters = f"h.{when}.norm{number}", f"h.norm{number}"
    return Intermediate(
        site=f"{at}.out",
        name=f"self.norm{number}({argument})",
        title=title,
        description=description,
        shape=("B", "T", "d"),
        group=group,
        operation=f"{when}_norm_{number}",
        formula=r"\hat{x} \odot g + b",
        points=(),
        inputs=(Read(f"{at}.normalized"), Read(f"{parameters}.g"), Read(f"{parameters}.b")),
        variant=variant,
        stream=variant == POST_NORM,
    )
