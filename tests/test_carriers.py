"""Each carrier finds the file where it should, says where it was, and fails with a reason."""

import io
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from provenance.citation import Blob, Package, Pin
from provenance.errors import CarrierFailed
from provenance.gpt2.pins import OPENAI
from provenance.sources import (
    ArchiveCarrier,
    Delivery,
    DirectoryCarrier,
    PackageCarrier,
    download_archives,
    git_blob_id,
)

FIRST = b"first = 1\n"
SECOND = b"second = 2\n"
TWO = Pin(
    label="two",
    repository="owner/two",
    revision="a" * 40,
    path="src/two.py",
    blobs=(
        Blob(git_blob_id(FIRST), (Package("two-pack", "1.1", "two/two.py"),)),
        Blob(git_blob_id(SECOND), (Package("two-pack", "1.0", "two/two.py"),)),
    ),
    shared_lines=0,
    license="MIT",
)


def wheel(directory: Path, version: str, data: bytes) -> Path:
    path = directory / f"two_pack-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("two/two.py", data)
        archive.writestr("other/two/two.py", b"not this one")
        metadata_text = f"Metadata-Version: 2.1\nName: two-pack\nVersion: {version}\n"
        archive.writestr(f"two_pack-{version}.dist-info/METADATA", metadata_text)
        archive.writestr(f"two_pack-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"two_pack-{version}.dist-info/RECORD", "")
    return path


def sdist(directory: Path, version: str, data: bytes) -> Path:
    path = directory / f"two-pack-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(f"two-pack-{version}/two/two.py")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return path


def test_an_installed_package_of_any_version_serves_if_the_bytes_are_right() -> None:
    package = replace(OPENAI.blobs[0].packages[0], version="0.1")
    pin = replace(OPENAI, blobs=(replace(OPENAI.blobs[0], packages=(package,)),))
    delivery = PackageCarrier().read(pin)
    assert delivery is not None and delivery.origin == "installed package gpt-2-simple 0.3"


def test_a_package_that_is_not_installed_carries_nothing() -> None:
    assert PackageCarrier().read(TWO) is None


def test_an_installed_package_without_its_file_fails() -> None:
    package = replace(OPENAI.blobs[0].packages[0], file="gpt_2_simple/absent.py")
    pin = replace(OPENAI, blobs=(replace(OPENAI.blobs[0], packages=(package,)),))
    with pytest.raises(CarrierFailed, match=r"gpt-2-simple 0\.3 is installed, but without its file"):
        PackageCarrier().read(pin)


@pytest.mark.parametrize("make", [wheel, sdist])
def test_an_archive_is_read_without_being_unpacked(make: Callable[[Path, str, bytes], Path], tmp_path: Path) -> None:
    archive = make(tmp_path, "1.1", FIRST)
    delivery = ArchiveCarrier(tmp_path).read(TWO)
    assert delivery == Delivery(FIRST, f"package archive {archive.name}")
    assert list(tmp_path.iterdir()) == [archive]


def test_of_several_archives_the_one_with_the_wanted_blob_is_read(tmp_path: Path) -> None:
    wheel(tmp_path, "1.2", b"newer")
    sdist(tmp_path, "1.0", SECOND)
    delivery = ArchiveCarrier(tmp_path).read(TWO)
    assert delivery is not None and delivery.data == SECOND


def test_a_broken_archive_hides_no_good_one_and_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "two_pack-1.0-py3-none-any.whl").write_bytes(b"PK no archive")
    (tmp_path / "two-pack-1.0.tar.gz").write_bytes(b"\x1f\x8b\x08 neither")
    with pytest.raises(CarrierFailed, match=r"two-pack-1\.0\.tar\.gz cannot be read"):
        ArchiveCarrier(tmp_path).read(TWO)
    wheel(tmp_path, "1.1", FIRST)
    assert ArchiveCarrier(tmp_path).read(TWO) is not None


def test_archives_of_other_packages_are_left_alone(tmp_path: Path) -> None:
    wheel(tmp_path, "1.1", FIRST).rename(tmp_path / "two_pack_more-1.1-py3-none-any.whl")
    assert ArchiveCarrier(tmp_path).read(TWO) is None
    assert ArchiveCarrier(tmp_path / "absent").read(TWO) is None


def test_pip_downloads_the_archive_that_a_pin_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, archives = tmp_path / "shelf", tmp_path / "archives"
    shelf.mkdir()
    wheel(shelf, "1.1", FIRST)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    download_archives([TWO], archives)
    delivery = ArchiveCarrier(archives).read(TWO)
    assert delivery is not None and delivery.data == FIRST


def test_a_failed_download_names_the_package_and_pip_s_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(CarrierFailed, match=r"could not download two-pack==1\.1: ERROR"):
        download_archives([TWO], tmp_path)


def test_a_download_that_is_cut_off_leaves_no_half_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(command: list[str], **_: object) -> None:
        whole = wheel(tmp_path, "1.1", FIRST)
        half = Path(command[command.index("--dest") + 1]) / whole.name
        half.write_bytes(whole.read_bytes()[:100])
        whole.unlink()
        assert ArchiveCarrier(archives).read(TWO) is None, "no reader sees it meanwhile"
        raise subprocess.TimeoutExpired(command, 1)

    archives = tmp_path / "archives"
    monkeypatch.setattr("provenance.sources.archives.subprocess.run", pip)
    with pytest.raises(CarrierFailed, match=r"pip gave no two-pack==1\.1 within 300 seconds"):
        download_archives([TWO], archives)
    assert list(archives.iterdir()) == []


@pytest.mark.parametrize("place", ["two/src/two.py", "owner/two/src/two.py", "src/two.py"])
def test_a_named_directory_is_searched_at_three_places(place: str, tmp_path: Path) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True)
    file.write_bytes(FIRST)
    assert DirectoryCarrier(tmp_path).read(TWO) == Delivery(FIRST, f"file {file}")


def test_a_wrong_file_in_a_named_directory_hides_no_right_one(tmp_path: Path) -> None:
    for place, data in (("two/src/two.py", b"wrong"), ("src/two.py", SECOND)):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_bytes(data)
    delivery = DirectoryCarrier(tmp_path).read(TWO)
    assert delivery is not None and delivery.data == SECOND
