"""Profiles, sums of products, and arcs as parts: hand-checked numbers."""

import math
import re

import numpy as np
import pytest

from app.pictures.arcs import arc_picture, is_distribution, strongest
from app.pictures.product import product_picture
from app.pictures.profile import largest_columns, row_profile

TOKENS = ("The", " quick", " brown", " fox")


def test_a_profile_draws_the_rms_and_the_ends_of_each_row() -> None:
    cells = np.array([[3.0, 4.0], [0.0, -5.0], [1.0, math.nan]], dtype=np.float32)
    picture = row_profile(cells, None, "token", str)
    assert picture is not None
    # From −5 to 4 over 130 units; RMS are √12.5, √12.5 and 1.
    assert picture.zero == pytest.approx(130 * 4 / 9, abs=0.01)
    heights = [float(y) for y in re.findall(r" (-?[\d.]+)", picture.line)]
    assert heights == pytest.approx([130 * (4 - v) / 9 for v in (12.5**0.5, 12.5**0.5, 1.0)], abs=0.01)
    assert [point.says for point in picture.points] == [
        "token 0: RMS 3.536, from 3 to 4",
        "token 1: RMS 3.536, from -5 to 0",
        "token 2: RMS 1, from 1 to 1",
    ]
    assert picture.alternative == ("RMS by token, 3 in all: largest 3.536 at token 0, smallest 1 at token 2.")


def test_a_profile_of_many_rows_joins_them() -> None:
    cells = np.ones((400, 2))
    cells[399] = 7.0
    picture = row_profile(cells, None, "token", str)
    assert picture is not None
    assert picture.joined == 3
    assert len(picture.points) == 134
    assert picture.points[-1].says == "token 399: RMS 7, from 7 to 7"
    assert picture.points[0].says == "token 0 to 2: RMS 1, from 1 to 1"


def test_a_profile_leaves_out_masked_cells_and_needs_two_rows() -> None:
    cells = np.array([[1.0, 100.0], [2.0, 100.0]])
    picture = row_profile(cells, cells == 100, "row", str)
    assert picture is not None
    assert picture.high == "2"
    assert row_profile(cells[:1], None, "row", str) is None
    assert row_profile(np.full((3, 3), math.nan), None, "row", str) is None


def test_the_largest_columns_come_first_with_their_strongest_cell() -> None:
    cells = np.array([[1.0, -8.0, 0.0], [1.0, 2.0, 3.0]], dtype=np.float32)
    found = largest_columns(cells, None, lambda n: f"c{n}", lambda n: f"r{n}", 2)
    assert [(leader.name, leader.peak.text, leader.peak_at) for leader in found] == [
        ("c1", "-8", "r0"),
        ("c2", "3", "r1"),
    ]
    assert float(found[0].rms.exact) == pytest.approx(34**0.5)
    assert found[0].share == 1.0
    assert found[1].share == pytest.approx((4.5 / 34) ** 0.5, abs=1e-4)


def test_columns_are_numpys_by_rms() -> None:
    cells = np.random.default_rng(3).normal(size=(50, 300)).astype(np.float32)
    expected = np.sqrt((cells.astype(np.float64) ** 2).mean(0)).argsort()[::-1][:8]
    assert [leader.index for leader in largest_columns(cells, None, str, str)] == expected.tolist()


def test_a_product_is_the_sum_of_its_bars() -> None:
    left, right = np.array([1.0, -2.0, 3.0], np.float32), np.array([4.0, 5.0, 0.5], np.float32)
    picture = product_picture(left, right, np.float32(-4.5))
    assert [bar.sign for bar in picture.bars] == ["plus", "minus", "plus"]
    # 4, −10 and 1.5: from −10 to 4 over 140 units, ten a unit.
    assert [bar.height for bar in picture.bars] == [40.0, 100.0, 15.0]
    assert [bar.y for bar in picture.bars] == [0.0, 40.0, 25.0]
    assert (picture.plus.text, picture.minus.text, picture.total.text) == ("5.5", "-10", "-4.5")
    assert picture.factor is None
    assert picture.difference.exact == "0.0"
    assert picture.bars[1].says == "channel 1: -2 × 5 = -10"
    assert "The strongest is channel 1 with -10." in picture.alternative


def test_a_scaled_sum_says_its_factor() -> None:
    picture = product_picture(np.ones(64), np.ones(64), np.float32(8.0))
    assert picture.factor is not None
    assert picture.factor.exact == "0.125"
    assert picture.cell.exact == "8.0"


def test_weights_are_told_from_scores() -> None:
    hidden = np.array([False, False, True])
    assert is_distribution(np.array([0.25, 0.75, 9.0]), hidden)
    assert not is_distribution(np.array([0.25, 0.75, 9.0]), None)
    assert not is_distribution(np.array([-0.5, 1.5]), None)
    assert not is_distribution(np.array([math.nan, 1.0]), None)


def test_the_strongest_keys_are_numpys_and_never_masked() -> None:
    row = np.random.default_rng(4).random(40).astype(np.float32)
    hidden = np.arange(40) > 30
    found = strongest(row, hidden, [str(n) for n in range(40)], str, 3)
    assert [key.index for key in found] == np.argsort(-row[:31])[:5].tolist()
    assert [key.value.exact for key in found] == [str(row[key.index]) for key in found]
    assert found[0].share == 1.0
    assert len(strongest(row[:3], None, TOKENS, str, 0)) == 3


def test_arcs_go_to_the_strongest_keys_and_follow_the_weight() -> None:
    picture = arc_picture(np.array([0.64, 0.0, 0.04, 0.32]), None, TOKENS, 3, lambda at: f"?query={at}")
    assert [word.text for word in picture.words] == ["The", "quick", "brown", "fox"]
    assert [word.chosen for word in picture.words] == [False, False, False, True]
    assert [word.url for word in picture.words][:2] == ["?query=0", "?query=1"]
    assert [word.weight for word in picture.words][:3] == [0.8, 0.0, 0.2]
    assert [arc.width for arc in picture.arcs] == pytest.approx(
        [0.8 + 5 * w**0.5 for w in (0.64, 0.32, 0.04)], abs=0.01
    )
    assert picture.alternative == (
        "Token 3 “ fox” attends most with weight 0.64 to token 0 “The”, 0.32 to token 3 “ fox”, "
        "0.04 to token 2 “ brown”."
    )
    assert picture.outside is None


def test_a_long_text_is_drawn_in_parts_and_says_what_lies_elsewhere() -> None:
    weights = np.full(300, 0.5 / 299)
    weights[10] = 0.5
    picture = arc_picture(weights, None, ["x"] * 300, 250, lambda at: "")
    assert (picture.first, picture.last, len(picture.words)) == (200, 299, 100)
    assert picture.outside is not None
    assert float(picture.outside.text) == pytest.approx(0.5 + 199 * 0.5 / 299, rel=1e-3)
    assert all(word.x + word.width <= picture.width for word in picture.words)
