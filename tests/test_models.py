"""Several models at once: loaded on demand, dropped over a budget, never under somebody who computes."""

import threading
import time
import weakref
from pathlib import Path

import pytest
import torch
from checkpoint_files import config_of, state_of, write
from conftest import THREADS, tiny_model_of
from safetensors.torch import load_file, save_file

from provenance.errors import InvalidInput, InvalidPrompt, UnknownModel
from provenance.gpt2.config import Config
from provenance.gpt2.model import GPT2
from provenance.model import Model
from provenance.models import Models, catalogue_of_model, constants_of
from provenance.recorder import Replayer, plan, record
from provenance.store import TraceStore

CONFIG = Config(n_layer=1, n_head=2, n_embd=16, n_ctx=8, n_vocab=97, n_inner=64)
UNTIED = Config(n_layer=1, n_head=2, n_embd=16, n_ctx=8, n_vocab=97, n_inner=64, tied=False)
PATIENCE_SECONDS = 30


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [
        write(tmp_path / name, config_of(CONFIG), state_of(tiny_model_of(CONFIG, seed)))
        for seed, name in enumerate(("one", "two", "three"))
    ]


def bytes_of(model: Model) -> int:
    return sum(tensor.nbytes for tensor in model.weights.values()) if isinstance(model, GPT2) else 0


def names(models: Models) -> list[str]:
    return [model.info.name for model in models.loaded()]


def test_a_model_is_loaded_once_and_counted_by_its_parameters(folders: list[Path]) -> None:
    models = Models(folders)
    assert models.loaded() == ()
    one = models.get("one")
    assert models.get("one") is one
    # wte and wpe, two norms a block and one at the end, and four projections with their biases.
    parameters = (97 + 8) * 16 + 3 * 2 * 16 + (16 * 48 + 48) + (16 * 16 + 16) + (16 * 64 + 64) + (64 * 16 + 16)
    assert one.parameter_bytes == 4 * parameters == bytes_of(one)
    assert models.get("one", "bfloat16").parameter_bytes == 2 * parameters


def test_the_least_recently_used_model_goes_first(folders: list[Path]) -> None:
    size = Models(folders).get("one").parameter_bytes
    models = Models(folders, memory_bytes=2 * size)
    models.get("one")
    models.get("two")
    models.get("one")
    models.get("three")
    assert names(models) == ["one", "three"]
    models.get("two")
    assert names(models) == ["three", "two"]


def test_one_model_stays_whatever_the_budget(folders: list[Path]) -> None:
    models = Models(folders, memory_bytes=0)
    assert models.get("one") is models.get("one")
    models.get("two")
    assert names(models) == ["two"]


def test_a_dropped_model_lives_on_where_it_is_used_and_is_freed_after(folders: list[Path]) -> None:
    models = Models(folders, memory_bytes=0)
    used: Model | None = models.get("one")
    assert isinstance(used, GPT2)
    alive = weakref.ref(used)
    models.get("two")
    assert names(models) == ["two"]
    assert torch.isfinite(used.forward(torch.tensor([[1, 2]]))[0]).all()
    used = None
    assert alive() is None


