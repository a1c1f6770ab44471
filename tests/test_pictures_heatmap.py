"""Heatmaps from cells to pixels: planes, joined cells, colours, and the PNG itself; hand-checked numbers."""

import math
import struct
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from app.pages.numbers import rounded
from app.pictures.heatmap import alternative, cell_size, legend, tick_indices, ticks
from app.pictures.parts import Heading, visible
from app.pictures.plane import Plane, Side, side
from provenance.pictures.cells import array_of, plain
from provenance.pictures.colours import (
    HATCH,
    MASKED,
    NAN,
    NEGATIVE,
    POSITIVE,
    SIGN,
    STEPS,
    Scale,
    other,
    ramp,
    scale_of_blocks,
    scale_of_summary,
)
from provenance.pictures.paint import heatmap_png, paint
from provenance.pictures.reduce import Blocks, Is, Reduce, reduce_blocks
from provenance.summary import summarize

Pixels = NDArray[np.uint8]


def decoded(png: bytes) -> tuple[Pixels, Pixels]:
    """A PNG's colour numbers (height, width) and its palette (colours, 3); only what we write is read."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        (sum_,) = struct.unpack(">I", png[at + 8 + size : at + 12 + size])
        assert sum_ == zlib.crc32(kind + content)
        chunks[kind] = content
        at += 12 + size
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height, *form = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert form == [8, 3, 0, 0, 0]
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), dtype=np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()  # no filter
    return lines[:, 1:], np.frombuffer(chunks[b"PLTE"], dtype=np.uint8).reshape(-1, 3)


def lightness(colours: NDArray[Any]) -> NDArray[Any]:
    """CIE L* of sRGB colours, by another way than the ramps are made."""
    linear = np.where(colours <= 10.31475, colours / 255 / 12.92, ((colours / 255 + 0.055) / 1.055) ** 2.4)
    y = linear @ np.array([0.2126, 0.7152, 0.0722])
    return np.where(y > 216 / 24389, 116 * np.cbrt(y) - 16, y * 24389 / 27)


def blocks(values: list[list[float]], kind: Is = Is.VALUE) -> Blocks:
    array = np.array(values)
    return Blocks(array, np.full(array.shape, kind, dtype=np.uint8))


# --- colours ---


def test_a_diverging_ramp_is_blue_then_white_then_orange() -> None:
    colours = np.frombuffer(ramp(True), dtype=np.uint8).reshape(-1, 3).astype(int)
    assert len(colours) == STEPS
    first, middle, last = colours[0], colours[STEPS // 2], colours[-1]
    assert first[2] > first[0] + 80
    assert last[0] > last[2] + 80
    assert middle.min() > 240


@pytest.mark.parametrize("diverging", [True, False])
def test_lightness_only_falls_away_from_the_lightest_colour(diverging: bool) -> None:
    colours = lightness(np.frombuffer(ramp(diverging), dtype=np.uint8).reshape(-1, 3).astype(float))
    lightest = STEPS // 2 if diverging else 0
    assert int(colours.argmax()) == lightest
    assert (np.diff(colours[: lightest + 1]) > -0.35).all()  # a byte of rounding
    assert (np.diff(colours[lightest:]) < 0.35).all()
    assert colours[lightest] - colours[-1] > 45
    if diverging:
        assert abs(colours[0] - colours[-1]) < 4  # both signs are equally strong


def test_other_colours_are_no_colour_of_a_ramp() -> None:
    numbers = (MASKED, HATCH, NAN, POSITIVE, NEGATIVE)
    both = {ramp(way)[at : at + 3].hex() for way in (True, False) for at in range(0, 3 * STEPS, 3)}
    assert len({other(number) for number in numbers}) == len(numbers)
    assert not both & {other(number)[1:] for number in numbers}


def test_limits_are_quantiles_without_masked_and_odd_cells() -> None:
    values = torch.cat([torch.arange(101.0) - 60, torch.tensor([1e9, math.nan, math.inf, -math.inf])])
    masked = torch.tensor([False] * 101 + [True] + [False] * 3)
    # 101 values from −60 to 40: the 1 % quantile is −59, the 99 % quantile 39.
    assert scale_of_summary(summarize(values, masked)) == Scale(-59.0, 59.0, True)


def test_values_of_one_sign_have_a_ramp_that_starts_at_zero_or_near_the_smallest() -> None:
    assert scale_of_summary(summarize(torch.arange(101.0))) == Scale(0.0, 99.0, False)
    assert scale_of_summary(summarize(torch.arange(101.0) + 100)) == Scale(101.0, 199.0, False)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (torch.zeros(4), Scale(0.0, 1.0, False)),
        (torch.ones(4), Scale(0.0, 1.0, False)),
        (torch.tensor([math.nan]), Scale(0.0, 1.0, False)),
        (torch.tensor([-2.0]), Scale(-2.0, 2.0, True)),
        (torch.tensor([True, False]), Scale(0.0, 0.99, False)),
    ],
)
def test_limits_are_never_equal(values: torch.Tensor, expected: Scale) -> None:
    found = scale_of_summary(summarize(values))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.diverging == expected.diverging


def test_joined_cells_have_limits_of_their_own() -> None:
    found = scale_of_blocks(blocks([[-(n + 1.0) for n in range(101)]]))
    assert found == Scale(-100.0, 100.0, True)
    assert scale_of_blocks(blocks([[1.0]], Is.MASKED)) == Scale(0.0, 1.0, False)
    assert scale_of_blocks(blocks([[-1e308, 1e308]])).high == pytest.approx(0.98e308)


def test_values_take_their_place_on_the_ramp_and_the_ends_clip() -> None:
    numbers = Scale(-2.0, 2.0, True).numbers(blocks([[-9.0, -2.0, -1.0, 0.0, 1.0, 2.0, 9.0]]))
    assert numbers.tolist() == [[0, 0, 62, 124, 186, 248, 248]]
    huge = Scale(-1.7e308, 1.7e308, True).numbers(blocks([[-1.7e308, 0.0, 1.7e308]]))
    assert huge.tolist() == [[0, 124, 248]]


# --- planes ---


def test_a_plane_gives_numpys_cells_whichever_axes_are_rows_and_columns() -> None:
    array = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    shown = Plane(side(2, 4, 192), side(3, 5, 256), (1, 2, None, None))
    assert np.array_equal(shown.take(array), array[1, 2])
    turned = Plane(side(3, 5, 192), side(1, 3, 256), (1, None, 2, None))
    assert np.array_equal(turned.take(array), array[1, :, 2, :].T)
    assert turned.pieces == ("1", "C", "2", "R")


@pytest.mark.parametrize("rank", range(7))
def test_a_tensor_of_any_rank_is_a_matrix(rank: int) -> None:
    array = np.arange(2**rank).reshape((2,) * rank)
    rows = side(rank - 2, 2, 192) if rank > 1 else side(None, 1, 192)
    cols = side(rank - 1, 2, 256) if rank else side(None, 1, 256)
    plane = Plane(rows, cols, tuple(1 if axis < rank - 2 else None for axis in range(rank)))
    cells = plane.take(array)
    assert cells.shape == (2 if rank > 1 else 1, 2 if rank else 1)
    assert cells[-1, -1] == 2**rank - 1


def test_windows_hold_at_least_what_can_be_drawn_and_stay_inside() -> None:
    assert side(0, 1000, 256) == Side(0, 1000, 0, 1000, 4)
    assert side(0, 1000, 256).drawn == 250
    assert side(0, 1000, 256, first=900, zoom=2) == Side(0, 1000, 500, 500, 2)
    assert side(0, 1000, 256, zoom=999) == Side(0, 1000, 0, 256, 1)
    assert side(0, 9, 256, first=4, zoom=3) == Side(0, 9, 0, 9, 1)


# --- joined cells ---


@pytest.mark.parametrize("how", Reduce)
def test_joined_cells_are_numpys_mean_and_the_one_furthest_from_zero(how: Reduce) -> None:
    cells = np.random.default_rng(1).normal(size=(7, 10)).astype(np.float32)
    hidden = np.triu(np.ones((7, 10), dtype=bool), 3)
    found = reduce_blocks(cells, hidden, 3, 4, how)
    assert found.values.shape == (3, 3)
    for row in range(3):
        for col in range(3):
            where = (slice(3 * row, 3 * row + 3), slice(4 * col, 4 * col + 4))
            left = cells[where][~hidden[where]].astype(np.float64)
            if not left.size:
                assert found.kinds[row, col] == Is.MASKED
                continue
            expected = left.mean() if how is Reduce.MEAN else left[np.abs(left).argmax()]
            assert found.values[row, col] == pytest.approx(expected, rel=1e-12)


def test_no_reduction_hides_a_nan_or_an_infinity() -> None:
    inf = math.inf
    cells = np.array([[1.0, math.nan, 1.0, inf, 1.0, -inf, inf, -inf, 5.0, math.nan]])
    hidden = np.array([[False] * 9 + [True]])
    kinds = reduce_blocks(cells, hidden, 1, 2, Reduce.MEAN).kinds
    assert kinds.tolist() == [[Is.NAN, Is.POSITIVE, Is.NEGATIVE, Is.POSITIVE, Is.VALUE]]


def test_large_planes_are_joined_in_parts_with_the_same_result() -> None:
    cells = np.random.default_rng(2).normal(size=(5000, 1000)).astype(np.float32)
    found = reduce_blocks(cells, None, 27, 4, Reduce.LARGEST)
    block = cells[27 * 184 : 27 * 185, 4:8]
    assert found.values.shape == (186, 250)
    assert found.values[184, 1] == block.ravel()[np.abs(block).argmax()]


# --- pixels ---


def test_a_png_decodes_to_the_colours_of_its_cells() -> None:
    cells = np.array([[-1.0, 0.0], [0.5, 1.0]])
    hidden = np.zeros((2, 2), dtype=bool)
    drawn = reduce_blocks(cells, hidden, 1, 1, Reduce.MEAN)
    scale = Scale(-1.0, 1.0, True)
    numbers, palette = decoded(heatmap_png(drawn, scale, (2, 3)))
    assert numbers.shape == (4, 6)
    assert numbers[::2, ::3].tolist() == [[0, 124], [186, 248]]
    assert "#" + bytes(palette[numbers[3, 5]]).hex() == scale.css(1.0)
    assert "#" + bytes(palette[numbers[0, 0]]).hex() == scale.css(0.0)


def test_masked_cells_are_hatched() -> None:
    pixels = paint(np.array([[MASKED, 10]], dtype=np.uint8), 12, 12)
    hatched = pixels[:, :12]
    assert set(np.unique(hatched).tolist()) == {MASKED, HATCH}
    assert (hatched == HATCH).sum() == 24  # one diagonal pixel in six
    assert hatched[0, 6] == hatched[1, 5] == HATCH
    assert (pixels[:, 12:] == 10).all()


def test_nan_and_infinities_have_their_colour_and_sign() -> None:
    pixels = paint(np.array([[NAN, POSITIVE, NEGATIVE]], dtype=np.uint8), 15, 15)
    for at, number in enumerate((NAN, POSITIVE, NEGATIVE)):
        cell = pixels[:, 15 * at : 15 * at + 15]
        assert cell[0, 0] == number
        assert cell[7, 7] == SIGN
        assert (cell[3, 7] == SIGN) == (number == POSITIVE)
        assert (cell[3, 3] == SIGN) == (number == NAN)
    assert SIGN not in paint(np.array([[NAN]], dtype=np.uint8), 4, 4)


def test_pictures_stay_small_and_cells_of_tokens_are_squares() -> None:
    plane = Plane(side(0, 1024, 192), side(1, 1024, 192), (None, None))
    high, wide = cell_size(plane, square=True)
    assert high == wide
    assert high * plane.rows.drawn <= 576
    strip = Plane(side(None, 1, 192), side(0, 768, 256), (None,))
    assert cell_size(strip, square=False) == (44, 3)


# --- words around a picture ---


def test_every_cell_of_a_short_side_is_labelled_and_a_long_side_at_round_numbers() -> None:
    assert tick_indices(side(0, 9, 192)) == tuple(range(9))
    assert tick_indices(side(0, 768, 256)) == (0, 100, 200, 300, 400, 500, 600, 700)
    assert tick_indices(side(0, 50257, 256, first=20000, zoom=64)) == (20000, 20100, 20200, 20300, 20400, 20500,
                                                                       20600, 20700)  # fmt: skip
    found = ticks("token", side(0, 2, 192), [Heading("0", "The"), Heading("1", " fox")])
    assert [(tick.at, tick.text, tick.full) for tick in found.shown] == [
        (25.0, "The", "0 “The”"),
        (75.0, "fox", "1 “ fox”"),
    ]


def test_a_token_of_spaces_alone_stays_visible() -> None:
    assert visible("  ") == "␣␣"
    assert visible(" internationalisation") == "internationali"[:13] + "…"


def test_the_text_alternative_names_the_largest_and_smallest_cell() -> None:
    array = np.array([[[1.0, -7.0, math.nan], [3.5, 99.0, 0.0]]], dtype=np.float32)
    hidden = array == 99
    plane = Plane(side(1, 2, 192), side(2, 3, 256), (0, None, None))
    said = alternative(array, hidden, plane, ("token", "channel"), lambda n, at: f"{('token', 'channel')[n]} {at}")
    assert said == (
        "Heatmap of token 0–1 by channel 0–2. Largest value 3.5 at token 1, channel 0; "
        "smallest -7.0 at token 0, channel 1."
    )


def test_the_legend_states_limits_clipping_and_odd_cells() -> None:
    values = torch.cat([torch.arange(101.0) - 60, torch.tensor([math.nan, math.inf])])
    summary = summarize(values)
    shown = legend(scale_of_summary(summary), summary, None)
    assert (shown.low.text, shown.middle.text, shown.high.text) == ("-59", "0", "59")
    assert "1 % and 99 % quantiles of the whole tensor’s finite, unmasked cells" in shown.limits
    assert f"Values beyond, as far as {rounded(-60.0)}, take the end’s colour." in shown.limits
    assert [(swatch.sign, swatch.word, swatch.cells.text) for swatch in shown.swatches] == [
        ("×", "NaN", "1"),
        ("+", "+Inf", "1"),
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.tensor(0.1), 0.1),
        (torch.tensor(math.nan), "NaN"),
        (torch.tensor(-math.inf), "-Infinity"),
        (torch.tensor(1 / 3, dtype=torch.bfloat16), 0.33398438),
        (torch.tensor(7), 7),
        (torch.tensor(True), True),
    ],
)
def test_cells_become_json_that_gives_them_back(value: torch.Tensor, expected: object) -> None:
    found = plain(array_of(value)[()])
    assert found == expected
    assert type(found) is type(expected)
