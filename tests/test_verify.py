"""Verify: what holds on a right model, and that each kind of fault is caught where it enters."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import TINY, prompt_of, recorded, tiny_model_of
from safetensors.torch import save_file
from torch.nn.functional import gelu

from provenance.catalogue import Catalogue
from provenance.citation import cite
from provenance.digest import digest
from provenance.families import FAMILIES, Family
from provenance.gpt2 import model as model_module
from provenance.gpt2 import points_transformers, witnesses
from provenance.gpt2.catalogue import CATALOGUE
from provenance.gpt2.config import Config
from provenance.gpt2.model import GPT2
from provenance.gpt2.pins import OPENAI
from provenance.gpt2.points_transformers import Held
from provenance.gpt2.weights import checkpoint_keys
from provenance.names import Address, is_layered
from provenance.recorder import plan, record
from provenance.sources import DirectoryCarrier, PackageCarrier, Sources, default_sources
from provenance.store import TraceStore
from provenance.trace import Trace
from provenance.verdict import Parity, Ran, Report
from provenance.verification import verify

pytestmark = pytest.mark.slow

CONFIG = Config(n_layer=2, n_head=3, n_embd=48, n_ctx=24, n_vocab=97, n_inner=192)
"""What OpenAI's code fixes, it has: ε = 1e-5 and an MLP of four times the width."""

