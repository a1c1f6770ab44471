"""Checkpoints of every kind load alike, each fault has its own sentence, and names lead to the right weights."""

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_files import KINDS, State, config_of, openai_state_of, state_of, write, write_shards
from conftest import tiny_model_of
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from test_gpt2_model import assert_close, feed

from provenance.errors import InvalidInput, UnknownModel, UnsupportedCheckpoint
from provenance.gpt2.checkpoints import DEMO_DIRECTORY, Checkpoints
from provenance.gpt2.config import Config
from provenance.gpt2.model import GPT2
from provenance.gpt2.stored import file_sha256
from provenance.gpt2.weights import open_directory, read_directory
from provenance.model_sources import KeyReport, Kind

CONFIG = Config(n_layer=2, n_head=3, n_embd=48, n_ctx=24, n_vocab=97, n_inner=192)
UNTIED = Config(n_layer=2, n_head=3, n_embd=48, n_ctx=24, n_vocab=97, n_inner=192, tied=False)


@pytest.fixture(scope="module")
def model() -> GPT2:
    return tiny_model_of(CONFIG)


@pytest.fixture(scope="module")
def untied() -> GPT2:
    return tiny_model_of(UNTIED)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache."""
    directory = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(directory))
    return directory


def load(directory: Path, dtype: str = "float32") -> GPT2:
    return Checkpoints([directory]).load(directory.name, dtype)


def refusal(directory: Path) -> str:
    with pytest.raises(UnsupportedCheckpoint) as refused:
        load(directory)
    return str(refused.value)


def same_weights(one: GPT2, other: GPT2) -> bool:
    return one.weights.keys() == other.weights.keys() and all(
        torch.equal(one.weights[place], tensor) for place, tensor in other.weights.items()
    )


# --- every kind ---


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_checkpoint_loads_with_the_same_weights(kind: str, model: GPT2, tmp_path: Path) -> None:
    loaded = load(KINDS[kind](tmp_path / "mine", model))
    assert loaded.config == CONFIG
    assert same_weights(loaded, model)
    assert loaded.info.trained
    assert len(loaded.info.weights_sha256) == 64


def test_fp32_weights_stay_mapped_from_their_file(model: GPT2, tmp_path: Path) -> None:
    directory = KINDS["in shards"](tmp_path / "mine", model)
    loaded = load(directory)
    mapped = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if str(directory) in line:
            start, end = line.split()[0].split("-")
            mapped.append(range(int(start, 16), int(end, 16)))
    assert mapped, "needs a Linux kernel"
    assert all(any(tensor.data_ptr() in part for part in mapped) for tensor in loaded.weights.values())
    wide = load(directory, "bfloat16").weights["wte"]
    assert not any(wide.data_ptr() in part for part in mapped)


def test_an_untied_head_is_used_and_is_a_parameter(untied: GPT2, tmp_path: Path) -> None:
    loaded = load(write(tmp_path / "mine", config_of(UNTIED), state_of(untied)))
    assert loaded.config == UNTIED
    assert same_weights(loaded, untied)
    assert loaded.info.config["tied"] == 0
    seen: State = {}

    def tap(place: str, tensor: torch.Tensor) -> torch.Tensor:
        seen[place] = tensor
        return tensor

    logits, _ = loaded.forward(feed(1, 5, 97), tap=tap)
    assert torch.equal(seen["lm_head.w"], untied.weights["lm_head.w"])
    assert_close(logits, seen["ln_f.out"] @ untied.weights["lm_head.w"].T, "logits")
    tied = tiny_model_of(CONFIG)
    assert "tied" not in tied.info.config
    assert "lm_head.w" not in tied.catalogue.rows
    assert "lm_head.w" in loaded.catalogue.rows


def test_a_head_with_other_values_is_used_though_the_config_ties_it(untied: GPT2, tmp_path: Path) -> None:
    directory = write(tmp_path / "mine", config_of(CONFIG), state_of(untied))
    assert load(directory).config == UNTIED
    (warning,) = open_directory(directory).report.warnings
    assert warning == "The config ties the output to wte, but lm_head.weight has other values: it is used."


def test_a_head_of_another_shape_is_refused(untied: GPT2, tmp_path: Path) -> None:
    state = state_of(untied) | {"lm_head.weight": torch.zeros(98, 48)}
    directory = write(tmp_path / "mine", config_of(UNTIED), state)
    assert "shape or kind: lm_head.weight [98, 48] float32" in refusal(directory)


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_openai_s_names_in_half_precision_compute_in_float32(
    stored: torch.dtype, model: GPT2, tmp_path: Path
) -> None:
    state = {key: tensor.to(stored) for key, tensor in openai_state_of(model).items()}
    loaded = load(write(tmp_path / "mine", config_of(CONFIG), state))
    assert {tensor.dtype for tensor in loaded.weights.values()} == {torch.float32}
    assert torch.equal(loaded.weights["h.1.mlp.c_fc.w"], state["model/h1/mlp/c_fc/w"].float())


def test_a_projection_under_openai_s_name_keeps_its_leading_axis(model: GPT2, tmp_path: Path) -> None:
    state = openai_state_of(model)
    assert list(state["model/h0/attn/c_attn/w"].shape) == [1, 48, 144]
    state["model/h0/attn/c_attn/w"] = state["model/h0/attn/c_attn/w"][0].clone()
    assert "model/h0/attn/c_attn/w [48, 144]" in refusal(write(tmp_path / "mine", config_of(CONFIG), state))


# --- the report ---


def test_a_report_says_what_became_of_every_key(model: GPT2, tmp_path: Path) -> None:
    state = state_of(model)
    state["wpe.weight"] = state.pop("transformer.wpe.weight")
    state["model/ln_f/g"] = state.pop("transformer.ln_f.weight")
    state["transformer.h.1.ln_2.bias"] = torch.zeros(47)
    state["transformer.h.2.ln_1.weight"] = torch.ones(48)
    state["transformer.h.0.attn.bias"] = torch.ones(1)
    state["lm_head.weight"] = state["transformer.wte.weight"].clone()
    del state["transformer.h.0.mlp.c_fc.bias"]
    report = open_directory(write(tmp_path / "mine", config_of(CONFIG), state)).report
    assert report == KeyReport(
        matched=tuple(sorted(key for key in state_of(model) if key not in (
            "transformer.wpe.weight", "transformer.ln_f.weight", "transformer.h.0.mlp.c_fc.bias",
        ))),
        renamed=(("model/ln_f/g", "transformer.ln_f.weight"), ("wpe.weight", "transformer.wpe.weight")),
        ignored=("lm_head.weight", "transformer.h.0.attn.bias"),
        missing=("h.0.mlp.c_fc.bias",),
        unexpected=("transformer.h.2.ln_1.weight",),
        misshapen=("transformer.h.1.ln_2.bias [47] float32",),
    )  # fmt: skip
    assert not report.fits


def test_a_checkpoint_that_does_not_fit_can_be_inspected_and_not_loaded(model: GPT2, tmp_path: Path) -> None:
    state = state_of(model)
    del state["transformer.wpe.weight"]
    directory = write(tmp_path / "mine", config_of(CONFIG), state)
    found = Checkpoints([directory]).inspect("mine")
    assert found.report is not None
    assert found.report.missing == ("wpe.weight",)
    assert found.problem == refusal(directory)
    with pytest.raises(UnsupportedCheckpoint, match=r"lacks wpe\.weight"):
        read_directory(directory)


# --- pickles ---


def test_a_pickle_is_read_from_the_operator_s_folder_only_and_with_a_warning(
    model: GPT2, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = KINDS["pickled"](tmp_path / "mine", model)
    with pytest.raises(UnsupportedCheckpoint, match="never from the hub's cache"):
        open_directory(directory)
    with caplog.at_level(logging.WARNING):
        (warning,) = Checkpoints([directory]).inspect("mine").report.warnings  # type: ignore[union-attr]
    assert "pytorch_model.bin is a pickle: it was read with weights_only" in warning
    assert caplog.messages == [f"mine: {warning}"]
    save_file(state_of(model), directory / "model.safetensors")
    (directory / "pytorch_model.bin").write_bytes(b"never read")
    assert load(directory).info.weights_sha256 == file_sha256(directory / "model.safetensors")


class Harmful:
    """What runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path("ran"),))


