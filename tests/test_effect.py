"""What an edit did: to its cells, and to the next token's distribution."""

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import PROMPT_IDS, STEPS, THREADS, recorded, tiny_model_of
from test_edits import edited

from provenance.effect import Effect, effect_of
from provenance.errors import InvalidInput
from provenance.gpt2.model import GPT2
from provenance.names import Address
from provenance.recorder import Replayer
from provenance.store import TraceStore
from provenance.trace import Trace


@pytest.fixture
def store(tmp_path: Path) -> TraceStore:
    return TraceStore(tmp_path)


def effect(model: GPT2, store: TraceStore, *texts: str) -> tuple[Effect, Trace, Trace]:
    replayer = Replayer()
    plain, changed = recorded(model, store), edited(model, store, *texts)
    return effect_of(model, plain, changed, lambda trace, at: replayer.tensor(model, trace, at)), plain, changed


def logits(model: GPT2, trace: Trace, step: int = 0) -> np.ndarray:
    return Replayer().tensor(model, trace, Address("logits", None, step))[0].double().numpy()


def softmax(row: np.ndarray) -> np.ndarray:
    powers = np.exp(row - row.max())
    return np.asarray(powers / powers.sum())


def test_divergence_and_ranks_are_those_of_the_two_distributions(tiny_model: GPT2, store: TraceStore) -> None:
    found, plain, changed = effect(tiny_model, store, "h.1.attn.pattern[head=1]=0")
    before, after = softmax(logits(tiny_model, plain)[-1]), softmax(logits(tiny_model, changed)[-1])
    shift = found.shifts[0]
    assert (shift.position.number, shift.position.step) == (len(PROMPT_IDS) - 1, 0)
    assert shift.kl == pytest.approx((before * np.log(before / after)).sum(), rel=1e-9)
    assert shift.kl > 0.01
    expected = {int(n) for n in np.argsort(before)[-5:]} | {int(n) for n in np.argsort(after)[-5:]}
    assert {moved.id for moved in shift.moved} == expected
    for moved in shift.moved:
        assert moved.before.probability == pytest.approx(before[moved.id], rel=1e-9)
        assert moved.after.rank == 1 + (after > after[moved.id]).sum()
    assert shift.best_changed is bool(before.argmax() != after.argmax())
    assert found.none == ""


def test_only_steps_that_ran_the_same_tokens_are_compared(tiny_model: GPT2, store: TraceStore) -> None:
    found, plain, changed = effect(tiny_model, store, "h.0.resid_post *= -1")
    first = next(n for n in range(STEPS) if plain.generated[n].id != changed.generated[n].id)
    assert found.parted == first + 1
    assert [shift.position.step for shift in found.shifts] == list(range(first + 1))
    assert len(found.along) == len(PROMPT_IDS) + first


def test_positions_before_the_change_do_not_move(tiny_model: GPT2, store: TraceStore) -> None:
    found, _, _ = effect(tiny_model, store, "h.0.resid_post@0[token=4] = 0")
    assert found.along[:4] == (0.0, 0.0, 0.0, 0.0)
    assert found.along[4] > 0.01


def test_what_an_edit_did_to_its_cells_is_counted(tiny_model: GPT2, store: TraceStore) -> None:
    found, _, changed = effect(tiny_model, store, "h.1.attn.pattern@0[head=1]=0", "h.1.mlp.h[channel=3:5] *= 2")
    pattern, hidden = found.touched[0], found.touched[1]
    visible = len(PROMPT_IDS) * (len(PROMPT_IDS) + 1) // 2
    assert (str(pattern.address), pattern.chosen, pattern.changed) == ("h.1.attn.pattern", 36, visible)
    assert pattern.largest == pytest.approx(1.0)  # the first token can only attend to itself
    assert (hidden.chosen, hidden.changed) == (12, 12)
    after = Replayer().tensor(tiny_model, changed, Address.parse("h.1.mlp.h"))[..., 3:5]
    assert hidden.largest == pytest.approx(float(after.abs().max()) / 2)
    assert [str(touched.address) for touched in found.touched[2:]] == [f"h.1.mlp.h@{n}" for n in range(1, STEPS + 1)]


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["h.1.attn.pattern[token=0, key=1:6] = 0"], "had these values before"),  # hidden by the mask
        (["h.1.attn.out *= 1"], "had these values before"),
        (["presents = 0"], "nothing computed after reads them"),
        (["h.2.attn.v@3[head=0, channel=0] = 9", "h.2.attn.context@3 = 0", "h.2.attn.context@2 *= 1"], ""),
    ],
)
def test_an_edit_without_effect_says_so(tiny_model: GPT2, store: TraceStore, texts: list[str], says: str) -> None:
    found, _, _ = effect(tiny_model, store, *texts)
    assert says in found.none
    assert bool(found.none) is bool(says)
    if says:
        assert set(found.along) == {0.0}
        assert all(shift.same for shift in found.shifts)


def test_an_edit_of_positions_that_are_never_run_says_so(store: TraceStore) -> None:
    model = tiny_model_of()
    found, _, _ = effect(model, store, "h.1.attn.scores@0[token=8] = 0")
    assert found.touched == ()
    assert "No step of this run" in found.none


def test_logits_that_are_no_distribution_have_no_divergence(tiny_model: GPT2, store: TraceStore) -> None:
    found, _, _ = effect(tiny_model, store, "ln_f.s = -1")
    assert found.shifts[0].kl is None
    assert "not a number" in found.shifts[0].problem
    assert found.along[0] is None


def test_two_traces_that_do_not_belong_together_are_refused(tiny_model: GPT2, store: TraceStore) -> None:
    torch.set_num_threads(THREADS)
    changed = edited(tiny_model, store, "h.1.attn.out = 0")
    other = recorded(tiny_model, store, (1, 2, 3))
    with pytest.raises(InvalidInput, match="no edited run"):
        effect_of(tiny_model, other, changed, lambda trace, at: torch.zeros(1))
