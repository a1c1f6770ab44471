"""The trace store: one directory a trace, written whole or not at all.

    <directory>/<id>/trace.json             the record
    <directory>/<id>/tensors.safetensors    the kept tensors, by address; what edits put in, as patch/…
    <directory>/<id>/verdict.json           what was proven about it, once it was verified

    <directory>/quarantine/                 traces that could not be read, each with a report

A trace is written into a partial directory, flushed to disk, and renamed (provenance/durable.py).
Whoever moves something from or to a trace's place does so alone: what was judged is what is moved.
"""

import errno
import os
import re
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import torch

from provenance.durable import (
    flush,
    one_at_a_time,
    partial_directory,
    quarantine,
    reading,
    remove,
    remove_leftovers,
    storing,
)
from provenance.errors import CorruptTrace, NewerTrace, StorageFailed, UnknownTrace
from provenance.prompt import Token
from provenance.storage import Listed as Listed
from provenance.trace import Recipe, Record, Trace
from provenance.trace_files import RECORD, check_trace, read_trace, record_of, stamp_of, stamps, write_trace

_ID = re.compile(r"[0-9a-f]{32}")
_FILE = re.compile(r"[^.].*")
_RECORD = re.compile(re.escape(RECORD))
_OPENED, _OPENED_BYTES = 64, 512 << 20
_SET_BACK = timedelta(days=1)
"""A clock that was set back by more is taken to be right now."""
_ATTEMPTS = 8
_Read = TypeVar("_Read")


