"""GPT-2's weights: read from a checkpoint, or made from a seed; always by place (`h.0.ln_1.g`)."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from provenance.catalogue import Kind
from provenance.errors import UnsupportedCheckpoint
from provenance.gpt2.catalogue import CATALOGUE
from provenance.gpt2.config import Config, from_hugging_face
from provenance.gpt2.rows_shared import KEY
from provenance.names import Address, is_layered

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""What a model may compute in. In float16 OpenAI's mask of 10¹⁰ overflows, and all is NaN."""

_BUFFERS = (".attn.bias", ".attn.masked_bias")
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a checkpoint's keys; every list is sorted."""

    matched: tuple[str, ...]
    ignored: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    misshapen: tuple[str, ...]

    def check(self, where: Path) -> None:
        """Raise UnsupportedCheckpoint where anything is missing, unexpected or misshapen."""
        for what, keys in (
            ("lacks", self.missing),
            ("has keys that a GPT-2 does not:", self.unexpected),
            ("has weights of another shape or kind:", self.misshapen),
        ):
            if keys:
                more = f" and {len(keys) - 4} more" if len(keys) > 4 else ""
                raise UnsupportedCheckpoint(
                    f"The checkpoint in {where.name!r} {what} {', '.join(keys[:4])}{more}.",
                    hint="Nothing was loaded: a weight that does not fit is never replaced by a random one.",
                )


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter, by place; projections are (1, in, out) as in OpenAI's code."""
    found = {}
    for row in CATALOGUE:
        if row.kind is Kind.PARAMETER:
            for layer in range(config.n_layer) if is_layered(row.site) else (None,):
                size = tuple(config.constants[axis] for axis in row.shape)
                found[Address(row.site, layer).place] = size
    return found


def checkpoint_keys(config: Config) -> dict[str, str]:
    """The place of every Hugging Face checkpoint key, with and without `transformer.`."""
    found = {}
    for row in CATALOGUE:
        for alias in row.aliases:
            if alias.scheme == KEY:
                for layer in range(config.n_layer) if is_layered(row.site) else (None,):
                    found[alias.pattern.replace("{layer}", str(layer))] = Address(row.site, layer).place
    return found


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


def digest(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 over the names, shapes and values of all weights, in order of name."""
    total = hashlib.sha256()
    for place, tensor in sorted(weights.items()):
        total.update(f"{place} {list(tensor.shape)} {tensor.dtype}\n".encode())
        total.update(tensor.contiguous().view(torch.uint8).numpy().data)
    return total.hexdigest()


def read_directory(directory: Path) -> tuple[Config, dict[str, Tensor], str]:
    """Config, weights and their SHA-256 from a directory in Hugging Face's format.

    Raises UnsupportedCheckpoint with the first thing that is wrong.
    """
    config = read_config(directory)
    files = _files(directory)
    stored: dict[str, Tensor] = {}
    for file in files:
        try:
            stored |= load_file(file)
        except (OSError, SafetensorError) as error:
            raise UnsupportedCheckpoint(
                f"{file.name} in {directory.name!r} cannot be read as safetensors: {error}.",
                hint="It may be cut short, or a Git LFS pointer in place of the file.",
            ) from None
    return config, _fit(config, stored, directory), _digest_files(files)


def read_config(directory: Path) -> Config:
    """The config of a checkpoint's directory. Raises UnsupportedCheckpoint."""
    try:
        data = json.loads((directory / "config.json").read_bytes())
    except OSError:
        raise UnsupportedCheckpoint(f"There is no config.json in {directory.name!r}.") from None
    except ValueError as error:
        raise UnsupportedCheckpoint(f"config.json in {directory.name!r} is not JSON: {error}.") from None
    if not isinstance(data, dict):
        raise UnsupportedCheckpoint(f"config.json in {directory.name!r} holds no object.")
    return from_hugging_face(data)


def _files(directory: Path) -> list[Path]:
    if (directory / _SINGLE).is_file():
        return [directory / _SINGLE]
    try:
        index = json.loads((directory / _INDEX).read_bytes())
        names = sorted(str(name) for name in set(index["weight_map"].values()))
    except OSError:
        raise UnsupportedCheckpoint(
            f"There is neither {_SINGLE} nor {_INDEX} in {directory.name!r}.",
            hint="Only safetensors are read.",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnsupportedCheckpoint(f"{_INDEX} in {directory.name!r} cannot be read.") from None
    lost = [name for name in names if Path(name).name != name or not (directory / name).is_file()]
    if lost:
        raise UnsupportedCheckpoint(f"{directory.name!r} lacks the shard {lost[0]!r} that its index names.")
    return [directory / name for name in names]


def _fit(config: Config, stored: Mapping[str, Tensor], directory: Path) -> dict[str, Tensor]:
    keys, expected = checkpoint_keys(config), shapes(config)
    weights: dict[str, Tensor] = {}
    ignored, unexpected, misshapen = [], [], []
    for name, tensor in stored.items():
        place = keys.get(name)
        if place is not None and place not in weights:
            fitted = tensor.unsqueeze(0) if place.endswith(".w") else tensor
            if tuple(fitted.shape) != expected[place] or not tensor.is_floating_point():
                misshapen.append(f"{name} {list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}")
            weights[place] = fitted
        elif place is not None:
            unexpected.append(f"{name} (a second {place})")
        elif name.endswith(_BUFFERS) or name == "lm_head.weight":
            ignored.append(name)
        else:
            unexpected.append(name)
    missing = {place: key for key, place in keys.items() if place not in weights}.values()
    Report(_sorted(weights), _sorted(ignored), _sorted(missing), _sorted(unexpected), _sorted(misshapen)).check(
        directory
    )
    _refuse_untied(stored, weights)
    return {place: weights[place] for place in expected}


def _refuse_untied(stored: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    head = stored.get("lm_head.weight")
    if head is not None and not torch.equal(head, weights["wte"]):
        raise UnsupportedCheckpoint(
            "This checkpoint's lm_head.weight is not its wte: an output that is not tied is not supported here."
        )


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def _digest_files(files: list[Path]) -> str:
    """SHA-256 of the file; of several shards, the hash of their hashes in order of name."""
    digests = []
    for file in files:
        with file.open("rb") as stream:
            digests.append(hashlib.file_digest(stream, "sha256").hexdigest())
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()
