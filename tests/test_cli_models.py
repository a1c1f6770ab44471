"""The command `models`: what is here, what a checkpoint's keys became, and fetching only when asked."""

from pathlib import Path

import pytest
import test_cli
from checkpoint_files import KINDS, config_of, state_of, write
from conftest import tiny_model_of
from huggingface_hub import constants
from test_cli import Shell

from provenance.gpt2 import hub
from provenance.gpt2.config import Config
from provenance.gpt2.stored import file_sha256

pytestmark = pytest.mark.slow

surroundings = test_cli.surroundings
shell = test_cli.shell

CONFIG = Config(n_layer=2, n_head=3, n_embd=48, n_ctx=24, n_vocab=97, n_inner=192)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def mine(surroundings: Path) -> Path:
    return write(surroundings / "mine", config_of(CONFIG), state_of(tiny_model_of(CONFIG)))


def test_the_list_says_where_weights_come_from_and_what_to_do(shell: Shell) -> None:
    known = {model["name"]: model for model in shell.json("models")}
    assert list(known)[:3] == ["demo", "gpt2-untrained", "tiny-untrained"]
    assert known["tiny-untrained"]["kind"] == "made here from a seed"
    assert known["gpt2-large"]["advice"].startswith("Get them: tensor-provenance models fetch gpt2-large (3,247 MB).")
    assert "gpt2-xl              -     OpenAI's weights" in shell.out("models")


def test_a_folder_is_shown_with_its_config_hash_and_keys(shell: Shell, mine: Path) -> None:
    out = shell.out("models", "show", str(mine))
    digest = file_sha256(mine / "model.safetensors")
    text = " ".join(out.split())
    assert "weights a folder that the operator named: 'mine'" in text
    assert f"folder {mine}" in text
    assert "n_layer 2, n_head 3, n_embd 48, n_ctx 24, n_vocab 97, n_inner 192, epsilon 1e-05" in text
    assert "tokenizer none: prompts are given as token ids" in text
    assert f"SHA-256 {digest}" in text
    assert "matched 28 renamed 0 ignored 0 missing 0 unexpected 0 misshapen 0" in text
    shown = shell.json("models", "show", str(mine))
    assert (shown["sha256"], shown["keys"]["fits"], shown["problem"]) == (digest, True, "")
    assert shown["files"] == [
        {"name": "model.safetensors", "bytes": (mine / "model.safetensors").stat().st_size, "sha256": digest}
    ]
    assert len(shown["keys"]["matched"]) == 28


def test_renamed_keys_are_paired_with_how_transformers_saves_them(shell: Shell, surroundings: Path) -> None:
    folder = KINDS["with OpenAI's names"](surroundings / "theirs", tiny_model_of(CONFIG))
    renamed = shell.json("models", "show", str(folder))["keys"]["renamed"]
    assert {"key": "model/h1/attn/c_attn/w", "saved_as": "transformer.h.1.attn.c_attn.weight"} in renamed
    assert "28, for example model/h0/attn/c_attn/b as\n" in shell.out("models", "show", str(folder))


def test_a_checkpoint_that_does_not_fit_is_shown_and_fails(shell: Shell, mine: Path) -> None:
    state = state_of(tiny_model_of(CONFIG))
    del state["transformer.h.0.ln_1.bias"]
    write(mine, config_of(CONFIG), state | {"score.weight": state["transformer.wte.weight"].clone()})
    code, out, err = shell("models", "show", str(mine))
    assert (code, err) == (1, "")
    text = " ".join(out.split())
    assert "missing 1: h.0.ln_1.bias unexpected 1: score.weight" in text
    assert "It cannot be loaded: The checkpoint in 'mine' lacks h.0.ln_1.bias." in text


def test_a_pickle_is_shown_with_its_warning(shell: Shell, surroundings: Path) -> None:
    folder = KINDS["pickled"](surroundings / "old", tiny_model_of(CONFIG))
    shown = shell.json("models", "show", str(folder))
    assert shown["keys"]["fits"]
    assert shown["keys"]["warnings"][0].startswith("pytorch_model.bin is a pickle")


def test_weights_that_are_not_here_are_shown_with_what_to_do(shell: Shell) -> None:
    out = " ".join(shell.out("models", "show", "gpt2").split())
    assert "weights not here" in out
    assert "Get them: tensor-provenance models fetch gpt2 (548 MB)." in out
    assert "There is no model named 'gpt9' here." in shell.refusal("models", "show", "gpt9")


def test_a_model_without_tokenizer_takes_ids(shell: Shell, mine: Path) -> None:
    said = shell.refusal("record", "Hello", "--model", str(mine))
    assert "The model 'mine' comes without a tokenizer" in said
    assert "Give the prompt as token ids: --ids 5,6,7" in said
    out = shell.out("record", "--ids", "5,6,7", "--model", str(mine))
    assert "3 tokens: [#5] [#6] [#7]" in out
    assert "#5 #6 #7" in shell.out("traces")
    assert "Token id 97 lies outside this model's vocabulary of 97." in shell.refusal(
        "record", "--ids", "5,97", "--model", str(mine)
    )
    assert shell.json("verify", "--ids", "5,6,7", "--model", str(mine))["model"] == "mine"


def test_two_folders_of_one_name_are_refused(shell: Shell, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = mine.parent / "elsewhere" / "mine"
    other.mkdir(parents=True)
    monkeypatch.setenv("TENSOR_PROVENANCE_MODEL_DIRECTORIES", str(other))
    for command in (["record", "--ids", "5"], ["verify", "--ids", "5"], ["serve", "--port", "0"]):
        assert "Two folders of models are named 'mine':" in shell.refusal(*command, "--model", str(mine))


def test_nothing_is_fetched_where_the_network_is_off(shell: Shell) -> None:
    code, out, err = shell("models", "fetch", "gpt2")
    assert (code, out) == (1, "")
    assert err.startswith("Error: Nothing is fetched: TENSOR_PROVENANCE_NETWORK is off.\n")


def test_fetching_says_what_it_takes_and_which_commit_it_took(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, surroundings: Path
) -> None:
    def fetch(name: str, tell: object) -> hub.Fetched:
        assert callable(tell)
        tell(f"{name}: 3 files")
        return hub.Fetched(surroundings, "c" * 40, {})

    monkeypatch.setenv("TENSOR_PROVENANCE_NETWORK", "yes")
    monkeypatch.setattr(hub, "fetch", fetch)
    code, out, err = shell("models", "fetch", "gpt2-medium")
    assert (code, err) == (0, "gpt2-medium: 3 files\n")
    assert f"gpt2-medium is here, every file's hash checked: commit {'c' * 40}.\n" in out


def test_no_other_command_fetches(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object, **options: object) -> None:
        raise AssertionError("something was downloaded")

    monkeypatch.setenv("TENSOR_PROVENANCE_NETWORK", "yes")
    monkeypatch.setattr(hub, "fetch", never)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", never)
    monkeypatch.setattr("huggingface_hub.HfApi", never)
    for command in (["record", "hi"], ["verify", "--prompt", "hi"], ["serve", "--port", "0"]):
        assert "The weights of 'gpt2' are not on this machine." in shell.refusal(*command, "--model", "gpt2")
    shell.out("models")
    shell.out("models", "show", "gpt2")
