"""Carriers: what can hand over the bytes of a pinned file.

A carrier is not trusted. It delivers bytes and says where they came from; whether they are the
pinned ones is decided by their git blob id alone.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Protocol

from provenance.citation import Package, Pin
from provenance.errors import CarrierFailed
from provenance.sources.blob import git_blob_id, matching_blob
from provenance.sources.store import write_atomically


@dataclass(frozen=True, slots=True)
class Delivery:
    """Unchecked bytes, where they came from, and whether they were read at the pinned revision."""

    data: bytes
    origin: str
    at_revision: bool = False


class Carrier(Protocol):
    """Anything that can hand over the bytes of a pinned file."""

    @property
    def name(self) -> str:
        """What it is, for a person."""

    @property
    def remote(self) -> bool:
        """Whether asking it goes over the network."""

    def read(self, pin: Pin) -> Delivery | None:
        """The bytes; None when it does not carry this file.

        Raises CarrierFailed when it should carry the file but could not deliver it.
        """


def best_delivery(pin: Pin, deliveries: Iterable[Delivery]) -> Delivery | None:
    """The delivery a carrier should hand over when it has several.

    One read at the pinned revision, else the pin's first candidate that is there, else (to be
    refused with its name) any.
    """
    held = list(deliveries)
    order = {blob.id: rank for rank, blob in enumerate(pin.blobs)}

    def rank(delivery: Delivery) -> tuple[bool, bool, int]:
        blob = matching_blob(pin, delivery.data)
        known = order[blob.id] if blob else len(order)
        return blob is None, not delivery.at_revision, known

    return min(held, key=rank, default=None)


def packages_of(pin: Pin) -> tuple[Package, ...]:
    """Every package known to carry a candidate of the pinned file."""
    return tuple(package for blob in pin.blobs for package in blob.packages)


def read_file(path: Path) -> bytes | None:
    """The file's bytes, None where there is no such file. Raises CarrierFailed."""
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise CarrierFailed(f"{path} cannot be read: {error.strerror or error}.") from error


@dataclass(frozen=True, slots=True)
class CacheCarrier:
    """Files named by blob id in a directory of ours. A file whose bytes changed is removed."""

    directory: Path
    name: str = "local cache"
    remote: bool = False

    def read(self, pin: Pin) -> Delivery | None:
        """The first candidate that the cache holds intact."""
        for blob in pin.blobs:
            path = self.directory / blob.id
            data = read_file(path)
            if data is not None and git_blob_id(data) == blob.id:
                return Delivery(data, self.name)
            if data is not None:
                with contextlib.suppress(OSError):
                    path.unlink()
        return None

    def put(self, data: bytes) -> None:
        """Keep these bytes. A cache that cannot be written is no error: it only saves time."""
        path = self.directory / git_blob_id(data)
        if not path.is_file():
            with contextlib.suppress(OSError):
                write_atomically(path, data)


@dataclass(frozen=True, slots=True)
class PackageCarrier:
    """Packages installed beside this program. Their files are read, never imported.

    The installed version does not matter: releases often share a file, and the blob id decides.
    """

    name: str = "installed packages"
    remote: bool = False

    def read(self, pin: Pin) -> Delivery | None:
        """The file in the first installed package that is known to carry it."""
        held: list[Delivery] = []
        missing: list[str] = []
        for distribution, file in dict.fromkeys((p.distribution, p.file) for p in packages_of(pin)):
            try:
                installed = metadata.distribution(distribution)
            except metadata.PackageNotFoundError:
                continue
            release = f"{distribution} {installed.version}"
            data = read_file(Path(str(installed.locate_file(file))))
            if data is None:
                missing.append(f"{release} is installed, but without its file {file}.")
            else:
                held.append(Delivery(data, f"installed package {release}"))
        if missing and not held:
            raise CarrierFailed(" ".join(missing), hint="Install the package again.")
        return best_delivery(pin, held)
