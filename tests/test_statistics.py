"""Machine code against NumPy, on cells chosen to sit at the edges of bins and of buckets; and how it is prepared."""

import logging
import math
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from provenance.statistics import QUANTILES, Statistics, compiled, plain
from provenance.statistics.compiled import Compiled, prepare, ready

Floats = NDArray[np.float32]


@pytest.fixture(scope="module")
def machine() -> Compiled:
    prepare(wait=True)
    found = ready(0)
    assert found
    return found


def _by_numpy(cells: Floats) -> Statistics:
    """An implementation that shares nothing with ours: plain calls of NumPy, and math.fsum for the sums."""
    values = cells.astype(np.float64)
    mean = math.fsum(values.tolist()) / values.size
    spread = math.fsum(((values - mean) ** 2).tolist())
    edges, counts = (), ()
    low, high = float(values.min()), float(values.max())
    if low < high or low - 0.5 < low - 0.5 + 1 / 64:
        counts, edges = (tuple(found.tolist()) for found in np.histogram(values, 64))
    return Statistics(
        int((values == 0).sum()), low, high, mean, math.sqrt(spread / values.size),
        math.sqrt(math.fsum((values * values).tolist())), tuple(np.quantile(values, QUANTILES).tolist()),
        edges, counts,
    )  # fmt: skip


def _agree(machine: Compiled, cells: Floats) -> None:
    """All but the three sums is equal; the sums are as exact as float64 allows."""
    found, wanted = machine.statistics(cells), _by_numpy(cells)
    assert found
    sums = ("mean", "std", "l2")
    assert found._replace(**dict.fromkeys(sums)) == wanted._replace(**dict.fromkeys(sums))
    peak = max(abs(wanted.minimum or 0.0), abs(wanted.maximum or 0.0))
    assert found.mean == pytest.approx(wanted.mean, rel=1e-13, abs=1e-15 * peak)
    assert found.std == pytest.approx(wanted.std, rel=1e-11, abs=1e-15 * peak)
    assert found.l2 == pytest.approx(wanted.l2, rel=1e-13)
    simple = plain.statistics(cells.astype(np.float64))
    assert found._replace(**dict.fromkeys(sums)) == simple._replace(**dict.fromkeys(sums))


def drawn(kind: str, size: int) -> Floats:
    generator = np.random.default_rng(size)
    normal = generator.standard_normal(size)
    values = {
        "normal": normal,
        "one sign": generator.random(size) + 0.1,
        "negative": -np.exp(-20 * generator.random(size)),
        "narrow": 1 + 0.01 * normal,
        "very narrow": 100 + 1e-4 * generator.random(size),
        "far from 0": 3e7 + 4 * generator.integers(0, 99, size),
        "heavy tails": normal**9,
        "one outlier": np.where(np.arange(size) == size // 2, 1e9, normal),
        "outlier first": np.where(np.arange(size) == 0, -3000.0, 1 + 1e-3 * normal),
        "all magnitudes": np.exp(20 * np.clip(normal, -4, 4)) * np.sign(generator.random(size) - 0.5),
        "equal": np.full(size, 0.1),
        "equal and huge": np.full(size, 1e30),
        "both zeros": np.where(generator.random(size) < 0.5, -0.0, 0.0),
        "few whole numbers": generator.integers(-3, 4, size),
        "on the edges": generator.integers(-32, 33, size),
        "edge at 0": np.concatenate([[-64.0, 64.0], generator.choice([-0.0, 0.0, 1e-45, -1e-45], size)])[:size],
        "subnormal": generator.integers(-32, 33, size) * 2.0**-149,
        "mostly 0": np.where(generator.random(size) < 0.9, 0.0, normal),
        "largest": generator.choice([-1.0, 1.0], size) * float(np.finfo(np.float32).max),
    }
    return values[kind].astype(np.float32)


KINDS = ["normal", "one sign", "negative", "narrow", "very narrow", "far from 0", "heavy tails", "one outlier"]
KINDS += ["outlier first", "all magnitudes", "equal", "equal and huge", "both zeros", "few whole numbers"]
KINDS += ["on the edges", "edge at 0", "subnormal", "mostly 0", "largest"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 3, 17, 4096, 4097, 30_001])
def test_machine_code_agrees_with_numpy(machine: Compiled, kind: str, size: int) -> None:
    _agree(machine, drawn(kind, size))


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
NEAR = st.integers(-300, 300).map(lambda step: float(np.float32(1) + np.float32(step) * np.float32(2.0**-23)))


