"""Reading files of named tensors: safetensors and npz, told apart by content, never a pickle.

Nothing in a file is trusted: every size it declares is compared with a limit before memory is taken.
"""

import io
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import torch
from numpy.lib import format as npy
from safetensors import SafetensorError
from safetensors.torch import load, load_file
from torch import Tensor

from provenance.errors import TooLarge, UnreadableFile
from provenance.syntax import ONE_AT_A_TIME

MOST_TENSORS = 20_000
HEADER_LIMIT_BYTES = 32 << 20
"""Of a safetensors header."""

_ENTRY_BYTES = 512
"""Of an npz's table of contents, for each tensor, name and all."""
_DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL")
_WIDER = {"uint16": np.int32, "uint32": np.int64}
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    RuntimeError,
    ValueError,
    ArithmeticError,
    EOFError,
    OSError,
)
"""What zipfile raises for archives that are none."""

_PARTS = 8
"""Brackets in a safetensors header, for each tensor: more are no description of tensors."""
_MAKE = "Write it with safetensors.numpy.save_file or numpy.savez."


@dataclass(frozen=True, slots=True)
class _File:
    """What is read: its name for the errors, its bytes or its path, and the limits."""

    name: str
    source: Path | bytes
    limit_bytes: int | None
    most_tensors: int

    def open(self) -> BinaryIO:
        return io.BytesIO(self.source) if isinstance(self.source, bytes) else self.source.open("rb")

    @property
    def size(self) -> int:
        return len(self.source) if isinstance(self.source, bytes) else self.source.stat().st_size

    def refused(self, what: str, hint: str = "") -> UnreadableFile:
        return UnreadableFile(f"{self.name!r} {what}", hint=hint)

    def check(self, tensors: int, size: int) -> None:
        if tensors > self.most_tensors:
            raise self.refused(f"has more than {self.most_tensors} tensors.", "Hand in fewer at once.")
        if self.limit_bytes is not None and size > self.limit_bytes:
            limit = f"{self.limit_bytes / (1 << 20):g} MiB"
            raise TooLarge(f"{self.name!r} holds more than the {limit} allowed here.", hint="Hand in fewer tensors.")


def read_tensors(
    source: Path | bytes,
    *,
    name: str = "",
    limit_bytes: int | None = None,
    most_tensors: int = MOST_TENSORS,
) -> dict[str, Tensor]:
    """All tensors of a .safetensors or .npz file, by name, in the file's order and native byte order.

    `limit_bytes` bounds the file and what it unpacks to; `name` stands for it in errors. Unsigned 16 and
    32 bit numbers come back wider, since torch computes little with them. Raises UnreadableFile.
    """
    name = name or (source.name if isinstance(source, Path) else "the file")
    file = _File(name, source, limit_bytes, most_tensors)
    if isinstance(source, Path) and not source.is_file():
        raise file.refused("is no file.", "Give the path of a .safetensors or .npz file.")
    file.check(0, file.size)
    with file.open() as stream:
        start = stream.read(9)
    if not start:
        raise file.refused("is empty.", _MAKE)
    if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return _read_npz(file)
    if len(start) == 9 and start[8:] == b"{":
        return _read_safetensors(file)
    if start[:6] == b"\x93NUMPY":
        raise file.refused(
            "is a single array without a name.", "Put it into an npz: numpy.savez(file, **{name: array})."
        )
    if start[:1] == b"\x80":
        raise file.refused("is a pickle, and pickles are never read: they can run code.", _MAKE)
    raise file.refused("is neither a safetensors nor an npz file.", _MAKE)


# --- safetensors ---


def _read_safetensors(file: _File) -> dict[str, Tensor]:
    order = _check_header(file)
    try:
        found = load(file.source) if isinstance(file.source, bytes) else load_file(file.source)
    except (SafetensorError, ValueError, RuntimeError, KeyError) as error:
        raise file.refused(f"cannot be read as safetensors: {str(error)[:200]}.", _MAKE) from None
    return {name: found[name] for name in order if name in found}


