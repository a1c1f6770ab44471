"""Comparing two traces, and files with a trace: what is named first, what is said, and what never crashes."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from conftest import PROMPT_IDS, TINY, prompt_of, recorded, tiny_model_of
from torch import Tensor

from provenance.compare import (
    Comparison,
    How,
    Recorded,
    Status,
    compare_files,
    compare_named,
    compare_traces,
    upstream,
)
from provenance.edits import parse_edit
from provenance.errors import InvalidInput
from provenance.gpt2.model import GPT2
from provenance.names import Address
from provenance.recorder import Replayer, record
from provenance.store import TraceStore
from provenance.trace import Trace

Falsify = Callable[[Tensor], Tensor]


def side(model: GPT2, trace: Trace, false: Mapping[str, Falsify] | None = None) -> Recorded:
    """A trace as one side; `false` changes what is read at some addresses."""
    replayer = Replayer(0)

    def tensor(address: Address) -> Tensor:
        found = replayer.tensor(model, trace, address)
        change = (false or {}).get(str(address))
        return change(found.clone()) if change else found

    return Recorded(trace, model.catalogue, model.layers, tensor, trace.id[:12])


def off_by(amount: float, *index: int) -> Falsify:
    """Add to one cell."""

    def change(tensor: Tensor) -> Tensor:
        tensor[index] += amount
        return tensor

    return change


def first(found: Comparison) -> str | None:
    return str(found.first_divergence.address) if found.first_divergence else None


@pytest.fixture(scope="module")
def one(tiny_model: GPT2, tiny_trace: Trace) -> Recorded:
    return side(tiny_model, tiny_trace)


def all_ids(trace: Trace) -> tuple[int, ...]:
    """Every token that the trace has run."""
    return (*PROMPT_IDS, *(token.id for token in trace.generated[:-1]))


# --- by steps ---


def test_a_trace_agrees_with_itself_in_every_tensor_of_every_step(one: Recorded) -> None:
    found = compare_traces(one, one)
    assert (found.how, found.agrees, first(found)) == (How.STEPS, True, None)
    assert found.count(Status.SAME) == len(found.rows)
    places = [str(row.address) for row in found.rows]
    assert len(set(places)) == len(places)
    assert places.count("wte") == 1
    assert not [place for place in places if place.startswith("wte@")]
    assert {row.address.step for row in found.rows} == {0, 1, 2, 3}
    expected = sum(len(one.order(step)) for step in range(4))
    assert len(places) == expected


def test_rows_stand_in_the_order_of_computation(one: Recorded) -> None:
    rows = [str(row.address) for row in compare_traces(one, one).rows]
    in_order = [
        "tokens", "wpe", "embed.h", "h.0.ln_1.u", "h.0.attn.q", "h.0.attn.pattern", "h.0.resid_post",
        "h.1.ln_1.u", "h.2.resid_post", "ln_f.out", "logits", "tokens@1", "h.0.past@1", "logits@3",
    ]  # fmt: skip
    assert [rows.index(place) for place in in_order] == sorted(rows.index(place) for place in in_order)


def test_two_models_diverge_at_the_first_parameter_that_differs(one: Recorded, tiny_store: TraceStore) -> None:
    other = tiny_model_of(seed=2, name="other")
    found = compare_traces(one, side(other, recorded(other, tiny_store)))
    assert first(found) == "wpe"
    assert found.row(Address("tokens")) is not None
    assert "The models have other weights: tiny and other." in found.notes


@pytest.mark.slow
def test_two_prompts_of_equal_length_diverge_at_the_tokens(
    one: Recorded, tiny_model: GPT2, tiny_store: TraceStore
) -> None:
    ids = (*PROMPT_IDS[:4], 9, *PROMPT_IDS[5:])
    found = compare_traces(one, side(tiny_model, recorded(tiny_model, tiny_store, ids)))
    assert first(found) == "tokens"
    assert found.first_divergence is not None
    assert (found.first_divergence.first, found.first_divergence.first_values) == ((0, 4), (7.0, 9.0))
    assert "The prompts differ in 1 of 6 tokens, first at position 4." in found.notes
    parameters = [row for row in found.rows if row.address.site.endswith((".w", ".g", "wte"))]
    assert {row.status for row in parameters} == {Status.SAME}


def test_steps_that_one_side_lacks_are_said(one: Recorded, tiny_model: GPT2, tiny_store: TraceStore) -> None:
    found = compare_traces(one, side(tiny_model, recorded(tiny_model, tiny_store, steps=1)))
    assert found.agrees
    assert {row.address.step for row in found.rows} == {0, 1}
    assert "Only A has decode steps over 1; they are not compared." in found.notes


@pytest.mark.slow
def test_bfloat16_agrees_in_what_is_only_rounded_and_has_its_own_tolerance(
    one: Recorded, tiny_store: TraceStore
) -> None:
    coarse = tiny_model_of(dtype="bfloat16")
    found = compare_traces(one, side(coarse, recorded(coarse, tiny_store)))
    row = found.row(Address("embed.h"))
    assert row is not None
    assert (row.status, row.dtypes) == (Status.WITHIN, ("float32", "bfloat16"))
    assert 0 < row.relative < 2**-7
    assert any("dtypes differ: float32 and bfloat16" in note for note in found.notes)
    assert first(compare_traces(one, side(coarse, recorded(coarse, tiny_store)), relative=1e-5)) == "wpe"
    assert compare_traces(one, side(coarse, recorded(coarse, tiny_store)), relative=0.5).first_divergence is None


def test_a_falsified_tensor_is_named_alone_and_what_lies_before_it_agrees(
    one: Recorded, tiny_model: GPT2, tiny_trace: Trace
) -> None:
    false = side(tiny_model, tiny_trace, {"h.1.attn.softmax.ex@2": off_by(1.0, 0, 2, 0, 3)})
    found = compare_traces(one, false)
    assert first(found) == "h.1.attn.softmax.ex@2"
    assert found.count(Status.DIFFERS) == 1
    row = found.first_divergence
    assert row is not None
    assert row.first == (0, 2, 0, 3)
    assert row.largest == pytest.approx(1.0, abs=1e-6)
    before = upstream(found, one.catalogue, one.layers)
    assert before is not None
    assert [(str(each.address), each.difference and each.difference.status) for each in before.inputs] == [
        ("h.1.attn.softmax.x@2", Status.SAME)
    ]
    assert before.operation.id == "softmax"
    assert [evidence.citation.pin.path for evidence in before.cited] == [
        evidence.citation.pin.path for evidence in one.catalogue.operations["softmax"].evidence
    ]
    assert [operation.id for operation in before.agreeing] == ["apply_mask"]


def test_masked_cells_do_not_count_but_must_be_masked(one: Recorded, tiny_model: GPT2, tiny_trace: Trace) -> None:
    def filled(tensor: Tensor) -> Tensor:
        return tensor.masked_fill(tensor < -1e9, torch.finfo(torch.float32).min)

    assert compare_traces(one, side(tiny_model, tiny_trace, {"h.0.attn.scores_masked": filled})).agrees
    shown = side(tiny_model, tiny_trace, {"h.0.attn.scores_masked": lambda t: t.masked_fill(t < -1e9, 0.5)})
    found = compare_traces(one, shown)
    assert first(found) == "h.0.attn.scores_masked"
    row = found.first_divergence
    assert row is not None
    assert (row.first, row.compared) == ((0, 0, 0, 1), 3 * 21)
    assert row.note == "45 cells are masked on one side only"


def test_the_mean_is_measured_by_what_it_is_the_mean_of(one: Recorded, tiny_model: GPT2, tiny_trace: Trace) -> None:
    stream = one.tensor(Address("h.resid_post", 0, 2))
    largest = float(stream.abs().max())
    within = side(tiny_model, tiny_trace, {"h.1.ln_1.u@2": off_by(1e-5 * largest, 0, 0, 0)})
    assert compare_traces(one, within).agrees
    beyond = side(tiny_model, tiny_trace, {"h.1.ln_1.u@2": off_by(1e-4 * largest, 0, 0, 0)})
    found = compare_traces(one, beyond)
    assert first(found) == "h.1.ln_1.u@2"
    assert found.first_divergence is not None
    assert found.first_divergence.relative == pytest.approx(1e-4, rel=0.02)


def test_an_edited_trace_diverges_where_it_was_edited(
    one: Recorded, tiny_model: GPT2, tiny_trace: Trace, tiny_store: TraceStore
) -> None:
    edit = parse_edit(tiny_model.catalogue, 3, 3, "h.1.attn.pattern[head=2] = 0", tiny_store.full_id)
    recipe = tiny_trace.recipe.model_copy(update={"edits": (edit,)})
    chosen, tensors = record(tiny_model, recipe)
    edited = tiny_store.save(recipe, prompt_of(chosen).tokens, tensors)
    found = compare_traces(one, side(tiny_model, edited))
    assert first(found) == "h.1.attn.pattern"
    assert found.first_divergence is not None
    assert found.first_divergence.first == (0, 2, 0, 0)
    assert f"B was edited: {edit}." in found.notes


def test_models_of_other_sizes_are_compared_where_shapes_fit(one: Recorded, tiny_store: TraceStore) -> None:
    small = tiny_model_of(replace(TINY, n_layer=2, n_head=2, n_embd=32, n_inner=64), name="small")
    found = compare_traces(one, side(small, recorded(small, tiny_store)))
    assert not found.agrees
    assert found.row(Address("tokens")) is not None
    wpe = found.row(Address("wpe"))
    assert wpe is not None
    assert (wpe.status, wpe.note) == (Status.UNFIT, "shapes differ: [24, 48] and [24, 32]")
    assert first(found) == "h.0.ln_1.u"
    assert "h.2.resid_post" in found.only_a
    assert found.only_b == ()
    assert not [place for place in found.only_a if not place.startswith("h.2.")]
    assert found.notes[0] == (
        "The models' settings differ: n_embd 48 and 32, n_head 3 and 2, n_inner 112 and 64, n_layer 3 and 2."
    )


def test_each_block_is_replayed_once_for_each_side(
    one: Recorded, tiny_model: GPT2, tiny_store: TraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = recorded(tiny_model, tiny_store, all_ids(one.trace)[:7], steps=2)
    ran: list[tuple[str, str]] = []
    run = GPT2.run

    def counted(self: GPT2, segment: str, step: Mapping[str, Tensor], *rest: object) -> dict[str, Tensor]:
        ran.append((segment, str(step["tokens"].tolist())))
        return run(self, segment, step, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(GPT2, "run", counted)
    for how, steps in ((How.STEPS, 3), (How.POSITIONS, 4)):
        ran.clear()
        compare_traces(side(tiny_model, one.trace), side(tiny_model, trace), how=how)
        replays = [segment for segment, _ in ran]
        assert replays.count("h.1") == (2 * steps if how is How.STEPS else 4 + 3)


# --- by positions ---


@pytest.mark.parametrize(("length", "steps"), [(9, 0), (8, 1), (7, 2)])
def test_a_prefill_agrees_with_decode_steps_at_every_common_position(
    one: Recorded, tiny_model: GPT2, tiny_store: TraceStore, length: int, steps: int
) -> None:
    ids = all_ids(one.trace)
    found = compare_traces(one, side(tiny_model, recorded(tiny_model, tiny_store, ids[:length], steps)))
    assert (found.how, found.agrees) == (How.POSITIONS, True)
    assert max(row.relative for row in found.rows) < 4e-6
    logits, pattern = found.row(Address("logits")), found.row(Address("h.attn.pattern", 2))
    assert logits is not None and pattern is not None
    assert logits.compared == 9 * 97
    assert pattern.compared == 3 * sum(range(1, 10))
    assert pattern.shapes == ((1, 3, 9, 9), (1, 3, 9, 9))


def test_what_has_no_position_is_said_and_not_compared(
    one: Recorded, tiny_model: GPT2, tiny_store: TraceStore
) -> None:
    found = compare_traces(one, side(tiny_model, recorded(tiny_model, tiny_store, all_ids(one.trace), 0)))
    assert found.notes == (
        "The first 9 positions are compared, each with the keys up to itself.",
        "Not compared, as they have no row for each position or count within a step: "
        "h.past, h.attn.pk, h.attn.pv, h.attn.k_all, h.attn.v_all, h.attn.mask.i, h.attn.mask.j.",
    )
    sites = {row.address.site for row in found.rows}
    assert not sites & {"h.past", "h.attn.k_all", "h.attn.mask.i", "h.attn.mask.j"}
    assert sites >= {"positions", "h.attn.mask.m", "h.attn.present", "presents", "logits_flat", "wte"}


@pytest.mark.parametrize("place", ["h.1.attn.v", "h.0.attn.scores_masked", "h.2.mlp.h", "logits_flat", "presents"])
def test_a_tensor_that_is_wrong_in_one_decode_step_is_named_with_its_position(
    one: Recorded, tiny_model: GPT2, tiny_trace: Trace, tiny_store: TraceStore, place: str
) -> None:
    prefill = side(tiny_model, recorded(tiny_model, tiny_store, all_ids(tiny_trace), 0))

    def wrong(tensor: Tensor) -> Tensor:
        return tensor + 1e-2 * tensor.abs().max()

    found = compare_traces(side(tiny_model, tiny_trace, {f"{place}@2": wrong}), prefill)
    assert first(found) == place
    assert found.count(Status.DIFFERS) == 1
    assert found.first_divergence is not None
    assert found.first_divergence.note == "largest at position 7 (A: decode step 2, B: the prefill)"
    row = one.catalogue.row(found.first_divergence.address.site)
    tokens = next(n for n, symbol in enumerate(row.shape) if symbol in ("T", "B·T"))
    assert found.first_divergence.first is not None
    assert found.first_divergence.first[tokens] == 7


def test_prompts_without_a_common_start_leave_only_the_parameters(
    one: Recorded, tiny_model: GPT2, tiny_store: TraceStore
) -> None:
    found = compare_traces(one, side(tiny_model, recorded(tiny_model, tiny_store, (11, 7, 3), 0)))
    assert {one.catalogue.row(row.address.site).kind.value for row in found.rows} == {"parameter"}
    assert found.count(Status.SAME) == len(found.rows) > 0
    assert not found.agrees
    assert "only 2 positions from the start have the same tokens" in found.notes[-1]
    forced = compare_traces(one, side(tiny_model, recorded(tiny_model, tiny_store, (11, 7, 3), 0)), how=How.POSITIONS)
    assert forced.agrees
    logits = forced.row(Address("logits"))
    assert logits is not None
    assert logits.compared == 2 * 97
    assert "A has run 9 positions; those from 2 on are not compared." in forced.notes


def test_steps_of_other_lengths_do_not_fit_when_they_are_asked_for(
    one: Recorded, tiny_model: GPT2, tiny_store: TraceStore
) -> None:
    found = compare_traces(one, side(tiny_model, recorded(tiny_model, tiny_store, (11, 7, 3), 0)), how=How.STEPS)
    assert not found.agrees
    assert first(found) is None
    assert found.unfit[0].note == "shapes differ: [1, 6] and [1, 3]"


def test_what_cannot_be_asked_is_refused(one: Recorded) -> None:
    with pytest.raises(InvalidInput, match="same names"):
        compare_traces(one, one, how=How.NAMES)
    for tolerance in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="tolerance"):
            compare_traces(one, one, relative=tolerance)
        with pytest.raises(InvalidInput, match="tolerance"):
            compare_named(one, {}, relative=tolerance)


# --- files ---


def test_a_file_is_compared_by_any_name_and_in_the_layout_of_that_name(one: Recorded) -> None:
    q = one.tensor(Address("h.attn.q", 1))
    scores = one.tensor(Address("h.attn.scores_masked", 0))
    found = compare_named(
        one,
        {
            "logits": one.tensor(Address("logits"))[0],
            "blocks.1.attn.hook_q": q.transpose(1, 2).contiguous(),
            "blocks.0.attn.hook_attn_scores": scores.masked_fill(scores < -1e9, -torch.inf),
            "transformer.h.0.attn.c_attn.weight": one.tensor(Address("h.attn.c_attn.w", 0))[0],
            "h.2.resid_post@3": one.tensor(Address("h.resid_post", 2, 3)),
        },
    )
    assert (found.how, found.agrees, found.unknown) == (How.NAMES, True, ())
    assert [str(row.address) for row in found.rows] == [
        "h.0.attn.c_attn.w", "h.0.attn.scores_masked", "h.1.attn.q", "logits", "h.2.resid_post@3",
    ]  # fmt: skip
    assert {row.status for row in found.rows} == {Status.SAME}
    assert found.rows[2].name == "blocks.1.attn.hook_q"
    assert "embed.h" in found.only_a


def test_names_shapes_and_steps_that_do_not_fit_are_said(one: Recorded) -> None:
    found = compare_named(
        one,
        {
            "h.0.attn.patern": torch.zeros(1),
            "h.7.resid_post": torch.zeros(1),
            "h.0.past": torch.zeros(1),
            "h.0.attn.pattern": torch.zeros(6, 6),
            "embed.h": one.tensor(Address("embed.h")) + 1,
        },
    )
    assert {unknown.name for unknown in found.unknown} == {"h.0.attn.patern", "h.7.resid_post", "h.0.past"}
    assert next(u for u in found.unknown if u.name == "h.0.attn.patern").near[0] == "h.0.attn.pattern"
    assert first(found) == "embed.h"
    assert [(str(row.address), row.status) for row in found.rows] == [
        ("embed.h", Status.DIFFERS), ("h.0.attn.pattern", Status.UNFIT),
    ]  # fmt: skip
    assert "lacks the axis H, of 3" in found.unfit[0].note


def test_a_file_of_unknown_names_alone_does_not_agree(one: Recorded) -> None:
    found = compare_named(one, {"something": torch.zeros(1)})
    assert (found.rows, found.agrees, first(found)) == ((), False, None)


def test_where_an_input_was_not_compared_the_nearest_above_it_are_named(one: Recorded) -> None:
    found = compare_named(
        one,
        {
            "h.0.ln_1.out": one.tensor(Address("h.ln_1.out", 0)),
            "h.0.attn.q": one.tensor(Address("h.attn.q", 0)),
            "h.0.attn.pattern": one.tensor(Address("h.attn.pattern", 0)).flip(-2),
        },
    )
    before = upstream(found, one.catalogue, one.layers)
    assert before is not None
    assert str(before.address) == "h.0.attn.pattern"
    assert [(str(each.address), each.difference) for each in before.inputs] == [("h.0.attn.softmax.ex", None)]
    assert {operation.id for operation in before.agreeing} == {
        one.catalogue.row("h.attn.q").operation, one.catalogue.row("h.ln_1.out").operation,
    }  # fmt: skip


def test_two_files_are_matched_by_what_their_names_mean(one: Recorded) -> None:
    q, scores = one.tensor(Address("h.attn.q", 0)), one.tensor(Address("h.attn.scores_masked", 0))
    a = {"h.0.attn.q": q, "h.0.attn.scores_masked": scores, "mine": torch.ones(3), "logits": torch.zeros(2)}
    b = {
        "blocks.0.attn.hook_q": q.transpose(1, 2),
        "blocks.0.attn.hook_attn_scores": scores.masked_fill(scores < -1e9, -torch.inf),
        "mine": torch.tensor([1.0, 1.0, 2.0]),
        "yours": torch.zeros(1),
    }
    for one_file, other in ((a, b), (b, a)):
        found = compare_files(one_file, other, one.catalogue)
        assert [(found.place_of(row), row.status) for row in found.rows] == [
            ("h.0.attn.q", Status.SAME), ("h.0.attn.scores_masked", Status.SAME), ("mine", Status.DIFFERS),
        ]  # fmt: skip
        assert {*found.only_a, *found.only_b} == {"logits"}
        assert [unknown.name for unknown in found.unknown] == ["yours"]
        assert upstream(found, one.catalogue, 1) is None


@pytest.mark.parametrize("tokens", [3, 6])
def test_two_files_in_different_layouts_are_not_matched_by_luck(one: Recorded, tokens: int) -> None:
    # With as many tokens as heads both layouts have one shape; the names decide.
    q = torch.randn(1, 3, tokens, 16, generator=torch.Generator().manual_seed(0))
    other = {"blocks.0.attn.hook_q": q.transpose(1, 2).contiguous()}
    assert compare_files({"h.0.attn.q": q}, other, one.catalogue).count(Status.SAME) == 1
    assert compare_files(other, {"h.0.attn.q": q}, one.catalogue).count(Status.SAME) == 1
    wrong = {"blocks.0.attn.hook_q": q}
    assert compare_files({"h.0.attn.q": q}, wrong, one.catalogue).agrees is (tokens != 3)
