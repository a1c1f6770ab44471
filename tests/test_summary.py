"""Statistics: hand-checked, equal to NumPy's, and safe for JSON whatever the tensor holds."""

import json
import math
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from provenance import summary as summaries
from provenance.errors import InvalidInput
from provenance.summary import QUANTILES, Pair, Summary, prepare, summarize, summarize_all

NAN, INF = math.nan, math.inf


@pytest.fixture(autouse=True, params=["numpy", "machine code"], scope="module")
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test holds for both ways of computing."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            patch.setattr(summaries, "ready", lambda cells: None)
        else:
            prepare(wait=True)
            assert summaries.ready(0)
        yield


DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool]


def _agrees_with_numpy(summary: Summary, values: NDArray[np.float64]) -> None:
    """Compares with NumPy on the finite, unmasked cells in float64. Exact, but for the sums."""
    assert summary.count_finite == values.size
    assert summary.count_zero == int((values == 0).sum())
    if not values.size:
        assert summary.minimum is summary.maximum is summary.mean is summary.std is summary.l2 is None
        assert summary.quantiles == ()
        assert summary.histogram is None
        return
    assert (summary.minimum, summary.maximum) == (values.min(), values.max())
    assert summary.mean == pytest.approx(values.mean(), rel=1e-12, abs=1e-13 * np.abs(values).max())
    assert summary.std == pytest.approx(values.std(), rel=1e-9, abs=1e-13 * np.abs(values).max())
    assert summary.l2 == pytest.approx(math.hypot(*values.tolist()), rel=1e-12)
    assert tuple(quantile.q for quantile in summary.quantiles) == QUANTILES
    assert [quantile.value for quantile in summary.quantiles] == np.quantile(values, QUANTILES).tolist()
    try:
        counts, edges = np.histogram(values, bins=64)
    except ValueError:
        assert summary.histogram is None
    else:
        assert summary.histogram is not None
        assert summary.histogram.counts == tuple(counts)
        assert summary.histogram.edges == tuple(edges)


def test_one_two_three_ten_by_hand() -> None:
    summary = summarize(torch.tensor([[1.0, 2.0], [3.0, 10.0]]))
    assert (summary.shape, summary.dtype, summary.device) == ((2, 2), "float32", "cpu")
    assert (summary.minimum, summary.maximum, summary.mean) == (1.0, 10.0, 4.0)
    assert summary.std == pytest.approx(3.5355339, abs=1e-7)  # sqrt(12.5)
    assert summary.l2 == pytest.approx(10.6770783, abs=1e-7)  # sqrt(114)
    assert {quantile.q: quantile.value for quantile in summary.quantiles}[0.5] == 2.5
    assert {quantile.q: quantile.value for quantile in summary.quantiles}[0.25] == 1.75
    assert summary.histogram is not None
    assert (len(summary.histogram.edges), len(summary.histogram.counts)) == (65, 64)
    # Bins are 9/64 wide: 1 is in bin 0, 2 in bin 7 (7.1), 3 in bin 14 (14.2), 10 in the last.
    assert [i for i, count in enumerate(summary.histogram.counts) if count] == [0, 7, 14, 63]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (7,), (2, 3, 4), (1, 12, 9, 64), (70_001,)])
def test_equal_to_numpy_for_every_shape_and_dtype(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(len(shape))
    tensor = (torch.randn(shape, generator=generator) * 3).to(dtype)
    summary = summarize(tensor)
    _agrees_with_numpy(summary, tensor.to(torch.float64).numpy().reshape(-1))
    assert summary.shape == shape
    assert summary.dtype == str(dtype).split(".")[1]
    assert summary.count_total == tensor.numel()


CELLS = st.one_of(
    st.floats(width=32, allow_subnormal=False), st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1.5, -1e10])
)


@given(st.lists(st.tuples(CELLS, st.booleans()), max_size=40), st.sampled_from([torch.float32, torch.bfloat16]))
def test_counts_and_statistics_hold_for_any_cells_and_mask(
    cells: list[tuple[float, bool]], dtype: torch.dtype
) -> None:
    tensor = torch.tensor([cell for cell, _ in cells], dtype=torch.float32).to(dtype)
    masked = torch.tensor([hidden for _, hidden in cells], dtype=torch.bool)
    summary = summarize(tensor, masked)
    exact = tensor.to(torch.float64).numpy()
    seen = exact[~masked.numpy()]
    _agrees_with_numpy(summary, seen[np.isfinite(seen)])
    assert summary.count_masked == int(masked.sum())
    assert summary.count_nan == int(np.isnan(seen).sum())
    assert summary.count_posinf == int((seen == INF).sum())
    assert summary.count_neginf == int((seen == -INF).sum())
    assert (
        summary.count_total
        == len(cells)
        == (
            summary.count_masked
            + summary.count_finite
            + summary.count_nan
            + summary.count_posinf
            + summary.count_neginf
        )
    )
    json.dumps(summary.as_json(), allow_nan=False)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=False), max_size=20))
