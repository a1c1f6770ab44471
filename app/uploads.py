"""The store of files of tensors that people hand in: by content, bounded, the oldest removed first.

    <directory>/<id>/content        the file as it came
    <directory>/<id>/upload.json    what is known about it

The id is the beginning of the content's SHA-256. A file is parsed before it is kept. Whoever puts a file in its
place, or takes it away, does so alone.
"""

import hashlib
import io
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from provenance.durable import flush, one_at_a_time, partial_directory, remove, remove_leftovers, storing
from provenance.errors import TooLarge, UnknownUpload, UnreadableFile
from provenance.tensor_files import read_tensors

MOST_TENSORS = 20_000
_ID = re.compile(r"[0-9a-f]{32}")
_OPENED = 2
_NAME = 200
_CHUNK = 1 << 20


class Upload(BaseModel):
    """A file that was handed in: its id, the name it came with (text, never a path), and its size."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str
    bytes: int
    tensors: int


class Uploads:
    """Files of tensors below one directory. Safe for several threads and processes; what another removes is gone."""

    def __init__(self, directory: Path, limit_bytes: int, total_bytes: int) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes
        self.total_bytes = total_bytes
        self._opened: OrderedDict[str, Mapping[str, Tensor]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, content: BinaryIO | bytes, name: str) -> Upload:
        """Keep a file; the same content is kept once. Raises UnreadableFile, TooLarge, or StorageFailed."""
        name = name.encode("utf-8", "replace").decode()[:_NAME] or "the file"
        remove_leftovers(self.directory)
        with storing(f"The file {name!r}"), partial_directory(self.directory) as partial:
            id, size = self._receive(content, partial / "content", name)
            tensors = self._parse(partial / "content", name)
            upload = Upload(id=id, name=name, bytes=size, tensors=len(tensors))
            (partial / "upload.json").write_text(upload.model_dump_json())
            flush(partial / "content", partial / "upload.json", partial)
            with self._lock, one_at_a_time(self.directory):
                self._put_last(partial / "upload.json")
                self._put(id, partial)
                flush(self.directory)
                self._remember(id, tensors)
                self._evict(keep=id)
        return upload

    def _put(self, id: str, partial: Path) -> None:
        target = self.directory / id
        if not target.is_dir():
            partial.rename(target)
            return
        for name in ("content", "upload.json"):  # one by one: whoever reads it meanwhile finds it whole
            (partial / name).rename(target / name)
        flush(target)

    def _put_last(self, file: Path) -> None:
        """Make a file the newest of all, also where the clock was set back since the others came."""
        newest = max((_modified(self.directory / id / file.name) for id in self._by_age()[-1:]), default=0)
        if newest >= _modified(file):
            os.utime(file, ns=(newest + 1, newest + 1))

    def get(self, id: str) -> Upload:
        """What is known about a file. Raises UnknownUpload."""
        if _ID.fullmatch(id):
            with suppress(OSError, ValidationError, ValueError):
                return Upload.model_validate_json((self.directory / id / "upload.json").read_bytes())
        raise UnknownUpload(
            f"No file {id[:40]!r} was handed in here, or it has been removed.", hint="Hand it in again."
        )

    def open(self, id: str) -> Mapping[str, Tensor]:
        """A file's tensors by name. Raises UnknownUpload."""
        upload = self.get(id)
        with self._lock:
            if id in self._opened:
                self._opened.move_to_end(id)
                return self._opened[id]
        try:
            tensors = self._parse(self.directory / id / "content", upload.name)
        except (UnreadableFile, OSError):
            self.get(id)  # removed since: raises UnknownUpload
            raise
        with self._lock:
            self._remember(id, tensors)
        return tensors

    def delete(self, id: str) -> None:
        """Remove a file at once. Raises UnknownUpload."""
        self.get(id)
        with self._lock, storing(f"The removal of file {id}"), one_at_a_time(self.directory):
            self._remove(id)

    def list(self) -> tuple[Upload, ...]:
        """All files, the newest first."""
        found = []
        for id in reversed(self._by_age()):
            with suppress(UnknownUpload):
                found.append(self.get(id))
        return tuple(found)

    def _receive(self, content: BinaryIO | bytes, target: Path, name: str) -> tuple[str, int]:
        """Copy a file as it comes, and no further than the limit: its id and its size."""
        source = io.BytesIO(content) if isinstance(content, bytes) else content
        digest, size = hashlib.sha256(), 0
        with target.open("wb") as stream:
            while chunk := source.read(_CHUNK):
                size += len(chunk)
                if size > self.limit_bytes:
                    raise too_large(name, self.limit_bytes)
                digest.update(chunk)
                stream.write(chunk)
        return digest.hexdigest()[:32], size

    def _parse(self, path: Path, name: str) -> Mapping[str, Tensor]:
        return read_tensors(path, name=name, limit_bytes=self.limit_bytes, most_tensors=MOST_TENSORS)

    def _remember(self, id: str, tensors: Mapping[str, Tensor]) -> None:
        self._opened[id] = tensors
        self._opened.move_to_end(id)
        while len(self._opened) > _OPENED:
            self._opened.popitem(last=False)

    def _evict(self, keep: str) -> None:
        sizes = {id: _size(self.directory / id / "content") for id in self._by_age()}
        for id in sizes:
            if sum(sizes.values()) <= self.total_bytes:
                return
            if id != keep:
                self._remove(id)
                sizes[id] = 0

    def _by_age(self) -> tuple[str, ...]:
        """The ids, the oldest first."""
        if not self.directory.is_dir():
            return ()
        ids = [path.name for path in self.directory.iterdir() if _ID.fullmatch(path.name)]
        return tuple(sorted(ids, key=lambda id: (_modified(self.directory / id / "upload.json"), id)))

    def _remove(self, id: str) -> None:
        self._opened.pop(id, None)
        with suppress(FileNotFoundError):  # another process was first
            remove(self.directory / id)


def too_large(name: str, limit_bytes: int) -> TooLarge:
    """The error for a file over the limit."""
    return TooLarge(
        f"{name!r} is larger than the {limit_bytes / (1 << 20):g} MiB allowed here.",
        hint="Hand in fewer tensors, or use the command line, which has no such limit.",
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
