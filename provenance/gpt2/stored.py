"""A checkpoint's files: which there are, what is wrong with them, and their tensors by key.

Tensors are mapped from the files, not copied: their bytes are read when they are first used.
"""

import hashlib
import json
import logging
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from provenance.errors import UnsupportedCheckpoint

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"

_POINTER = b"version https://git-lfs"
_LENGTH_BYTES = 8
_LARGEST_HEADER = 100 << 20

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint's tensors by key, its weight files, and what a person should know of them."""

    tensors: Mapping[str, Tensor]
    files: tuple[Path, ...]
    warnings: tuple[str, ...] = ()


def read_stored(directory: Path, *, pickles: bool = False) -> Stored:
    """Open the weights in a directory, single or in shards: safetensors, else (`pickles`) PyTorch's own.

    Raises UnsupportedCheckpoint with the first thing that is wrong with the files.
    """
    files, index = find_files(directory, pickles=pickles)
    pickled = files[0].suffix == ".bin"
    warnings = []
    if pickled:
        warnings.append(
            f"{files[0].name} is a pickle: it was read with weights_only, which runs no code of the file; "
            "safetensors is the safer format."
        )
        log.warning("%s: %s", directory.name, warnings[0])
    tensors: dict[str, Tensor] = {}
    for file in files:
        refuse_pointer(file)
        found = _unpickle(file) if pickled else _map(file)
        if index is not None:
            _check_index(directory, file, found, index)
        tensors |= found
    return Stored(tensors, files, tuple(warnings))


def find_files(directory: Path, *, pickles: bool = False) -> tuple[tuple[Path, ...], Mapping[str, str] | None]:
    """The weight files of a directory and, of several, which key lies in which. Raises UnsupportedCheckpoint."""
    kinds = ((SINGLE, INDEX), (PICKLED, PICKLED_INDEX)) if pickles else ((SINGLE, INDEX),)
    for single, index in kinds:
        if (directory / single).is_file():
            return (directory / single,), None
        if (directory / index).is_file():
            return _shards(directory, index)
    hint = "Only safetensors are read."
    if (directory / PICKLED).exists() or (directory / PICKLED_INDEX).exists():
        hint += f" {PICKLED} is read from a folder that you name yourself, and never from the hub's cache."
    raise UnsupportedCheckpoint(f"There is neither {SINGLE} nor {INDEX} in {directory.name!r}.", hint=hint)


def refuse_pointer(file: Path) -> None:
    """Raise UnsupportedCheckpoint where Git LFS left its pointer in the place of a file."""
    try:
        with file.open("rb") as stream:
            start = stream.read(len(_POINTER))
    except OSError as error:
        raise UnsupportedCheckpoint(f"{_name(file)} cannot be read: {error.strerror}.") from None
    if start == _POINTER:
        raise UnsupportedCheckpoint(
            f"{_name(file)} is a Git LFS pointer in place of the file.",
            hint="Run `git lfs pull` in the checkpoint's folder, or download the file itself.",
        )


def files_sha256(files: tuple[Path, ...]) -> str:
    """SHA-256 of the file; of several shards, the hash of their hashes in order of name."""
    digests = [file_sha256(file) for file in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()


def file_sha256(file: Path) -> str:
    """SHA-256 of a file; one that did not change is read once."""
    status = file.stat()
    return _sha256(file, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _sha256(file: Path, size: int, changed_ns: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _shards(directory: Path, index_name: str) -> tuple[tuple[Path, ...], Mapping[str, str]]:
    refuse_pointer(directory / index_name)
    try:
        index: Any = json.loads((directory / index_name).read_bytes())
        names = sorted(str(name) for name in set(index["weight_map"].values()))
        places = {str(key): str(name) for key, name in index["weight_map"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnsupportedCheckpoint(f"{index_name} in {directory.name!r} cannot be read.") from None
    if not names:
        raise UnsupportedCheckpoint(f"{index_name} in {directory.name!r} names no file.")
    for name in names:
        if Path(name).name != name or not (directory / name).is_file():
            raise UnsupportedCheckpoint(
                f"{directory.name!r} lacks the shard {name!r} that its index names.",
                hint="Download it again: all shards and the index belong together.",
            )
    return tuple(directory / name for name in names), places


def _check_index(directory: Path, file: Path, found: Mapping[str, Tensor], index: Mapping[str, str]) -> None:
    promised = {key for key, name in index.items() if name == file.name}
    for key, what in (
        *((key, f"places {key} in {file.name}, which lacks it") for key in sorted(promised - found.keys())),
        *((key, f"does not know {key}, which is in {file.name}") for key in sorted(found.keys() - promised)),
    ):
        if not key.endswith((".attn.bias", ".attn.masked_bias")):
            raise UnsupportedCheckpoint(
                f"The index of {directory.name!r} is stale: it {what}.",
                hint="Download index and shards again, all from the same revision.",
            )


def _map(file: Path) -> dict[str, Tensor]:
    _refuse_cut(file)
    try:
        with safe_open(file, framework="pt") as opened:
            return {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError, ValueError) as error:
        raise UnsupportedCheckpoint(
            f"{_name(file)} cannot be read as safetensors: {error}.", hint="Download it again."
        ) from None


def _refuse_cut(file: Path) -> None:
    """Raise UnsupportedCheckpoint where a safetensors file is shorter than its header says."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        header = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        whole = _LENGTH_BYTES + header
        if whole <= size and header <= _LARGEST_HEADER:
            whole += _data_bytes(stream.read(header))
    # A header longer than any is no length at all: the file is something else, and safetensors says so.
    if size < whole and header <= _LARGEST_HEADER:
        raise UnsupportedCheckpoint(
            f"{_name(file)} is cut short: it has {size:,} of {max(whole, _LENGTH_BYTES):,} bytes.",
            hint="Download it again.",
        )


def _data_bytes(header: bytes) -> int:
    try:
        entries = json.loads(header)
        return max((entry["data_offsets"][1] for key, entry in entries.items() if key != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return 0


def _unpickle(file: Path) -> dict[str, Tensor]:
    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except Exception as error:  # bytes that are no pickle make it raise whatever they happen to be
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        raise UnsupportedCheckpoint(
            f"{_name(file)} cannot be read with weights_only: {reason}",
            hint="It may be cut short, or hold more than tensors. Convert it to safetensors.",
        ) from None
    if not isinstance(loaded, dict) or not all(isinstance(tensor, Tensor) for tensor in loaded.values()):
        raise UnsupportedCheckpoint(f"{_name(file)} does not hold tensors by key.")
    return {str(key): tensor for key, tensor in loaded.items()}


def _name(file: Path) -> str:
    return f"{file.name} in {file.parent.name!r}"
