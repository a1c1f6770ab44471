"""Small checkpoints of every accepted kind, written from a model of ours without the code that reads them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from provenance.gpt2.config import Config
from provenance.gpt2.model import GPT2

State = dict[str, torch.Tensor]

_HUGGING_FACE = {"g": "weight", "w": "weight", "b": "bias"}


def state_of(model: GPT2, prefix: str = "transformer.") -> State:
    """A model's weights as transformers saves them."""
    state = {}
    for place, tensor in model.weights.items():
        if place == "lm_head.w":
            state["lm_head.weight"] = tensor.clone()
            continue
        at, _, last = place.rpartition(".")
        key = f"{at}.{_HUGGING_FACE[last]}" if at else f"{place}.weight"
        state[prefix + key] = (tensor[0] if tensor.ndim == 3 else tensor).clone()
    return state


def openai_state_of(model: GPT2) -> State:
    """A model's weights under the names and in the shapes of OpenAI's TensorFlow checkpoint."""
    state = {}
    for place, tensor in model.weights.items():
        parts = place.split(".")
        if parts[0] == "h":
            parts = [f"h{parts[1]}", *parts[2:]]
        state["/".join(["model", *parts])] = tensor.clone()
    return state


def config_of(config: Config) -> dict[str, object]:
    """A config as transformers writes it."""
    return {
        "model_type": "gpt2",
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_embd": config.n_embd,
        "n_positions": config.n_ctx,
        "n_inner": config.n_inner,
        "vocab_size": config.n_vocab,
        "layer_norm_epsilon": config.epsilon,
        "tie_word_embeddings": config.tied,
    }


def write(directory: Path, config: Mapping[str, object], state: State | None = None) -> Path:
    """A directory with a config and, where given, one file of weights."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    if state is not None:
        save_file(state, directory / "model.safetensors")
    return directory


def write_shards(directory: Path, config: Mapping[str, object], state: State, count: int = 3) -> Path:
    """The same in several files with their index."""
    write(directory, config)
    places = {key: f"model-{n % count + 1:05}-of-{count:05}.safetensors" for n, key in enumerate(sorted(state))}
    for name in sorted(set(places.values())):
        save_file({key: state[key] for key, place in places.items() if place == name}, directory / name)
    index = {"metadata": {}, "weight_map": places}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def _single(directory: Path, model: GPT2) -> Path:
    return write(directory, config_of(model.config), state_of(model))


def _bare(directory: Path, model: GPT2) -> Path:
    return write(directory, config_of(model.config), state_of(model, ""))


def _shards(directory: Path, model: GPT2) -> Path:
    return write_shards(directory, config_of(model.config), state_of(model))


def _openai(directory: Path, model: GPT2) -> Path:
    return write(directory, config_of(model.config), openai_state_of(model))


def _hparams(directory: Path, model: GPT2) -> Path:
    """OpenAI's own config beside OpenAI's own names."""
    write(directory, {}, openai_state_of(model))
    (directory / "config.json").unlink()
    sizes = {name: getattr(model.config, name) for name in ("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer")}
    (directory / "hparams.json").write_text(json.dumps(sizes))
    return directory


def _pickled(directory: Path, model: GPT2) -> Path:
    write(directory, config_of(model.config))
    torch.save(state_of(model, ""), directory / "pytorch_model.bin")
    return directory


def _pickled_of_old(directory: Path, model: GPT2) -> Path:
    write(directory, config_of(model.config))
    torch.save(state_of(model, ""), directory / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    return directory


def _with_buffers(directory: Path, model: GPT2) -> Path:
    size = model.config.n_ctx
    buffers = {f"transformer.h.{n}.attn.bias": torch.ones(1, 1, size, size).tril() for n in range(model.layers)}
    buffers |= {f"transformer.h.{n}.attn.masked_bias": torch.tensor(-1e4) for n in range(model.layers)}
    return write(directory, config_of(model.config), state_of(model) | buffers)


KINDS: Mapping[str, Callable[[Path, GPT2], Path]] = {
    "with the prefix": _single,
    "without the prefix": _bare,
    "in shards": _shards,
    "with OpenAI's names": _openai,
    "with OpenAI's names and config": _hparams,
    "with mask buffers": _with_buffers,
    "pickled": _pickled,
    "pickled as of old": _pickled_of_old,
}
"""Every kind of a tied checkpoint in float32: how it is written to a directory."""
