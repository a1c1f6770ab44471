"""Verify on a run that was changed on purpose: what is still proven, and what does not apply."""

from pathlib import Path

import pytest
from conftest import THREADS, prompt_of, tiny_model_of
from test_edits import edited
from test_verify import CONFIG, GPT2_FAMILY

from provenance.catalogue import Kind
from provenance.departures import unlike_the_files
from provenance.edits import parse_edit
from provenance.families import FAMILIES
from provenance.gpt2.model import GPT2
from provenance.names import Address, is_layered
from provenance.recorder import Replayer, plan, record
from provenance.sources import Sources, default_sources
from provenance.store import TraceStore
from provenance.trace import Trace
from provenance.verdict import Report
from provenance.verification import verify

pytestmark = pytest.mark.slow

EDITS = ("h.1.attn.pattern@2[head=0] = 0", "h.0.mlp.h[token=2] *= 3", "wte[entry=42] = 0.25")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return default_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def model() -> GPT2:
    return tiny_model_of(CONFIG)


@pytest.fixture(scope="module")
def trace(model: GPT2, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return edited(model, TraceStore(tmp_path_factory.mktemp("changed")), *EDITS)


@pytest.fixture(scope="module")
def report(model: GPT2, trace: Trace, sources: Sources) -> Report:
    return verify(GPT2_FAMILY, model, trace, sources)


def addresses(model: GPT2, trace: Trace) -> list[Address]:
    return [
        Address(row.site, layer, step)
        for step in range(trace.last_step + 1)
        for row in model.catalogue
        if row.steps.cover(step)
        for layer in (range(model.layers) if is_layered(row.site) else (None,))
    ]


def test_the_cited_files_do_not_testify_and_it_is_said_why(report: Report) -> None:
    assert report.holds
    said = f"this run was changed on purpose ({'; '.join(EDITS)}), and the cited file computes the unchanged one"
    assert report.departures["openai"] == report.departures["transformers"] == (said,)
    assert not report.coverage
    assert not report.executions
    assert {parity.source for parity in report.parities} == {"equation"}
    assert all(file.holds for file in report.bytes)


def test_every_equation_is_recomputed_but_those_whose_values_the_edits_made(
    report: Report, model: GPT2, trace: Trace
) -> None:
    computed = {str(at) for at in addresses(model, trace) if model.catalogue.row(at.site).kind is Kind.TENSOR}
    recomputed = {parity.address for parity in report.parities}
    # Position 2 is run in the prefill: in the other steps the second edit has no cell.
    assert computed - recomputed == {"h.1.attn.pattern@2", "h.0.mlp.h"}
    assert all(parity.holds for parity in report.parities)
    assert report.departures["equation"] == (
        f"h.1.attn.pattern: changed by “{EDITS[0]}”", f"h.0.mlp.h: changed by “{EDITS[1]}”",
    )  # fmt: skip


def test_a_table_that_is_changed_in_one_step_alone_is_not_taken_for_that_of_another(
    model: GPT2, sources: Sources, tmp_path: Path
) -> None:
    trace = edited(model, TraceStore(tmp_path), "wte@1[entry=0:97] *= -1", "ln_f.b@0 = 1")
    report = verify(GPT2_FAMILY, model, trace, sources)
    assert report.holds
    assert "equation" not in report.departures  # parameters have no equation
    assert {"logits", "logits@1", "logits@2"} <= {parity.address for parity in report.parities}


def test_a_fault_in_a_changed_run_is_still_caught(
    model: GPT2, trace: Trace, sources: Sources, tmp_path: Path
) -> None:
    recipe = plan(model, prompt_of(), threads=THREADS, edits=trace.recipe.edits[1:2])
    chosen, tensors = record(model, recipe)
    tensors["h.1.resid_post"] = tensors["h.1.resid_post"].clone()
    tensors["h.1.resid_post"][0, 3, 5] += 0.01
    broken = TraceStore(tmp_path).save(recipe, prompt_of(chosen).tokens, tensors)
    report = verify(FAMILIES["gpt2"], model, broken, sources)
    assert not report.holds
    assert [parity.address for parity in report.parities if not parity.holds] == ["h.1.resid_post"]


def test_the_replay_of_a_changed_run_hands_on_what_was_kept(model: GPT2, trace: Trace) -> None:
    replayer = Replayer()
    checks = [replayer.segment(model, trace, at).check for at in addresses(model, trace)]
    assert all(check.bit_for_bit for check in checks)
    assert sum(check.compared for check in checks) > len(checks) / 2


def test_of_many_edits_a_reason_names_the_first_ones(model: GPT2) -> None:
    edits = [parse_edit(model.catalogue, model.layers, 0, f"h.0.attn.out[channel={n}] = 0", str) for n in range(7)]
    (reason,) = unlike_the_files(plan(model, prompt_of(), edits=edits))
    assert reason.startswith("this run was changed on purpose (h.0.attn.out[channel=0] = 0; ")
    assert "h.0.attn.out[channel=3] = 0; and 3 more), and the cited file" in reason
