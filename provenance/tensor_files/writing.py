"""Writing files of named tensors as a stream: never more than one tensor is held."""

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, NamedTuple

import torch
from numpy.lib import format as npy
from torch import Tensor

from provenance.errors import InvalidInput

_DTYPES: Mapping[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_CHUNK = 1 << 20
_LONGEST_AGO = (1980, 1, 1, 0, 0, 0)
"""The time of every npz member, so that equal tensors make equal files."""

Metadata = Mapping[str, str]


class Format(StrEnum):
    """The two forms of file, by their ending."""

    SAFETENSORS = "safetensors"
    NPZ = "npz"

    @classmethod
    def of(cls, path: Path) -> "Format":
        """The format that a path's ending asks for. Raises InvalidInput."""
        for format in cls:
            if path.suffix.lower() == f".{format.value}":
                return format
        raise InvalidInput(
            f"{path.name!r} does not say which kind of file it is to be.", hint="End it in .safetensors or .npz."
        )


class Spec(NamedTuple):
    """What a safetensors header says about a tensor before its values follow."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Length of its values."""
        return self.dtype.itemsize * torch.Size(self.shape).numel()


def raw_bytes(tensor: Tensor) -> memoryview:
    """The values as a file holds them: row by row, little-endian."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def write_tensors(
    target: Path | BinaryIO,
    named: Iterable[tuple[str, Tensor]],
    format: Format,
    metadata: Metadata | Callable[[], Metadata] | None = None,
) -> None:
    """Write tensors as they come. npz has no place for metadata, and holds bfloat16 as float32.

    `metadata` may be a function, which is called after the last tensor was taken. Raises InvalidInput for
    a name that comes twice.
    """
    if isinstance(target, Path):
        with target.open("wb") as stream:
            write_tensors(stream, named, format, metadata)
    elif format is Format.NPZ:
        target.writelines(stream_npz(named))
    else:
        _write_safetensors(target, named, metadata)


def _write_safetensors(
    target: BinaryIO, named: Iterable[tuple[str, Tensor]], metadata: Metadata | Callable[[], Metadata] | None
) -> None:
    # The header stands first and the sizes are known last: values wait on disk, a file for each width,
    # so that the widest come first and every value is aligned.
    with ExitStack() as stack:
        waiting = {width: stack.enter_context(tempfile.TemporaryFile()) for width in (8, 4, 2, 1)}
        specs: dict[int, list[Spec]] = {width: [] for width in waiting}
        for name, tensor in named:
            specs[tensor.dtype.itemsize].append(Spec(name, tensor.dtype, tuple(tensor.shape)))
            waiting[tensor.dtype.itemsize].write(raw_bytes(tensor))
        said = metadata() if callable(metadata) else metadata
        target.write(_header([spec for found in specs.values() for spec in found], said))
        for file in waiting.values():
            file.seek(0)
            while chunk := file.read(_CHUNK):
                target.write(chunk)


def stream_safetensors(
    specs: Sequence[Spec], tensors: Iterable[Tensor], metadata: Metadata | None = None
) -> Iterator[bytes]:
    """A safetensors file in pieces; the tensors come in the order of their specs.

    Put wide dtypes first: values are aligned only then. Raises InvalidInput for a name that comes twice,
    ValueError for a tensor that is not as its spec says.
    """
    yield _header(specs, metadata)
    for spec, tensor in zip(specs, tensors, strict=True):
        if (tensor.dtype, tuple(tensor.shape)) != (spec.dtype, spec.shape):
            raise ValueError(f"{spec.name} is {tensor.dtype} {list(tensor.shape)}, not as announced")
        yield from _pieces(tensor)


def _header(specs: Sequence[Spec], metadata: Metadata | None) -> bytes:
    entries: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    start = 0
    for spec in specs:
        _refuse_again(spec.name, spec.name in entries or spec.name == "__metadata__")
        offsets = [start, start := start + spec.bytes]
        entries[spec.name] = {"dtype": _DTYPES[spec.dtype], "shape": list(spec.shape), "data_offsets": offsets}
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def stream_npz(named: Iterable[tuple[str, Tensor]]) -> Iterator[bytes]:
    """An npz file in pieces, uncompressed; bfloat16 as float32. Raises InvalidInput for a name that comes twice."""
    sink = _Sink()
    seen: set[str] = set()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, tensor in named:
            _refuse_again(name, name in seen)
            seen.add(name)
            values = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
            with archive.open(zipfile.ZipInfo(f"{name}.npy", _LONGEST_AGO), "w", force_zip64=True) as member:
                member.write(_npy_header(values))
                for piece in _pieces(values):
                    member.write(piece)
                    yield sink.taken()
            yield sink.taken()
    yield sink.taken()


def _npy_header(values: Tensor) -> bytes:
    header = io.BytesIO()
    descr = npy.dtype_to_descr(torch.empty(0, dtype=values.dtype).numpy().dtype)
    npy.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": tuple(values.shape)})
    return header.getvalue()


def _pieces(tensor: Tensor) -> Iterator[bytes]:
    raw = raw_bytes(tensor)
    for start in range(0, len(raw), _CHUNK):
        yield bytes(raw[start : start + _CHUNK])


def _refuse_again(name: str, again: bool) -> None:
    if again:
        raise InvalidInput(f"Two tensors of one file would be named {name!r}.")


class _Sink:
    """What a zip file is written into: it hands on what came since it was last asked, and never goes back."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, content: bytes, /) -> int:
        self._parts.append(bytes(content))
        return len(content)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def taken(self) -> bytes:
        """What was written since the last call."""
        content = b"".join(self._parts)
        self._parts.clear()
        return content
