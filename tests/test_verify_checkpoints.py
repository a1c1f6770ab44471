"""Verify holds for a checkpoint of every kind: the witnesses read its files on their own."""

from pathlib import Path

import pytest
import torch
from checkpoint_files import KINDS, config_of, openai_state_of, state_of, write
from conftest import recorded, tiny_model_of
from safetensors.torch import load_file, save_file

from provenance.families import FAMILIES
from provenance.gpt2.checkpoints import Checkpoints
from provenance.gpt2.config import Config
from provenance.gpt2.model import GPT2
from provenance.sources import Sources, default_sources
from provenance.store import TraceStore
from provenance.verdict import Report
from provenance.verification import verify

pytestmark = pytest.mark.slow

CONFIG = Config(n_layer=2, n_head=3, n_embd=48, n_ctx=24, n_vocab=97, n_inner=192)
UNTIED = Config(n_layer=2, n_head=3, n_embd=48, n_ctx=24, n_vocab=97, n_inner=192, tied=False)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return default_sources(tmp_path_factory.mktemp("sources"))


def load(directory: Path) -> GPT2:
    return Checkpoints([directory]).load(directory.name)


def proven(model: GPT2, sources: Sources, tmp_path: Path) -> Report:
    """Record two steps with a model, and verify them."""
    trace = recorded(model, TraceStore(tmp_path / "traces"), steps=1)
    return verify(FAMILIES["gpt2"], model, trace, sources)


def failing(report: Report, source: str) -> set[str]:
    return {parity.address for parity in report.parities if parity.source == source and not parity.holds}


@pytest.mark.parametrize("kind", KINDS)
def test_verify_holds_on_every_kind_of_checkpoint(kind: str, sources: Sources, tmp_path: Path) -> None:
    report = proven(load(KINDS[kind](tmp_path / "mine", tiny_model_of(CONFIG))), sources, tmp_path)
    assert report.holds
    assert report.departures == {}
    assert {"openai", "transformers", "equation"} == {parity.source for parity in report.parities}


def test_verify_holds_on_half_precision_weights(sources: Sources, tmp_path: Path) -> None:
    state = {key: tensor.half() for key, tensor in state_of(tiny_model_of(CONFIG)).items()}
    assert proven(load(write(tmp_path / "mine", config_of(CONFIG), state)), sources, tmp_path).holds


def test_a_file_beside_the_checkpoint_does_not_testify(sources: Sources, tmp_path: Path) -> None:
    directory = write(tmp_path / "mine", config_of(CONFIG), state_of(tiny_model_of(CONFIG)))
    other = {"transformer.wte.weight": torch.zeros(97, 48), "wte.weight": torch.zeros(97, 48)}
    save_file(other, directory / "zzz.safetensors")
    assert proven(load(directory), sources, tmp_path).holds


@pytest.mark.parametrize("kind", ["with the prefix", "in shards", "with OpenAI's names", "pickled"])
def test_weights_changed_on_the_way_into_the_model_are_caught(kind: str, sources: Sources, tmp_path: Path) -> None:
    model = load(KINDS[kind](tmp_path / "mine", tiny_model_of(CONFIG)))
    weights = dict(model.weights)
    weights["h.1.attn.c_proj.w"] = weights["h.1.attn.c_proj.w"].transpose(1, 2).contiguous()
    report = proven(GPT2(model.config, weights, model.info, model.checkpoint), sources, tmp_path)
    assert "h.1.attn.c_proj.w" in failing(report, "openai")
    assert "h.1.attn.out" in failing(report, "transformers")


# --- an output of its own ---


@pytest.fixture(scope="module")
def untied(sources: Sources, tmp_path_factory: pytest.TempPathFactory) -> Report:
    place = tmp_path_factory.mktemp("untied")
    directory = write(place / "mine", config_of(UNTIED), state_of(tiny_model_of(UNTIED)))
    return proven(load(directory), sources, place)


def test_an_untied_output_holds_and_openai_s_tied_one_does_not_apply(untied: Report) -> None:
    assert untied.holds
    assert untied.departures == {
        "openai": (
            "lm_head.w, logits_flat, logits: "
            "OpenAI's code ties the output to wte; this checkpoint has its own lm_head",
        )
    }


@pytest.mark.parametrize("step", ["", "@1"])
def test_everything_else_of_an_untied_model_is_compared(untied: Report, step: str) -> None:
    for site in ("lm_head.w", "logits_flat", "logits"):
        assert untied.parity(f"{site}{step}", "openai") is None
    assert untied.parity(f"h_flat{step}", "openai") is not None
    assert untied.parity(f"logits{step}", "transformers") is not None
    assert untied.parity(f"logits_flat{step}", "equation") is not None


def test_an_untied_output_matrix_is_cited_where_transformers_makes_it(untied: Report) -> None:
    found = {e.source: e for e in untied.executions if e.operation == "head_parameters"}
    assert found.keys() == {"openai", "transformers"}
    assert all(execution.holds for execution in found.values())
    assert next(c for c in untied.coverage if c.source == "openai").unseen == ()


def test_a_wrong_output_matrix_is_caught_by_transformers_alone(sources: Sources, tmp_path: Path) -> None:
    directory = write(tmp_path / "mine", config_of(UNTIED), state_of(tiny_model_of(UNTIED)))
    model = load(directory)
    weights = dict(model.weights) | {"lm_head.w": model.weights["wte"]}
    report = proven(GPT2(model.config, weights, model.info, directory), sources, tmp_path)
    assert failing(report, "transformers") == {"logits", "logits@1"}
    assert failing(report, "equation") == set()


def test_a_trace_of_an_untied_model_survives_its_store(tmp_path: Path) -> None:
    trace = recorded(tiny_model_of(UNTIED), TraceStore(tmp_path), steps=1)
    again = TraceStore(tmp_path).open(trace.id)
    assert again.recipe.id == trace.id
    assert again.recipe.model.config["tied"] == 0


def test_openai_s_names_are_those_that_its_own_code_asks_for(tmp_path: Path) -> None:
    directory = write(tmp_path / "mine", config_of(CONFIG), openai_state_of(tiny_model_of(CONFIG)))
    from provenance.gpt2.witnesses import weights_by_scope

    asked = weights_by_scope(load(directory))
    stored = load_file(directory / "model.safetensors")
    assert asked.keys() == stored.keys()
    assert all(torch.equal(asked[key], tensor) for key, tensor in stored.items())
