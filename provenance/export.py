"""Tensors of a trace as files for other programs: many as safetensors or npz, one as npy or CSV, as a stream.

Tensors stand in a file by address, parameters once. They are read in order of computation, so that
each part of the model is replayed once, and none is held longer than it takes to hand it on.
"""

import io
import itertools
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from provenance.axes import Counts
from provenance.catalogue import Catalogue, Intermediate, Kind
from provenance.errors import InvalidInput
from provenance.lookup import find
from provenance.names import Address, is_layered
from provenance.order import computation_order
from provenance.recorder import Progress, check_address
from provenance.selection import axis_names
from provenance.tensor_files import Spec, stream_npz, stream_safetensors
from provenance.trace import Trace

Read = Callable[[Address], Tensor]
_STEP = re.compile(r"(?P<name>.*)@(?P<step>0|[1-9][0-9]{0,5})", re.DOTALL)
_CHUNK_CELLS = 4096
_ALIGNED_BYTES = 8
_WORDS = {False: "false", True: "true"}


# --- which tensors ---


def chosen(
    catalogue: Catalogue, trace: Trace, names: Iterable[str] = (), *, parameters: bool = False
) -> tuple[Address, ...]:
    """The named tensors, or all, in order of computation. `parameters` takes the learned ones along.

    A name is any that a tensor has; `@2` at its end names the step. A layer or step that it leaves open
    means all of them. Raises UnknownSite, AmbiguousName, OutOfRange, InvalidInput for the name of nothing.
    """
    wanted: set[Address] = set()
    for name in names:
        wanted |= set(_meant(catalogue, trace, name))
    everything = [
        at for step in range(trace.last_step + 1) for at in computation_order(catalogue, trace.layers, step)
    ]
    if wanted:
        return tuple(at for at in everything if at in wanted)
    learned = {row.site for row in catalogue if row.kind is Kind.PARAMETER}
    return tuple(at for at in everything if at.site not in learned or (parameters and not at.step))


def the_one(catalogue: Catalogue, trace: Trace, names: Sequence[str]) -> Address:
    """The one tensor that a name names; where it leaves the step open, that of the first step.

    Raises InvalidInput for several, and what `chosen` raises.
    """
    found = chosen(catalogue, trace, names) if len(names) == 1 else ()
    if not found:
        raise InvalidInput("A file of this kind holds one tensor.", hint="Name one: --tensors h.0.attn.pattern.")
    if len({at.place for at in found}) > 1:
        raise InvalidInput(
            f"{names[0]!r} names {len(found)} tensors, and a file of this kind holds one.",
            hint=f"Name its layer: {str(found[0])!r}.",
        )
    return found[0]


def _meant(catalogue: Catalogue, trace: Trace, name: str) -> Iterator[Address]:
    match = _STEP.fullmatch(name.strip())
    bare, step = (match["name"], int(match["step"])) if match else (name.strip(), None)
    if not bare:
        raise InvalidInput("A tensor without a name is asked for.", hint="Name tensors apart by commas.")
    row, at = find(catalogue, bare)
    layers: Sequence[int | None] = (None,)
    if is_layered(row.site):
        layers = range(trace.layers) if at is None else (at.layer,)
    for layer in layers:
        for number in _steps(row, trace) if step is None else (step,):
            address = Address(row.site, layer, number)
            check_address(catalogue, trace, address)
            yield address


def _steps(row: Intermediate, trace: Trace) -> tuple[int, ...]:
    """The steps that a name means which names none; a parameter is the same in all."""
    if row.kind is Kind.PARAMETER:
        return (0,)
    found = tuple(step for step in range(trace.last_step + 1) if row.steps.cover(step))
    return found or (0,)  # refused then, with the reason


def split_names(text: str) -> tuple[str, ...]:
    """Names apart by commas; those inside brackets or quotes belong to a name, as in `norm(x, 'ln_1')`."""
    names, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth <= 0 and not quote:
            names.append("")
        else:
            names[-1] += letter
    return tuple(name.strip() for name in names if name.strip())


# --- many tensors ---


@dataclass(frozen=True, slots=True)
class Plan:
    """A safetensors file before it is written: its tensors as they lie there, and which are read when.

    `held` are small tensors that lie behind others which are read after them.
    """

    specs: tuple[Spec, ...]
    order: tuple[Address, ...]
    held: frozenset[str]

    @property
    def bytes(self) -> int:
        """Length of all values."""
        return sum(spec.bytes for spec in self.specs)


def plan_of(
    catalogue: Catalogue, constants: Mapping[str, int], trace: Trace, addresses: Sequence[Address], read: Read
) -> Plan:
    """The plan of a file. Shapes follow from the catalogue; one tensor of each site is read for its dtype."""
    dtypes: dict[str, torch.dtype] = {}
    for at in addresses:
        if at.site not in dtypes:
            dtypes[at.site] = read(at).dtype
    specs = [Spec(str(at), dtypes[at.site], shape_of(catalogue, constants, trace, at)) for at in addresses]
    held = _held(specs)
    later = sorted((spec for spec in specs if spec.name in held), key=lambda spec: -spec.dtype.itemsize)
    return Plan((*(spec for spec in specs if spec.name not in held), *later), tuple(addresses), held)