@given(cells=st.one_of(st.lists(FINITE, min_size=1, max_size=80), st.lists(NEAR, min_size=1, max_size=80)))
def test_machine_code_agrees_with_numpy_on_any_cells(machine: Compiled, cells: list[float]) -> None:
    _agree(machine, np.array(cells, np.float32))


@given(first=FINITE, last=FINITE, steps=st.lists(st.tuples(st.integers(0, 64), st.integers(-2, 2)), max_size=60))
def test_cells_at_and_beside_the_edges_fall_into_numpys_bins(
    machine: Compiled, first: float, last: float, steps: list[tuple[int, int]]
) -> None:
    edges = np.linspace(min(first, last), max(first, last), 65)
    near = [int(np.float32(edges[edge]).view(np.int32)) + step for edge, step in steps]
    cells = np.array([first, last], np.float32)
    beside = np.array(near, np.int64).astype(np.int32).view(np.float32)  # -0's lower neighbour wraps around
    beside = beside[np.isfinite(beside)]
    _agree(machine, np.concatenate([cells, beside]))


def test_rows_measured_in_one_call_are_measured_as_alone(machine: Compiled) -> None:
    broken = drawn("normal", 100)
    broken[3] = math.nan
    rows = [drawn("normal", 500), broken, np.empty(0, np.float32), drawn("heavy tails", 9001), drawn("equal", 3)]
    alone = [machine.statistics(rows[index]) for index in (0, 3, 4)]
    assert machine.statistics_of(rows) == [alone[0], None, None, alone[1], alone[2]]


def test_a_measurement_leaves_nothing_behind_for_the_next(machine: Compiled) -> None:
    before = machine.statistics(drawn("normal", 500))
    for broken in (math.nan, math.inf, -math.inf):
        cells = drawn("heavy tails", 9000)
        cells[8000] = broken
        assert machine.statistics(cells) is None
        assert machine.statistics(drawn("normal", 500)) == before


@pytest.mark.slow
def test_threads_measure_at_the_same_time(machine: Compiled) -> None:
    wanted = {kind: machine.statistics(drawn(kind, 30_001)) for kind in KINDS}
    wrong: list[str] = []

    def work() -> None:
        for kind in KINDS * 5:
            if machine.statistics(drawn(kind, 30_001)) != wanted[kind]:
                wrong.append(kind)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_without_numba_the_statistics_stay_with_numpy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> Compiled:
        raise ImportError("No module named 'numba'")

    monkeypatch.setattr(compiled, "_preparation", compiled._Preparation())
    monkeypatch.setattr(compiled, "_load", fail)
    with caplog.at_level(logging.WARNING):
        prepare(wait=True)
    assert ready(1 << 40) is None
    assert "stay with NumPy" in caplog.text


def test_many_cells_begin_the_preparation_and_few_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_preparation", compiled._Preparation())
    begun: list[bool] = []
    monkeypatch.setattr(compiled, "prepare", lambda: begun.append(True))
    assert ready(1000) is None
    assert begun == []
    ready(1 << 23)
    assert begun == [True]


@pytest.mark.slow
def test_a_summary_alone_does_not_import_numba() -> None:
    script = "import sys, torch, provenance.summary as s; s.summarize(torch.ones(9)); print('numba' in sys.modules)"
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
