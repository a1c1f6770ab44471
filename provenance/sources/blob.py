"""Git blob ids, and the only door through which bytes of a cited file enter: `Content`."""

import hashlib
from dataclasses import dataclass

from provenance.citation import Blob, Pin
from provenance.errors import BlobMismatch


def git_blob_id(content: bytes) -> str:
    """The id that git gives to a file of these bytes (40 hex digits)."""
    digest = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()


def matching_blob(pin: Pin, content: bytes) -> Blob | None:
    """The candidate of the pin that has exactly these bytes, if there is one."""
    found = git_blob_id(content)
    return next((blob for blob in pin.blobs if blob.id == found), None)


def checked_blob(pin: Pin, content: bytes, origin: str) -> Blob:
    """As `matching_blob`, but raises BlobMismatch when no candidate has these bytes."""
    blob = matching_blob(pin, content)
    if blob is None:
        wanted = " or ".join(candidate.id[:12] for candidate in pin.blobs)
        raise BlobMismatch(
            f"{origin} has other bytes of {pin.path}: blob {git_blob_id(content)[:12]}, pinned is {wanted}.",
            hint="They are not used.",
        )
    return blob


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes of a pinned file. They cannot be wrong: making one checks the blob id.

    `carrier` says where they came from. `settled` tells whether this blob is known to be the
    pinned revision's own. Raises BlobMismatch.
    """

    pin: Pin
    blob: Blob
    data: bytes
    carrier: str
    settled: bool

    def __post_init__(self) -> None:
        if checked_blob(self.pin, self.data, self.carrier) != self.blob:
            raise BlobMismatch(f"{self.carrier} has another blob of {self.pin.path} than {self.blob.id[:12]}.")