def test_json_is_strict_for_any_float64(cells: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summary = summarize(torch.tensor(cells, dtype=torch.float64))
    json.dumps(summary.as_json(), allow_nan=False)
    finite = [cell for cell in cells if math.isfinite(cell)]
    if finite:
        low, high = min(finite), max(finite)
        slack = 1e-12 * max(abs(low), abs(high))
        assert summary.mean is not None
        assert low - slack <= summary.mean <= high + slack
        assert all(low <= quantile.value <= high for quantile in summary.quantiles)
        assert (summary.l2 or INF) == pytest.approx(math.hypot(*finite) or INF, rel=1e-12)


def test_a_mask_of_queries_and_keys_serves_every_batch_and_head() -> None:
    scores = torch.arange(2 * 3 * 4 * 4, dtype=torch.float32).reshape(2, 3, 4, 4)
    hidden = torch.ones(4, 4).triu(1).bool()
    scores = scores.masked_fill(hidden, -1e10)
    summary = summarize(scores, hidden)
    visible = np.array([[b, i, j] for b in range(6) for i in range(4) for j in range(i + 1)])
    values = (visible @ np.array([16, 4, 1])).astype(np.float64)
    _agrees_with_numpy(summary, values)
    assert (summary.count_masked, summary.count_total) == (36, 96)
    assert summary.minimum == 0.0


def test_masked_cells_are_counted_as_masked_only() -> None:
    summary = summarize(torch.tensor([NAN, INF, 0.0, 5.0]), torch.tensor([True, True, True, False]))
    assert (summary.count_masked, summary.count_finite) == (3, 1)
    assert (summary.count_nan, summary.count_posinf, summary.count_zero) == (0, 0, 0)
    assert summary.mean == 5.0


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_without_a_finite_cell_there_are_counts_but_no_statistics(value: float) -> None:
    summary = summarize(torch.full((2, 3), value))
    _agrees_with_numpy(summary, np.array([], dtype=np.float64))
    assert summary.count_nan + summary.count_posinf + summary.count_neginf == 6


def test_when_all_is_masked_there_are_no_statistics() -> None:
    summary = summarize(torch.ones(2, 3), torch.tensor(True))
    _agrees_with_numpy(summary, np.array([], dtype=np.float64))
    assert summary.count_masked == 6


def test_half_precision_sums_do_not_overflow() -> None:
    tensor = torch.full((4096,), 60000.0, dtype=torch.float16)
    assert tensor.sum().isinf()
    summary = summarize(tensor)
    assert (summary.mean, summary.std) == (float(tensor[0]), 0.0)
    assert summary.l2 == float(tensor[0]) * 64


def test_bfloat16_keeps_precision_in_long_sums() -> None:
    tensor = torch.ones(100_000, dtype=torch.bfloat16)
    tensor[0] = 256.0
    assert summarize(tensor).mean == (99_999 + 256) / 100_000


def test_values_near_the_end_of_float32_have_a_norm() -> None:
    largest = float(torch.finfo(torch.float32).max)
    summary = summarize(torch.tensor([largest, -largest, largest, -largest]))
    assert (summary.mean, summary.std, summary.l2) == (0.0, largest, 2 * largest)
    assert summary.histogram is not None
    assert (summary.histogram.counts[0], summary.histogram.counts[-1]) == (2, 2)


def test_subnormal_values_are_not_flushed() -> None:
    smallest = 2.0**-149
    summary = summarize(torch.tensor([smallest, 3 * smallest], dtype=torch.float32))
    assert (summary.minimum, summary.maximum) == (smallest, 3 * smallest)
    assert (summary.mean, summary.std, summary.count_zero) == (2 * smallest, smallest, 0)
    assert summary.histogram is not None
    assert (summary.histogram.counts[0], summary.histogram.counts[-1]) == (1, 1)


def test_float64_extremes_leave_out_only_what_has_no_number() -> None:
    largest = float(torch.finfo(torch.float64).max)
    summary = summarize(torch.tensor([-largest, largest], dtype=torch.float64))
    assert (summary.mean, summary.std, summary.l2) == (0.0, largest, None)
    assert summary.histogram is None
    assert [quantile.value for quantile in summary.quantiles][::4] == [-largest, 0.0, largest]
    tiny = summarize(torch.tensor([3e-300, 4e-300], dtype=torch.float64))
    assert tiny.l2 == pytest.approx(5e-300, rel=1e-12)


def test_equal_cells_have_a_histogram_one_unit_wide() -> None:
    summary = summarize(torch.full((5,), 2.0))
    assert summary.std == 0.0
    assert summary.histogram is not None
    assert (summary.histogram.edges[0], summary.histogram.edges[-1]) == (1.5, 2.5)
    assert summary.histogram.counts[32] == 5


def test_equal_cells_too_large_for_64_bins_have_no_histogram() -> None:
    summary = summarize(torch.full((5,), 1e30))
    assert summary.histogram is None
    assert summary.minimum == summary.maximum


def test_true_counts_as_one() -> None:
    summary = summarize(torch.tensor([True, True, False, True]))
    assert (summary.mean, summary.count_zero, summary.dtype) == (0.75, 1, "bool")


def test_the_tensor_is_left_as_it_was() -> None:
    for dtype in (torch.float32, torch.float64):
        tensor = torch.randn(50, generator=torch.Generator().manual_seed(0)).to(dtype)
        before = tensor.clone()
        summarize(tensor)
        assert torch.equal(tensor, before)


def test_views_and_gradients_do_not_matter() -> None:
    tensor = torch.arange(24.0).reshape(4, 6).requires_grad_()
    _agrees_with_numpy(summarize(tensor.T[::2]), np.arange(24.0).reshape(4, 6).T[::2].reshape(-1))


def test_a_row_with_steps_is_read_at_its_steps() -> None:
    row = torch.arange(20.0)
    _agrees_with_numpy(summarize(row[::3]), np.arange(20.0)[::3])
    _agrees_with_numpy(summarize(row[3].expand(5)), np.full(5, 3.0))
    _agrees_with_numpy(
        summarize(row, (row % 4 == 0).repeat_interleave(2)[::2]), np.arange(20.0)[np.arange(20) % 4 != 0]
    )
    _agrees_with_numpy(summarize(row, torch.tensor(False).expand(20)), np.arange(20.0))


def test_what_cannot_be_summarised_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"shape \[3\] does not fit a tensor of shape \[2, 2\]"):
        summarize(torch.ones(2, 2), torch.ones(3).bool())
    with pytest.raises(InvalidInput, match=r"shape \[2, 2\] does not fit a tensor of shape \[2\]"):
        summarize(torch.ones(2), torch.ones(2, 2).bool())
    with pytest.raises(InvalidInput, match="must be boolean"):
        summarize(torch.ones(2), torch.ones(2))
    with pytest.raises(InvalidInput, match="complex"):
        summarize(torch.ones(2, dtype=torch.complex64))