def test_loading_one_model_does_not_block_another(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    models = Models(folders)
    ready = models.get("one")
    started, go_on = threading.Event(), threading.Event()
    load = models.checkpoints.load

    def slow(name: str, dtype: str = "float32") -> GPT2:
        started.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return load(name, dtype)

    monkeypatch.setattr(models.checkpoints, "load", slow)
    found: list[Model] = []
    waiting = [threading.Thread(target=lambda: found.append(models.get("two"))) for _ in range(2)]
    for thread in waiting:
        thread.start()
    assert started.wait(PATIENCE_SECONDS)
    assert models.get("one") is ready
    assert names(models) == ["one"]
    go_on.set()
    for thread in waiting:
        thread.join(PATIENCE_SECONDS)
    assert len(found) == 2
    assert found[0] is found[1], "the second waited for the first"


def test_a_failed_loading_is_tried_again(folders: list[Path]) -> None:
    models = Models(folders)
    file = folders[0] / "config.json"
    right = file.read_text()
    file.write_text("{")
    with pytest.raises(InvalidInput, match="is not JSON"):
        models.get("one")
    assert names(models) == []
    file.write_text(right)
    assert models.get("one").info.name == "one"


def test_many_threads_get_the_same_models(folders: list[Path]) -> None:
    models = Models(folders, memory_bytes=1)
    errors: list[BaseException] = []

    def use(number: int) -> None:
        try:
            for turn in range(20):
                name = ("one", "two", "three")[(number + turn) % 3]
                assert models.get(name).info.name == name
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + PATIENCE_SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    assert errors == []
    assert len(models.loaded()) == 1


# --- traces and their models ---


def test_a_trace_says_when_its_model_is_gone_and_its_kept_tensors_stay(folders: list[Path], tmp_path: Path) -> None:
    model = Models(folders).get("one")
    recipe = plan(model, Models(folders).decode("one", [1, 2, 3]), threads=THREADS)
    chosen, tensors = record(model, recipe)
    trace = TraceStore(tmp_path / "traces").save(recipe, Models(folders).tokens("one", chosen), tensors)
    with pytest.raises(UnknownModel) as gone:
        Models(folders[1:]).of(trace.recipe)
    assert str(gone.value) == (
        "The model 'one' of this trace cannot be loaded any more. There is no model named 'one' here. "
        "Kept tensors can still be read; the others need the model of the recording."
    )
    assert trace.tensors["h.0.resid_post"].shape == (1, 3, 16)
    assert "lm_head.w" not in catalogue_of_model(trace.recipe.model).rows


def test_a_trace_does_not_take_other_weights_of_the_same_name(folders: list[Path]) -> None:
    recipe = plan(Models(folders).get("one"), Models(folders).decode("one", [1]), threads=THREADS)
    file = folders[0] / "model.safetensors"
    state = load_file(file)
    save_file(state | {"transformer.ln_f.bias": state["transformer.ln_f.bias"] + 1}, file)
    with pytest.raises(UnknownModel, match="here has other weights than the one that made this trace"):
        Models(folders).of(recipe)
    (folders[0] / "config.json").unlink()
    with pytest.raises(UnknownModel, match=r"cannot be loaded any more\. There is no config\.json in 'one'"):
        Models(folders).of(recipe)


def test_every_tensor_of_an_untied_trace_can_be_replayed(tmp_path: Path) -> None:
    folder = write(tmp_path / "own", config_of(UNTIED), state_of(tiny_model_of(UNTIED)))
    models = Models([folder])
    model = models.get("own")
    recipe = plan(model, models.decode("own", [1, 2, 3]), steps=1, threads=THREADS)
    chosen, tensors = record(model, recipe)
    trace = TraceStore(tmp_path / "traces").save(recipe, models.tokens("own", chosen), tensors)
    from provenance.names import Address

    head = Replayer().tensor(models.of(trace.recipe), trace, Address("lm_head.w", None, 1))
    assert torch.equal(head, load_file(folder / "model.safetensors")["lm_head.weight"])
    assert "lm_head.w" in catalogue_of_model(trace.recipe.model).rows
    assert constants_of(trace.recipe.model)["V"] == 97


# --- prompts of a model without tokenizer ---


def test_a_text_for_a_model_without_tokenizer_is_refused_with_what_to_do(folders: list[Path]) -> None:
    with pytest.raises(InvalidPrompt) as refused:
        Models(folders).encode("one", "Hello")
    assert str(refused.value) == (
        "The model 'one' comes without a tokenizer, so a text cannot be turned into its ids; GPT-2's is assumed "
        "for a vocabulary of 50257 only. Give the prompt as token ids: --ids 5,6,7 on the command line, "
        "`ids` in the API."
    )


def test_ids_are_its_prompt_and_its_tokens_are_numbers(folders: list[Path]) -> None:
    models = Models(folders)
    prompt = models.decode("one", [5, 96])
    assert prompt.ids == (5, 96)
    assert (prompt.text, [token.text for token in prompt.tokens]) == (None, ["#5", "#96"])
    assert [token.text for token in models.tokens("one", [7])] == ["#7"]
    with pytest.raises(InvalidPrompt, match="The prompt is empty"):
        models.decode("one", [])


@pytest.mark.parametrize("id", [97, -1, 10**9])
def test_an_id_outside_its_vocabulary_is_refused_with_its_size(id: int, folders: list[Path]) -> None:
    models = Models(folders)
    with pytest.raises(InvalidPrompt, match=f"Token id {id} lies outside this model's vocabulary of 97"):
        plan(models.get("one"), models.decode("one", [5, id]))


def test_ids_work_where_the_model_s_tokenizer_cannot_be_used(folders: list[Path]) -> None:
    (folders[0] / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')
    models = Models(folders)
    assert models.decode("one", [5]).tokens[0].text == "#5"
    with pytest.raises(InvalidInput, match="is not a byte-level BPE as GPT-2 uses it"):
        models.encode("one", "Hello")
