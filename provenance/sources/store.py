"""What `sources` keeps on disk: checked bytes by blob id, and which blob a revision holds."""

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from provenance.citation import Blob, Pin


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees all of it or none. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


@dataclass(frozen=True, slots=True)
class Settlements:
    """A small file for each pin of several blobs that was seen at its revision."""

    directory: Path

    def get(self, pin: Pin) -> Blob | None:
        """The blob that the pinned revision holds, where that is known."""
        if len(pin.blobs) == 1:
            return pin.blobs[0]
        try:
            noted = self._file(pin).read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return next((blob for blob in pin.blobs if blob.id == noted), None)

    def put(self, pin: Pin, blob: Blob) -> None:
        """Note which blob the revision holds. A directory that cannot be written is no error."""
        if self.get(pin) != blob:
            with contextlib.suppress(OSError):
                write_atomically(self._file(pin), f"{blob.id}\n".encode("ascii"))

    def _file(self, pin: Pin) -> Path:
        return self.directory / f"{pin.repository}@{pin.revision}+{pin.path}".replace("/", "+")