def test_a_pickle_that_would_run_code_is_refused_and_runs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = write(tmp_path / "mine", config_of(CONFIG))
    torch.save({"wte.weight": Harmful()}, directory / "pytorch_model.bin")
    assert "pytorch_model.bin in 'mine' cannot be read with weights_only: " in refusal(directory)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"junk", pickle.dumps({"wte.weight": 1}, protocol=2), b"PK\x03\x04junk"])
def test_a_broken_pickle_is_refused(content: bytes, tmp_path: Path) -> None:
    directory = write(tmp_path / "mine", config_of(CONFIG))
    (directory / "pytorch_model.bin").write_bytes(content)
    assert "pytorch_model.bin in 'mine'" in refusal(directory)


# --- shards ---


def edit_index(directory: Path, **changes: str | None) -> None:
    file = directory / "model.safetensors.index.json"
    index = json.loads(file.read_text())
    for key, place in changes.items():
        if place is None:
            del index["weight_map"][key]
        else:
            index["weight_map"][key] = place
    file.write_text(json.dumps(index))


def test_an_index_that_places_a_key_wrongly_is_stale(model: GPT2, tmp_path: Path) -> None:
    directory = write_shards(tmp_path / "mine", config_of(CONFIG), state_of(model))
    index = json.loads((directory / "model.safetensors.index.json").read_text())["weight_map"]
    other = next(name for name in index.values() if name != index["transformer.wte.weight"])
    edit_index(directory, **{"transformer.wte.weight": other})
    assert "The index of 'mine' is stale: it " in refusal(directory)
    assert "transformer.wte.weight" in refusal(directory)


