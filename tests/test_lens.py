"""Predictions and the logit lens, against NumPy written here."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import PROMPT_IDS, STEPS, TINY, recorded, tiny_model_of
from numpy.typing import NDArray

from provenance.errors import OutOfRange
from provenance.gpt2.model import GPT2
from provenance.lens import Lens, Position, distribution, logit_lens, position_of, positions_around, sequence
from provenance.names import Address
from provenance.recorder import Replayer
from provenance.store import TraceStore
from provenance.trace import Trace

Array = NDArray[np.float64]
PROMPT = len(PROMPT_IDS)


def recorded_logits(model: GPT2, trace: Trace, positions: tuple[Position, ...]) -> torch.Tensor:
    replayer = Replayer()
    return torch.stack(
        [replayer.tensor(model, trace, Address("logits", None, p.step))[0, p.index] for p in positions]
    )


def lens_of(model: GPT2, trace: Trace, top: int = 3) -> Lens:
    positions = positions_around(trace, position_of(trace), 12)
    return logit_lens(model, trace, positions, recorded_logits(model, trace, positions), top)


# --- one distribution ---


def test_probabilities_are_numpys_softmax() -> None:
    logits = torch.randn(97, generator=torch.Generator().manual_seed(3)) * 4
    found = distribution(logits, 97)
    wide: Array = logits.numpy().astype(np.float64)
    expected = np.exp(wide - wide.max()) / np.exp(wide - wide.max()).sum()
    assert [c.probability for c in found.top] == pytest.approx(
        expected[[c.id for c in found.top]].tolist(), rel=1e-12
    )
    assert [c.id for c in found.top] == np.argsort(-expected, kind="stable").tolist()
    assert [c.rank for c in found.top] == list(range(1, 98))
    assert found.entropy == pytest.approx(-(expected * np.log(expected)).sum(), rel=1e-12)


def test_entropy_of_a_half_a_quarter_and_two_eighths_is_seven_quarters_of_a_bit() -> None:
    found = distribution(torch.tensor([0.5, 0.25, 0.125, 0.125]).double().log(), 4)
    assert found.bits == pytest.approx(1.75, rel=1e-12)
    assert found.entropy == pytest.approx(1.75 * math.log(2), rel=1e-12)
    assert found.choices == pytest.approx(2**1.75, rel=1e-12)


def test_a_token_of_probability_zero_adds_nothing_to_the_entropy() -> None:
    found = distribution(torch.tensor([0.0, 0.0, -math.inf, -1e6]), 4)
    assert found.bits == pytest.approx(1.0, rel=1e-12)
    assert [c.probability for c in found.top] == [0.5, 0.5, 0.0, 0.0]
    assert found.top[-1].logit == -math.inf


def test_equal_logits_share_a_rank_and_the_lowest_id_comes_first() -> None:
    found = distribution(torch.tensor([1.0, 5.0, 3.0, 5.0, 3.0, 3.0]), 4, watch=5)
    assert [(c.id, c.rank) for c in found.top] == [(1, 1), (3, 1), (2, 3), (4, 3)]
    assert found.watched is not None and found.watched.rank == 3
    assert found.best == int(torch.tensor([1.0, 5.0, 3.0, 5.0, 3.0, 3.0]).argmax())


def test_half_precision_logits_are_widened_first() -> None:
    found = distribution(torch.tensor([-100.0, -100.5, -200.0], dtype=torch.bfloat16), 2)
    assert found.top[0].probability == pytest.approx(1 / (1 + math.exp(-0.5)), rel=1e-12)


@pytest.mark.parametrize(
    ("value", "says"), [(math.nan, "1 of the 3 logits are not a number"), (math.inf, "1 of the 3 logits are +Inf")]
)
def test_logits_that_are_no_distribution_say_why(value: float, says: str) -> None:
    found = distribution(torch.tensor([0.0, value, 1.0]), 3, watch=0)
    assert says in found.problem
    assert (found.top, found.entropy, found.watched, found.best, found.bits) == ((), None, None, None, None)
    assert "Every logit is −Inf" in distribution(torch.full((2,), -math.inf), 2).problem


# --- positions ---


def test_a_position_knows_the_step_that_ran_it(tiny_trace: Trace) -> None:
    assert position_of(tiny_trace) == Position(PROMPT - 1, 0, PROMPT - 1)
    assert position_of(tiny_trace, number=2) == Position(2, 0, 2)
    assert position_of(tiny_trace, step=2) == Position(PROMPT + 1, 2, 0) == position_of(tiny_trace, number=PROMPT + 1)
    assert position_of(tiny_trace, step=0, number=1) == Position(1, 0, 1)


@pytest.mark.parametrize(
    ("step", "number", "says"),
    [
        (None, PROMPT + STEPS, f"positions 0 to {PROMPT + STEPS - 1}"),
        (None, -1, "has not run a position -1"),
        (STEPS + 1, None, f"no step {STEPS + 1}"),
        (1, 0, "Position 0 was not run in step 1, but in the prefill"),
    ],
)
def test_a_position_that_was_not_run_is_refused(
    tiny_trace: Trace, step: int | None, number: int | None, says: str
) -> None:
    with pytest.raises(OutOfRange, match=says):
        position_of(tiny_trace, step, number)


def test_a_window_stays_inside_and_holds_its_centre(tiny_trace: Trace) -> None:
    last = PROMPT + STEPS - 1
    for number in range(last + 1):
        window = positions_around(tiny_trace, position_of(tiny_trace, number=number), 4)
        numbers = [position.number for position in window]
        assert numbers == list(range(numbers[0], numbers[0] + 4))
        assert number in numbers and numbers[0] >= 0 and numbers[-1] <= last
    assert len(positions_around(tiny_trace, position_of(tiny_trace), 99)) == last + 1


# --- the lens ---


def numpy_lens(model: GPT2, x: Array) -> Array:
    """Final LayerNorm and unembedding in float64, written anew."""
    weights = {name: model.weights[name].numpy().astype(np.float64) for name in ("ln_f.g", "ln_f.b", "wte")}
    centred = x - x.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + TINY.epsilon)
    read: Array = (normed * weights["ln_f.g"] + weights["ln_f.b"]) @ weights["wte"].T
    return read


def test_every_cell_is_numpys(tiny_model: GPT2, tiny_trace: Trace) -> None:
    lens = lens_of(tiny_model, tiny_trace)
    assert [stage.place for stage in lens.stages] == ["embed.h", *(f"h.{n}.resid_post" for n in range(TINY.n_layer))]
    for stage in lens.stages:
        for position, cell in zip(lens.positions, stage.cells, strict=True):
            kept = tiny_trace.kept(position.step)[stage.place][0, position.index].numpy().astype(np.float64)
            logits = numpy_lens(tiny_model, kept)
            odds = np.exp(logits - logits.max())
            odds /= odds.sum()
            assert cell.best == int(logits.argmax())
            assert cell.top[0].probability == pytest.approx(odds.max(), rel=1e-4)
            assert cell.watched is not None
            assert cell.watched.rank == 1 + int((logits > logits[cell.watched.id]).sum())


def test_the_last_stage_equals_the_recorded_logits(tiny_model: GPT2, tiny_trace: Trace) -> None:
    lens = lens_of(tiny_model, tiny_trace)
    assert lens.holds
    assert lens.largest_difference < 1e-5
    assert all(lens.agrees(len(lens.stages) - 1, column) for column in range(len(lens.positions)))
    chosen = [token.id for token in sequence(tiny_trace)[PROMPT:]]
    assert list(lens.final[PROMPT - 1 :]) == chosen  # greedy: what is predicted is what was chosen


def test_the_first_and_the_settled_stage_are_those_of_the_cells(tiny_model: GPT2, tiny_trace: Trace) -> None:
    lens = lens_of(tiny_model, tiny_trace)
    for column in range(len(lens.positions)):
        agree = [stage.cells[column].best == lens.final[column] for stage in lens.stages]
        assert lens.first(column) == agree.index(True)
        assert lens.settled(column) == len(agree) - 1 - [*reversed(agree), False].index(False) + 1


def test_other_recorded_logits_are_told_apart(tiny_model: GPT2, tiny_trace: Trace) -> None:
    positions = (position_of(tiny_trace),)
    logits = recorded_logits(tiny_model, tiny_trace, positions).clone()
    logits[0, 5] += 0.01
    lens = logit_lens(tiny_model, tiny_trace, positions, logits, 1)
    assert not lens.holds
    assert lens.largest_difference == pytest.approx(0.01, rel=1e-2)


def test_unembedding_is_the_models_own_output(tiny_model: GPT2, tiny_trace: Trace) -> None:
    kept = tiny_trace.kept(0)
    logits = tiny_model.run("output", kept, [])["logits"]
    assert torch.equal(tiny_model.unembed(kept[f"h.{TINY.n_layer - 1}.resid_post"]), logits)


def test_a_model_that_gives_nan_has_a_lens_without_predictions(tmp_path: Path) -> None:
    model = tiny_model_of(seed=5, name="broken")
    model.weights = {**model.weights, "ln_f.g": torch.full_like(model.weights["ln_f.g"], math.nan)}
    trace = recorded(model, TraceStore(tmp_path), steps=1)
    lens = lens_of(model, trace)
    assert set(lens.final) == {None}
    assert {cell.problem != "" for stage in lens.stages for cell in stage.cells} == {True}
    assert (lens.first(0), lens.settled(0), lens.agrees(0, 0)) == (None, None, False)
    assert lens.holds  # the same cells are NaN in both
