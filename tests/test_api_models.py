"""Models over HTTP: the list, one model with its keys, a trace by ids, and the pages."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_client import Api, running
from checkpoint_files import KINDS, config_of, state_of, write
from conftest import tiny_model_of
from huggingface_hub import constants

from provenance.gpt2.config import Config
from provenance.gpt2.stored import file_sha256

CONFIG = Config(n_layer=2, n_head=3, n_embd=48, n_ctx=24, n_vocab=97, n_inner=192)
UNTIED = Config(n_layer=2, n_head=3, n_embd=48, n_ctx=24, n_vocab=97, n_inner=192, tied=False)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("folders")
    broken = write(place / "broken", config_of(CONFIG), state_of(tiny_model_of(CONFIG)))
    write(broken, config_of(CONFIG) | {"n_layer": 1})
    return [
        write(place / "mine", config_of(CONFIG), state_of(tiny_model_of(CONFIG))),
        write(place / "own-head", config_of(UNTIED), state_of(tiny_model_of(UNTIED))),
        KINDS["pickled"](place / "<b>old", tiny_model_of(CONFIG)),
        broken,
        write(place / "llama", {"model_type": "llama"}),
    ]


@pytest.fixture(scope="module")
def api(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    place = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(place / "hub"))
        with running(place, model_directories=tuple(folders), model_memory_mib=0) as started:
            yield started


def test_every_model_is_listed_with_what_is_loaded(api: Api) -> None:
    assert api.ask("POST", "/api/traces", json={"ids": [1], "model": "mine"}).is_success
    known = {model["name"]: model for model in api.json("/api/models")}
    assert known["mine"] == {
        "name": "mine",
        "family": "gpt2",
        "available": True,
        "description": "Directory mine",
        "kind": "a folder that the operator named",
        "advice": "",
        "loaded": ["float32"],
    }
    assert known["tiny-untrained"]["loaded"] == []
    assert not known["gpt2"]["available"]


def test_the_budget_of_the_settings_is_kept(api: Api) -> None:
    for name in ("mine", "own-head"):
        api.record(ids=[1, 2], model=name)
        loaded = {model["name"] for model in api.json("/api/models") if model["loaded"]}
        assert loaded == {name}


def test_one_model_has_its_config_files_hash_and_keys(api: Api, folders: list[Path]) -> None:
    digest = file_sha256(folders[0] / "model.safetensors")
    model = api.json("/api/models/mine")
    assert model["config"] == {
        "n_layer": 2, "n_head": 3, "n_embd": 48, "n_ctx": 24, "n_vocab": 97, "n_inner": 192, "epsilon": 1e-5,
    }  # fmt: skip
    assert (model["sha256"], model["files"][0]["sha256"]) == (digest, digest)
    assert (model["origin"], model["problem"]) == ("a folder that the operator named: 'mine'", "")
    assert model["parameters"] == sum(tensor.numel() for tensor in tiny_model_of(CONFIG).weights.values())
    keys = model["keys"]
    assert (len(keys["matched"]), keys["fits"], keys["missing"], keys["warnings"]) == (28, True, [], [])
    assert str(folders[0].parent) not in api.ask("GET", "/api/models/mine").text


def test_a_model_that_cannot_be_loaded_says_why(api: Api) -> None:
    broken = api.json("/api/models/broken")
    assert "has keys that the model does not: transformer.h.1." in broken["problem"]
    assert len(broken["keys"]["unexpected"]) == 12
    assert not broken["keys"]["fits"]
    llama = api.json("/api/models/llama")
    assert (llama["keys"], llama["config"]) == (None, None)
    assert "model_type 'llama' (only 'gpt2' is supported)" in llama["problem"]
    refused = api.problem("POST", "/api/traces", 422, json={"ids": [1], "model": "broken"})
    assert refused["detail"] == broken["problem"]


def test_an_unknown_model_is_not_found(api: Api) -> None:
    assert "There is no model named 'gpt9' here." in api.problem("GET", "/api/models/gpt9", 404)["detail"]


def test_a_model_without_tokenizer_is_recorded_by_ids(api: Api) -> None:
    refused = api.problem("POST", "/api/traces", 422, json={"prompt": "Hello", "model": "mine"})
    assert "The model 'mine' comes without a tokenizer" in refused["detail"]
    assert "`ids` in the API" in refused["detail"]
    trace = api.json(api.record(ids=[5, 96], model="mine", steps=1))
    assert [token["text"] for token in trace["tokens"]] == ["#5", "#96"]
    assert trace["prompt"] is None
    outside = api.problem("POST", "/api/traces", 422, json={"ids": [97], "model": "mine"})
    assert outside["detail"] == "Token id 97 lies outside this model's vocabulary of 97."


def test_an_untied_model_s_trace_has_its_output_matrix_and_a_tied_one_s_has_not(api: Api) -> None:
    own, tied = api.record(ids=[5, 6], model="own-head"), api.record(ids=[5, 6], model="mine")
    assert api.json(f"{own}/tensors/lm_head.w")["shape"] == [97, 48]
    assert api.values(f"{own}/tensors/lm_head.w.npy").shape == (97, 48)
    assert "There is no tensor named 'lm_head.w'" in api.problem("GET", f"{tied}/tensors/lm_head.w", 404)["detail"]
    assert api.json("/api/sites/lm_head.w")["exists_in"] == "every step, in models with an untied output only"


# --- the pages ---


def test_the_page_of_models_says_what_is_here_and_how_to_get_the_rest(api: Api) -> None:
    text = api.ask("GET", "/models").raise_for_status().text
    assert 'href="/models/mine"' in text
    assert "tensor-provenance models fetch gpt2-xl (6,432 MB)" in text
    assert "<b>old" not in text
    assert "&lt;b&gt;old" in text


def test_a_model_s_page_shows_hash_config_and_keys(api: Api, folders: list[Path]) -> None:
    text = api.ask("GET", "/models/mine").raise_for_status().text
    assert file_sha256(folders[0] / "model.safetensors") in text
    assert "transformer.h.1.mlp.c_proj.weight" in text
    assert "none: prompts are given as token ids" in text
    broken = api.ask("GET", "/models/broken").raise_for_status().text
    assert "cannot be loaded" in broken
    assert "transformer.h.1.ln_1.weight" in broken
    assert "pytorch_model.bin is a pickle" in api.ask("GET", "/models/%3Cb%3Eold").raise_for_status().text
    assert api.ask("GET", "/models/gpt9").status_code == 404
    for name in ("gpt2", "llama", "tiny-untrained", "own-head"):
        assert api.ask("GET", f"/models/{name}").status_code == 200