def shape_of(catalogue: Catalogue, constants: Mapping[str, int], trace: Trace, address: Address) -> tuple[int, ...]:
    """The shape of a tensor, without it."""
    new = len(trace.tokens_of(address.step))
    past = sum(len(trace.tokens_of(step)) for step in range(address.step))
    batch = trace.recipe.drawn.batch if trace.recipe.drawn else 1
    of_the_run = {Counts.BATCH: batch, Counts.TOKEN: new, Counts.PAST: past, Counts.KEY: past + new}
    axes = [catalogue.axes[symbol] for symbol in catalogue.row(address.site).shape]
    return tuple(of_the_run[a.counts] if a.counts in of_the_run else constants[a.symbol] for a in axes)


def _held(specs: Sequence[Spec]) -> frozenset[str]:
    """The tensors that lie behind the others, so that every value is aligned to its width.

    Those are the ones of another width than most bytes have, and as few small ones as it takes for the
    rest to end at a whole word.
    """
    widths = {spec.dtype.itemsize for spec in specs}
    main = max(widths, key=lambda width: sum(spec.bytes for spec in specs if spec.dtype.itemsize == width), default=1)
    first = [spec for spec in specs if spec.dtype.itemsize == main]
    held = {spec.name for spec in specs if spec.dtype.itemsize != main}
    over = sum(spec.bytes for spec in first) % _ALIGNED_BYTES
    for spec in sorted(first, key=lambda spec: spec.bytes):
        if not over or len(widths) == 1:
            break
        if spec.bytes % _ALIGNED_BYTES:
            held.add(spec.name)
            over = (over - spec.bytes) % _ALIGNED_BYTES
    return frozenset(held)


def safetensors_pieces(plan: Plan, read: Read, trace: Trace) -> Iterator[bytes]:
    """A safetensors file of the planned tensors; its metadata says which trace they are of."""
    return stream_safetensors(plan.specs, _in_file_order(plan, read), described(trace))


def _in_file_order(plan: Plan, read: Read) -> Iterator[Tensor]:
    waiting: dict[str, Tensor] = {}
    for at in plan.order:
        if str(at) in plan.held:
            waiting[str(at)] = read(at).clone()
        else:
            yield read(at)
    for spec in plan.specs:
        if spec.name in plan.held:
            yield waiting.pop(spec.name)


def npz_pieces(addresses: Iterable[Address], read: Read) -> Iterator[bytes]:
    """An npz file of tensors; bfloat16 as float32."""
    return stream_npz((str(at), read(at)) for at in addresses)


def described(trace: Trace) -> dict[str, str]:
    """Which trace and model tensors are of, for a file's metadata."""
    model = trace.recipe.model
    return {"trace": trace.id, "model": model.name, "weights_sha256": model.weights_sha256, "dtype": model.dtype}


def watched(read: Read, total: int, progress: Progress) -> Read:
    """A way to read tensors that says how many of all were read."""
    count = itertools.count(1)

    def counting(address: Address) -> Tensor:
        progress(next(count), total)
        return read(address)

    return counting


# --- one tensor ---


def npy_bytes(tensor: Tensor) -> bytes:
    """A tensor as a NumPy file; bfloat16 as float32."""
    stream = io.BytesIO()
    np.save(stream, _array(tensor))
    return stream.getvalue()


def csv_pieces(catalogue: Catalogue, row: Intermediate, tensor: Tensor) -> Iterator[bytes]:
    """A tensor as CSV: a line for each cell with its index along every axis, and its value.

    Numbers stand in the fewest digits that give them back in the tensor's own dtype.
    """
    array = _array(tensor)
    yield (",".join((*axis_names(catalogue, row), "value")) + "\n").encode()
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHUNK_CELLS):
        part = flat[start : start + _CHUNK_CELLS]
        places = np.unravel_index(np.arange(start, start + part.size), array.shape) if array.ndim else ()
        columns = [axis.tolist() for axis in places]
        values = [_WORDS[value] for value in part.tolist()] if part.dtype == bool else [str(value) for value in part]
        lines = zip(*columns, values, strict=True)
        yield "".join(",".join(map(str, line)) + "\n" for line in lines).encode()


def _array(tensor: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    wide = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    found: np.ndarray[tuple[int, ...], np.dtype[np.generic]] = wide.detach().contiguous().numpy()
    return found


# --- files ---


def write_whole(target: Path, pieces: Iterable[bytes]) -> None:
    """Write a file, whole or not at all. Raises InvalidInput where there is no such folder."""
    if not target.parent.is_dir():
        raise InvalidInput(f"There is no folder {str(target.parent)!r}.", hint="Make it first, or name another.")
    if target.is_dir():
        raise InvalidInput(f"{str(target)!r} is a folder.", hint="Name a file in it.")
    handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    partial = Path(name)
    try:
        with closing(os.fdopen(handle, "wb")) as stream:
            stream.writelines(pieces)
        mask = os.umask(0)
        os.umask(mask)
        partial.chmod(0o666 & ~mask)  # a temporary file is its owner's alone
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
