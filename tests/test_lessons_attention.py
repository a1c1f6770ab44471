"""What the chapters on attention measure: by hand, and against torch's own attention."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from provenance.lessons import multi_head, scaled_dot_product
from provenance.lessons.scaled_dot_product import Visible

Array = NDArray[np.float64]


def array(*values: object) -> Array:
    return np.array(values, dtype=np.float64)


def drawn(*shape: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


# --- scaled dot-product ---


def test_a_raw_score_is_the_dot_product_of_a_query_with_a_key() -> None:
    q, k = array([1, 2], [0, 1]), array([3, 1], [1, -1])
    assert scaled_dot_product.raw_scores(q, k).tolist() == [[5, -1], [1, -1]]


def test_scores_are_divided_by_the_root_of_the_width_and_by_the_temperature() -> None:
    raw = array(12, -4)
    assert scaled_dot_product.scale(raw, 16).tolist() == [3, -1]
    assert scaled_dot_product.scale(raw, 16, temperature=0.5).tolist() == [6, -2]
    assert scaled_dot_product.scale(raw, 16, scaled=False).tolist() == [12, -4]


def test_the_softmax_of_scores_ln_3_apart_is_a_quarter_and_three() -> None:
    assert scaled_dot_product.softmax(array([0, math.log(3)])) == pytest.approx(array([0.25, 0.75]))


def test_a_masked_score_has_no_weight_and_a_large_one_does_not_overflow() -> None:
    assert scaled_dot_product.softmax(array([-math.inf, 5000, 5000])).tolist() == [[0, 0.5, 0.5]]


def test_attention_of_two_keys_by_hand() -> None:
    q, k, v = array([1]), array([0], [math.log(3)]), array([4], [8])
    # Weights 1/4 and 3/4; at half the temperature 1/10 and 9/10.
    assert scaled_dot_product.attention(q, k, v) == pytest.approx(array([7]))
    assert scaled_dot_product.attention(q, k, v, temperature=0.5) == pytest.approx(array([7.6]))
    assert scaled_dot_product.attention(q, k, v, visible=np.array([[True, False]])).tolist() == [[4]]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_that_of_torch(causal: bool) -> None:
    q, k, v = (drawn(2, 3, 7, 4, seed=seed) for seed in (1, 2, 3))
    theirs = torch.nn.functional.scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v)), is_causal=causal)
    visible: Visible | None = np.tril(np.ones((7, 7), dtype=bool)) if causal else None
    assert np.abs(scaled_dot_product.attention(q, k, v, visible=visible) - theirs.numpy()).max() < 1e-14


def test_standardised_channels_have_mean_0_and_variance_1_and_constant_ones_are_0() -> None:
    assert scaled_dot_product.standardised(array([1, 5], [3, 5])).tolist() == [[-1, 0], [1, 0]]


def test_the_first_channel_alone_by_hand() -> None:
    (found,) = scaled_dot_product.by_width(array([[1, 0], [3, 9]]), array([[0, 9], [4, 0]]), [1])
    # Both channels are −1 and 1: the scores are ±1, the larger weight of each row is e/(e + 1/e).
    assert (found.channels, found.variance, found.scaled_variance) == (1, 1, 1)
    assert found.largest == found.largest_scaled == pytest.approx(math.e / (math.e + 1 / math.e))


def test_the_variance_of_independent_channels_grows_with_their_number_and_the_scale_takes_it_away() -> None:
    found = scaled_dot_product.by_width(drawn(1, 400, 64), drawn(1, 400, 64, seed=4), (1, 8, 64))
    for each in found:
        assert each.variance == pytest.approx(each.channels, rel=0.1)
        assert each.scaled_variance == pytest.approx(each.variance / each.channels)
    assert found[-1].largest > 3 * found[-1].largest_scaled


def test_widths_are_powers_of_two_and_the_whole() -> None:
    assert scaled_dot_product.widths_up_to(8) == (1, 2, 4, 8)
    assert scaled_dot_product.widths_up_to(12) == (1, 2, 4, 8, 12)
    assert scaled_dot_product.widths_up_to(1) == (1,)


def test_even_weights_are_not_saturated_and_a_single_one_is() -> None:
    even = scaled_dot_product.saturation(array([0.25, 0.25, 0.25, 0.25]))
    assert (even.entropy, even.evenness, even.largest, even.movable) == pytest.approx((math.log(4), 1, 0.25, 0.75))
    single = scaled_dot_product.saturation(array([0, 1, 0, 0]))
    assert (single.entropy, single.evenness, single.largest, single.movable) == (0, 0, 1, 0)


def test_saturation_is_a_mean_over_rows_and_evenness_leaves_rows_of_one_key_out() -> None:
    causal = np.tril(np.ones((2, 2), dtype=bool))
    found = scaled_dot_product.saturation(array([1, 0], [0.5, 0.5]), causal)
    assert (found.entropy, found.evenness, found.largest, found.movable) == pytest.approx(
        (math.log(2) / 2, 1, 0.75, 0.25)
    )
    assert scaled_dot_product.saturation(array([1, 0], [0.5, 0.5])).evenness == pytest.approx(0.5)


def test_how_far_rows_are_from_a_sum_of_1() -> None:
    assert scaled_dot_product.off_one(array([0.5, 0.5], [0.5, 0.75])) == 0.25


def test_a_mix_inside_its_values_is_not_outside_and_one_beyond_them_is() -> None:
    weights, v = array([[[0.5, 0.5, 0]]]), array([[[2], [4], [100]]])
    assert scaled_dot_product.outside(array([[[3]]]), weights, v) == -1
    assert scaled_dot_product.outside(array([[[4.5]]]), weights, v) == 0.5  # the third value has no weight
    assert scaled_dot_product.outside(array([[[1]]]), weights, v) == 1


def test_a_relative_difference_is_of_the_reference() -> None:
    assert scaled_dot_product.relative(array(3, 0), array(3, 4)) == 0.8
    assert scaled_dot_product.relative(array(0, 0), array(3, 4)) == 1
    assert scaled_dot_product.relative(array(3), array(0)) == 0


# --- multi-head ---


def test_heads_are_runs_of_channels_and_merging_puts_them_back() -> None:
    x = array([[1, 2, 3, 4], [5, 6, 7, 8]])
    split = multi_head.split_heads(x, 2)
    assert split.tolist() == [[[[1, 2], [5, 6]], [[3, 4], [7, 8]]]]
    assert multi_head.merge_heads(split).tolist() == x.tolist()


def test_a_linear_layer_has_its_weight_as_out_by_in() -> None:
    assert multi_head.linear(array([1, 2]), array([3, 4], [5, 6], [0, 1]), array(1, 0, -2)).tolist() == [[12, 17, 0]]


WEIGHTS = np.array([[[[1.0, 0.0]], [[0.0, 1.0]]]])
"""Two heads, one query, two keys: each looks at another key."""


def test_other_patterns_are_put_in_the_place_of_the_heads() -> None:
    assert multi_head.averaged(WEIGHTS).tolist() == [[[[0.5, 0.5]], [[0.5, 0.5]]]]
    assert multi_head.moved_on(WEIGHTS).tolist() == [[[[0, 1]], [[1, 0]]]]
    assert multi_head.even(WEIGHTS).tolist() == [[[[0.5, 0.5]], [[0.5, 0.5]]]]
    assert multi_head.even(WEIGHTS, np.array([[True, False]])).tolist() == [[[[1, 0]], [[1, 0]]]]


def test_what_averaged_heads_lose_by_hand() -> None:
    v = np.array([[[[2.0], [4.0]], [[6.0], [8.0]]]])
    merged, summed, apart = array([[2, 8]]), array([1, 1]), array([1, -1])
    averaged = multi_head.averaged(WEIGHTS)
    # The heads bring 2 and 8; with the mean pattern 3 and 7. Their sum is the same, their difference −6 and −4.
    kept = multi_head.loss(averaged, v, merged, array([[10]]), summed, array(0))
    lost = multi_head.loss(averaged, v, merged, array([[-6]]), apart, array(0))
    assert kept.merged == lost.merged == pytest.approx(math.sqrt(2 / 68))
    assert (kept.out, lost.out) == (0, pytest.approx(1 / 3))
    exact = multi_head.loss(WEIGHTS, v, merged, array([[10]]), summed, array(0))
    assert (exact.merged, exact.out) == (0, 0)


def test_heads_without_a_common_key_are_1_apart_and_equal_ones_0() -> None:
    three = np.concatenate([WEIGHTS, np.array([[[[0.5, 0.5]]]])], axis=1)
    apart = multi_head.distances(three)
    assert apart.tolist() == [[0, 1, 0.5], [1, 0, 0.5], [0.5, 0.5, 0]]
    assert multi_head.mean_distance(apart) == pytest.approx(2 / 3)


def test_one_head_has_no_other_to_differ_from() -> None:
    assert multi_head.mean_distance(multi_head.distances(WEIGHTS[:, :1])) is None
