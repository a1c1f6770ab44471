"""Carriers that read through GitPython: a directory or clone that the user names, and the git host."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from provenance.citation import Pin
from provenance.durable import one_at_a_time
from provenance.errors import CarrierFailed
from provenance.sources.carriers import Delivery, best_delivery, read_file

if TYPE_CHECKING:
    from git import Repo

# Reading stays on this disk: a partial clone would otherwise fetch what it lacks, without a limit.
_OFFLINE = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1"}
_ONLINE = {
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_NO_LAZY_FETCH": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "GCM_INTERACTIVE": "never",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
}
_NO_OBJECT = re.compile("not our ref|unadvertised object|couldn't find remote ref", re.IGNORECASE)
_NO_REPOSITORY = re.compile(
    "repository .*not found|does not appear to be a git repository|could not read username", re.IGNORECASE
)


@contextmanager
def open_repository(path: Path, *, create: bool = False) -> Iterator["Repo"]:
    """A git repository for reading, offline; with `create` for fetching too, by one at a time. Raises CarrierFailed.

    GIT_DIR is named outright: git then neither looks at a GIT_DIR around us, nor refuses a clone
    of another owner (a mounted volume) or a bare one without core.bare. That check guards against
    repositories one walks into; this one was named by the user, and only objects are read.
    """
    try:
        # Late, since GitPython refuses to be imported where the git program is missing.
        from git import Git, Repo
        from git.exc import GitError
    except ImportError as error:
        raise CarrierFailed("The git program is missing here.", hint="Install git.") from error
    with ExitStack() as held:
        try:
            if create:
                path.mkdir(parents=True, exist_ok=True)
                held.enter_context(one_at_a_time(path))
                if not (path / "HEAD").is_file():
                    Git(path).init(bare=True, quiet=True, env={"GIT_DIR": os.path.abspath(path)})
            repo = held.enter_context(Repo(path))
        except (GitError, OSError) as error:
            raise CarrierFailed(f"{path} cannot be opened as a git repository: {error}.") from error
        repo.git.update_environment(GIT_DIR=os.path.abspath(repo.git_dir), **_OFFLINE)
        yield repo


def _git(repo: "Repo", *arguments: str, timeout_seconds: float, online: bool = False) -> tuple[int, str]:
    """Run git; its exit code and what it complained of. Raises CarrierFailed on a timeout.

    It runs in a session of its own, so that no helper can ask at a terminal, and so that a
    timeout ends the helpers too (GitPython's own timeout needs pgrep or ps for that).
    """
    running = repo.git.execute(
        [repo.git.GIT_PYTHON_GIT_EXECUTABLE, *arguments],
        as_process=True,
        env=_ONLINE if online else None,
        start_new_session=True,
    )
    process = running.proc
    assert process is not None
    try:
        _, said = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired as error:
        _kill(process)
        raise CarrierFailed(f"There was no answer within {timeout_seconds:g} seconds.") from error
    return process.returncode, _complaint(said.decode("utf-8", "replace"))


def _complaint(said: str) -> str:
    """The line in which git names the cause; advice follows it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("fatal: ", "error: "))]
    chosen = (causes or lines[-1:] or [""])[0]
    return chosen.removeprefix("fatal: ").removeprefix("error: ").rstrip(".")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _has(repo: "Repo", object_name: str) -> bool:
    code, _ = _git(repo, "cat-file", "-e", object_name, timeout_seconds=30)
    return code == 0


def blob_at(repo: "Repo", pin: Pin) -> str:
    """Id of the blob that the revision holds at the path. Raises CarrierFailed."""
    try:
        entry = repo.commit(pin.revision).tree / pin.path
    except KeyError as error:
        raise CarrierFailed(f"Revision {pin.revision} of {pin.repository} has no file {pin.path}.") from error
    except ValueError as error:
        raise CarrierFailed(f"Revision {pin.revision} of {pin.repository} is incomplete here: {error}.") from error
    if entry.type != "blob":
        raise CarrierFailed(f"{pin.path} of {pin.repository} at {pin.revision} is a {entry.type}, no file.")
    return str(entry.hexsha)


def _blob_bytes(repo: "Repo", blob_id: str) -> bytes:
    return bytes(repo.odb.stream(bytes.fromhex(blob_id)).read())


