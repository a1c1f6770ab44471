"""Edits: their text, the cells that they choose, and runs that go on with the changed tensors."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import PROMPT_IDS, STEPS, THREADS, TINY, prompt_of, recorded, tiny_model_of
from hypothesis import given
from hypothesis import strategies as st

from provenance.editing import Editor, acts, cells, patches_of
from provenance.edits import Action, Edit, parse_edit
from provenance.errors import InvalidAddress, InvalidInput, OutOfRange, UnknownSite
from provenance.gpt2.catalogue import CATALOGUE
from provenance.gpt2.model import GPT2
from provenance.names import Address, is_layered
from provenance.recorder import Replayer, plan, record
from provenance.selection import Pick, axis_names, parse_picks
from provenance.store import TraceStore
from provenance.trace import Trace
from provenance.variants import catalogue_of

ROWS = catalogue_of(CATALOGUE, TINY.variants)
START = len(PROMPT_IDS)


def parsed(text: str, last_step: int = STEPS) -> Edit:
    return parse_edit(ROWS, TINY.n_layer, last_step, text, lambda id: id.ljust(32, "0"))


# --- the text of an edit ---


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("h.1.attn.pattern[head=2]=0", "h.1.attn.pattern[head=2] = 0"),
        ("h.1.attn.pattern[ query = 3 , head=0:2 ]*=.5", "h.1.attn.pattern[head=0:2, token=3] *= 0.5"),
        ("h.0.attn.pattern@2[head=2,0,1]=1e-3", "h.0.attn.pattern@2[head=0:3] = 0.001"),
        ("transformer.h.2.attn.c_attn[3d=0:16] *= -1", "h.2.attn.c_attn.c[channel=0:16] *= -1"),
        ("blocks.1.hook_resid_post[T=4]=trace:abcdef", "h.1.resid_post[token=4] = trace:abcdef" + "0" * 26),
        ("h.0.attn.c_proj.w[channel=1] = 0", ""),
        ("h.0.attn.c_attn.w[d=1] = 0", "h.0.attn.c_attn.w[d=1] = 0"),
        ("wte[entry=7] = -0.25", "wte[entry=7] = -0.25"),
        ("ln_f.out=0", "ln_f.out = 0"),
    ],
)
def test_an_edit_is_read_from_any_name_and_printed_in_one_form(text: str, canonical: str) -> None:
    if not canonical:
        with pytest.raises(InvalidInput, match="no axis 'channel'"):
            parsed(text)
        return
    assert str(parsed(text)) == canonical
    assert parsed(canonical) == parsed(text)


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("h.1.attn.pattern", InvalidInput, "is no edit"),
        ("h.1.attn.pattern[head=2]", InvalidInput, "is no edit"),
        ("h.1.attn.pattern[head]=0", InvalidInput, "names no axis"),
        ("h.1.attn.pattern[]=0", InvalidInput, "names no axis"),
        ("h.1.attn.pattern[head=x]=0", InvalidInput, "'x' is no index"),
        ("h.1.attn.pattern[head=2:2]=0", InvalidInput, "is empty"),
        ("h.1.attn.pattern[heads=2]=0", InvalidInput, "no axis 'heads'"),
        ("h.1.attn.pattern[head=1,head=2]=0", InvalidInput, "named twice"),
        ("h.1.attn.pattern=nan", InvalidInput, "finite"),
        ("h.1.attn.pattern=zero", InvalidInput, "is no number"),
        ("h.1.attn.pattern*=trace:abcdef", InvalidInput, "multiplies by a trace"),
        ("h.attn.pattern=0", InvalidAddress, "once in every layer"),
        ("h.1.attn.patern=0", UnknownSite, "patern"),
        ("h.9.attn.pattern=0", OutOfRange, "no layer 9"),
        ("h.1.attn.pattern@9=0", OutOfRange, "step 9"),
        ("h.1.attn.pk@0=0", OutOfRange, "step 0"),
        ("tokens=0", InvalidInput, "whole numbers"),
        ("h.0.attn.mask.m=1", InvalidInput, "whole numbers"),
    ],
)
def test_an_edit_that_cannot_be_is_refused_with_what_is_wrong(text: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        parsed(text)


def test_a_site_of_decode_steps_cannot_be_changed_in_a_run_without_them() -> None:
    with pytest.raises(OutOfRange, match="any step"):
        parsed("h.1.attn.pk=0", last_step=0)


@given(
    st.sampled_from(["h.1.attn.pattern", "h.0.attn.k", "h.2.resid_post", "logits"]),
    st.none() | st.integers(0, STEPS),
    st.dictionaries(
        st.integers(0, 3), st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=5)
    ),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(Action),
)
def test_printing_and_reading_are_inverses(
    place: str, step: int | None, spans: dict[int, list[tuple[int, int]]], value: float, action: Action
) -> None:
    row = ROWS.row(Address.parse(place).site)
    named = {
        name: ranges for at, ranges in spans.items() if at < len(row.shape) and (name := axis_names(ROWS, row)[at])
    }
    text = ", ".join(
        f"{name}={','.join(f'{first}:{first + more}' for first, more in ranges)}" for name, ranges in named.items()
    )
    edit = Edit(
        place=place,
        step=step,
        picks=parse_picks(ROWS, row, text) if text else (),
        action=action,
        value=0.0 if action is Action.PATCH else value,
        source="ab" * 16 if action is Action.PATCH else None,
    )
    assert parsed(str(edit)) == edit


# --- the cells ---


def test_a_position_means_the_same_token_in_every_step() -> None:
    row, edit = ROWS.row("h.attn.scores"), parsed("h.0.attn.scores[token=2,7, key=1]=0")
    shape = (1, 3, START, START)
    prefill = torch.zeros(shape)
    prefill[cells(ROWS, row, edit, 0, START, shape)] = 1
    assert prefill.nonzero().tolist() == [[0, head, 2, 1] for head in range(3)]
    second = torch.zeros(1, 3, 1, START + 2)  # the decode step that runs position 7
    second[cells(ROWS, row, edit, 2, START, second.shape)] = 1
    assert second.nonzero().tolist() == [[0, head, 0, 1] for head in range(3)]
    assert [acts(ROWS, row, edit, step, START) for step in range(4)] == [True, False, True, False]


def test_spans_that_touch_are_one() -> None:
    picks = parse_picks(ROWS, ROWS.row("h.attn.q"), "head=2, 0:1, 1, token=5")
    assert picks == (Pick(axis="head", spans=((0, 3),)), Pick(axis="token", spans=((5, 6),)))


@pytest.mark.parametrize("text", ["h.0.attn.pattern[head=3]=0", "h.0.resid_post[token=9]=0", "wte[entry=97]=0"])
def test_an_index_outside_the_run_is_refused_before_it_runs(tiny_model: GPT2, text: str) -> None:
    with pytest.raises(OutOfRange, match="from 0 on"):
        plan(tiny_model, prompt_of(), steps=STEPS, edits=[parsed(text)])


def test_what_is_marked_discrete_is_what_holds_no_floats(tiny_model: GPT2, tmp_path: Path) -> None:
    trace = recorded(tiny_model, TraceStore(tmp_path))
    for row in ROWS:
        address = Address(
            row.site, 0 if is_layered(row.site) else None, next(n for n in (0, 1) if row.steps.cover(n))
        )
        tensor = Replayer().tensor(tiny_model, trace, address)
        assert row.discrete is not tensor.is_floating_point(), row.site


# --- runs ---


def edited(model: GPT2, store: TraceStore, *texts: str, ids: tuple[int, ...] = PROMPT_IDS) -> Trace:
    """A recorded run with edits, written and read back."""

    def read(id: str, address: Address) -> tuple[Trace, torch.Tensor]:
        trace = store.open(id)
        return trace, Replayer().tensor(model, trace, address)

    edits = [parse_edit(ROWS, model.layers, STEPS, text, store.full_id) for text in texts]
    recipe = plan(model, prompt_of(ids), steps=STEPS, threads=THREADS, edits=edits)
    patches = patches_of(ROWS, recipe, read)
    chosen, tensors = record(model, recipe, patches=patches)
    store.save(recipe, prompt_of(chosen).tokens, tensors, patches)
    return TraceStore(store.directory).open(recipe.id)


def run_by_hand(model: GPT2, change: Callable[[str, int, torch.Tensor], torch.Tensor]) -> dict[str, torch.Tensor]:
    """The whole model in one piece, without recorder or editor; `change` may answer with another tensor."""
    tensors: dict[str, torch.Tensor] = {}
    chosen: list[int] = []
    past: list[torch.Tensor] | None = None
    for step in range(STEPS + 1):

        def tap(place: str, tensor: torch.Tensor, step: int = step) -> torch.Tensor:
            tensors[str(Address.parse(f"{place}@{step}"))] = tensor = change(place, step, tensor)
            return tensor

        tokens = torch.tensor([[chosen[-1]] if step else list(PROMPT_IDS)])
        logits, presents = model.forward(tokens, past, tap)
        past = presents if past is None else [torch.cat(p, dim=-2) for p in zip(past, presents, strict=True)]
        chosen.append(int(logits[0, -1].argmax()))
    return tensors


def zero_head(place: str, step: int, tensor: torch.Tensor) -> torch.Tensor:
    if place != "h.1.attn.pattern":
        return tensor
    return tensor * torch.tensor([1.0, 0.0, 1.0]).view(1, 3, 1, 1)


def double_a_token_in_step_2(place: str, step: int, tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 2 if (place, step) == ("h.0.resid_post", 2) else tensor


def change_the_table(place: str, step: int, tensor: torch.Tensor) -> torch.Tensor:
    if place != "wte":
        return tensor
    return torch.cat((tensor[:42], torch.full_like(tensor[42:43], 0.5), tensor[43:]))


def cached_values(place: str, step: int, tensor: torch.Tensor) -> torch.Tensor:
    if (place, step) != ("h.2.attn.present", 0):
        return tensor
    keys, values = tensor.unbind(1)
    return torch.stack((keys, torch.zeros_like(values)), dim=1)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("h.1.attn.pattern[head=1]=0", zero_head),
        (f"h.0.resid_post[token={START + 1}]*=2", double_a_token_in_step_2),
        ("wte[entry=42]=0.5", change_the_table),
        ("h.2.attn.present@0[part=1]=0", cached_values),
    ],
)
def test_every_tensor_of_an_edited_trace_is_that_of_a_run_changed_by_hand(
    tiny_model: GPT2, tmp_path: Path, text: str, change: Callable[[str, int, torch.Tensor], torch.Tensor]
) -> None:
    torch.set_num_threads(THREADS)
    expected = run_by_hand(tiny_model, change)
    trace = edited(tiny_model, TraceStore(tmp_path), text)
    replayer = Replayer()
    for name, tensor in expected.items():
        ours = replayer.tensor(tiny_model, trace, Address.parse(name))
        assert torch.equal(ours, tensor), name
        segment = replayer.segment(tiny_model, trace, Address.parse(name))
        assert segment.check.bit_for_bit, name


def test_the_edits_are_in_the_id_and_a_run_without_them_keeps_its_own(tiny_model: GPT2, tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    plain = recorded(tiny_model, store)
    changed = edited(tiny_model, store, "h.1.attn.pattern[head=1]=0")
    other = edited(tiny_model, store, "h.1.attn.pattern[head=2]=0")
    assert len({plain.id, changed.id, other.id}) == 3
    assert changed.recipe.unedited.id == plain.id
    assert [str(edit) for edit in store.open(changed.id).recipe.edits] == ["h.1.attn.pattern[head=1] = 0"]


def test_a_trace_of_before_there_were_edits_keeps_its_id(tiny_model: GPT2) -> None:
    recipe = plan(tiny_model, prompt_of(), steps=1, threads=1).model_copy(update={"torch": "2.13.0"})
    assert recipe.id == "3ae3f231964bb9c309c9a3b08196a24c"


def test_a_patch_puts_in_what_the_other_trace_has_and_outlives_it(tiny_model: GPT2, tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    source = recorded(tiny_model, store, (5, 6, 7, 8))
    taken = source.kept(0)["h.0.resid_post"][:, 3].clone()
    trace = edited(tiny_model, store, f"h.0.resid_post@0[token=3]=trace:{source.id[:8]}")
    assert trace.recipe.edits[0].source == source.id
    store.delete(source.id)
    again = TraceStore(tmp_path).open(trace.id)
    assert torch.equal(again.kept(0)["h.0.resid_post"][:, 3], taken)
    assert again.tensors.keys() == recorded(tiny_model, store).tensors.keys()
    address = Address.parse("h.0.resid_post")
    assert Replayer().segment(tiny_model, again, address).check.bit_for_bit


def test_patching_a_trace_with_itself_changes_nothing(tiny_model: GPT2, tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    plain = recorded(tiny_model, store)
    trace = edited(tiny_model, store, f"h.1.attn.context=trace:{plain.id}")
    assert trace.id != plain.id
    assert all(torch.equal(tensor, trace.tensors[name]) for name, tensor in plain.tensors.items())


def test_a_source_that_did_not_run_the_positions_is_refused(tiny_model: GPT2, tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    source = recorded(tiny_model, store, (5, 6), steps=0)
    with pytest.raises(InvalidInput, match="does not run the positions"):
        edited(tiny_model, store, f"h.0.resid_post@0[token=3]=trace:{source.id}")
    with pytest.raises(InvalidInput, match=r"does not fit: its source has \[1, 2, 48\] there, this run \[1, 6, 48\]"):
        edited(tiny_model, store, f"h.0.resid_post@0=trace:{source.id}")
    with pytest.raises(OutOfRange, match="no step 1"):
        edited(tiny_model, store, f"h.0.resid_post=trace:{source.id}")


def test_edits_are_carried_out_in_their_order(tiny_model: GPT2) -> None:
    texts = ("h.0.attn.out = 3", "h.0.attn.out[channel=1] *= 2")
    tensor = torch.ones(1, START, TINY.n_embd)
    both = Editor(ROWS, tuple(parsed(text) for text in texts), START, {}).changed(
        Address.parse("h.0.attn.out"), tensor
    )
    back = Editor(ROWS, tuple(parsed(text) for text in reversed(texts)), START, {})
    assert both[0, 0, :3].tolist() == [3, 6, 3]
    assert back.changed(Address.parse("h.0.attn.out"), tensor)[0, 0, :3].tolist() == [3, 3, 3]
    assert tensor.eq(1).all()  # the model's own tensor is left as it was


def test_removing_a_head_removes_exactly_its_part_of_the_output(tmp_path: Path) -> None:
    model = tiny_model_of()
    store = TraceStore(tmp_path)
    plain, cut = recorded(model, store), edited(model, store, "h.2.attn.pattern[head=0]=0")
    out = Address.parse("h.2.attn.out")
    merged = Replayer().tensor(model, plain, Address.parse("h.2.attn.merged")).numpy()
    weights = model.weights["h.2.attn.c_proj.w"][0].numpy()
    width = TINY.n_embd // TINY.n_head
    part = merged[..., :width].astype(np.float64) @ weights[:width].astype(np.float64)
    gone = (Replayer().tensor(model, plain, out) - Replayer().tensor(model, cut, out)).numpy()
    assert np.abs(gone - part).max() < 2e-5
    assert np.abs(part).max() > 0.5
