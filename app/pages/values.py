"""What a tensor's values are: statistics, histogram, a part of the values, and the replay's proof."""

from dataclasses import dataclass

import torch

from app.explorer import Explorer
from app.pages.evidence import Badge
from app.pages.links import tensor_url, values_url
from app.pages.numbers import Number, count, measure
from app.pages.scope import Scope, Stop
from app.pictures import COLUMNS, ROWS, Heading, HistogramPicture, ValueTable, histogram, value_table
from provenance.catalogue import Intermediate, Kind
from provenance.errors import OutOfRange, UnknownModel, UnsupportedCheckpoint
from provenance.names import Address
from provenance.prompt import Token
from provenance.recorder import Check
from provenance.summary import Summary
from provenance.trace import Trace

HEADS = "H"
"""The axis symbol by which catalogues of every family name heads."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """One number of a summary. `id` is the summary's field, `meaning` what it counts or measures."""

    id: str
    label: str
    number: Number
    meaning: str


@dataclass(frozen=True, slots=True)
class Values:
    """Everything shown about one tensor's values.

    `fixed` says at which index the axes stand that the table does not show. `masked_note` is empty
    where nothing is masked.
    """

    shape: str
    dtype: str
    device: str
    untrained: bool
    measures: tuple[Statistic, ...]
    counts: tuple[Statistic, ...]
    quantiles: tuple[Statistic, ...]
    picture: HistogramPicture | None
    heads: tuple[Stop, ...]
    table: ValueTable
    fixed: str
    masked_note: str
    npy_url: str
    json_url: str
    proof: Badge


@dataclass(frozen=True, slots=True)
class NoValues:
    """Why a tensor's values cannot be shown, and what to do."""

    message: str
    hint: str


def values_of(
    explorer: Explorer, scope: Scope, row: Intermediate, address: Address, head: int | None
) -> Values | NoValues:
    """The values of one tensor. Raises OutOfRange for a head that it does not have."""
    trace = scope.trace
    assert trace is not None
    try:
        tensor = explorer.tensor(trace, address)
        masked = explorer.masked(trace, address)
        summary = explorer.summary(trace, address)
        proof = _proof(explorer, trace, row, address)
    except (UnknownModel, UnsupportedCheckpoint) as problem:
        return NoValues(problem.message, problem.hint)
    _check_head(row, tensor, head)
    table, fixed = _table(scope, trace, row, address, tensor, masked, head or 0)
    return Values(
        shape=str(list(summary.shape)),
        dtype=summary.dtype,
        device=summary.device,
        untrained=not trace.recipe.model.trained,
        measures=_measures(summary),
        counts=_counts(summary),
        quantiles=tuple(
            Statistic(f"q{quantile.q:g}", f"{quantile.q * 100:g} %", measure(quantile.value), "quantile")
            for quantile in summary.quantiles
        ),
        picture=histogram(summary),
        heads=_heads(trace, row, address, tensor, head or 0),
        table=table,
        fixed=fixed,
        masked_note=_masked_note(scope, row),
        npy_url=values_url(trace.id, address, ".npy"),
        json_url=values_url(trace.id, address),
        proof=proof,
    )


def _measures(summary: Summary) -> tuple[Statistic, ...]:
    over = "of the finite, unmasked cells"
    return (
        Statistic("minimum", "min", measure(summary.minimum), f"smallest {over}"),
        Statistic("maximum", "max", measure(summary.maximum), f"largest {over}"),
        Statistic("mean", "mean", measure(summary.mean), f"mean {over}"),
        Statistic("std", "std", measure(summary.std), f"standard deviation {over} (divided by n)"),
        Statistic("l2", "L2 norm", measure(summary.l2), f"root of the sum of squares {over}"),
    )


def _counts(summary: Summary) -> tuple[Statistic, ...]:
    return (
        Statistic("count_total", "cells", count(summary.count_total), "all cells of the tensor"),
        Statistic("count_finite", "finite", count(summary.count_finite), "finite cells that are not masked"),
        Statistic("count_zero", "zero", count(summary.count_zero), "finite cells equal to 0"),
        Statistic("count_nan", "NaN", count(summary.count_nan), "cells that are not a number"),
        Statistic("count_posinf", "+Inf", count(summary.count_posinf), "cells of positive infinity"),
        Statistic("count_neginf", "−Inf", count(summary.count_neginf), "cells of negative infinity"),
        Statistic("count_masked", "masked", count(summary.count_masked), "cells hidden by the mask"),
    )


