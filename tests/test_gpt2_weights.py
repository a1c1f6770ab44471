"""Checkpoints: what is loaded is what was saved, and what cannot be reproduced is refused with the reason."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TINY, tiny_model_of
from safetensors.torch import load_file, save_file
from test_gpt2_model import assert_close, feed, transformers_twin
from transformers import GPT2Config, GPT2Model

from provenance.digest import digest
from provenance.errors import InvalidInput, UnknownModel, UnsupportedCheckpoint
from provenance.gpt2.checkpoints import SEEDED, Checkpoints
from provenance.gpt2.config import Config, from_hugging_face
from provenance.gpt2.model import GPT2
from provenance.gpt2.weights import shapes, untrained

State = dict[str, torch.Tensor]


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory, tiny_model: GPT2) -> Path:
    """The tiny model as transformers' `save_pretrained` writes it."""
    directory = tmp_path_factory.mktemp("saved") / "tiny-checkpoint"
    transformers_twin(tiny_model).save_pretrained(directory)
    return directory


@pytest.fixture
def checkpoint(saved: Path, tmp_path: Path) -> Path:
    """A copy of `saved` that a test may spoil."""
    directory = tmp_path / "tiny-checkpoint"
    directory.mkdir()
    for file in ("config.json", "model.safetensors"):
        (directory / file).write_bytes((saved / file).read_bytes())
    return directory


def change(directory: Path, edit: Callable[[State], object]) -> None:
    state = load_file(directory / "model.safetensors")
    edit(state)
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, directory / "model.safetensors")


def configure(directory: Path, **values: object) -> None:
    data = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(data | values))


def refusal(directory: Path) -> str:
    with pytest.raises(UnsupportedCheckpoint) as refused:
        load(directory)
    return str(refused.value)


def load(directory: Path, dtype: str = "float32") -> GPT2:
    return Checkpoints([directory]).load(directory.name, dtype)


# --- what can be loaded ---


def test_a_saved_checkpoint_loads_with_the_same_weights_and_logits(saved: Path, tiny_model: GPT2) -> None:
    model = load(saved)
    assert model.config == TINY
    assert model.weights.keys() == tiny_model.weights.keys()
    assert all(torch.equal(model.weights[place], tensor) for place, tensor in tiny_model.weights.items())
    ids = feed(1, 6, TINY.n_vocab)
    with torch.inference_mode():
        reference = transformers_twin(tiny_model)(ids).logits
    assert_close(model.forward(ids)[0], reference, "logits")
    assert model.info.trained
    assert model.info.origin == "checkpoint tiny-checkpoint"


def test_keys_without_the_leading_transformer_load_too(checkpoint: Path, tiny_model: GPT2) -> None:
    assert "transformer.wte.weight" in load_file(checkpoint / "model.safetensors")
    state = load_file(checkpoint / "model.safetensors")
    save_file(
        {name.removeprefix("transformer."): tensor for name, tensor in state.items()},
        checkpoint / "model.safetensors",
    )
    model = load(checkpoint)
    assert all(torch.equal(model.weights[place], tensor) for place, tensor in tiny_model.weights.items())