def _check_header(file: _File) -> list[str]:
    """The names in a header that is as it should be; the library checks its offsets."""
    with file.open() as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > min(HEADER_LIMIT_BYTES, file.size - 8):
            raise file.refused(f"declares a header of {length} bytes, more than it has or than is read.", _MAKE)
        text = stream.read(length)
    if text.count(b"{") + text.count(b"[") > 1024 + _PARTS * file.most_tensors:
        raise file.refused(f"has a header of more parts than {file.most_tensors} tensors need.", _MAKE)
    try:
        header = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise file.refused(f"has a header that cannot be read: {str(error)[:200]}.", _MAKE) from None
    header.pop("__metadata__", None)
    file.check(len(header), file.size)
    for name, entry in header.items():
        dtype = entry.get("dtype") if isinstance(entry, dict) else None
        if dtype not in _DTYPES:
            raise file.refused(
                f"holds {name[:80]!r} of dtype {str(dtype)[:40]!r}, which is not read.",
                f"Read are {', '.join(_DTYPES)}.",
            )
    return list(header)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands in it twice")
    return found


# --- npz ---


class _Guarded:
    """A file for zipfile that gives out at most `most` bytes at once, where that is set.

    Python reads a table of contents in one go, and makes an object of each entry before it can be counted.
    """

    def __init__(self, stream: BinaryIO, most: int) -> None:
        self._stream = stream
        self.most: int | None = most
        self.tell, self.seekable, self.close = stream.tell, stream.seekable, stream.close

    def read(self, size: int = -1, /) -> bytes:
        if self.most is None:
            return self._stream.read(size)
        content = self._stream.read(self.most + 1 if size < 0 else min(size, self.most + 1))
        if len(content) > self.most:
            raise zipfile.BadZipFile("its table of contents is too long")
        return content

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._stream.seek(offset, whence)


def _read_npz(file: _File) -> dict[str, Tensor]:
    with file.open() as stream:
        try:
            guarded = _Guarded(stream, max(1 << 17, file.most_tensors * _ENTRY_BYTES))
            with zipfile.ZipFile(guarded) as archive:
                guarded.most = None
                return {name: _read_member(file, archive, info) for name, info in _members(file, archive).items()}
        except _DAMAGED as error:
            raise file.refused(f"cannot be read as npz: {str(error)[:200]}.", _MAKE) from None


def _members(file: _File, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The members by their tensors' names. No path of a member is ever used as one."""
    infos = archive.infolist()
    file.check(len(infos), sum(info.file_size for info in infos))
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.filename.removesuffix(".npy")
        if name == info.filename:
            pickled = " It looks like a pickle, and pickles are never read." if name.endswith(".pkl") else ""
            raise file.refused(f"holds {name[:80]!r}, which is no .npy.{pickled}", _MAKE)
        if name in members:
            raise file.refused(f"holds two tensors named {name[:80]!r}.", "Give each its own name.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
            raise file.refused(
                f"packs {name[:80]!r} in a way that is not read.", "Use numpy.savez or savez_compressed."
            )
        members[name] = info
    return members


def _read_member(file: _File, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Tensor:
    name = info.filename.removesuffix(".npy")
    with archive.open(info) as member:
        shape, fortran, dtype = _array_header(file, member, name)
        if dtype.hasobject:
            raise file.refused(f"holds Python objects under {name[:80]!r}; those are pickled, and never read.", _MAKE)
        if dtype.kind not in "fiub" or dtype.itemsize > 8 or (dtype.kind == "u" and dtype.itemsize == 8):
            raw = " (bfloat16 has no form of its own in npz)" if dtype.kind == "V" else ""
            raise file.refused(
                f"holds {name[:80]!r} of dtype {dtype.name!r}{raw}, which is not read.",
                "Read are floats of 2 to 8 bytes, whole numbers and truth values.",
            )
        size = math.prod(shape) * dtype.itemsize
        if size > info.file_size or any(length < 0 for length in shape):
            raise file.refused(f"declares more values under {name[:80]!r} than it holds.", _MAKE)
        content = member.read(size)
        if len(content) != size or member.read(1):
            raise file.refused(f"does not hold as many values under {name[:80]!r} as it declares.", _MAKE)
    array = np.frombuffer(bytearray(content), dtype=dtype).reshape(shape, order="F" if fortran else "C")
    native = array.astype(_WIDER.get(dtype.name, dtype.newbyteorder("=")), order="C", copy=False)
    return torch.from_numpy(native)


def _array_header(file: _File, member: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy.read_magic(member)
        read: Callable[..., tuple[tuple[int, ...], bool, np.dtype[Any]]] = (
            npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        )
        with ONE_AT_A_TIME:  # a header is Python source
            return read(member)
    except Exception as error:  # NumPy lets through what its parser raises, of several kinds
        raise file.refused(f"cannot be read as npz: {name[:80]!r} is no array ({str(error)[:200]}).", _MAKE) from None
