"""The numbers of the chapters on positions and on the block, checked by hand or by another way."""

import math

import numpy as np
import pytest
import torch

from app.pictures.curves import Series, curves
from provenance.lessons import block, positions


class TestTheSinusoidalTable:
    def test_frequencies_go_from_one_down_by_equal_factors(self) -> None:
        assert positions.divisors(8) == pytest.approx([1.0, 0.1, 0.01, 0.001])
        assert positions.divisors(2) == pytest.approx([1.0])

    def test_sines_stand_in_even_channels_and_cosines_in_odd_ones(self) -> None:
        table = positions.table(np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 0.5]))
        assert table[0] == pytest.approx([0.0, 1.0, 0.0, 1.0])
        assert table[1] == pytest.approx([math.sin(1), math.cos(1), math.sin(0.5), math.cos(0.5)])
        assert table[2] == pytest.approx([math.sin(2), math.cos(2), math.sin(1), math.cos(1)])

    def test_every_row_is_as_long_as_the_root_of_half_its_width(self) -> None:
        table = positions.table(np.arange(50.0)[:, None], positions.divisors(32))
        assert positions.row_norms(table) == pytest.approx(np.full(50, 4.0))

    def test_the_shortest_wave_is_two_pi_positions_long(self) -> None:
        assert positions.wave_lengths(positions.divisors(4)) == pytest.approx([2 * math.pi, 200 * math.pi])


class TestSimilarity:
    def test_of_perpendicular_parallel_and_opposite_rows(self) -> None:
        rows = np.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])
        same, next_to, across = positions.similarities(rows, (0, 1, 2))
        assert (same.mean, same.low, same.high, same.spread) == pytest.approx((1, 1, 1, 0))
        assert (next_to.distance, next_to.mean, next_to.low, next_to.high) == pytest.approx((1, 0, 0, 0))
        assert across.mean == pytest.approx(-1)

    def test_takes_the_mean_and_the_ends_over_all_pairs_at_a_distance(self) -> None:
        rows = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        (found,) = positions.similarities(rows, (1,))
        assert (found.mean, found.low, found.high, found.spread) == pytest.approx((0.5, 0, 1, 1))

    def test_a_row_of_zeros_is_like_none(self) -> None:
        (found,) = positions.similarities(np.array([[0.0, 0.0], [0.0, 1.0]]), (1,))
        assert found.mean == 0

    def test_of_sinusoidal_rows_depends_on_the_distance_alone(self) -> None:
        frequencies = positions.divisors(16)
        table = positions.table(np.arange(40.0)[:, None], frequencies)
        for found in positions.similarities(table, (1, 7, 39)):
            assert found.spread < 1e-12
            assert found.mean == pytest.approx(positions.similarity_by_formula(frequencies, found.distance))


class TestRotation:
    def test_a_quarter_turn_moves_the_sine_to_the_cosine(self) -> None:
        turn = positions.rotation(np.array([math.pi / 2]), 1)
        assert turn == pytest.approx(np.array([[0.0, 1.0], [-1.0, 0.0]]))

    def test_turned_rows_are_the_rows_further_on(self) -> None:
        frequencies = positions.divisors(8)
        table = positions.table(np.arange(20.0)[:, None], frequencies)
        assert positions.turned(table, frequencies, 5) == pytest.approx(table, abs=1e-14)
        assert np.abs(positions.turned(table, frequencies * 1.01, 5) - table).max() > 1e-3

    def test_leaves_lengths_alone(self) -> None:
        turn = positions.rotation(positions.divisors(6), 11)
        assert turn @ turn.T == pytest.approx(np.eye(6))


class TestShuffling:
    @pytest.mark.parametrize("length", [2, 3, 20])
    def test_is_a_permutation_and_never_the_given_order(self, length: int) -> None:
        for seed in range(20):
            order = positions.shuffled(length, seed)
            assert sorted(order) == list(range(length))
            assert order != tuple(range(length))
            assert order == positions.shuffled(length, seed)

    def test_an_output_that_follows_its_vectors_differs_in_place_only(self) -> None:
        output = np.array([[[1.0], [5.0], [2.0]]])
        found = positions.shuffle(output, np.array([[[2.0], [1.0], [5.0]]]), (2, 0, 1))
        assert (found.in_place, found.in_order, found.mean, found.largest) == (4, 0, 0, 5)

    def test_an_output_that_stays_in_place_differs_in_order(self) -> None:
        output = np.array([[[1.0], [5.0]]])
        found = positions.shuffle(output, output + 1, (1, 0))
        assert (found.in_place, found.in_order, found.mean) == (1, 5, 1)


class TestSizes:
    def test_root_mean_square(self) -> None:
        assert block.rms(np.array([[3.0, 4.0], [0.0, 0.0]])) == 2.5

    def test_what_a_half_adds_is_relative_to_what_it_is_added_to(self) -> None:
        found = block.part(*(np.full((1, 2, 2), size) for size in (4.0, 1.0, 5.0, 10.0, 15.0)))
        assert (found.attention_share, found.mlp_share) == (0.25, 2)
        assert block.stream([found, block.Part(15, 1, 16, 1, 17)]) == (4, 15, 17)

    def test_what_goes_to_later_places_lies_above_the_diagonal(self) -> None:
        weights = np.array([[[0.5, 0.25, 0.25], [0.0, 0.0, 1.0], [0.3, 0.3, 0.4]], np.eye(3).tolist()])
        assert block.later_share(weights) == pytest.approx((0.5 + 1.0) / 6)


