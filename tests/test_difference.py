"""How two tensors differ: figures worked out by hand, and properties that hold for any two tensors."""

from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import provenance.difference
from provenance.difference import RELATIVE, Difference, Status, difference, tolerated
from provenance.names import Address

AT = Address("embed.h")
NAN, INF = float("nan"), float("inf")


def of(a: Tensor, b: Tensor, **options: object) -> Difference:
    return difference(AT, a, b, **options)  # type: ignore[arg-type]


# --- figures by hand ---


def test_the_figures_of_two_small_vectors() -> None:
    found = of(torch.tensor([3.0, -4.0, 0.0]), torch.tensor([3.0, -4.0, 1.0]))
    assert found.status is Status.DIFFERS
    assert found.compared == 3
    assert found.largest == 1.0
    assert found.relative == 0.25  # of max|a| = 4
    assert found.cosine == pytest.approx(25 / (5 * 26**0.5), abs=1e-12)
    assert found.tolerance == pytest.approx(4 * RELATIVE)
    assert (found.first, found.first_values) == ((2,), (0.0, 1.0))


def test_the_first_index_is_the_first_in_row_major_order() -> None:
    a = torch.zeros(2, 3, 4)
    a[0, 0, 0] = 100.0
    b = a.clone()
    b[1, 2, 3] = 9.0
    b[1, 0, 2] = 0.5
    found = of(a, b)
    assert found.first == (1, 0, 2)
    assert found.first_values == (0.0, 0.5)
    assert found.largest == 9.0


def test_a_difference_of_exactly_the_tolerance_is_within() -> None:
    a = torch.tensor([8.0, 1.0])
    assert of(a, torch.tensor([8.0, 1.5]), relative=0.0625).status is Status.WITHIN
    assert of(a, torch.tensor([8.0, 1.5]), relative=0.06).status is Status.DIFFERS
    assert of(a, a.clone(), relative=0.0).status is Status.SAME


def test_whole_numbers_and_truth_values_must_be_equal() -> None:
    ids = torch.tensor([[50_000, 7]])
    assert of(ids, ids + torch.tensor([[0, 1]])).status is Status.DIFFERS
    assert of(ids, ids.to(torch.int32)).status is Status.WITHIN
    found = of(torch.tensor([True, False]), torch.tensor([True, True]))
    assert (found.status, found.first, found.first_values) == (Status.DIFFERS, (1,), (0.0, 1.0))


def test_whole_numbers_that_float64_cannot_tell_apart_differ() -> None:
    found = of(torch.tensor([0, 2**53]), torch.tensor([0, 2**53 + 1]))
    assert (found.status, found.first) == (Status.DIFFERS, (1,))


def test_nan_agrees_with_nan_and_with_nothing_else() -> None:
    a = torch.tensor([1.0, NAN, 2.0])
    assert of(a, a.clone()).status is Status.SAME
    assert of(a, torch.tensor([1.0, NAN, 2.00001])).status is Status.WITHIN
    found = of(a, torch.tensor([1.0, 5.0, 2.0]))
    assert (found.status, found.first) == (Status.DIFFERS, (1,))
    assert found.note == "1 cell is finite on one side only, or infinite differently"
    assert found.largest == 0.0
    assert found.cosine == pytest.approx(1.0)


def test_infinities_agree_where_their_signs_do() -> None:
    a = torch.tensor([INF, -INF, 1.0])
    assert of(a, torch.tensor([INF, -INF, 1.000001])).status is Status.WITHIN
    found = of(a, torch.tensor([INF, INF, 1.0]))
    assert (found.status, found.first, found.first_values) == (Status.DIFFERS, (1,), (-INF, INF))


def test_zero_and_minus_zero_agree_but_are_not_the_same_bits() -> None:
    assert of(torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0])).status is Status.WITHIN


def test_bfloat16_against_float32_has_the_tolerance_of_the_coarser_one() -> None:
    assert tolerated(torch.float32, torch.bfloat16) == 16 * 2**-7
    assert tolerated(torch.float32, torch.float64) == RELATIVE
    a = torch.linspace(-3, 3, 101)
    found = of(a, a.to(torch.bfloat16))
    assert (found.status, found.dtypes) == (Status.WITHIN, ("float32", "bfloat16"))
    assert 0 < found.relative <= 2**-8
    assert of(a, a.to(torch.bfloat16), relative=1e-6).status is Status.DIFFERS


def test_empty_tensors_are_the_same() -> None:
    found = of(torch.empty(1, 0, 3), torch.empty(1, 0, 3))
    assert (found.status, found.compared, found.cosine, found.largest) == (Status.SAME, 0, None, 0.0)


def test_a_single_number_has_the_empty_index() -> None:
    found = of(torch.tensor(2.0), torch.tensor(3.0))
    assert (found.first, found.first_values) == ((), (2.0, 3.0))


def test_shapes_that_differ_are_said() -> None:
    found = of(torch.zeros(2, 3), torch.zeros(3, 2))
    assert (found.status, found.agrees, found.compared) == (Status.UNFIT, False, 0)
    assert found.note == "shapes differ: [2, 3] and [3, 2]"


