"""Golden files: the tensors of a trace under another code's names, for those who check a port against it.

FILE                  the tensors, as safetensors or npz
FILE.manifest.json    which trace and model made them, and each tensor's shape, dtype and SHA-256
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor

from provenance.catalogue import Alias, Catalogue, Intermediate, Kind
from provenance.errors import InvalidInput
from provenance.names import Address
from provenance.order import computation_order
from provenance.prompt import Drawn
from provenance.schemes import Scheme, alias_of, laid_out, name_of
from provenance.tensor_files import Format, raw_bytes, write_tensors
from provenance.trace import Frozen, Trace

Read = Callable[[Address], Tensor]
Progress = Callable[[int, int], None]
"""Called with the number of tensors done and the number of all."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A tensor that gets into a golden file, the name that it has there, and whence that name is."""

    name: str
    address: Address
    row: Intermediate
    alias: Alias | None


class GoldenTensor(Frozen):
    """One tensor of a golden file; `sha256` is that of its values as they lie there, row by row, little-endian."""

    name: str
    address: str
    site: str
    shape: tuple[int, ...]
    dtype: str
    sha256: str
    layout: str = Field("", description="how it lies there, where that is not as in our own tensor")


class Manifest(Frozen):
    """What a golden file holds, and which run made it."""

    format: int = 1
    file: str
    scheme: str
    trace: str
    model: str
    family: str
    weights_sha256: str
    trained: bool
    dtype: str
    tokens: tuple[int, ...] = Field(description="ids of the prompt, or numbers of the vectors")
    drawn: Drawn | None = Field(None, description="where the vectors come from; null where the run read tokens")
    generated: tuple[int, ...] = Field(description="ids chosen at the end of each step")
    steps: tuple[int, ...] = Field(description="which steps the tensors are of; 0 is the prefill")
    tensors: tuple[GoldenTensor, ...]


def chosen(
    trace: Trace,
    catalogue: Catalogue,
    scheme: Scheme,
    *,
    parameters: bool = False,
    steps: Collection[int] | None = None,
) -> tuple[Chosen, ...]:
    """The tensors that get into a golden file, in computation order; parameters stand with step 0.

    Raises OutOfRange for a step that the trace lacks, InvalidInput where nothing is left.
    """
    wanted = sorted(set(range(trace.last_step + 1) if steps is None else steps))
    for step in wanted:
        trace.check(step=step)
    found: dict[str, Chosen] = {}
    for step in dict.fromkeys([0, *wanted] if parameters else wanted):
        for address in computation_order(catalogue, trace.layers, step):
            row = catalogue.row(address.site)
            learned = row.kind is Kind.PARAMETER
            if (parameters and not step if learned else step in wanted) and (name := name_of(row, address, scheme)):
                if name in found:
                    raise ValueError(f"{address} and {found[name].address} are both named {name}")
                found[name] = Chosen(name, address, row, alias_of(row, scheme))
    if not found:
        raise InvalidInput(f"The scheme {scheme.value!r} has no name for any tensor of trace {trace.id[:12]}.")
    return tuple(found.values())


def golden(pieces: Collection[Chosen], read: Read, masked: Callable[[Address], Tensor | None]) -> Iterator[Tensor]:
    """The chosen tensors one after the other, each as its name has it; `masked` is True at masked cells."""
    for piece in pieces:
        hidden = masked(piece.address) if piece.alias is not None and piece.alias.hides else None
        visible = None if hidden is None else ~hidden
        yield laid_out(read(piece.address), piece.row, piece.alias, visible).contiguous()


def write_golden(
    target: Path,
    trace: Trace,
    catalogue: Catalogue,
    scheme: Scheme,
    *,
    read: Read,
    masked: Callable[[Address], Tensor | None],
    parameters: bool = False,
    steps: Collection[int] | None = None,
    progress: Progress = lambda done, total: None,
) -> Manifest:
    """Write a golden file and its manifest beside it, whole or not at all; the file's ending says its format.

    A safetensors file carries the manifest as its metadata, too. Raises InvalidInput for another ending
    or where no tensor has a name, OutOfRange for a step that the trace lacks.
    """
    format = Format.of(target)
    pieces = chosen(trace, catalogue, scheme, parameters=parameters, steps=steps)
    entries: list[GoldenTensor] = []

    def written() -> Iterator[tuple[str, Tensor]]:
        for done, (piece, tensor) in enumerate(zip(pieces, golden(pieces, read, masked), strict=True), start=1):
            stored = tensor.float() if format is Format.NPZ and tensor.dtype == torch.bfloat16 else tensor
            entries.append(_entry(piece, stored, widened=stored is not tensor))
            yield piece.name, stored
            progress(done, len(pieces))

    def manifest() -> Manifest:
        return _manifest(target.name, trace, scheme, pieces, entries)

    handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            write_tensors(stream, written(), format, lambda: {"manifest": manifest().model_dump_json()})
        done = manifest()
        # The manifest goes first: a file without one is never seen.
        _replace(manifest_path(target), done.model_dump_json(indent=1) + "\n")
        _allow_readers(partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return done


def manifest_path(target: Path) -> Path:
    """Where the manifest of a golden file lies."""
    return target.with_name(f"{target.name}.manifest.json")


def _entry(piece: Chosen, tensor: Tensor, *, widened: bool) -> GoldenTensor:
    notes = [_layout(piece)] if _layout(piece) else []
    if widened:
        notes.append("bfloat16 written as float32")
    return GoldenTensor(
        name=piece.name,
        address=str(piece.address),
        site=piece.row.site,
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        sha256=hashlib.sha256(raw_bytes(tensor)).hexdigest(),
        layout="; ".join(notes),
    )


def _layout(piece: Chosen) -> str:
    return piece.alias.note if piece.alias is not None else ""


def _manifest(
    file: str, trace: Trace, scheme: Scheme, pieces: Collection[Chosen], entries: list[GoldenTensor]
) -> Manifest:
    model = trace.recipe.model
    return Manifest(
        file=file,
        scheme=scheme.value,
        trace=trace.id,
        model=model.name,
        family=model.family,
        weights_sha256=model.weights_sha256,
        trained=model.trained,
        dtype=model.dtype,
        tokens=tuple(token.id for token in trace.recipe.tokens),
        drawn=trace.recipe.drawn,
        generated=tuple(token.id for token in trace.generated),
        steps=tuple(sorted({piece.address.step for piece in pieces})),
        tensors=tuple(entries),
    )


def _replace(target: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    _allow_readers(Path(name))
    Path(name).replace(target)


def _allow_readers(path: Path) -> None:
    """A temporary file is its owner's alone; what takes a name is as any new file would be."""
    mask = os.umask(0)
    os.umask(mask)
    with suppress(OSError):
        path.chmod(0o666 & ~mask)
