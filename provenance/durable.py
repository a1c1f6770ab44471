"""Writing that survives being killed, a full disk and a clock that jumps.

What is written is written into a partial directory, flushed to disk, and renamed into its place. Its
writer holds a lock on that directory while it lives: nobody takes it for a leftover, whatever the
clock says. A process that is killed leaves at most a partial directory, which is never read.
"""

import errno
import fcntl
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from provenance.errors import StorageFailed

PARTIAL = ".partial-"
"""What the names of partial directories start with."""
QUARANTINE = "quarantine"
"""The directory beside what is stored, for what cannot be read any more."""
STALE_SECONDS = 3600

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def partial_directory(directory: Path) -> Iterator[Path]:
    """A locked directory below another one, to write in; what is left of it at the end is removed."""
    directory.mkdir(parents=True, exist_ok=True)
    path, handle = _locked(directory)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def _locked(directory: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=directory))
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # taken for a leftover in the moment before it could be locked
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # the same, and it is being removed now
            os.close(handle)
            continue
        except OSError:
            pass  # a file system without locks: its age has to protect it
        with suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(handle)):
                return path, handle
        os.close(handle)


@contextmanager
def one_at_a_time(directory: Path) -> Iterator[None]:
    """Wait until no other thread or process is in here for the same directory."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def leftovers(directory: Path, older_than_seconds: float = 0) -> tuple[Path, ...]:
    """The partial directories whose writers have ended, last changed that long ago (or hence: clocks jump)."""
    found = []
    for path in sorted(directory.glob(f"{PARTIAL}*")):
        with _claimed(path, older_than_seconds) as ended:
            if ended:
                found.append(path)
    return tuple(found)


def remove_leftovers(directory: Path, older_than_seconds: float = STALE_SECONDS) -> int:
    """Remove what killed processes left behind, and nothing that a living one writes; returns how many."""
    removed = 0
    for path in directory.glob(f"{PARTIAL}*"):
        with _claimed(path, older_than_seconds) as ended:
            if ended:
                shutil.rmtree(path, ignore_errors=True)
                removed += not path.exists()
    return removed


@contextmanager
def _claimed(path: Path, older_than_seconds: float) -> Iterator[bool]:
    """Whether a partial directory is a leftover; its lock is ours meanwhile."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # another process has just renamed or removed it, or it is none of ours
        yield False
        return
    try:
        age = abs(time.time() - os.fstat(handle).st_mtime)
        yield age >= older_than_seconds and _has_ended(handle, age)
    finally:
        os.close(handle)


def _has_ended(handle: int, age_seconds: float) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return age_seconds >= STALE_SECONDS
    return True


def remove(path: Path) -> None:
    """Remove a directory at once. It needs no room on the disk. Raises FileNotFoundError.

    A process that is killed meanwhile leaves all of it, or none of it that is ever read.
    """
    gone = path.with_name(f"{PARTIAL}{secrets.token_hex(8)}")
    path.rename(gone)
    flush(path.parent)
    shutil.rmtree(gone, ignore_errors=True)


def quarantine(path: Path, reason: str) -> Path:
    """Move a directory, at once, into the quarantine beside it; a report lies next to it there.

    Returns where it is now. Raises FileNotFoundError where it is not there any more.
    """
    if not path.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    now = datetime.now(UTC)
    target = path.parent / QUARANTINE / f"{path.name}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    target.parent.mkdir(mode=0o700, exist_ok=True)
    report = target.with_name(f"{target.name}.json")
    said = {"id": path.name, "reason": reason, "moved_at": now.isoformat(timespec="seconds")}
    try:
        report.write_text(json.dumps(said, indent=1))
        flush(report)
        path.rename(target)
    except OSError:
        report.unlink(missing_ok=True)
        raise
    flush(target.parent, path.parent)
    return target


def flush(*paths: Path) -> None:
    """Have files and directories written to the disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def storing(what: str) -> Iterator[None]:
    """Turn what the system says of a failed write into StorageFailed, with what to do."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(
            f"{what} cannot be kept: {_said(error)}.", hint=f"{_advice(error)} Then try again."
        ) from error


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what the system says of a failed read into StorageFailed; what is not there stays FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageFailed(
            f"{what} cannot be read now: {_said(error)}.", hint="`tensor-provenance doctor` says more."
        ) from error


def _said(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _advice(error: OSError) -> str:
    if error.errno in _FULL:
        return "Make room on the disk that holds the data: delete traces and files that nobody needs."
    if error.errno == errno.EFBIG:
        return "Raise the limit on the size of files (`ulimit -f`), or record a shorter prompt with fewer steps."
    if error.errno in _FORBIDDEN:
        return "Let this program write to its data directory; `tensor-provenance doctor` says where that is."
    return "Run `tensor-provenance doctor`: it looks at the disk and the data directory."
