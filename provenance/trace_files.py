"""One stored trace: the files of its directory, written, read and checked."""

import hashlib
import os
import re
from collections.abc import Hashable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file

from provenance.durable import flush, reading
from provenance.errors import CorruptTrace
from provenance.migration import read_record
from provenance.prompt import Token
from provenance.trace import Recipe, Record, TokenRecord, Trace

RECORD, TENSORS = "trace.json", "tensors.safetensors"
_PATCH = "patch/"
"""What the stored names of an edit's cells start with: no address has a slash."""
_AGAIN = "Delete it and record again."


def write_trace(
    directory: Path,
    recipe: Recipe,
    generated: tuple[Token, ...],
    tensors: Mapping[str, torch.Tensor],
    patches: Mapping[str, torch.Tensor],
    created_at: datetime,
) -> None:
    """Write a trace's files into a directory, and flush them to disk. Raises OSError."""
    file, record_file = directory / TENSORS, directory / RECORD
    _write_tensors(file, {**tensors, **{f"{_PATCH}{key}": tensor for key, tensor in patches.items()}})
    record = Record(
        recipe=recipe,
        generated=tuple(TokenRecord.of(token) for token in generated),
        created_at=created_at.isoformat(timespec="milliseconds"),
        tensors_sha256=_sha256(file),
        tensors_bytes=file.stat().st_size,
    )
    record_file.write_text(record.model_dump_json(indent=1), encoding="utf-8")
    flush(file, record_file, directory)


def read_trace(directory: Path) -> Trace:
    """The trace in a directory of its id's name. Raises CorruptTrace, NewerTrace, or StorageFailed."""
    record = record_of(directory)
    # Into memory, and not mapped: a mapped file that is cut short later ends the process.
    try:
        with reading(f"Trace {directory.name}"):
            content = (directory / TENSORS).read_bytes()
    except FileNotFoundError:
        raise _lacking(directory) from None
    if len(content) != record.tensors_bytes or hashlib.sha256(content).hexdigest() != record.tensors_sha256:
        raise _other_tensors(directory)
    try:
        stored = load(content)
    except SafetensorError as error:
        raise CorruptTrace(f"The tensors of trace {directory.name} cannot be read: {error}.", hint=_AGAIN) from None
    patches = {name: stored.pop(name) for name in list(stored) if name.startswith(_PATCH)}
    return Trace(record, stored, {name.removeprefix(_PATCH): cells for name, cells in patches.items()})


def check_trace(directory: Path, *, tensors: bool = True) -> Record:
    """Check that a trace is as it was written; without `tensors` not their hash, only their size.

    Raises as `read_trace` does.
    """
    record = record_of(directory)
    with reading(f"Trace {directory.name}"):
        try:
            file = directory / TENSORS
            fits = file.stat().st_size == record.tensors_bytes
            if not fits or (tensors and _sha256(file) != record.tensors_sha256):
                raise _other_tensors(directory)
        except FileNotFoundError:
            raise _lacking(directory) from None
    return record


def record_of(directory: Path) -> Record:
    """The record of the trace in a directory of its id's name. Raises as `read_trace` does."""
    try:
        with reading(f"Trace {directory.name}"):
            content = (directory / RECORD).read_bytes()
    except FileNotFoundError:
        raise CorruptTrace(f"The record of trace {directory.name} is not there.", hint=_AGAIN) from None
    return read_record(directory.name, content)


def stamp_of(directory: Path) -> tuple[tuple[int, int, int], ...]:
    """Of each of the two files its inode, time and size: equal while they are the same. Raises CorruptTrace."""
    try:
        with reading(f"Trace {directory.name}"):
            seen = [(directory / name).stat() for name in (TENSORS, RECORD)]
    except FileNotFoundError:
        raise _lacking(directory) from None
    return tuple((state.st_ino, state.st_mtime_ns, state.st_size) for state in seen)


def stamps(directory: Path, names: re.Pattern[str]) -> Hashable:
    """Of all entries of these names their inode, time and size; of a directory that is not there, none."""
    found = []
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # removed meanwhile
                if names.fullmatch(entry.name):
                    seen = entry.stat()
                    found.append((entry.name, seen.st_ino, seen.st_mtime_ns, seen.st_size))
    return tuple(sorted(found))


def _write_tensors(file: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from None


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _lacking(directory: Path) -> CorruptTrace:
    return CorruptTrace(f"Trace {directory.name} lacks one of its two files.", hint=_AGAIN)


def _other_tensors(directory: Path) -> CorruptTrace:
    return CorruptTrace(f"The tensors of trace {directory.name} are not those that were written.", hint=_AGAIN)