def test_an_index_that_does_not_know_a_stored_key_is_stale(model: GPT2, tmp_path: Path) -> None:
    directory = write_shards(tmp_path / "mine", config_of(CONFIG), state_of(model))
    edit_index(directory, **{"transformer.wte.weight": None})
    assert "is stale: it does not know transformer.wte.weight, which is in model-" in refusal(directory)


def test_an_index_that_promises_a_key_too_many_is_stale(model: GPT2, tmp_path: Path) -> None:
    directory = write_shards(tmp_path / "mine", config_of(CONFIG), state_of(model))
    edit_index(directory, **{"transformer.h.0.extra": "model-00001-of-00003.safetensors"})
    assert (
        "is stale: it places transformer.h.0.extra in model-00001-of-00003.safetensors, which lacks it."
        in refusal(directory)
    )


def test_a_shard_that_is_cut_or_a_pointer_is_named(model: GPT2, tmp_path: Path) -> None:
    directory = write_shards(tmp_path / "mine", config_of(CONFIG), state_of(model))
    second = directory / "model-00002-of-00003.safetensors"
    second.write_bytes(second.read_bytes()[:-4])
    assert "model-00002-of-00003.safetensors in 'mine' is cut short" in refusal(directory)
    second.write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "model-00002-of-00003.safetensors in 'mine' is a Git LFS pointer" in refusal(directory)


def test_the_hash_of_shards_is_the_hash_of_their_hashes(model: GPT2, tmp_path: Path) -> None:
    directory = write_shards(tmp_path / "mine", config_of(CONFIG), state_of(model))
    before = load(directory).info.weights_sha256
    state = load_file(directory / "model-00001-of-00003.safetensors")
    first = sorted(state)[0]
    save_file(state | {first: state[first] + 1}, directory / "model-00001-of-00003.safetensors")
    assert load(directory).info.weights_sha256 != before


# --- names ---


