"""The git host is asked for one revision and one file, and failing has three different sentences."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from provenance.citation import Blob, Pin, cite
from provenance.errors import CarrierFailed
from provenance.sources import DirectoryCarrier, GitCarrier, Proof, Sources, State, git_blob_id

pytestmark = pytest.mark.slow

WANTED = b"def wanted():\n    return 1\n"
OTHER = b"never needed\n"


def git(directory: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=T", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, check=True, text=True).stdout.strip()


@dataclass(frozen=True)
class Host:
    """A directory that stands for a git host, with one repository of three commits."""

    directory: Path
    pin: Pin

    @property
    def repository(self) -> Path:
        return self.directory / self.pin.repository

    @property
    def url(self) -> str:
        return self.directory.as_uri()


@pytest.fixture(autouse=True)
def _plain_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the user's git settings nor a surrounding hook reach these tests."""
    for name in [name for name in os.environ if name.startswith("GIT_") and "PYTHON" not in name]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    repository = tmp_path / "host" / "owner" / "code"
    (repository / "src").mkdir(parents=True)
    git(repository, "init", "--quiet")
    git(repository, "config", "uploadpack.allowFilter", "true")
    git(repository, "config", "uploadpack.allowAnySHA1InWant", "true")
    revisions = []
    for data in (b"old\n", WANTED, b"new\n"):
        (repository / "src" / "wanted.py").write_bytes(data)
        (repository / "other.txt").write_bytes(OTHER)
        git(repository, "add", ".")
        git(repository, "commit", "--quiet", "--message", "a change")
        revisions.append(git(repository, "rev-parse", "HEAD"))
    pin = Pin("code", "owner/code", revisions[1], "src/wanted.py", (Blob(git_blob_id(WANTED)),), None, "MIT")
    return Host(tmp_path / "host", pin)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody listens on, and that nobody else can take meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def objects(repository: Path) -> dict[str, str]:
    """Ids and kinds of the objects that are really there."""
    listing = git(repository, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")
    return dict(line.split() for line in listing.splitlines())


def test_one_revision_and_one_file_are_fetched_and_nothing_else(host: Host, tmp_path: Path) -> None:
    delivery = GitCarrier(tmp_path / "git", host.url).read(host.pin)
    assert delivery is not None and delivery.data == WANTED and delivery.at_revision
    bare = tmp_path / "git" / "owner" / "code.git"
    held = objects(bare)
    assert git(bare, "rev-parse", "--is-shallow-repository", "--is-bare-repository") == "true\ntrue"
    assert [name for name, kind in held.items() if kind == "commit"] == [host.pin.revision]
    assert [name for name, kind in held.items() if kind == "blob"] == [git_blob_id(WANTED)]
    assert git_blob_id(OTHER) in objects(host.repository)


def test_what_was_fetched_once_needs_no_host(host: Host, tmp_path: Path) -> None:
    carrier = GitCarrier(tmp_path / "git", host.url)
    carrier.read(host.pin)
    host.directory.rename(tmp_path / "gone")
    delivery = carrier.read(host.pin)
    assert delivery is not None and delivery.data == WANTED


def test_a_second_revision_is_added_to_the_same_repository(host: Host, tmp_path: Path) -> None:
    carrier = GitCarrier(tmp_path / "git", host.url)
    carrier.read(host.pin)
    delivery = carrier.read(replace(host.pin, revision=git(host.repository, "rev-parse", "HEAD")))
    assert delivery is not None and delivery.data == b"new\n"


def test_an_excerpt_from_the_host_is_verified(host: Host, tmp_path: Path) -> None:
    sources = Sources([GitCarrier(tmp_path / "git", host.url)], tmp_path)
    excerpt = sources.excerpt(cite(host.pin, ("wanted", 1, 2)))
    assert excerpt.proof is Proof.VERIFIED and excerpt.runs[0].text.encode() + b"\n" == WANTED


def test_the_host_settles_which_of_two_blobs_the_revision_holds(host: Host, tmp_path: Path) -> None:
    candidates = (Blob(git_blob_id(b"def wanted():\n    return 2\n")), *host.pin.blobs)
    pin = replace(host.pin, blobs=candidates, shared_lines=1)
    sources = Sources([GitCarrier(tmp_path / "git", host.url)], tmp_path)
    assert sources.fetch([pin])[-1].state is State.HOLDS
    assert sources.content(pin).settled and sources.content(pin).blob == candidates[1]
    assert Sources([], tmp_path).content(pin).settled


def test_two_processes_fetch_into_the_same_repository_one_after_the_other(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bytes] = []
    waited: list[bool] = []

    def read() -> None:  # another carrier shares no lock of this process
        delivery = GitCarrier(tmp_path / "git", host.url).read(host.pin)
        assert delivery is not None
        found.append(delivery.data)

    other, fetch = threading.Thread(target=read), GitCarrier._fetch

    def meanwhile(self: GitCarrier, *given: Any) -> None:
        if other.ident is None:
            other.start()
            other.join(0.5)
            waited.append(other.is_alive())
        fetch(self, *given)

    monkeypatch.setattr(GitCarrier, "_fetch", meanwhile)
    read()
    other.join()
    assert (found, waited) == ([WANTED, WANTED], [True])


def test_a_wrong_revision_is_named(host: Host, tmp_path: Path) -> None:
    with pytest.raises(CarrierFailed, match=f"owner/code at file://.* has no revision {'0' * 39}1"):
        GitCarrier(tmp_path / "git", host.url).read(replace(host.pin, revision="0" * 39 + "1"))


@pytest.mark.parametrize("path", ["src/absent.py", "absent/wanted.py", "src/wanted.py/deeper"])
def test_a_missing_path_is_named(path: str, host: Host, tmp_path: Path) -> None:
    with pytest.raises(CarrierFailed, match=f"Revision {host.pin.revision} of owner/code has no file {path}"):
        GitCarrier(tmp_path / "git", host.url).read(replace(host.pin, path=path))


def test_a_folder_is_no_file(host: Host, tmp_path: Path) -> None:
    with pytest.raises(CarrierFailed, match=r"src of owner/code at .* is a tree, no file"):
        GitCarrier(tmp_path / "git", host.url).read(replace(host.pin, path="src"))


def test_a_missing_repository_is_named(host: Host, tmp_path: Path) -> None:
    with pytest.raises(CarrierFailed, match="has no public repository owner/absent"):
        GitCarrier(tmp_path / "git", host.url).read(replace(host.pin, repository="owner/absent"))


def test_an_unreachable_host_is_named(host: Host, closed_port: int, tmp_path: Path) -> None:
    with pytest.raises(CarrierFailed, match=rf"http://127\.0\.0\.1:{closed_port} could not be reached") as caught:
        GitCarrier(tmp_path / "git", f"http://127.0.0.1:{closed_port}", timeout_seconds=120).read(host.pin)
    assert "where the git host can be reached" in caught.value.hint


def test_a_silent_host_is_given_up(host: Host, silent_port: int, tmp_path: Path) -> None:
    carrier = GitCarrier(tmp_path / "git", f"http://127.0.0.1:{silent_port}", timeout_seconds=0.5)
    with pytest.raises(CarrierFailed, match=r"gave no answer within 0\.5 seconds"):
        carrier.read(host.pin)


def test_a_host_that_failed_once_works_when_it_is_back(host: Host, closed_port: int, tmp_path: Path) -> None:
    with pytest.raises(CarrierFailed):
        GitCarrier(tmp_path / "git", f"http://127.0.0.1:{closed_port}").read(host.pin)
    assert GitCarrier(tmp_path / "git", host.url).read(host.pin) is not None


def test_a_git_hook_around_us_does_not_lead_astray(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere.git"
    git(tmp_path, "init", "--quiet", "--bare", str(elsewhere))
    before = (elsewhere / "config").read_bytes()
    monkeypatch.setenv("GIT_DIR", str(elsewhere))
    assert GitCarrier(tmp_path / "git", host.url).read(host.pin) is not None
    assert DirectoryCarrier(host.directory).read(host.pin) is not None
    monkeypatch.delenv("GIT_DIR")
    assert objects(elsewhere) == {} and (elsewhere / "config").read_bytes() == before


def test_a_named_clone_is_read_at_the_pinned_revision(host: Host) -> None:
    assert (host.repository / "src" / "wanted.py").read_bytes() == b"new\n"
    for named in (host.directory, host.repository, host.repository.parent):
        delivery = DirectoryCarrier(named).read(host.pin)
        assert delivery is not None and delivery.at_revision and delivery.data == WANTED


@pytest.mark.parametrize("keep_core_bare", [True, False])
def test_a_bare_clone_of_another_owner_is_read_too(
    keep_core_bare: bool, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "code.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(host.repository), str(bare))
    if not keep_core_bare:
        git(bare, "config", "--unset", "core.bare")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    delivery = DirectoryCarrier(tmp_path).read(host.pin)
    assert delivery is not None and delivery.origin == f"clone {bare}"


def test_a_clone_without_the_revision_still_gives_its_files(host: Host, tmp_path: Path) -> None:
    pin = replace(host.pin, revision="0" * 39 + "1", blobs=(Blob(git_blob_id(b"new\n")),))
    delivery = DirectoryCarrier(host.directory).read(pin)
    assert delivery is not None and delivery.data == b"new\n" and not delivery.at_revision


def test_a_partial_clone_that_lacks_the_file_says_so_and_fetches_nothing(host: Host, tmp_path: Path) -> None:
    clone = tmp_path / "named" / "code"
    git(
        tmp_path,
        "clone",
        "--quiet",
        "--filter=blob:none",
        "--no-checkout",
        host.repository.as_uri(),
        str(clone),
    )
    before = objects(clone)
    with pytest.raises(CarrierFailed, match=r"knows the revision, but lacks its file src/wanted\.py"):
        DirectoryCarrier(tmp_path / "named").read(host.pin)
    assert objects(clone) == before


def test_without_the_git_program_the_carrier_says_so(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "git", None)
    with pytest.raises(CarrierFailed, match="git program is missing"):
        GitCarrier(tmp_path / "git", host.url).read(host.pin)
