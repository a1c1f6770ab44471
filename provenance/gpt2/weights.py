"""GPT-2's weights: read from a checkpoint, or made from a seed; always by place (`h.0.ln_1.g`)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from provenance.errors import UnsupportedCheckpoint
from provenance.gpt2.config import Config, from_hugging_face, from_openai
from provenance.gpt2.keys import checkpoint_keys, match, shapes
from provenance.gpt2.stored import files_sha256, read_stored, refuse_pointer
from provenance.model_sources import KeyReport

__all__ = ["DTYPES", "Opened", "checkpoint_keys", "open_directory", "read_config", "read_directory",
           "shapes", "untrained"]  # fmt: skip

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""What a model may compute in. In float16 OpenAI's mask of 10¹⁰ overflows, and all is NaN."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A checkpoint whose keys were matched; its weights are mapped from the files, not yet read."""

    config: Config
    weights: Mapping[str, Tensor]
    report: KeyReport
    files: tuple[Path, ...]

    @property
    def sha256(self) -> str:
        """SHA-256 of the file; of several shards, the hash of their hashes in order of name."""
        return files_sha256(self.files)


def untrained(config: Config, seed: int = 0) -> dict[str, Tensor]:
    """Seeded random weights with the spread that OpenAI's code starts training from."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for place, shape in shapes(config).items():
        tensor = torch.empty(shape)
        if place.endswith(".b"):
            tensor.zero_()
        elif place.endswith(".g"):
            tensor.fill_(1.0)
        else:
            tensor.normal_(std=0.01 if place == "wpe" else 0.02, generator=generator)
        weights[place] = tensor
    return weights


def open_directory(directory: Path, *, pickles: bool = False) -> Opened:
    """Open a checkpoint without reading its weights; its report may say that it does not fit.

    `pickles` allows pytorch_model.bin. Raises UnsupportedCheckpoint for files that cannot be read.
    """
    config = read_config(directory)
    stored = read_stored(directory, pickles=pickles)
    config, weights, report = match(config, stored.tensors, stored.warnings)
    return Opened(config, weights, report, stored.files)


def read_directory(directory: Path, *, pickles: bool = False) -> tuple[Config, dict[str, Tensor], str]:
    """Config, weights and their SHA-256 from a directory in Hugging Face's format, or OpenAI's.

    Raises UnsupportedCheckpoint with the first thing that is wrong.
    """
    opened = open_directory(directory, pickles=pickles)
    opened.report.check(directory)
    return opened.config, dict(opened.weights), opened.sha256


def read_config(directory: Path) -> Config:
    """The config of a checkpoint's directory: config.json, or OpenAI's hparams.json.

    Raises UnsupportedCheckpoint.
    """
    if not (directory / "config.json").exists() and (directory / "hparams.json").is_file():
        return from_openai(_object(directory / "hparams.json"))
    return from_hugging_face(_object(directory / "config.json"))


def _object(file: Path) -> dict[str, Any]:
    where = f"{file.name} in {file.parent.name!r}"
    if not file.exists():
        raise UnsupportedCheckpoint(f"There is no {file.name} in {file.parent.name!r}.")
    refuse_pointer(file)
    try:
        data = json.loads(file.read_bytes())
    except OSError as error:
        raise UnsupportedCheckpoint(f"{where} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise UnsupportedCheckpoint(f"{where} is not JSON: {error}.") from None
    if not isinstance(data, dict):
        raise UnsupportedCheckpoint(f"{where} holds no object.")
    return data