def test_complex_numbers_are_not_compared() -> None:
    assert of(torch.ones(2, dtype=torch.complex64), torch.ones(2)).status is Status.UNFIT


def test_a_zero_tensor_has_no_cosine_and_an_absolute_difference() -> None:
    found = of(torch.zeros(2), torch.tensor([0.0, 1e-9]))
    assert (found.cosine, found.status) == (None, Status.DIFFERS)
    assert found.relative == found.largest == pytest.approx(1e-9)


def test_the_scale_of_a_sum_that_cancels_counts_as_its_size() -> None:
    a, b = torch.tensor([1e-6]), torch.tensor([2e-6])
    assert of(a, b).status is Status.DIFFERS
    found = of(a, b, scale=1.0)
    assert found.status is Status.WITHIN
    assert found.relative == pytest.approx(1e-6, rel=1e-3)
    assert of(a, torch.tensor([1e-3]), scale=1.0).status is Status.DIFFERS


# --- visible cells ---

VISIBLE = torch.ones(3, 3, dtype=torch.bool).tril()


def scores(fill: float) -> Tensor:
    return torch.arange(18.0).reshape(1, 2, 3, 3).where(VISIBLE, fill)


@pytest.mark.parametrize("fill", [-1e10, -INF, torch.finfo(torch.float32).min, -1e4])
def test_masked_cells_are_left_out_whatever_fills_them(fill: float) -> None:
    found = of(scores(-1e10), scores(fill), visible=VISIBLE, hidden=True)
    assert (found.status, found.compared) == (Status.SAME, 12)


def test_a_masked_cell_that_the_other_side_shows_differs() -> None:
    b = scores(-INF)
    b[0, 1, 0, 1] = 3.0
    found = of(scores(-1e10), b, visible=VISIBLE, hidden=True)
    assert (found.status, found.first, found.note) == (
        Status.DIFFERS, (0, 1, 0, 1), "1 cell is masked on one side only",
    )  # fmt: skip
    assert of(scores(-1e10), b, visible=VISIBLE).status is Status.SAME


def test_a_visible_cell_that_the_other_side_masks_differs() -> None:
    b = scores(-1e10)
    b[0, 0, 2, 2] = -1e10
    found = of(scores(-1e10), b, visible=VISIBLE, hidden=True)
    assert (found.status, found.first) == (Status.DIFFERS, (0, 0, 2, 2))
    assert found.note == ""


# --- properties ---

NUMBERS = st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, NAN, INF, -INF]))
PAIRS = st.integers(1, 24).flatmap(
    lambda n: st.tuples(st.lists(NUMBERS, min_size=n, max_size=n), st.lists(NUMBERS, min_size=n, max_size=n))
)


@given(st.lists(NUMBERS, max_size=24))
def test_a_tensor_is_the_same_as_itself(values: list[float]) -> None:
    a = torch.tensor(values)
    for found in (of(a, a), of(a, a.clone())):
        assert found.status is Status.SAME
        assert (found.largest, found.first) == (0.0, None)


@given(PAIRS)
def test_the_largest_difference_is_symmetric(pair: tuple[list[float], list[float]]) -> None:
    a, b = (torch.tensor(values) for values in pair)
    one, other = of(a, b), of(b, a)
    assert one.largest == other.largest
    assert one.cosine == pytest.approx(other.cosine)
    assert of(a, b, relative=0.0).agrees == of(b, a, relative=0.0).agrees


@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_the_cells_changes_nothing_but_the_first(
    pair: tuple[list[float], list[float]], random: Random
) -> None:
    a, b = (torch.tensor(values) for values in pair)
    order = list(range(len(a)))
    random.shuffle(order)
    one, other = of(a, b), of(a[order], b[order])
    assert (one.status, one.largest, one.tolerance) == (other.status, other.largest, other.tolerance)
    assert (one.first is None) == (other.first is None)


@given(PAIRS)
def test_the_first_index_is_what_a_loop_finds(pair: tuple[list[float], list[float]]) -> None:
    a, b = (torch.tensor(values) for values in pair)
    found = of(a, b)

    def wrong(one: float, other: float) -> bool:
        if one == other or (one != one and other != other):
            return False
        return not abs(one - other) <= found.tolerance

    expected = next(
        (n for n, (one, other) in enumerate(zip(a.tolist(), b.tolist(), strict=True)) if wrong(one, other)), None
    )
    assert found.first == (None if expected is None else (expected,))


def test_a_tensor_larger_than_what_is_widened_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    a = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    b = a + 1e-3 * torch.randn(5, 7, generator=torch.Generator().manual_seed(1))
    visible = torch.rand(5, 7, generator=torch.Generator().manual_seed(2)) > 0.3
    whole = of(a, b, visible=visible)
    monkeypatch.setattr(provenance.difference, "_CELLS_AT_ONCE", 4)
    parts = of(a, b, visible=visible)
    assert (parts.first, parts.largest, parts.compared) == (whole.first, whole.largest, int(visible.sum()))
    assert parts.cosine == pytest.approx(whole.cosine, abs=1e-12)
