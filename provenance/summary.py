"""Statistics of one tensor, computed in float64 over the cells that mean something."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from provenance.errors import InvalidInput
from provenance.statistics import QUANTILES, Statistics, plain
from provenance.statistics.compiled import SEVERAL, Compiled, prepare, ready

__all__ = ["QUANTILES", "Histogram", "Quantile", "Summary", "prepare", "summarize", "summarize_all"]

_SMALL = (torch.bool, torch.uint8, torch.int8, torch.int16)
"""Whole numbers that float32 holds exactly, whatever they are."""
_WHOLE = (torch.int32, torch.int64)
_LARGEST_WHOLE = 1 << 24
"""Up to this, float32 holds every whole number."""

Pair = tuple[torch.Tensor, torch.Tensor | None]
Masked = NDArray[np.bool_]
Raw = NDArray[np.bool_ | np.integer | np.floating]


class Quantile(NamedTuple):
    """The value below which the fraction `q` of the cells lies, by NumPy's linear method."""

    q: float
    value: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of cells in equal bins from the minimum to the maximum, as numpy.histogram cuts them.

    Bin i holds the cells from `edges[i]` up to, but without, `edges[i + 1]`; the last bin
    includes its upper edge. If all cells are equal, the bins span one unit around their value.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """What one tensor holds, in plain Python values; no number in it is ever NaN or infinite.

    `count_total` counts all cells and is the sum of `count_masked`, `count_finite`, `count_nan`,
    `count_posinf` and `count_neginf`. A masked cell is counted as masked only, whatever it
    holds. `count_zero` is the part of `count_finite` that equals 0 (or -0).

    All statistics are over the finite, unmasked cells; without any they are None, `quantiles`
    is empty and `histogram` is None. True counts as 1, False as 0. `std` is the population's
    (divided by n). Two things can be missing on their own: `histogram`, when float64 cannot cut
    the range into 64 bins, and `l2`, when it is larger than any float64.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str
    count_total: int
    count_finite: int
    count_nan: int
    count_posinf: int
    count_neginf: int
    count_zero: int
    count_masked: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    std: float | None
    l2: float | None
    quantiles: tuple[Quantile, ...]
    histogram: Histogram | None

    def as_json(self) -> dict[str, object]:
        """The same fields as a tree that strict JSON can hold."""
        return asdict(self)


def summarize(tensor: torch.Tensor, masked: torch.Tensor | None = None) -> Summary:
    """Summarise a tensor of any shape and any real dtype.

    `masked` is a boolean tensor, True where a cell is to be left out; it is broadcast to the
    tensor's shape: `[T query, S key]` serves `[B batch, H head, T query, S key]`.
    Raises InvalidInput when it cannot be broadcast, is not boolean, or the tensor is complex.
    """
    if tensor.is_complex():
        raise InvalidInput(f"A complex tensor ({tensor.dtype}) has no summary.", hint="Summarise its parts.")
    hidden = None if masked is None else _repeating(tensor, masked)
    compiled = ready(tensor.numel())
    cells = _as_float32(tensor) if compiled else None
    if compiled and cells is not None and cells.size:
        return _measured(compiled, tensor, cells, hidden)
    return _plainly(tensor, hidden)


def summarize_all(tensors: Iterable[Pair], threads: int | None = None) -> tuple[Summary, ...]:
    """The summaries of many tensors, each with its mask or None, in their order.

    They are shared out to as many threads as torch uses, unless told otherwise. Cells that several tensors
    show (a view in another shape) are measured once. Raises what `summarize` raises.
    """
    pairs = tuple(tensors)
    first: dict[tuple[object, ...], int] = {}
    same = [first.setdefault(_identity(index, *pair), index) for index, pair in enumerate(pairs)]
    found: dict[int, Summary] = {}
    # The largest first, so that no thread is left with one at the end. Threads may share an iterator.
    order = sorted(first.values(), key=lambda index: -pairs[index][0].numel())
    pending = iter([order[start : start + SEVERAL] for start in range(0, len(order), SEVERAL)])

    def work() -> None:
        for indices in pending:
            found.update(zip(indices, _several([pairs[index] for index in indices]), strict=True))

    count = threads or torch.get_num_threads()
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(work) for _ in range(count)]:
            done.result()
    return tuple(
        found[one] if one == index else replace(found[one], shape=tuple(pairs[index][0].shape))
        for index, one in enumerate(same)
    )


def _several(pairs: Sequence[Pair]) -> list[Summary]:
    """Summaries of up to SEVERAL tensors: in one call what machine code measures as a whole."""
    compiled = ready(0)  # what is left to `summarize` is counted there
    plain = [index for index, (_, masked) in enumerate(pairs) if masked is None]
    rows = (
        {index: cells for index in plain if (cells := _as_float32(pairs[index][0])) is not None} if compiled else {}
    )
    known: dict[int, Statistics] = {}
    if compiled and rows:
        measured = zip(rows, compiled.statistics_of(list(rows.values())), strict=True)
        known = {index: statistics for index, statistics in measured if statistics}
    return [
        _summary(tensor, tensor.numel(), (0, 0, 0), known[index]) if index in known else summarize(tensor, masked)
        for index, (tensor, masked) in enumerate(pairs)
    ]


def _identity(index: int, tensor: torch.Tensor, masked: torch.Tensor | None) -> tuple[object, ...]:
    """Equal for tensors that are the same cells in the same order."""
    if masked is not None or not tensor.is_contiguous():
        return (index,)
    return tensor.device, tensor.dtype, tensor.data_ptr(), tensor.numel()


def _repeating(tensor: torch.Tensor, masked: torch.Tensor) -> Masked:
    """The mask [m] that repeats over the tensor's cells [n] in their order, n/m times."""
    if masked.dtype != torch.bool:
        raise InvalidInput(f"A mask must be boolean; this one is {masked.dtype}.")
    mask, given = masked.detach().cpu(), tuple(masked.shape)
    while given and given[0] == 1:
        given = given[1:]
    if masked.dim() > tensor.dim() or given != tuple(tensor.shape[tensor.dim() - len(given) :]):
        try:
            mask = mask.broadcast_to(tensor.shape)
        except RuntimeError as error:
            raise InvalidInput(
                f"A mask of shape {list(masked.shape)} does not fit a tensor of shape {list(tensor.shape)}."
            ) from error
    array: Masked = np.ascontiguousarray(mask.numpy().reshape(-1))
    return array