def test_a_model_without_head_as_transformers_saves_it_loads(tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=50, n_positions=8, n_embd=24, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    twin: Any = GPT2Model(config)  # type: ignore[no-untyped-call]
    twin.save_pretrained(tmp_path / "headless")
    model = load(tmp_path / "headless")
    assert model.config == Config(1, 2, 24, 8, 50, 96, 1e-5)
    assert torch.equal(model.weights["h.0.mlp.c_fc.w"][0], twin.h[0].mlp.c_fc.weight)


def test_a_sharded_checkpoint_loads(tmp_path: Path, tiny_model: GPT2) -> None:
    directory = tmp_path / "shards"
    transformers_twin(tiny_model).save_pretrained(directory, max_shard_size="40KB")
    assert len(list(directory.glob("model-*.safetensors"))) > 2
    model = load(directory)
    assert all(torch.equal(model.weights[place], tensor) for place, tensor in tiny_model.weights.items())


def test_mask_buffers_and_a_tied_head_are_ignored(checkpoint: Path, tiny_model: GPT2) -> None:
    def add(state: State) -> None:
        state["transformer.h.0.attn.bias"] = torch.ones(1, 1, 24, 24).tril()
        state["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
        state["lm_head.weight"] = state["transformer.wte.weight"].clone()

    change(checkpoint, add)
    assert load(checkpoint).weights.keys() == tiny_model.weights.keys()


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_half_precision_weights_compute_in_float32(checkpoint: Path, stored: torch.dtype) -> None:
    state = {name: tensor.to(stored) for name, tensor in load_file(checkpoint / "model.safetensors").items()}
    save_file(state, checkpoint / "model.safetensors")
    model = load(checkpoint)
    assert {tensor.dtype for tensor in model.weights.values()} == {torch.float32}
    assert torch.equal(model.weights["ln_f.g"], state["transformer.ln_f.weight"].float())
    assert model.forward(feed(1, 3, 97))[0].dtype == torch.float32


def test_a_large_float16_table_is_not_taken_for_infinite(checkpoint: Path) -> None:
    def offset(state: State) -> None:
        for name, tensor in state.items():
            state[name] = tensor.half()
        state["transformer.wte.weight"] = torch.full((97, 48), 1000.0).half()

    change(checkpoint, offset)
    assert torch.isinf(load_file(checkpoint / "model.safetensors")["transformer.wte.weight"].sum())
    assert float(load(checkpoint).weights["wte"].max()) == 1000.0


def test_bfloat16_is_computed_where_asked_for(saved: Path) -> None:
    model = load(saved, "bfloat16")
    assert {tensor.dtype for tensor in model.weights.values()} == {torch.bfloat16}
    assert (model.info.dtype, model.forward(feed(1, 3, 97))[0].dtype) == ("bfloat16", torch.bfloat16)
    assert model.info.weights_sha256 == load(saved).info.weights_sha256


@pytest.mark.parametrize("dtype", ["float16", "int8", "", "x" * 500])
def test_another_dtype_is_refused_with_the_reason(saved: Path, dtype: str) -> None:
    with pytest.raises(InvalidInput, match="Choose float32 or bfloat16; in float16 the mask of 10¹⁰ overflows"):
        load(saved, dtype)


# --- what is refused ---


def test_a_missing_key_is_named(checkpoint: Path) -> None:
    change(checkpoint, lambda state: state.pop("transformer.h.1.mlp.c_fc.weight"))
    assert refusal(checkpoint) == (
        "The checkpoint in 'tiny-checkpoint' lacks h.1.mlp.c_fc.weight. "
        "Nothing was loaded: a weight that does not fit is never replaced by a random one."
    )


def test_a_wrong_prefix_is_never_replaced_by_random_weights(checkpoint: Path) -> None:
    state = load_file(checkpoint / "model.safetensors")
    save_file({f"model.{name}": tensor for name, tensor in state.items()}, checkpoint / "model.safetensors")
    assert "lacks h.0.attn.c_attn.bias, h.0.attn.c_attn.weight" in refusal(checkpoint)
    assert "and 36 more" in refusal(checkpoint)


def test_an_unexpected_key_is_named(checkpoint: Path) -> None:
    change(checkpoint, lambda state: state.update({"transformer.h.3.ln_1.weight": torch.ones(48)}))
    assert "has keys that the model does not: transformer.h.3.ln_1.weight." in refusal(checkpoint)


def test_a_weight_that_stands_there_twice_is_refused(checkpoint: Path) -> None:
    change(checkpoint, lambda state: state.update({"wte.weight": torch.zeros(97, 48)}))
    assert "transformer.wte.weight (a second wte)" in refusal(checkpoint) or (
        "wte.weight (a second wte)" in refusal(checkpoint)
    )


@pytest.mark.parametrize("name", ["h.0.attn.c_attn.weight", "h.2.mlp.c_proj.weight", "wte.weight"])
def test_a_transposed_weight_is_refused_where_it_is_not_square(checkpoint: Path, name: str) -> None:
    shape = list(load_file(checkpoint / "model.safetensors")[f"transformer.{name}"].shape)
    change(checkpoint, lambda state: state.update({f"transformer.{name}": state[f"transformer.{name}"].T}))
    assert f"has weights of another shape or kind: transformer.{name} {shape[::-1]} float32" in refusal(checkpoint)


def test_a_misshapen_weight_is_refused(checkpoint: Path) -> None:
    change(checkpoint, lambda state: state.update({"transformer.ln_f.bias": torch.zeros(1, 48)}))
    assert "transformer.ln_f.bias [1, 48]" in refusal(checkpoint)


def test_whole_numbers_are_no_weights(checkpoint: Path) -> None:
    change(checkpoint, lambda state: state.update({"transformer.ln_f.bias": torch.zeros(48, dtype=torch.int8)}))
    assert "transformer.ln_f.bias [48] int8" in refusal(checkpoint)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_weight_that_is_not_finite_is_refused(checkpoint: Path, value: float) -> None:
    def spoil(state: State) -> None:
        state["transformer.h.2.attn.c_proj.weight"][3, 5] = value

    change(checkpoint, spoil)
    assert (
        refusal(checkpoint) == "The weight h.2.attn.c_proj.w of 'tiny-checkpoint' holds values that are not finite."
    )


def test_a_missing_shard_is_named(tmp_path: Path, tiny_model: GPT2) -> None:
    directory = tmp_path / "shards"
    transformers_twin(tiny_model).save_pretrained(directory, max_shard_size="40KB")
    lost = sorted(directory.glob("model-*.safetensors"))[1]
    lost.unlink()
    assert f"'shards' lacks the shard '{lost.name}' that its index names." in refusal(directory)


def test_an_index_cannot_name_files_elsewhere(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").rename(checkpoint.parent / "elsewhere.safetensors")
    index = {"weight_map": {"wte.weight": "../elsewhere.safetensors"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "lacks the shard '../elsewhere.safetensors'" in refusal(checkpoint)


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": []}', '{"weight_map": {"wte.weight": ["a"]}}', "{}"])
def test_a_broken_index_is_refused(checkpoint: Path, text: str) -> None:
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "model.safetensors.index.json").write_text(text)
    assert refusal(checkpoint) == "model.safetensors.index.json in 'tiny-checkpoint' cannot be read."


def test_an_index_that_names_no_file_is_refused(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "model.safetensors.index.json").write_text('{"weight_map": {"wte.weight": 3}}')
    assert "lacks the shard '3'" in refusal(checkpoint)


@pytest.mark.parametrize("kept", [0, 7, 100, 50_000])
def test_a_file_that_is_cut_short_is_refused_with_both_sizes(checkpoint: Path, kept: int) -> None:
    file = checkpoint / "model.safetensors"
    whole = len(file.read_bytes())
    file.write_bytes(file.read_bytes()[:kept])
    said = refusal(checkpoint)
    assert f"model.safetensors in 'tiny-checkpoint' is cut short: it has {kept:,} of " in said
    assert f"of {whole:,} bytes. Download it again." in said or kept <= 100, "the header itself is cut"


@pytest.mark.parametrize("content", [b"no safetensors at all", b"\x02\0\0\0\0\0\0\0{}more", b"\x02\0\0\0\0\0\0\0[]"])
def test_a_file_that_is_no_safetensors_is_refused(checkpoint: Path, content: bytes) -> None:
    (checkpoint / "model.safetensors").write_bytes(content)
    assert "model.safetensors in 'tiny-checkpoint' cannot be read as safetensors: " in refusal(checkpoint)


def test_a_git_lfs_pointer_is_refused(checkpoint: Path) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 548105171\n"
    (checkpoint / "model.safetensors").write_text(pointer)
    assert refusal(checkpoint) == (
        "model.safetensors in 'tiny-checkpoint' is a Git LFS pointer in place of the file. "
        "Run `git lfs pull` in the checkpoint's folder, or download the file itself."
    )


def test_a_git_lfs_pointer_in_place_of_the_config_is_refused(checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "config.json in 'tiny-checkpoint' is a Git LFS pointer" in refusal(checkpoint)


def test_a_directory_without_weights_is_refused(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    assert refusal(checkpoint) == (
        "There is neither model.safetensors nor model.safetensors.index.json in 'tiny-checkpoint'. "
        "Only safetensors are read."
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model_type": "llama"}, "model_type 'llama' (only 'gpt2' is supported)"),
        ({"activation_function": "gelu"}, "activation_function 'gelu' (only the tanh GELU is supported)"),
        ({"activation_function": "relu"}, "activation_function 'relu'"),
        ({"scale_attn_weights": False}, "attention scores without scaling"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ({"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn"),
        ({"add_cross_attention": True}, "cross-attention"),
        ({"tie_word_embeddings": False}, "lacks lm_head.weight."),
        ({"n_head": 7}, "The width 48 cannot be split into 7 heads of equal width."),
        ({"n_layer": 0}, "whole numbers over 0, not {'n_layer': 0}"),
        ({"n_layer": "3"}, "whole numbers over 0, not {'n_layer': '3'}"),
        ({"n_embd": None}, "whole numbers over 0, not {'n_embd': None}"),
        ({"layer_norm_epsilon": "small"}, "config.json cannot be read"),
        ({"layer_norm_epsilon": float("nan")}, "ε must lie between 0 and 1, not nan."),
        ({"layer_norm_epsilon": 0}, "ε must lie between 0 and 1, not 0.0."),
        ({"n_layer": 2}, "has keys that the model does not: transformer.h.2."),
        ({"n_inner": 192}, "has weights of another shape or kind: transformer.h.0.mlp.c_fc.bias [112]"),
    ],
    ids=str,
)
def test_a_config_that_this_model_cannot_reproduce_is_refused(
    checkpoint: Path, values: dict[str, object], said: str
) -> None:
    configure(checkpoint, **values)
    assert said in refusal(checkpoint)


def test_all_that_a_config_asks_in_vain_is_listed_at_once() -> None:
    with pytest.raises(UnsupportedCheckpoint) as refused:
        from_hugging_face({"model_type": "gpt_neo", "add_cross_attention": True})
    assert str(refused.value) == (
        "This checkpoint needs what this model does not do: "
        "model_type 'gpt_neo' (only 'gpt2' is supported); cross-attention."
    )


@pytest.mark.parametrize("key", ["n_embd", "n_layer", "n_head", "vocab_size"])
def test_a_config_without_a_size_is_refused(checkpoint: Path, key: str) -> None:
    data = json.loads((checkpoint / "config.json").read_text())
    del data[key]
    (checkpoint / "config.json").write_text(json.dumps(data))
    assert refusal(checkpoint) == f"config.json lacks '{key}'."


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "is not JSON"), ("[]", "holds no object"), ("\xff", "is not JSON"), ("", "is not JSON")],
)
def test_a_broken_config_is_refused(checkpoint: Path, text: str, said: str) -> None:
    (checkpoint / "config.json").write_bytes(text.encode("latin-1"))
    assert f"config.json in 'tiny-checkpoint' {said}" in refusal(checkpoint)


def test_a_directory_without_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert refusal(tmp_path / "empty") == "There is no config.json in 'empty'."


# --- seeded weights and names ---


def test_seeded_weights_are_the_same_every_time_and_have_the_spread_of_a_fresh_gpt2() -> None:
    config = Config(n_layer=1, n_head=2, n_embd=64, n_ctx=32, n_vocab=500, n_inner=256)
    weights = untrained(config)
    assert digest(weights) == digest(untrained(config))
    assert digest(weights) != digest(untrained(config, seed=1))
    assert {place: tuple(tensor.shape) for place, tensor in weights.items()} == shapes(config)
    assert torch.equal(weights["h.0.ln_1.g"], torch.ones(64))
    assert torch.equal(weights["h.0.attn.c_attn.b"], torch.zeros(192))
    assert float(weights["wte"].std()) == pytest.approx(0.02, rel=0.05)
    assert float(weights["wpe"].std()) == pytest.approx(0.01, rel=0.05)


def test_the_digest_sees_every_value_name_and_shape() -> None:
    one = {"a": torch.zeros(2, 3), "b": torch.ones(1)}
    digests = {
        digest(one),
        digest(one | {"a": torch.zeros(3, 2)}),
        digest(one | {"b": torch.tensor([1.0000001])}),
        digest({"a": one["a"], "c": one["b"]}),
        digest(one | {"a": torch.zeros(2, 3, dtype=torch.bfloat16)}),
    }
    assert len(digests) == 5
    assert digest(dict(reversed(one.items()))) == digest(one)


def test_gpt2_small_has_124_million_parameters() -> None:
    small = SEEDED["gpt2-untrained"][0]
    assert sum(torch.Size(shape).numel() for shape in shapes(small).values()) == 124_439_808


def test_an_unknown_model_is_refused_with_those_that_are_here(saved: Path) -> None:
    with pytest.raises(UnknownModel) as refused:
        Checkpoints([saved]).load("nonsense")
    assert "There is no model named 'nonsense' here. Here are: " in str(refused.value)
    assert "gpt2-untrained" in str(refused.value)
    assert "tiny-checkpoint" in str(refused.value)


def test_a_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match="The directory 'gone' is gone"):
        Checkpoints([tmp_path / "gone"]).load("gone")


def test_the_tiny_seeded_model_loads_and_says_that_it_is_untrained() -> None:
    model = Checkpoints().load("tiny-untrained")
    assert not model.info.trained
    assert model.info.origin.startswith("untrained")
    assert tiny_model_of(model.config).weights.keys() == model.weights.keys()
