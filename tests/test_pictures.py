"""Histogram and value table as parts: hand-checked bars, marks, labels and cells."""

import math

import pytest
import torch

from app.pages.numbers import count, measure, rounded
from app.pictures.histogram import histogram
from app.pictures.parts import Heading
from app.pictures.table import COLUMNS, ROWS, ValueTable, value_table
from provenance.pictures.cells import array_of, exact
from provenance.summary import summarize


def headings(number: int) -> list[Heading]:
    return [Heading(str(index)) for index in range(number)]


def table(values: torch.Tensor, masked: torch.Tensor | None = None) -> ValueTable:
    rows, columns = values.shape
    return value_table(
        values.numpy(),
        None if masked is None else masked.numpy(),
        ("token", "d"),
        headings(rows),
        headings(columns),
        (rows, columns),
    )


def test_the_highest_bar_fills_the_picture_and_the_others_are_in_proportion() -> None:
    values = torch.tensor([0.0] * 4 + [1.0] * 2 + [6.4])
    picture = histogram(summarize(values))
    assert picture is not None
    assert [bar.height for bar in picture.bars] == [150.0, 75.0, 37.5]
    assert [bar.y for bar in picture.bars] == [0.0, 75.0, 112.5]
    # 64 bins of width 0.1 over 640 units; a gap of half a unit on both sides of a bar.
    assert picture.bars[0].x == 0.5
    assert picture.bars[2].x == 630.5
    assert picture.bars[2].says == "6.3 to 6.4: 1 cell"
    assert picture.most.exact == "4"


def test_bars_of_empty_bins_are_left_out() -> None:
    picture = histogram(summarize(torch.tensor([0.0, 64.0])))
    assert picture is not None
    assert len(picture.bars) == 2
    assert picture.bins == 64


def test_marks_stand_at_the_quantiles() -> None:
    picture = histogram(summarize(torch.arange(101, dtype=torch.float32)))
    assert picture is not None
    assert {mark.text: mark.x for mark in picture.marks} == {"5 %": 32.0, "median": 320.0, "95 %": 608.0}
    assert [tick.text for tick in picture.ticks] == ["0", "100"]


def test_marks_that_would_cover_each_other_turn_away_or_share_their_text() -> None:
    equal = histogram(summarize(torch.ones(9)))
    assert equal is not None
    assert [mark.text for mark in equal.marks] == ["5 %, median, 95 %"]
    near = histogram(summarize(torch.tensor([0.0] * 8 + [30.0] + [34.0] * 9 + [100.0])))
    assert near is not None
    # 5 % at the left edge, the median at 0.34 · 640, 95 % at (0.9 · 34 + 0.1 · 100) / 100 · 640 = 259.8.
    assert [(mark.text, mark.x, mark.anchor) for mark in near.marks] == [
        ("5 %", 0.0, "start"),
        ("median", 217.6, "end"),
        ("95 %", 259.84, "start"),
    ]


def test_zero_is_marked_where_it_lies_well_inside_the_range() -> None:
    picture = histogram(summarize(torch.tensor([-1.0, 3.0])))
    assert picture is not None
    assert [(tick.text, tick.x) for tick in picture.ticks] == [("-1", 0.0), ("0", 160.0), ("3", 640.0)]


def test_the_text_alternative_says_what_the_picture_shows() -> None:
    picture = histogram(summarize(torch.arange(101, dtype=torch.float32)))
    assert picture is not None
    assert picture.alternative == (
        "Histogram of 101 values from 0 to 100. Half of them lie between 25 and 75, the median is 50. "
        "The fullest of 64 bins, 0 to 1.562, holds 2."
    )


def test_there_is_no_picture_of_values_that_are_not_finite() -> None:
    assert histogram(summarize(torch.tensor([math.nan, math.inf]))) is None


def test_masked_cells_are_in_no_bar() -> None:
    values = torch.tensor([[1.0, -1e10], [1.0, 2.0]])
    picture = histogram(summarize(values, torch.tensor([[False, True], [False, False]])))
    assert picture is not None
    assert picture.alternative.startswith("Histogram of 3 values from 1 to 2.")


def test_a_table_shows_the_upper_left_part_and_says_which() -> None:
    shown = table(torch.arange(20 * 30, dtype=torch.float32).reshape(20, 30))
    assert shown.part == "token 0–15 of 20 × d 0–11 of 30"
    assert len(shown.rows) == ROWS
    assert [heading.index for heading in shown.columns] == [str(index) for index in range(COLUMNS)]
    assert shown.rows[15][1][11].exact == "461.0"  # 15 · 30 + 11


def test_a_table_that_shows_all_says_so() -> None:
    assert table(torch.zeros(1, 3)).part == "token 0 × d 0–2"


def test_cells_of_a_table_have_the_same_decimals() -> None:
    (row,) = table(torch.tensor([[1.0, -0.123456, 12.5]])).rows
    assert [cell.text for cell in row[1]] == ["1.00", "-0.12", "12.50"]


def test_cells_of_very_different_size_are_rounded_each_on_its_own() -> None:
    (row,) = table(torch.tensor([[1e-9, 1e9]])).rows
    assert [cell.text for cell in row[1]] == ["1.000e-09", "1.000e+09"]


def test_cells_that_are_no_plain_values_say_what_they_are() -> None:
    values = torch.tensor([[math.nan, math.inf, -math.inf, -1e10, 0.5]])
    shown = table(values, torch.tensor([[False, False, False, True, False]]))
    ((_, cells),) = shown.rows
    assert [cell.kind for cell in cells] == ["nan", "infinite", "infinite", "masked", "value"]
    assert [cell.text for cell in cells] == ["NaN", "+Inf", "−Inf", "·", "0.5000"]
    assert cells[3].exact == "masked (-1e+10)"
    assert shown.has_masked


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.tensor(0.1), "0.1"),
        (torch.tensor(0.1, dtype=torch.float64), "0.1"),
        (torch.tensor(1 / 3, dtype=torch.bfloat16), "0.33398438"),
        (torch.tensor(50256), "50256"),
        (torch.tensor(True), "True"),
    ],
)
def test_exact_values_have_the_fewest_digits_that_give_them_back(value: torch.Tensor, text: str) -> None:
    assert exact(array_of(value)[()]) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (82.3071, "82.31"),
        (-3.77654, "-3.777"),
        (12345.6, "12346"),
        (1234567.0, "1.235e+06"),
        (0.00012, "1.200e-04"),
        (math.inf, "inf"),
    ],
)
def test_numbers_are_rounded_for_reading(value: float, text: str) -> None:
    assert rounded(value) == text


def test_numbers_keep_the_exact_one_behind_the_rounded() -> None:
    assert measure(1 / 3).exact == "0.3333333333333333"
    assert measure(None).text == "–"
    assert count(1234567).text == "1\u202f234\u202f567"
    assert count(1234567).exact == "1234567"