class TraceStore:
    """All traces below one directory: a `Store` of files. Safe for several threads and processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._opened: dict[str, tuple[Hashable, Trace]] = {}
        self._records: dict[str, tuple[Hashable, Record]] = {}
        self._lock = threading.Lock()

    def save(
        self,
        recipe: Recipe,
        generated: tuple[Token, ...],
        tensors: Mapping[str, torch.Tensor],
        patches: Mapping[str, torch.Tensor] | None = None,
    ) -> Trace:
        """Write a trace; where the same one is stored already, that one stays; a corrupt one goes into quarantine.

        Raises StorageFailed, and leaves nothing then; NewerTrace where a newer version wrote the same one;
        UnknownTrace where another process deletes it at once.
        """
        with storing("The trace"), partial_directory(self.directory) as partial:
            write_trace(partial, recipe, generated, tensors, patches or {}, self._now())
            self._publish(partial, recipe.id)
        return self.open(recipe.id)

    def _now(self) -> datetime:
        """The time; just after the newest trace where the clock was set back a little: lists keep their order."""
        now = datetime.now(UTC)
        for id in self.ids():
            try:
                if (self.directory / id).stat().st_mtime > now.timestamp():
                    newest = datetime.fromisoformat(self._record(id).created_at)
                    if now <= newest < now + _SET_BACK:
                        now = newest + timedelta(milliseconds=1)
            except (CorruptTrace, UnknownTrace, StorageFailed, OSError, ValueError, TypeError):
                continue
        return now

    def _publish(self, partial: Path, id: str) -> None:
        for _ in range(_ATTEMPTS):
            try:
                with one_at_a_time(self.directory):
                    partial.rename(self.directory / id)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            else:
                flush(self.directory)
                return
            try:
                self.open(id)
            except UnknownTrace:
                continue  # deleted since
            except NewerTrace:
                raise
            except CorruptTrace:
                self.quarantine(id)
            else:
                return  # another writer was first with the same content
        raise StorageFailed(f"Trace {id} is written and removed by others without end.", hint="Try again.")

    def quarantine(self, id: str) -> bool:
        """Move a trace into the quarantine, with a report, if it is corrupt; whether it was. Raises StorageFailed."""
        with storing("The quarantined trace"), one_at_a_time(self.directory):
            try:
                self.check(id)  # again: another process may have put a good one in its place
                self.open(id)
            except (NewerTrace, UnknownTrace):
                return False
            except CorruptTrace as problem:
                self._forget(id)
                quarantine(self.directory / id, problem.message)
                return True
        return False

    def _forget(self, id: str) -> None:
        with self._lock:
            self._opened.pop(id, None)
            self._records.pop(id, None)

    def _readable(self, id: str) -> bool:
        try:
            self.open(id)
        except (CorruptTrace, UnknownTrace):
            return False
        return True

    def open(self, id: str) -> Trace:
        """A stored trace, by its id or a beginning of it that fits only one.

        Raises UnknownTrace, CorruptTrace with what is wrong, or StorageFailed where the system refuses.
        """
        id = self.full_id(id)
        stamp = self._whole(id, stamp_of)
        with self._lock:
            known = self._opened.get(id)
        if known and known[0] == stamp:
            return known[1]
        trace = self._whole(id, read_trace)
        with self._lock:
            self._opened[id] = (stamp, trace)
            while len(self._opened) > 1 and (len(self._opened) > _OPENED or self._opened_bytes() > _OPENED_BYTES):
                self._opened.pop(next(iter(self._opened)))
        return trace

    def _opened_bytes(self) -> int:
        return sum(trace.record.tensors_bytes for _, trace in self._opened.values())

    def _whole(self, id: str, read: Callable[[Path], _Read]) -> _Read:
        """What is read of a trace: one that is deleted meanwhile is unknown, one that is replaced is read again."""
        for _ in range(_ATTEMPTS - 1):
            before = self._which(id)
            try:
                return read(self.directory / id)
            except CorruptTrace:
                if self._which(id) == before:
                    raise
        return read(self.directory / id)

    def _which(self, id: str) -> Hashable:
        """Which directory is in a trace's place: another one once the trace was replaced. Raises UnknownTrace."""
        try:
            with reading(f"Trace {id}"):
                seen = (self.directory / id).stat()
        except FileNotFoundError:
            self.full_id(id)
            return None  # it was put there just now
        return seen.st_ino, seen.st_ctime_ns

    def check(self, id: str, *, tensors: bool = True) -> Record:
        """Check that a trace is as it was written; without `tensors` not their hash, only their size.

        Raises as `open` does.
        """
        return self._whole(self.full_id(id), lambda directory: check_trace(directory, tensors=tensors))

    def _record(self, id: str) -> Record:
        return self._whole(id, record_of)

    def attach(self, id: str, name: str, content: str) -> None:
        """Store a text beside a trace, in place of an earlier one of that name.

        Raises UnknownTrace, or StorageFailed; the earlier one stays then.
        """
        target = self.directory / self.full_id(id) / name
        with storing(f"{name} of trace {id}"), partial_directory(self.directory) as partial:
            (partial / name).write_text(content, encoding="utf-8")
            flush(partial / name)
            with one_at_a_time(self.directory):
                self.full_id(id)  # deleted since: raises UnknownTrace
                (partial / name).rename(target)
                flush(target.parent)

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

    def state(self) -> Hashable:
        """Which traces there are: equal while none was added, removed or replaced."""
        # Without a look at each: whatever is renamed into the directory, or out of it, changes its own time.
        try:
            changed = self.directory.stat().st_mtime_ns
            with os.scandir(self.directory) as entries:
                return changed, tuple(sorted((entry.name, entry.inode()) for entry in entries))
        except FileNotFoundError:
            return ()

    def state_of(self, id: str) -> Hashable:
        """How a trace of that whole id is kept: equal while nothing of it, or attached to it, has changed."""
        return stamps(self.directory / id, _FILE)

    def list(self) -> tuple[Listed, ...]:
        """All traces, the newest first; those that cannot be read come last, with the reason."""
        good: list[Listed] = []
        bad: list[Listed] = []
        for id in self.ids():
            try:
                good.append(Listed(id, self._listed(id)))
            except (CorruptTrace, StorageFailed) as problem:
                bad.append(Listed(id, None, problem.message))
            except UnknownTrace:
                continue  # deleted since
        good.sort(key=lambda listed: (listed.record.created_at if listed.record else "", listed.id), reverse=True)
        return (*good, *sorted(bad, key=lambda listed: listed.id))

    def _listed(self, id: str) -> Record:
        """A record as it was read, while its file is the same: a list of many is asked for again and again."""
        stamp = stamps(self.directory / id, _RECORD)
        known = self._records.get(id)
        if known is None or known[0] != stamp:
            known = self._records[id] = (stamp, self._record(id))
        return known[1]

    def delete(self, id: str) -> None:
        """Remove a trace at once; a full disk does not keep from it. Raises UnknownTrace, or StorageFailed."""
        id = self.full_id(id)
        self._forget(id)
        with storing(f"The removal of trace {id}"):
            try:
                with one_at_a_time(self.directory):
                    remove(self.directory / id)
            except FileNotFoundError:
                return  # another process was first

    def clean(self) -> int:
        """Remove what killed writers left behind over an hour ago; returns how many."""
        return remove_leftovers(self.directory)