@dataclass(frozen=True, slots=True)
class DirectoryCarrier:
    """A directory that the user names: a checkout or clone, or one that holds several."""

    directory: Path
    remote: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """`directory …`, with the path."""
        return f"directory {self.directory}"

    def read(self, pin: Pin) -> Delivery | None:
        """The file at the pinned revision of a clone, else the plain file that has its bytes."""
        held: list[Delivery] = []
        failures: list[str] = []
        for place in self._places(pin):
            try:
                found = _from_clone(place, pin)
            except CarrierFailed as error:
                failures.append(error.message)
                found = None
            data = read_file(place / pin.path) if found is None else None
            if found is not None:
                held.append(found)
            if data is not None:
                held.append(Delivery(data, f"file {place / pin.path}"))
        if failures and not held:
            raise CarrierFailed(" ".join(failures))
        return best_delivery(pin, held)

    def _places(self, pin: Pin) -> tuple[Path, ...]:
        name = pin.repository.rpartition("/")[2]
        below = (self.directory / name, self.directory / pin.repository)
        bare = tuple(path.with_name(f"{path.name}.git") for path in below)
        return (*below, *bare, self.directory)


def _from_clone(place: Path, pin: Pin) -> Delivery | None:
    """The file as the pinned revision has it, None when this is no clone or lacks the revision."""
    looks_bare = (place / "HEAD").is_file() and (place / "objects").is_dir()
    if not looks_bare and not (place / ".git").exists():
        return None
    with open_repository(place) as repo:
        if not _has(repo, f"{pin.revision}^{{commit}}"):
            return None
        blob_id = blob_at(repo, pin)
        if not _has(repo, blob_id):
            raise CarrierFailed(f"The clone {place} knows the revision, but lacks its file {pin.path}.")
        return Delivery(_blob_bytes(repo, blob_id), f"clone {place}", at_revision=True)


@dataclass(frozen=True, slots=True)
class GitCarrier:
    """The git host: a shallow, blob-less fetch of the pinned revision, then of the one file.

    The bare repository stays below `directory`, so nothing is fetched twice. `base_url` may be a
    `file://` address of a directory of owner/name repositories.
    """

    directory: Path
    base_url: str = "https://github.com"
    timeout_seconds: float = 20
    remote: ClassVar[bool] = True
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def name(self) -> str:
        """`git host …`, with its address."""
        return f"git host {self.base_url}"

    def read(self, pin: Pin) -> Delivery | None:
        """The file at the pinned revision.

        Raises CarrierFailed when the host, the repository, the revision or the path is not there.
        """
        path = self.directory / f"{pin.repository}.git"
        with self._lock, open_repository(path, create=True) as repo:
            if not _has(repo, f"{pin.revision}^{{commit}}"):
                self._fetch(repo, pin, pin.revision)
            blob_id = blob_at(repo, pin)
            if not _has(repo, blob_id):
                self._fetch(repo, pin, blob_id)
            return Delivery(_blob_bytes(repo, blob_id), self.name, at_revision=True)

    def _fetch(self, repo: "Repo", pin: Pin, wanted: str) -> None:
        """Fetch one object: the commit with its trees, or one blob, named by its full id."""
        self._name_origin(repo, pin)
        try:
            code, said = _git(
                repo,
                *("-c", "credential.helper=", "-c", "gc.auto=0", "-c", "maintenance.auto=false"),
                *("fetch", "--quiet", "--depth=1", "--filter=blob:none", "--no-tags"),
                *("--no-write-fetch-head", "--recurse-submodules=no", "origin", wanted),
                timeout_seconds=self.timeout_seconds,
                online=True,
            )
        except CarrierFailed as error:
            raise CarrierFailed(
                f"{self.base_url} gave no answer within {self.timeout_seconds:g} seconds.",
                hint="Try again where the git host can be reached.",
            ) from error
        if code:
            raise self._failure(pin, wanted, said)

    def _name_origin(self, repo: "Repo", pin: Pin) -> None:
        """Fetching from a named remote is what makes git note that blobs are left out on purpose."""
        with repo.config_writer() as config:
            config.set_value('remote "origin"', "url", f"{self.base_url.rstrip('/')}/{pin.repository}")

    def _failure(self, pin: Pin, wanted: str, said: str) -> CarrierFailed:
        if _NO_OBJECT.search(said):
            kind = "revision" if wanted == pin.revision else "blob"
            return CarrierFailed(
                f"{pin.repository} at {self.base_url} has no {kind} {wanted}.",
                hint="Check the pinned revision: it may have been rewritten.",
            )
        if _NO_REPOSITORY.search(said):
            return CarrierFailed(f"{self.base_url} has no public repository {pin.repository} ({said}).")
        return CarrierFailed(
            f"{self.base_url} could not be reached: {said or 'git gave no reason'}.",
            hint="Try again where the git host can be reached.",
        )