def _proof(explorer: Explorer, trace: Trace, row: Intermediate, address: Address) -> Badge:
    """How these values were had, and whether that was checked."""
    if str(address) in trace.tensors:
        return Badge("proven", "✓", "kept", "Kept as recorded; the file's SHA-256 is that of the recording.")
    if row.kind is Kind.PARAMETER:
        return Badge("proven", "✓", "same weights", "Read from the model; its weights have the recording's SHA-256.")
    return proof_of(explorer.check(trace, address))


def proof_of(check: Check) -> Badge:
    """The badge of a replay."""
    if not check.compared:
        return Badge(
            "plain", "○", "computed again",
            "Computed again from the kept inputs. No result of this part is kept to compare it with.",
        )  # fmt: skip
    kept = "the kept one" if check.compared == 1 else f"the {check.compared} kept ones"
    if check.bit_for_bit:
        return Badge(
            "proven", "✓", "bit for bit",
            f"Computed again from the kept inputs; what the replay hands on equals {kept} bit for bit.",
        )  # fmt: skip
    return Badge(
        "differs", "≠", "differs",
        f"Computed again from the kept inputs; what the replay hands on differs from {kept} "
        f"by {check.largest_difference:.3g} at most.",
    )  # fmt: skip


def _masked_note(scope: Scope, row: Intermediate) -> str:
    if row.masked_by is None:
        return ""
    title = scope.catalogue.row(row.masked_by).title
    return f"Cells that “{title}” hides are masked: counted, but in no statistic and no picture."


def _check_head(row: Intermediate, tensor: torch.Tensor, head: int | None) -> None:
    if head is None:
        return
    if HEADS not in row.shape:
        raise OutOfRange(f"{row.site} has no heads.", hint="Leave the head out.")
    heads = tensor.shape[row.shape.index(HEADS)]
    if not 0 <= head < heads:
        raise OutOfRange(f"{row.site} has no head {head}.", hint=f"It has heads 0 to {heads - 1}.")


def _heads(trace: Trace, row: Intermediate, address: Address, tensor: torch.Tensor, head: int) -> tuple[Stop, ...]:
    if HEADS not in row.shape[:-2]:
        return ()
    heads = range(tensor.shape[row.shape.index(HEADS)])
    return tuple(
        Stop(f"head-{h}", str(h), f"head {h}", tensor_url(trace.id, address, h or None), h == head) for h in heads
    )


def _table(
    scope: Scope,
    trace: Trace,
    row: Intermediate,
    address: Address,
    tensor: torch.Tensor,
    masked: torch.Tensor | None,
    head: int,
) -> tuple[ValueTable, str]:
    """The last two axes as a table; the axes before them stand still, heads at the chosen one."""
    names = [_axis_name(scope, symbol) for symbol in row.shape]
    leading = [(symbol, head if symbol == HEADS else 0) for symbol in row.shape[:-2]]
    still = tuple(index for _, index in leading)
    hidden = masked.broadcast_to(tensor.shape)[still] if masked is not None else None
    values = tensor[still]
    symbols = row.shape[-2:]
    if values.ndim == 1:
        values, hidden = values.unsqueeze(0), None if hidden is None else hidden.unsqueeze(0)
        names, symbols = ["row", *names], ("", *symbols)
    table = value_table(
        values.detach().cpu(),
        hidden,
        names[-2],
        names[-1],
        _headings(trace, symbols[0], address.step, min(values.shape[0], ROWS)),
        _headings(trace, symbols[1], address.step, min(values.shape[1], COLUMNS)),
    )
    steady = zip(names, still, strict=False)
    fixed = ", ".join(f"{name} {index}" for name, index in steady)
    return table, fixed


def _axis_name(scope: Scope, symbol: str) -> str:
    axis = scope.catalogue.axes[symbol]
    return axis.name or {"T": "token", "S": "key", "P": "past token", "B·T": "token", "1": "cell"}.get(symbol, symbol)


def _headings(trace: Trace, symbol: str, step: int, size: int) -> list[Heading]:
    tokens = _tokens_along(trace, symbol, step)
    return [Heading(str(i), tokens[i].text if i < len(tokens) else "") for i in range(size)]


def _tokens_along(trace: Trace, symbol: str, step: int) -> tuple[Token, ...]:
    """The tokens that an axis counts: this step's, the past ones, or both."""
    new = trace.tokens_of(step)
    past = tuple(token for before in range(step) for token in trace.tokens_of(before))
    return {"T": new, "B·T": new, "P": past, "S": past + new}.get(symbol, ())