GPT2_FAMILY = FAMILIES["gpt2"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return default_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def model() -> GPT2:
    return tiny_model_of(CONFIG)


@pytest.fixture(scope="module")
def trace(model: GPT2, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return recorded(model, TraceStore(tmp_path_factory.mktemp("verified")), steps=2)


@pytest.fixture(scope="module")
def report(model: GPT2, trace: Trace, sources: Sources) -> Report:
    return verify(GPT2_FAMILY, model, trace, sources)


def family(catalogue: Catalogue) -> Family:
    return replace(GPT2_FAMILY, catalogue=catalogue)


def failing(report: Report, source: str) -> list[str]:
    return [parity.address for parity in report.parities if parity.source == source and not parity.holds]


def verify_fault(model: GPT2, sources: Sources, tmp_path: Path) -> Report:
    """Record with a faulty model, and verify that recording."""
    return verify(GPT2_FAMILY, model, recorded(model, TraceStore(tmp_path), steps=1), sources)


# --- what holds ---


def test_everything_holds_on_a_right_model(report: Report) -> None:
    assert report.holds
    assert report.departures == {}
    assert [verdict.blob for verdict in report.bytes] == [
        "230b83cc2ac7582b4a22e9db3c2d8916dfe2ea9a",
        "da1e9a64c8e0c829bd3f4abe26cdc89d0c3414f4",
    ]


def test_every_assignment_of_openais_file_is_a_site_but_one(report: Report) -> None:
    coverage = next(c for c in report.coverage if c.source == "openai")
    assert (coverage.assignments, coverage.mapped) == (54, 53)
    assert coverage.unmapped == coverage.unseen == ()
    (exception,) = coverage.exceptions
    assert exception.startswith("value (expand_tile, line 137): ")


def test_every_assignment_of_transformers_file_is_a_site(report: Report) -> None:
    coverage = next(c for c in report.coverage if c.source == "transformers")
    assert (coverage.assignments, coverage.mapped) == (46, 46)
    assert "h.attn.scores_raw" in coverage.unseen  # it is part of an expression there


def test_every_tensor_of_the_trace_is_compared_with_openais(report: Report, model: GPT2, trace: Trace) -> None:
    expected = {
        str(Address(row.site, layer, step))
        for step in range(trace.last_step + 1)
        for row in model.catalogue
        if row.steps.cover(step)
        for layer in (range(model.layers) if is_layered(row.site) else (None,))
    }
    assert {parity.address for parity in report.parities if parity.source == "openai"} == expected


def test_every_computed_tensor_has_an_equation(report: Report) -> None:
    computed = {row.site for row in CATALOGUE if row.kind == "tensor"}
    recomputed = {Address.parse(parity.address).site for parity in report.parities if parity.source == "equation"}
    assert recomputed == computed


def test_every_citation_ran_and_openais_all_produced_their_tensors(report: Report, model: GPT2) -> None:
    assert all(execution.ran is Ran.PRODUCED for execution in report.executions if execution.source == "openai")
    cited = {(e.operation, e.label, e.lines) for e in report.executions}
    assert cited == {
        (operation.id, evidence.label, evidence.citation.lines)
        for operation in model.catalogue.operations.values()
        for evidence in operation.evidence
    }
    norm = next(e for e in report.executions if (e.operation, e.source) == ("ln_1", "openai"))
    assert norm.produced == (34, 35, 36, 37, 38)


def test_score_like_tensors_are_compared_on_their_visible_cells_only(report: Report) -> None:
    masked = report.parity("h.0.attn.scores_masked", "transformers")
    assert masked is not None
    assert masked.visible_only
    assert masked.largest_reference < 1e4  # neither -1e10 nor the dtype's minimum
    pattern = report.parity("h.0.attn.pattern", "openai")
    assert pattern is not None
    assert not pattern.visible_only


def test_a_report_survives_json(report: Report) -> None:
    assert Report.model_validate_json(report.model_dump_json()) == report


# --- faults of a citation ---


def with_evidence(operation: str, index: int, *spans: tuple[str, int] | tuple[str, int, int]) -> Catalogue:
    """The catalogue with one piece of evidence cited otherwise."""
    operations = dict(CATALOGUE.operations)
    old = operations[operation]
    evidence = list(old.evidence)
    evidence[index] = replace(evidence[index], citation=cite(evidence[index].citation.pin, *spans))
    operations[operation] = replace(old, evidence=tuple(evidence))
    return Catalogue("gpt2", CATALOGUE, operations.values(), CATALOGUE.axes.values())


def test_a_citation_one_line_off_is_caught_by_its_anchor(model: GPT2, trace: Trace, sources: Sources) -> None:
    wrong = with_evidence("add_attention", 0, ("block:x", 128))
    report = verify(family(wrong), model, trace, sources)
    assert not report.holds
    assert "128" in report.bytes[0].problem


def test_a_citation_of_the_neighbouring_statement_is_caught_by_execution(
    model: GPT2, trace: Trace, sources: Sources
) -> None:
    wrong = with_evidence("add_attention", 0, ("block:m", 128))
    report = verify(family(wrong), model, trace, sources)
    (caught,) = [execution for execution in report.executions if not execution.holds]
    assert (caught.operation, caught.lines, caught.ran) == ("add_attention", "128", Ran.ELSEWHERE)


def test_a_citation_of_lines_that_did_not_run_is_caught(model: GPT2, trace: Trace, sources: Sources) -> None:
    wrong = with_evidence("ln_1", 1, ("GPT2Block.forward:residual#2..hidden_states#3", 291, 292))
    report = verify(family(wrong), model, trace, sources)
    (caught,) = [execution for execution in report.executions if not execution.holds]
    assert (caught.operation, caught.ran) == ("ln_1", Ran.NOT)


def test_one_changed_byte_in_a_source_is_caught(model: GPT2, trace: Trace, tmp_path: Path) -> None:
    delivery = PackageCarrier().read(OPENAI)
    assert delivery is not None
    file = tmp_path / "gpt-2" / "src" / "model.py"
    file.parent.mkdir(parents=True)
    file.write_bytes(delivery.data.replace(b"1e10", b"1e11"))
    report = verify(GPT2_FAMILY, model, trace, Sources([DirectoryCarrier(tmp_path)], tmp_path / "cache"))
    assert not report.holds
    assert not report.bytes[0].holds
    assert report.departures["openai"] == ("its file is not at hand",)


# --- faults of a name ---


def test_a_wrong_alias_of_a_parameter_is_caught(
    model: GPT2, trace: Trace, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = CATALOGUE.row("h.ln_1.g"), CATALOGUE.row("h.ln_2.g")
    swapped = {one.site: replace(one, aliases=two.aliases), two.site: replace(two, aliases=one.aliases)}
    wrong = Catalogue(
        "gpt2",
        [swapped.get(row.site, row) for row in CATALOGUE],
        CATALOGUE.operations.values(),
        CATALOGUE.axes.values(),
    )
    keep = witnesses._stored(model)  # the checkpoint's own keys are right
    monkeypatch.setattr(witnesses, "CATALOGUE", wrong)
    monkeypatch.setattr(witnesses, "_stored", lambda _: keep)
    monkeypatch.setattr(witnesses, "_parameters", lambda m, scheme: _parameters(wrong, CATALOGUE, m, scheme))
    report = verify(GPT2_FAMILY, model, trace, sources)
    assert "h.0.ln_1.g" in failing(report, "openai")


def _parameters(scopes: Catalogue, keys: Catalogue, model: GPT2, scheme: str) -> dict[str, str]:
    """Scopes after the wrong catalogue, checkpoint keys after the right one."""
    found = {}
    for row in keys if scheme == witnesses.KEY else scopes:
        names = [alias.pattern for alias in row.aliases if alias.scheme == scheme]
        if row.kind == "parameter" and names:
            for layer in range(model.layers) if is_layered(row.site) else (0,):
                place = row.site.replace("h.", f"h.{layer}.", 1) if is_layered(row.site) else row.site
                found[names[-1].replace("{layer}", str(layer))] = place
    return found


def test_a_wrong_row_in_the_table_of_transformers_lines_is_caught(
    model: GPT2, trace: Trace, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = dict(points_transformers.HOLDS)
    wrong["GPT2MLP.forward", 239, "hidden_states"] = Held("h.mlp.h")
    monkeypatch.setattr(witnesses, "HOLDS", wrong)
    report = verify(GPT2_FAMILY, model, trace, sources)
    assert set(failing(report, "transformers")) == {f"h.{n}.mlp.h{s}" for n in range(2) for s in ("", "@1", "@2")}


def test_an_assignment_without_a_site_is_caught(
    model: GPT2, trace: Trace, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {place: held for place, held in points_transformers.HOLDS.items() if place[1] != 282}
    monkeypatch.setattr(witnesses, "HOLDS", wrong)
    report = verify(GPT2_FAMILY, model, trace, sources)
    coverage = next(c for c in report.coverage if c.source == "transformers")
    assert coverage.unmapped == ("hidden_states (GPT2Block.forward, line 282)",)
    assert not report.holds


# --- faults of the model ---


class SwappedQueriesAndKeys(GPT2):
    def _pattern(self, at: str, q: torch.Tensor, k: torch.Tensor, tap: Callable[..., torch.Tensor]) -> torch.Tensor:
        return super()._pattern(at, k, q, tap) if q.shape == k.shape else super()._pattern(at, q, k, tap)


class MaskOffByOne(GPT2):
    def _mask(self, at: str, w: torch.Tensor, tap: Callable[..., torch.Tensor]) -> torch.Tensor:
        def shifted(place: str, tensor: torch.Tensor) -> torch.Tensor:
            return tap(place, tensor + 1 if place.endswith(".i") else tensor)

        return super()._mask(at, w, shifted)


@pytest.mark.parametrize(
    ("kind", "first"),
    [(SwappedQueriesAndKeys, "h.0.attn.scores_raw"), (MaskOffByOne, "h.0.attn.mask.i")],
)
def test_a_fault_of_the_model_is_caught_where_it_enters(
    kind: type[GPT2], first: str, sources: Sources, tmp_path: Path
) -> None:
    right = tiny_model_of(CONFIG)
    report = verify_fault(kind(right.config, right.weights, right.info), sources, tmp_path)
    assert _first_failure(report, "openai") == first
    assert first in failing(report, "equation")


def test_an_exact_gelu_is_caught(sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FRESH", "IN_PLACE"):
        monkeypatch.setattr(model_module, name, replace(getattr(model_module, name), gelu=gelu))
    report = verify_fault(tiny_model_of(CONFIG), sources, tmp_path)
    assert _first_failure(report, "openai") == _first_failure(report, "transformers") == "h.0.mlp.h"
    assert "h.0.mlp.h" in failing(report, "equation")


def _first_failure(report: Report, source: str) -> str:
    """The first tensor of the prefill, in order of computation, that differs."""
    order = {row.site: index for index, row in enumerate(CATALOGUE)}

    def place(text: str) -> tuple[int, int]:
        address = Address.parse(text)
        outside = -1 if CATALOGUE.row(address.site).group[-1] == "Embedding" else CONFIG.n_layer
        return (outside if address.layer is None else address.layer, order[address.site])

    return min((address for address in failing(report, source) if "@" not in address), key=place)


def test_a_transposed_projection_is_caught(sources: Sources, tmp_path: Path) -> None:
    right = tiny_model_of(CONFIG)
    keys = {place: key for key, place in checkpoint_keys(CONFIG).items() if not key.startswith("transformer.")}
    stored = {keys[place]: tensor[0].contiguous() if place.endswith(".w") else tensor
              for place, tensor in right.weights.items()}  # fmt: skip
    save_file(stored, tmp_path / "model.safetensors")
    weights = dict(right.weights)
    weights["h.1.attn.c_proj.w"] = weights["h.1.attn.c_proj.w"].transpose(1, 2).contiguous()
    info = replace(right.info, weights_sha256=digest(weights))
    report = verify_fault(GPT2(CONFIG, weights, info, tmp_path), sources, tmp_path / "traces")
    assert _first_failure(report, "openai") == "h.1.attn.c_proj.w"
    assert _first_failure(report, "transformers") == "h.1.attn.out"


def test_a_changed_tensor_in_a_trace_is_caught(model: GPT2, sources: Sources, tmp_path: Path) -> None:
    recipe = plan(model, prompt_of(), threads=2)
    chosen, tensors = record(model, recipe)
    tensors["h.0.resid_post"] = tensors["h.0.resid_post"].clone()
    tensors["h.0.resid_post"][0, 3, 5] += 0.01
    trace = TraceStore(tmp_path).save(recipe, prompt_of(chosen).tokens, tensors)
    report = verify(GPT2_FAMILY, model, trace, sources)
    assert _first_failure(report, "openai") == "h.0.resid_post"


# --- where a source cannot testify ---


def test_a_config_that_departs_from_openais_code_is_said_and_is_no_failure(
    tiny_model: GPT2, tiny_trace: Trace, sources: Sources
) -> None:
    report = verify(GPT2_FAMILY, tiny_model, tiny_trace, sources)
    assert report.holds
    assert report.departures == {
        "openai": (
            "OpenAI's code fixes ε = 1e-05; this config has 0.0001",
            "OpenAI's code fixes an MLP of 4 × d; this config has 112",
        )
    }
    assert TINY.n_inner == 112
    assert report.parity("logits", "transformers") is not None
    assert report.parity("logits", "openai") is None


def test_a_bfloat16_trace_is_not_compared_in_float32(sources: Sources, tmp_path: Path) -> None:
    report = verify_fault(tiny_model_of(CONFIG, dtype="bfloat16"), sources, tmp_path)
    assert report.parities == ()
    assert set(report.departures) == {"openai", "transformers", "equation"}


def test_relative_difference_is_measured_by_the_largest_reference() -> None:
    parity = Parity(
        address="logits",
        source="openai",
        largest_difference=2e-3,
        largest_reference=100.0,
        tolerance=5e-3,
        holds=True,
    )
    assert parity.relative == pytest.approx(2e-5)
    assert parity.severity == pytest.approx(0.4)
