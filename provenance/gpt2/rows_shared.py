"""Rows that GPT-2 needs several times: a LayerNorm has six, a projection has two parameters."""

from provenance.catalogue import Across, Alias, Intermediate, Kind, Point, Read
from provenance.naming import KEY, MODULE, SCOPE

BLOCK_INPUT = (Read("embed.h", Across.FIRST), Read("h.resid_post", Across.PREVIOUS))
"""The residual stream entering a block: the embeddings, or the output of the block before."""


def module(path: str) -> Alias:
    """The transformers module whose output has this value."""
    return Alias(MODULE, f"transformer.{path}")


def scope(path: str) -> Alias:
    """OpenAI's variable, or the scope whose last operation has this value."""
    return Alias(SCOPE, f"model/{path}")


def key(path: str) -> tuple[Alias, Alias]:
    """The checkpoint's key, with and without the leading `transformer.`."""
    return Alias(KEY, f"transformer.{path}"), Alias(KEY, path)


def layer_norm(
    at: str,
    group: tuple[str, ...],
    reads: tuple[Read, ...],
    caller: int,
    path: str,
    title: str,
    out: Intermediate,
) -> tuple[Intermediate, ...]:
    """The rows of one LayerNorm: `g`, `b`, `u`, `s`, the normalised `x`, and the given output row.

    `caller` is the line of the call; `path` is the module's path, from which both sources' names follow.
    """
    openai = path.replace("h.{layer}", "h{layer}").replace(".", "/")

    def point(at_line: int, expression: str) -> tuple[Point, ...]:
        return (Point("norm", at_line, expression, caller=caller),)

    return (
        Intermediate(
            site=f"{at}.g",
            name="g",
            title=f"{title} gain",
            description="Learned factor of each channel, applied after the normalisation.",
            shape=("d",),
            group=group,
            operation="norm_parameters",
            formula=r"g",
            points=point(32, "g"),
            kind=Kind.PARAMETER,
            aliases=(scope(f"{openai}/g"), *key(f"{path}.weight")),
        ),
        Intermediate(
            site=f"{at}.b",
            name="b",
            title=f"{title} bias",
            description="Learned offset of each channel, added last.",
            shape=("d",),
            group=group,
            operation="norm_parameters",
            formula=r"b",
            points=point(33, "b"),
            kind=Kind.PARAMETER,
            aliases=(scope(f"{openai}/b"), *key(f"{path}.bias")),
        ),
        Intermediate(
            site=f"{at}.u",
            name="u",
            title=f"{title} mean",
            description="Mean over the channels at each position of the residual stream.",
            shape=("B", "T", "1"),
            group=group,
            operation=out.operation,
            formula=r"u = \frac{1}{d} \sum_{i=1}^{d} x_i",
            points=point(34, "u"),
            inputs=reads,
        ),
        Intermediate(
            site=f"{at}.s",
            name="s",
            title=f"{title} variance",
            description="Mean squared deviation from the mean at each position, before ε is added.",
            shape=("B", "T", "1"),
            group=group,
            operation=out.operation,
            formula=r"s = \frac{1}{d} \sum_{i=1}^{d} (x_i - u)^2",
            points=point(35, "s"),
            inputs=(*reads, Read(f"{at}.u")),
        ),
        Intermediate(
            site=f"{at}.normalized",
            name="x",
            title=f"{title}, before gain and bias",
            description="The stream with mean 0 and standard deviation 1 at each position, up to ε.",
            shape=("B", "T", "d"),
            group=group,
            operation=out.operation,
            formula=r"x' = \frac{x - u}{\sqrt{s + \epsilon}}",
            points=point(36, "x"),
            inputs=(*reads, Read(f"{at}.u"), Read(f"{at}.s")),
        ),
        out,
    )


def parameters(
    at: str,
    group: tuple[str, ...],
    caller: int,
    path: str,
    title: str,
    widths: tuple[str, str],
) -> tuple[Intermediate, Intermediate]:
    """The rows `w` and `b` of one projection; `widths` are the axis symbols of input and output."""
    openai = path.replace("h.{layer}", "h{layer}").replace(".", "/")
    return (
        Intermediate(
            site=f"{at}.w",
            name="w",
            title=f"{title} weight",
            description="Learned matrix with inputs before outputs, and OpenAI's leading axis of one.",
            shape=("1", *widths),
            group=group,
            operation="linear_parameters",
            formula=r"w",
            points=(Point("conv1d", 53, "w", caller=caller),),
            kind=Kind.PARAMETER,
            aliases=(scope(f"{openai}/w"), *key(f"{path}.weight")),
        ),
        Intermediate(
            site=f"{at}.b",
            name="b",
            title=f"{title} bias",
            description="Learned offset of each output channel.",
            shape=(widths[1],),
            group=group,
            operation="linear_parameters",
            formula=r"b",
            points=(Point("conv1d", 54, "b", caller=caller),),
            kind=Kind.PARAMETER,
            aliases=(scope(f"{openai}/b"), *key(f"{path}.bias")),
        ),
    )