def test_two_folders_of_the_same_name_are_refused_at_the_start(tmp_path: Path) -> None:
    for parent in ("a", "b"):
        (tmp_path / parent / "mine").mkdir(parents=True)
    with pytest.raises(InvalidInput, match=r"Two folders of models are named 'mine': .* rename one of them"):
        Checkpoints([tmp_path / "a" / "mine", tmp_path / "b" / "mine"])
    Checkpoints([tmp_path / "a" / "mine", tmp_path / "a" / "mine", tmp_path / "b" / ".." / "a" / "mine"])


@pytest.mark.parametrize("name", ["demo", "gpt2-untrained", "tiny-untrained"])
def test_a_folder_cannot_take_a_built_in_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=f"'{name}' is the name of a built-in model"):
        Checkpoints([tmp_path / name])


def test_the_demo_is_here_as_soon_as_its_two_files_are(model: GPT2, tmp_path: Path) -> None:
    assert DEMO_DIRECTORY.parts[-3:] == ("provenance", "gpt2", "demo")
    checkpoints = Checkpoints(demo=tmp_path / "demo")
    assert not checkpoints.known("demo").available
    with pytest.raises(UnknownModel, match=r"weights of 'demo' are not on this machine\. This copy of the project"):
        checkpoints.load("demo")
    write(tmp_path / "demo", config_of(CONFIG))
    assert not checkpoints.known("demo").available
    save_file(state_of(model), tmp_path / "demo" / "model.safetensors")
    assert checkpoints.known("demo").kind is Kind.DEMO
    assert same_weights(checkpoints.load("demo"), model)
    assert Checkpoints([tmp_path / "demo"], tmp_path / "demo").directories == {}


def test_a_name_of_the_hub_is_found_in_a_folder_of_that_name_first(model: GPT2, tmp_path: Path) -> None:
    checkpoints = Checkpoints([write(tmp_path / "gpt2", config_of(CONFIG), state_of(model))])
    assert [source.name for source in checkpoints.sources()].count("gpt2") == 1
    assert checkpoints.known("gpt2").kind is Kind.DIRECTORY
    assert same_weights(checkpoints.load("gpt2"), model)


@pytest.mark.parametrize("name", ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"])
def test_weights_that_are_not_here_come_with_what_to_do(name: str) -> None:
    with pytest.raises(UnknownModel) as refused:
        Checkpoints().load(name)
    assert refused.value.message == f"The weights of {name!r} are not on this machine."
    assert refused.value.hint.startswith(f"Get them: tensor-provenance models fetch {name} (")
    assert f"a folder named {name!r}, and name that in TENSOR_PROVENANCE_MODEL_DIRECTORIES." in refused.value.hint


# --- tokenizers ---


def test_gpt2_s_tokenizer_is_assumed_for_its_vocabulary_only(model: GPT2, tmp_path: Path) -> None:
    mine = write(tmp_path / "mine", config_of(CONFIG), state_of(model))
    assert Checkpoints([mine]).tokenizer("mine") is None
    assert Checkpoints([mine]).inspect("mine").tokenizer == "none: prompts are given as token ids"
    write(mine, config_of(CONFIG) | {"vocab_size": 50257})
    tokenizer = Checkpoints([mine]).tokenizer("mine")
    assert tokenizer is not None
    assert tokenizer.encode("Hello world").ids == (15496, 995)
    assert Checkpoints().inspect("gpt2-untrained").tokenizer == "GPT-2's"


def test_a_checkpoint_s_own_tokenizer_goes_first(model: GPT2, tmp_path: Path) -> None:
    mine = write(tmp_path / "mine", config_of(CONFIG) | {"vocab_size": 50257}, state_of(model))
    (mine / "vocab.json").write_text("{}")
    (mine / "merges.txt").write_text("")
    tokenizer = Checkpoints([mine]).tokenizer("mine")
    assert tokenizer is not None
    with pytest.raises(UnsupportedCheckpoint, match="has no token for 256 of the 256 bytes"):
        tokenizer.encode("a")
