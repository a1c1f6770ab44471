"""The trace store: one directory a trace, written whole or not at all.

    <directory>/<id>/trace.json             the record
    <directory>/<id>/tensors.safetensors    the kept tensors, by address; what edits put in, as patch/…
    <directory>/<id>/verdict.json           what was proven about it, once it was verified

A trace is written under a temporary name, flushed to disk, and renamed. A process that is killed
leaves at most a temporary directory, which is never read and removed by the next `clean`.
"""

import hashlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from provenance.errors import CorruptTrace, UnknownTrace
from provenance.prompt import Token
from provenance.trace import FORMAT, Recipe, Record, TokenRecord, Trace

_ID = re.compile(r"[0-9a-f]{32}")
_PARTIAL = ".partial-"
_PATCH = "patch/"
"""What the stored names of an edit's cells start with: no address has a slash."""
_STALE_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Listed:
    """A trace in the list: its id and its record, or why it cannot be read."""

    id: str
    record: Record | None
    problem: str = ""


class TraceStore:
    """All traces below one directory. Safe for several threads and processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._opened: dict[str, tuple[tuple[tuple[int, int], ...], Trace]] = {}
        self._lock = threading.Lock()

    def save(
        self,
        recipe: Recipe,
        generated: tuple[Token, ...],
        tensors: Mapping[str, torch.Tensor],
        patches: Mapping[str, torch.Tensor] | None = None,
    ) -> Trace:
        """Write a trace; where the same one is stored already, that one stays."""
        self.directory.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=self.directory))
        try:
            named = {f"{_PATCH}{key}": tensor for key, tensor in (patches or {}).items()}
            _write_tensors(partial / "tensors.safetensors", {**tensors, **named})
            record = Record(
                recipe=recipe,
                generated=tuple(TokenRecord.of(token) for token in generated),
                created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
                tensors_sha256=_sha256(partial / "tensors.safetensors"),
                tensors_bytes=(partial / "tensors.safetensors").stat().st_size,
            )
            (partial / "trace.json").write_text(record.model_dump_json(indent=1))
            _flush(partial / "tensors.safetensors", partial / "trace.json", partial)
            self._publish(partial, recipe.id)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return self.open(recipe.id)

    def _publish(self, partial: Path, id: str) -> None:
        target = self.directory / id
        try:
            partial.rename(target)
        except OSError:
            if self._readable(id):
                return  # another writer was first with the same content
            self._remove(id)
            partial.rename(target)
        _flush(self.directory)

    def _readable(self, id: str) -> bool:
        try:
            self.open(id)
        except (CorruptTrace, UnknownTrace):
            return False
        return True

    def open(self, id: str) -> Trace:
        """A stored trace, by its id or a beginning of it that fits only one.

        Raises UnknownTrace, or CorruptTrace with what is wrong.
        """
        id = self.full_id(id)
        file = self.directory / id / "tensors.safetensors"
        try:
            states = [path.stat() for path in (file, file.with_name("trace.json"))]
        except OSError:
            raise CorruptTrace(
                f"Trace {id} lacks one of its two files.", hint="Delete it and record again."
            ) from None
        stamp = tuple((state.st_mtime_ns, state.st_size) for state in states)
        with self._lock:
            known = self._opened.get(id)
        if known and known[0] == stamp:
            return known[1]
        trace = self._read(id, file)
        with self._lock:
            self._opened[id] = (stamp, trace)
            while len(self._opened) > 64:
                self._opened.pop(next(iter(self._opened)))
        return trace

    def _read(self, id: str, file: Path) -> Trace:
        record = self._record(id)
        if file.stat().st_size != record.tensors_bytes or _sha256(file) != record.tensors_sha256:
            raise CorruptTrace(
                f"The tensors of trace {id} are not those that were written.",
                hint="Delete it and record again.",
            )
        try:
            stored = load_file(file)
        except (OSError, SafetensorError) as error:
            raise CorruptTrace(f"The tensors of trace {id} cannot be read: {error}.") from None
        patches = {name: stored.pop(name) for name in list(stored) if name.startswith(_PATCH)}
        return Trace(record, stored, {name.removeprefix(_PATCH): cells for name, cells in patches.items()})

    def _record(self, id: str) -> Record:
        try:
            record = Record.model_validate_json((self.directory / id / "trace.json").read_bytes())
        except (OSError, ValidationError, ValueError):
            raise CorruptTrace(
                f"The record of trace {id} cannot be read.", hint="Delete it and record again."
            ) from None
        whole = len(record.generated) == record.recipe.steps + 1
        if record.format != FORMAT or record.recipe.id != id or not whole:
            raise CorruptTrace(
                f"The record of trace {id} does not belong to it, is not whole, or has an unknown format.",
                hint="Delete it and record again.",
            )
        return record

    def attach(self, id: str, name: str, content: str) -> None:
        """Store a text beside a trace, in place of an earlier one of that name. Raises UnknownTrace."""
        target = self.directory / self.full_id(id) / name
        handle, partial = tempfile.mkstemp(prefix=_PARTIAL, dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(handle)
        Path(partial).rename(target)

    def attached(self, id: str, name: str) -> str | None:
        """The text of that name beside a trace, if there is one. Raises UnknownTrace."""
        try:
            return (self.directory / self.full_id(id) / name).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None

    def full_id(self, id: str) -> str:
        """Complete a beginning of at least 6 digits. Raises UnknownTrace."""
        if _ID.fullmatch(id) and (self.directory / id).is_dir():
            return id
        if re.fullmatch(r"[0-9a-f]{6,31}", id):
            found = [known for known in self.ids() if known.startswith(id)]
            if len(found) == 1:
                return found[0]
        raise UnknownTrace(
            f"There is no trace {id[:40]!r} here.",
            hint="The home page and `tensor-provenance traces` list all traces.",
        )

    def __contains__(self, id: str) -> bool:
        return _ID.fullmatch(id) is not None and self._readable(id)

    def ids(self) -> Iterator[str]:
        """The ids of all stored traces, readable or not."""
        if self.directory.is_dir():
            yield from (p.name for p in self.directory.iterdir() if _ID.fullmatch(p.name))

    def list(self) -> tuple[Listed, ...]:
        """All traces, the newest first; those that cannot be read come last, with the reason."""
        good: list[Listed] = []
        bad: list[Listed] = []
        for id in self.ids():
            try:
                good.append(Listed(id, self._record(id)))
            except CorruptTrace as problem:
                bad.append(Listed(id, None, problem.message))
        good.sort(key=lambda listed: listed.record.created_at if listed.record else "", reverse=True)
        return (*good, *bad)

    def delete(self, id: str) -> None:
        """Remove a trace at once. Raises UnknownTrace."""
        self._remove(self.full_id(id))

    def _remove(self, id: str) -> None:
        gone = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=self.directory))
        with self._lock:
            self._opened.pop(id, None)
        (self.directory / id).rename(gone / id)
        shutil.rmtree(gone, ignore_errors=True)

    def clean(self) -> int:
        """Remove what killed processes left behind over an hour ago; returns how many."""
        if not self.directory.is_dir():
            return 0
        old = time.time() - _STALE_SECONDS
        left = [p for p in self.directory.glob(f"{_PARTIAL}*") if _modified(p) < old]
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
        return len(left)


def _write_tensors(file: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)


def _modified(path: Path) -> float:
    """When it was last changed; a path that another process has just renamed is not old."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _flush(*paths: Path) -> None:
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
