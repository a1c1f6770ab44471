"""What a tensor's values are: statistics, pictures, a part of the values, and the replay's proof."""

from dataclasses import dataclass

import torch

from app.explorer import Explorer
from app.pages.attention import Attention, attention_of
from app.pages.badge import Badge
from app.pages.links import values_url
from app.pages.numbers import Number, count, measure
from app.pages.picture import (
    Chips,
    Controls,
    HeatmapView,
    Strip,
    chips_of,
    controls_of,
    heatmap_view,
    strips_of,
)
from app.pages.profiles import Profiles, profiles_of
from app.pages.scope import Scope
from app.pages.view import Asked, View, ViewAxis, headings_along, view_of
from app.pictures.histogram import HistogramPicture, histogram
from app.pictures.table import COLUMNS, ROWS, ValueTable, value_table
from provenance.axes import Counts
from provenance.catalogue import Intermediate, Kind
from provenance.errors import UnknownModel, UnsupportedCheckpoint
from provenance.names import Address
from provenance.pictures.cells import Array, Mask, array_of, mask_of
from provenance.recorder import Check
from provenance.summary import Summary, summarize
from provenance.trace import Trace


@dataclass(frozen=True, slots=True)
class Statistic:
    """One number of a summary. `id` is the summary's field, `meaning` what it counts or measures."""

    id: str
    label: str
    number: Number
    meaning: str


@dataclass(frozen=True, slots=True)
class Part:
    """The same measures of the cells alone that stand at a fixed index, such as those of one head."""

    label: str
    measures: tuple[Statistic, ...]


@dataclass(frozen=True, slots=True)
class Values:
    """Everything shown about one tensor's values.

    `part` is None where picture and table show the whole tensor; `fixed` says at which index the axes
    stand that they do not show. `masked_note` is empty where nothing is masked. A tensor without cells
    has neither picture nor table; `chips` stand in the heatmap's place where the cells are the ids of
    tokens.
    """

    shape: str
    dtype: str
    device: str
    untrained: bool
    measures: tuple[Statistic, ...]
    part: Part | None
    counts: tuple[Statistic, ...]
    quantiles: tuple[Statistic, ...]
    picture: HistogramPicture | None
    heatmap: HeatmapView | None
    chips: Chips | None
    strips: tuple[Strip, ...]
    controls: Controls | None
    attention: Attention | None
    profiles: Profiles | None
    table: ValueTable | None
    fixed: str
    masked_note: str
    npy_url: str
    csv_url: str
    json_url: str
    proof: Badge


@dataclass(frozen=True, slots=True)
class NoValues:
    """Why a tensor's values cannot be shown, and what to do."""

    message: str
    hint: str


def values_of(
    explorer: Explorer, scope: Scope, row: Intermediate, address: Address, asked: Asked
) -> Values | NoValues:
    """The values of one tensor. Raises OutOfRange and InvalidInput for a part that it does not have."""
    trace = scope.trace
    assert trace is not None
    try:
        tensor = explorer.tensor(trace, address)
        masked = explorer.masked(trace, address)
        summary = explorer.summary(trace, address)
        proof = _proof(explorer, trace, row, address)
    except (UnknownModel, UnsupportedCheckpoint) as problem:
        return NoValues(problem.message, problem.hint)
    view = view_of(scope.catalogue, trace, address, tensor.shape, asked)
    array = array_of(tensor)
    hidden = mask_of(masked, array.shape)
    chips = chips_of(view, array) if array.size else None
    heatmap = heatmap_view(explorer, view, array, hidden, summary) if array.size and chips is None else None
    return Values(
        shape=str(list(summary.shape)),
        dtype=summary.dtype,
        device=summary.device,
        untrained=not trace.recipe.model.trained,
        measures=_measures(summary),
        part=_part(view, tensor, hidden),
        counts=_counts(summary),
        quantiles=tuple(
            Statistic(f"q{quantile.q:g}", f"{quantile.q * 100:g} %", measure(quantile.value), "quantile")
            for quantile in summary.quantiles
        ),
        picture=histogram(summary),
        heatmap=heatmap,
        chips=chips,
        strips=strips_of(view) if array.size else (),
        controls=controls_of(view) if heatmap else None,
        attention=attention_of(explorer, scope, view, array, hidden) if array.size else None,
        profiles=profiles_of(explorer, view, array, hidden) if heatmap else None,
        table=_table(explorer, view, array, hidden) if array.size else None,
        fixed=", ".join(f"{axis.label} {view.chosen[axis.name]}" for axis in _still(view)),
        masked_note=_masked_note(scope, row),
        npy_url=values_url(trace.id, address, ".npy"),
        csv_url=values_url(trace.id, address, ".csv"),
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


def _part(view: View, tensor: torch.Tensor, hidden: Mask | None) -> Part | None:
    if not view.fixed or not tensor.numel():
        return None
    index = tuple(view.chosen[axis.name] if axis in view.fixed else slice(None) for axis in view.axes)
    summary = summarize(tensor[index], None if hidden is None else torch.from_numpy(hidden[index].copy()))
    return Part(", ".join(f"{axis.label} {view.chosen[axis.name]}" for axis in view.fixed), _measures(summary))


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
    return f"Cells that “{title}” hides are masked: counted, hatched in the picture, and in no statistic."


def _still(view: View) -> tuple[ViewAxis, ...]:
    shown = (view.rows, view.cols)
    return tuple(axis for axis in view.axes if axis not in shown and axis.counts is not Counts.ONE)


def _table(explorer: Explorer, view: View, array: Array, hidden: Mask | None) -> ValueTable:
    """The upper left part of what the picture shows."""
    plane = view.plane()
    cells = plane.take(array)
    rows, columns = (
        headings_along(explorer, view, axis, range(side.first, side.first + min(side.count, most)))
        for axis, side, most in ((view.rows, plane.rows, ROWS), (view.cols, plane.cols, COLUMNS))
    )
    sizes = (plane.rows.size, plane.cols.size)
    return value_table(cells, None if hidden is None else plane.take(hidden), view.names, rows, columns, sizes)