def test_a_mask_may_have_any_shape_that_broadcasts() -> None:
    tensor = torch.arange(24.0).reshape(2, 3, 4)
    for shape in [(), (1,), (4,), (3, 1), (3, 4), (1, 3, 4), (2, 1, 1), (2, 1, 4), (1, 1, 1), (2, 3, 4)]:
        masked = torch.rand(shape, generator=torch.Generator().manual_seed(len(shape))) < 0.4
        kept = tensor.numpy()[~np.broadcast_to(masked.numpy(), (2, 3, 4))]
        _agrees_with_numpy(summarize(tensor, masked), kept.astype(np.float64))
    with pytest.raises(InvalidInput, match=r"shape \[1, 2\] does not fit a tensor of shape \[2\]"):
        summarize(torch.ones(2), torch.ones(1, 2).bool())
    assert summarize(torch.ones(0, 3), torch.ones(3).bool()).count_total == 0


@pytest.mark.parametrize("largest", [2**24, 2**24 + 1, 2**62 + 1])
def test_whole_numbers_are_exact_however_large(largest: int) -> None:
    summary = summarize(torch.tensor([largest, -largest, 1]))
    assert (summary.minimum, summary.maximum) == (-float(largest), float(largest))
    assert summarize(torch.tensor([largest - 1, largest])).minimum == float(largest - 1)


def test_many_tensors_are_summarised_in_their_order() -> None:
    generator = torch.Generator().manual_seed(3)
    tensors = [torch.randn(size, generator=generator) for size in (5, 4096, 1, 300, 4096)]
    masked = torch.rand(300, generator=generator) < 0.5
    pairs = [(tensor, masked if tensor.numel() == 300 else None) for tensor in tensors]
    for threads in (1, 2, 5):
        assert summarize_all(pairs, threads) == tuple(summarize(*pair) for pair in pairs)
    assert summarize_all([]) == ()


def test_the_same_cells_in_two_shapes_have_two_shapes_and_one_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Pair] = []

    def counting(pairs: Sequence[Pair]) -> list[Summary]:
        measured.extend(pairs)
        return several(pairs)

    several = summaries._several
    monkeypatch.setattr(summaries, "_several", counting)
    flat = torch.arange(12.0)
    shown = [flat, flat.view(3, 4), flat.view(3, 4).T, flat[:6], flat.int()]
    found = summarize_all([(tensor, None) for tensor in shown] + [(flat, flat > 3)])
    assert [summary.shape for summary in found] == [(12,), (3, 4), (4, 3), (6,), (12,), (12,)]
    assert [summary.count_masked for summary in found] == [0, 0, 0, 0, 0, 8]
    assert found[3].maximum == 5.0
    assert found[4].dtype == "int32"
    assert len(measured) == 5


def test_one_refused_tensor_refuses_all() -> None:
    with pytest.raises(InvalidInput, match="complex"):
        summarize_all([(torch.ones(2), None), (torch.ones(2, dtype=torch.complex64), None)])