def _as_float32(tensor: torch.Tensor) -> NDArray[np.float32] | None:
    """The cells in one row, or None where float32 does not hold all of them exactly. May share memory."""
    cells = tensor.detach().cpu()
    if cells.dtype != torch.float32:
        if cells.dtype in _WHOLE and cells.numel():
            low, high = cells.aminmax()
            if low < -_LARGEST_WHOLE or high > _LARGEST_WHOLE:
                return None
        elif cells.dtype == torch.float64 or not (cells.is_floating_point() or cells.dtype in _SMALL):
            return None
        cells = cells.float()
    array: NDArray[np.float32] = np.ascontiguousarray(cells.numpy().reshape(-1))
    return array


def _measured(compiled: Compiled, tensor: torch.Tensor, cells: NDArray[np.float32], hidden: Masked | None) -> Summary:
    """By machine code, of float32 cells [n], n > 0."""
    if hidden is None:
        statistics = compiled.statistics(cells)
        if statistics:
            return _summary(tensor, cells.size, (0, 0, 0), statistics)
        hidden = np.zeros(cells.size, np.bool_)
    kept, others = compiled.compact(cells, hidden)
    return _summary(tensor, kept.size, others, compiled.statistics(kept) if kept.size else None)


def _plainly(tensor: torch.Tensor, hidden: Masked | None) -> Summary:
    """By NumPy, of any cells."""
    cells = _as_numpy(tensor)
    if hidden is not None and hidden.size:
        cells = cells.reshape(-1, hidden.size)[:, ~hidden].reshape(-1)
    others = (0, 0, 0)
    finite = np.isfinite(cells)
    if not finite.all():
        nan, posinf, neginf = (int(np.count_nonzero(of(cells))) for of in (np.isnan, np.isposinf, np.isneginf))
        others = nan, posinf, neginf
        cells = cells[finite]
    del finite
    return _summary(tensor, cells.size, others, plain.statistics(cells.astype(np.float64)) if cells.size else None)


def _as_numpy(tensor: torch.Tensor) -> Raw:
    """The cells in one row, as NumPy knows them. May share memory with the tensor."""
    cells = tensor.detach().cpu()
    if cells.is_floating_point() and cells.dtype not in (torch.float32, torch.float64):
        cells = cells.float()  # exact, and NumPy has no bfloat16
    array: Raw = cells.numpy()
    return array.reshape(-1)


@lru_cache
def _named(kind: torch.dtype | torch.device) -> str:
    """What torch calls it, without the prefix of its own name."""
    return str(kind).removeprefix("torch.")


def _summary(
    tensor: torch.Tensor, finite: int, others: tuple[int, int, int], statistics: Statistics | None
) -> Summary:
    """What is known of a tensor's unmasked cells: how many are finite, NaN, +inf and -inf, and the statistics."""
    nan, posinf, neginf = others
    total = tensor.numel()
    known = statistics or Statistics(0, None, None, None, None, None, (), (), ())
    return Summary(
        shape=tuple(tensor.shape),
        dtype=_named(tensor.dtype),
        device=_named(tensor.device),
        count_total=total,
        count_finite=finite,
        count_nan=nan,
        count_posinf=posinf,
        count_neginf=neginf,
        count_zero=known.count_zero,
        count_masked=total - finite - nan - posinf - neginf,
        minimum=known.minimum,
        maximum=known.maximum,
        mean=known.mean,
        std=known.std,
        l2=known.l2,
        quantiles=tuple(map(Quantile, QUANTILES, known.quantiles)) if known.quantiles else (),
        histogram=Histogram(known.edges, known.counts) if known.edges else None,
    )
