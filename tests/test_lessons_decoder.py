"""The numbers of the causal decoder's lesson, against values worked out by hand."""

import math
from typing import Any

import numpy as np
import pytest

from provenance.lessons import decoder

SCORE = np.array([[0.0, 5.0, 5.0], [0.0, math.log(3), 7.0], [0.0, 0.0, math.log(2)]])
VISIBLE = np.array([[True, False, False], [True, True, False], [True, True, True]])
WEIGHT = np.array([[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.25, 0.25, 0.5]])


def test_the_future_is_what_lies_above_the_diagonal() -> None:
    assert np.array_equal(decoder.future(3), ~VISIBLE)


def test_minus_infinity_leaves_weights_for_what_is_visible_alone() -> None:
    masked = decoder.masked(SCORE, VISIBLE)
    assert masked[0].tolist() == [0.0, -math.inf, -math.inf]
    assert np.allclose(decoder.softmax(masked), WEIGHT, rtol=0, atol=1e-15)


def test_gpt2_forgets_the_hidden_scores_in_float32_and_leaves_the_same_weights() -> None:
    b: Any = VISIBLE.astype(np.float32)
    masked = decoder.masked_by_subtraction(SCORE.astype(np.float32), b)
    assert masked[~VISIBLE].tolist() == [-1e10] * 3
    assert masked[VISIBLE].tolist() == SCORE.astype(np.float32)[VISIBLE].tolist()
    assert np.allclose(decoder.softmax(masked), WEIGHT, rtol=0, atol=1e-7)
    assert decoder.softmax(masked)[0].tolist() == [1.0, 0.0, 0.0]


def test_hidden_weights_are_counted_and_those_that_are_exactly_zero_apart() -> None:
    found = decoder.hidden(np.stack([WEIGHT, WEIGHT]), ~VISIBLE)
    assert (found.cells, found.zero, found.largest, found.total) == (6, 6, 0.0, 0.0)
    assert found.holds
    leaking = WEIGHT.copy()
    leaking[0] = [0.5, 0.5, 0.0]
    found = decoder.hidden(leaking, ~VISIBLE)
    assert (found.cells, found.zero, found.largest) == (3, 2, 0.5)
    assert found.total == pytest.approx(0.5 / 3, rel=1e-12)
    assert not found.holds


def test_the_gap_at_which_a_weight_vanishes_is_float32s_own() -> None:
    gap = decoder.vanishing_gap()
    assert np.exp(np.float32(-gap - 1e-4)) == 0
    assert np.exp(np.float32(-gap + 1e-2)) > 0


def test_the_loss_holds_each_position_against_the_token_after_it() -> None:
    logits = np.log(np.array([[1.0, 2.0, 1.0], [8.0, 1.0, 1.0], [1.0, 1.0, 1.0]])) + 40
    found = decoder.next_token_losses(logits, (2, 1, 0))
    assert found.each == pytest.approx([math.log(2), math.log(1.25)])
    assert found.mean == pytest.approx(math.log(2.5) / 2)
    assert found.perplexity == pytest.approx(math.sqrt(2.5))
    assert found.uniform == pytest.approx(math.log(3))


def test_logits_in_the_hundreds_have_a_loss() -> None:
    found = decoder.next_token_losses(np.array([[900.0, -900.0], [0.0, 0.0]]), (0, 1))
    assert found.each.tolist() == [1800.0]
    assert found.perplexity == math.inf


def test_the_largest_difference_is_taken_position_by_position() -> None:
    a = np.zeros((2, 3, 4))
    b = a.copy()
    b[1, 1, 2], b[0, 1, 0], b[0, 2, 3] = -3.0, 2.0, 0.5
    assert decoder.by_position(a, b).tolist() == [0.0, 3.0, 0.5]


def test_a_changed_token_is_looked_at_before_and_after_it() -> None:
    found = decoder.shift(np.array([0.0, 1e-7, 0.0, 3.0, 0.0, 2.0]), 3)
    assert (found.before, found.after, found.equal_before, found.differ_after) == (1e-7, 3.0, 2, 2)
    first = decoder.shift(np.array([1.0, 2.0]), 0)
    assert (first.before, first.equal_before, first.differ_after) == (0.0, 0, 2)


def test_the_cache_of_gpt2_small_holds_its_keys_and_values() -> None:
    assert decoder.cache_per_token((1, 2, 12, 1, 64), 12) == 2 * 768 * 12 == 18_432


def test_without_a_cache_every_step_runs_the_whole_text_again() -> None:
    assert decoder.positions_run(5, 3, cached=True) == 8
    assert decoder.positions_run(5, 3, cached=False) == 5 + 6 + 7 + 8
    assert decoder.positions_run(5, 0, cached=False) == decoder.positions_run(5, 0, cached=True) == 5
