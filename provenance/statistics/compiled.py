"""Statistics in machine code, once it is ready: until then there are none, and the caller takes NumPy.

numba takes a while to import, and a first compilation takes seconds; no request waits for either. `prepare` does both
in another thread. What was compiled is kept on disk, so that later processes only load it.
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provenance.statistics import BINS, BUCKETS, COUNTED, EDGES, MOMENTS, QUANTILES, Statistics

_ENOUGH = 1 << 23
"""So many cells have gone through NumPy when the machine code is prepared without being asked for."""

_LARGEST_ROW = 1 << 20
"""Cells that a thread keeps room for: fresh memory costs more than copying into it."""

SEVERAL = 8
"""How many rows of cells one call measures at most."""

Floats = NDArray[np.float32]

_log = logging.getLogger(__name__)
_ranks = np.array(QUANTILES)
_NOTHING: Floats = np.empty(0, np.float32)


class _Tables(threading.local):
    """What one thread's measurements write to."""

    def __init__(self) -> None:
        self.counts = np.zeros(BUCKETS, np.uint32)
        self.flags = np.zeros(BUCKETS, np.uint8)
        self.moments = np.empty((SEVERAL, EDGES + BINS + 1))
        self.counted = np.empty((SEVERAL, COUNTED + BINS), np.int64)
        self._row = np.empty(0, np.float32)

    def row(self, size: int) -> Floats:
        """Room for so many cells; the same as last time unless they are very many."""
        if size > _LARGEST_ROW:
            return np.empty(size, np.float32)
        if size > self._row.size:
            self._row = np.empty(size, np.float32)
        return self._row[:size]


@dataclass(frozen=True)
class Compiled:
    """The compiled functions. Several threads can use them at the same time."""

    _measure: Any
    _several: Any
    _compact: Any
    _tables: _Tables = field(default_factory=_Tables)

    def statistics(self, cells: Floats) -> Statistics | None:
        """Statistics of cells [n], n > 0; None where one of them is not finite."""
        tables = self._tables
        moments, counted = tables.moments, tables.counted
        if not self._measure(cells, _ranks, tables.counts, tables.flags, moments[0], counted[0]):
            return None
        return _statistics(moments[0].tolist(), counted[0].tolist())

    def statistics_of(self, rows: Sequence[Floats]) -> list[Statistics | None]:
        """The same of up to SEVERAL rows of cells at once; None also where a row is empty."""
        tables = self._tables
        filled = (*rows, *[_NOTHING] * (SEVERAL - len(rows)))
        self._several(filled, _ranks, tables.counts, tables.flags, tables.moments, tables.counted)
        found = zip(tables.moments.tolist(), tables.counted.tolist(), strict=True)
        return [_statistics(*one) if one[1][0] >= 0 else None for one, _ in zip(found, rows, strict=False)]

    def compact(self, cells: Floats, masked: NDArray[np.bool_]) -> tuple[Floats, tuple[int, int, int]]:
        """The finite, unmasked ones of cells [n], and how many of the others are NaN, +inf and -inf, unmasked.

        `masked` [m] repeats n/m times over the cells. What is given holds until the thread's next call.
        """
        others = np.empty(3, np.int64)
        kept = self._tables.row(cells.size)
        size = self._compact(cells, masked, kept, others)
        nan, posinf, neginf = others.tolist()
        return kept[:size], (nan, posinf, neginf)


def _statistics(numbers: list[float], counts: list[int]) -> Statistics:
    """What the machine code filled in, by name."""
    minimum, maximum, mean, std, l2 = numbers[:MOMENTS]
    return Statistics(
        counts[1], minimum, maximum, mean, std, l2, tuple(numbers[MOMENTS:EDGES]),
        tuple(numbers[EDGES:]) if counts[0] else (), tuple(counts[COUNTED:]) if counts[0] else (),
    )  # fmt: skip


class _Preparation:
    """The one attempt of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seen = 0
        self.thread: threading.Thread | None = None
        self.compiled: Compiled | None = None

    def run(self) -> None:
        try:
            self.compiled = _load()
        except Exception:  # whatever numba meets: NumPy gives the same answers
            _log.warning("The statistics stay with NumPy: their machine code cannot be made.", exc_info=True)


_preparation = _Preparation()


def prepare(*, wait: bool = False) -> None:
    """Begin to make the machine code ready, unless this process did; where told so, wait until that has ended."""
    with _preparation.lock:
        if _preparation.thread is None:
            # Not a daemon: the interpreter must not end while code is being compiled.
            _preparation.thread = threading.Thread(target=_preparation.run, name="statistics")
            _preparation.thread.start()
    if wait:
        _preparation.thread.join()


def ready(cells: int) -> Compiled | None:
    """The compiled functions, if they are ready, for so many cells. Enough of them begin the preparation."""
    if _preparation.compiled is None and _preparation.thread is None:
        _preparation.seen += cells
        if _preparation.seen >= _ENOUGH:
            prepare()
    return _preparation.compiled


def _load() -> Compiled:
    """Import numba and compile, or load what was compiled, by using each function once."""
    from provenance.statistics.compacting import compact
    from provenance.statistics.kernels import measure, measure_several

    compiled = Compiled(measure, measure_several, compact)
    cells = np.arange(8, dtype=np.float32)
    compiled.statistics(cells)
    compiled.statistics_of([cells])
    compiled.compact(cells, np.zeros(8, np.bool_))
    return compiled