class TestTheNorm:
    def test_by_hand(self) -> None:
        x = np.array([[1.0, 3.0]])
        assert block.mean(x) == pytest.approx(np.array([[2.0]]))
        assert block.variance(x) == pytest.approx(np.array([[1.0]]))
        normal = block.layer_norm(x, np.array([2.0, 10.0]), np.array([0.5, 0.0]), 3.0)
        assert normal == pytest.approx(np.array([[-0.5, 5.0]]))

    def test_is_torchs(self) -> None:
        x = torch.randn(3, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        gain, bias = torch.linspace(-1, 2, 8, dtype=torch.float64), torch.linspace(0, 1, 8, dtype=torch.float64)
        theirs = torch.nn.functional.layer_norm(x, (8,), gain, bias, 1e-5)
        assert block.layer_norm(x.numpy(), gain.numpy(), bias.numpy(), 1e-5) == pytest.approx(theirs.numpy())


class TestTheMlp:
    def test_linear_has_weights_by_output_and_input(self) -> None:
        weight = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        out = block.linear(np.array([1.0, 2.0]), weight, np.array([0.0, 0.0, 10.0]))
        assert out == pytest.approx([1, 2, 13])

    def test_both_gelus_are_torchs(self) -> None:
        x = torch.linspace(-6, 6, 241, dtype=torch.float64)
        gelu = torch.nn.functional.gelu
        assert block.gelu(x.numpy()) == pytest.approx(gelu(x).numpy(), abs=1e-14)
        assert block.gelu_tanh(x.numpy()) == pytest.approx(gelu(x, approximate="tanh").numpy(), abs=1e-14)

    def test_relu_keeps_what_is_positive(self) -> None:
        assert block.relu(np.array([-2.0, 0.0, 3.0])).tolist() == [0, 0, 3]

    def test_the_exact_gelu_at_one_is_the_normal_distributions_share(self) -> None:
        assert block.gelu(np.array([1.0, 0.0, -1.0])) == pytest.approx([0.8413447461, 0.0, -0.1586552539])

    def test_the_farthest_place_is_given_with_its_input(self) -> None:
        at = np.array([[-1.0, 0.0], [2.0, 3.0]])
        found = block.farthest(at, at + np.array([[0.1, 0.0], [-0.7, 0.2]]), at)
        assert (found.difference, found.at) == pytest.approx((0.7, 2.0))


class TestCounts:
    def test_parameters_are_the_cells_of_all_shapes(self) -> None:
        assert block.parameters([(192, 64), (192,), (64, 64), (64,)]) == 4 * 64**2 + 4 * 64
        assert block.parameters([]) == 0

    def test_ratios_go_field_by_field(self) -> None:
        small = block.Size.of({"d": 64, "H": 8, "hd": 8, "C": 512}, 6, 50_000, 300_000)
        large = block.Size(12, 768, 12, 64, 1024, 7_000_000, 124_000_000)
        found = block.ratios(large, small)
        assert tuple(found) == block.SIZES
        assert (found["layers"], found["width"], found["heads"], found["head_width"]) == (2, 12, 1.5, 8)
        assert (found["context"], found["per_block"]) == (2, 140)


class TestCurves:
    def test_values_lie_between_the_largest_at_the_top_and_zero_or_the_smallest_at_the_bottom(self) -> None:
        picture = curves([Series("a", (0, 1, 2), (3.0, 0.0, -1.0))], "block", "Size")
        assert picture is not None
        assert (picture.width, picture.height) == (640, 180)
        assert picture.curves[0].line == "M0 0L320 135L640 180"
        assert picture.levels == ((0, "3"), (135, "0"), (180, "-1"))
        assert [(tick.x, tick.text, tick.anchor) for tick in picture.ticks] == [
            (0, "0", "start"),
            (320, "1", "middle"),
            (640, "2", "end"),
        ]
        assert picture.curves[0].dots[1].says == "a, block 1: 0"
        assert picture.alternative.startswith(
            "Size by block. a: from 3 at block 0 to -1 at block 2; smallest -1 at 2"
        )

    def test_a_band_goes_out_along_the_high_ends_and_back_along_the_low_ones(self) -> None:
        picture = curves([Series("a", (0, 4), (1.0, 1.0), (0.0, 0.0), (2.0, 1.0))], "k", "Size")
        assert picture is not None
        assert picture.curves[0].band == "M0 0L640 90L640 180L0 180Z"

    def test_one_point_and_no_point(self) -> None:
        picture = curves([Series("a", (3,), (0.0,))], "k", "Size")
        assert picture is not None
        assert picture.curves[0].line == "M0 180"
        assert curves([], "k", "Size") is None
