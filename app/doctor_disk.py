"""The check-up of what lies on disk: the data directory, traces, files that were handed in, and the cache.

A server may run meanwhile: what is gone when its turn comes is no fault.
"""

import os
import re
import shutil
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path

from app.findings import Finding, attention, fine, wrong
from app.settings import Settings
from app.uploads import Upload
from provenance.durable import (
    PARTIAL,
    QUARANTINE,
    STALE_SECONDS,
    leftovers,
    one_at_a_time,
    quarantine,
    remove_leftovers,
)
from provenance.errors import CorruptTrace, NewerTrace, ProvenanceError, StorageFailed, UnknownTrace
from provenance.places import sources_below, traces_below
from provenance.sources import git_blob_id
from provenance.store import TraceStore
from provenance.trace import Record

DATA, TRACES, UPLOADS, CACHE, REPAIR = "Data directory", "Traces", "Files handed in", "Cache", "Repair"

_QUICK_BYTES = 1 << 30
"""So much is hashed without `deep`, the newest traces first."""
_LOW_BYTES, _FULL_BYTES = 1 << 30, 64 << 20
_ID = re.compile(r"[0-9a-f]{32}")
_REPAIR = "`tensor-provenance doctor --repair`"


def check_data(settings: Settings) -> Iterator[Finding]:
    """Whether the data directory can be used, and by whom."""
    directory = settings.data_directory
    here = next((path for path in (directory, *directory.absolute().parents) if path.exists()), directory)
    if not here.is_dir():
        yield wrong(DATA, f"{here} is no directory.", "Name another: TENSOR_PROVENANCE_DATA_DIRECTORY.")
        return
    try:
        with tempfile.TemporaryFile(dir=here) as file:
            file.write(b"\0")
    except OSError as error:
        said = f"Nothing can be written to {here}: {error.strerror}."
        if settings.read_only:
            yield fine(DATA, f"{said} This server is read-only, so nothing needs to be.")
        else:
            yield wrong(DATA, said, "Give this user the right to write there, or make room on its disk.")
    if not directory.exists():
        yield fine(DATA, f"{directory} is not there yet; the first recording makes it.")
    elif open_to_all := [path for path in (directory, traces_below(directory)) if _is_open_to_all(path)]:
        yield attention(
            DATA, f"Every user of this machine can change {open_to_all[0]}.", f"chmod o-w {open_to_all[0]}"
        )
    yield _space(here)


def _space(directory: Path) -> Finding:
    free = shutil.disk_usage(directory).free
    said = f"{directory}: {size(free)} free"
    if free < _FULL_BYTES:
        return wrong(DATA, f"{said}: the disk is full.", "Delete traces that nobody needs, or move the directory.")
    if free < _LOW_BYTES:
        return attention(DATA, f"{said}: little is left.", "Delete traces that nobody needs, or make room.")
    return fine(DATA, f"{said}.")


def _is_open_to_all(path: Path) -> bool:
    return path.exists() and bool(path.stat().st_mode & stat.S_IWOTH) and not path.stat().st_mode & stat.S_ISVTX


def check_traces(settings: Settings, *, deep: bool) -> Iterator[Finding]:
    """Whether every trace is as it was written."""
    directory = traces_below(settings.data_directory)
    store = TraceStore(directory)
    whole: list[Record] = []
    hashed = 0
    for id, record, problem, was_hashed in _traces(store, deep=deep):
        hashed += was_hashed
        if record is not None:
            whole.append(record)
        elif isinstance(problem, NewerTrace | StorageFailed):
            yield attention(TRACES, problem.message, problem.hint)
        elif problem is not None:
            yield wrong(TRACES, problem.message, f"{_REPAIR} moves it into quarantine. Then record {id[:12]} again.")
    total = sum(record.tensors_bytes for record in whole)
    rest = "" if hashed == len(whole) else f"; {len(whole) - hashed} by size only: --deep reads them all"
    yield fine(TRACES, f"{counted(len(whole), 'trace')}, {size(total)}, as written{rest}.")
    for torch, number in Counter(record.recipe.torch for record in whole).items():
        yield fine(TRACES, f"{counted(number, 'trace')} recorded with torch {torch}.")
    yield from _check_directory(TRACES, directory)


def _traces(
    store: TraceStore, *, deep: bool
) -> Iterator[tuple[str, Record | None, CorruptTrace | StorageFailed | None, bool]]:
    """Each trace's id, its record or what is wrong with it, and whether it was hashed."""
    left = _QUICK_BYTES
    for listed in store.list():
        size = listed.record.tensors_bytes if listed.record else 0
        is_hashed = deep or size <= left
        left -= size if is_hashed else 0
        try:
            yield listed.id, store.check(listed.id, tensors=is_hashed), None, is_hashed
        except (CorruptTrace, StorageFailed) as problem:
            yield listed.id, None, problem, False
        except UnknownTrace:
            continue  # deleted since


def check_uploads(settings: Settings) -> Iterator[Finding]:
    """Whether every file that was handed in is as it came."""
    directory = settings.data_directory / "uploads"
    total = number = 0
    for path in _ids(directory):
        problem = _upload_problem(path)
        if problem:
            yield wrong(UPLOADS, problem, f"{_REPAIR} moves it into quarantine. Then hand it in again.")
        else:
            number += 1
            total += _bytes_below(path, "content")
    yield fine(
        UPLOADS, f"{counted(number, 'file')}, {size(total)} of {settings.uploads_total_mib:,} MiB, as they came."
    )
    yield from _check_directory(UPLOADS, directory)


def _upload_problem(path: Path) -> str:
    try:
        upload = Upload.model_validate_json((path / "upload.json").read_bytes())
        with (path / "content").open("rb") as stream:
            digest = file_digest(stream, "sha256").hexdigest()
        length = (path / "content").stat().st_size
    except (OSError, ValueError):
        return f"The file {path.name} cannot be read." if path.exists() else ""
    if (upload.id, upload.bytes) != (path.name, length) or not digest.startswith(path.name):
        return f"The file {path.name} is not as it came."
    return ""


def _check_directory(area: str, directory: Path) -> Iterator[Finding]:
    """What lies beside the traces or files themselves: leftovers, the quarantine, and what is none of ours."""
    left = leftovers(directory)
    if left:
        taken = sum(_bytes_below(path) for path in left)
        yield attention(
            area,
            f"{counted(len(left), 'leftover')} of writers that were killed, {size(taken)}.",
            f"{_REPAIR} removes them; so does the start of the server, an hour after.",
        )
    being_written = [path for path in directory.glob(f"{PARTIAL}*") if path not in left]
    if being_written:
        yield fine(area, f"{counted(len(being_written), 'writer')} at work now.")
    kept = [path for path in (directory / QUARANTINE).glob("*") if path.is_dir()]
    if kept:
        yield fine(
            area,
            f"{len(kept)} in {directory / QUARANTINE}, {size(sum(_bytes_below(path) for path in kept))}.",
            "The report beside each says why. Delete what nobody wants to look into.",
        )
    known = (QUARANTINE, PARTIAL)
    others = [
        path.name for path in _entries(directory) if not _ID.fullmatch(path.name) and not path.name.startswith(known)
    ]
    if others:
        yield fine(area, f"{', '.join(sorted(others)[:5])} in {directory}: none of ours, left alone.")


def check_cache(settings: Settings) -> Iterator[Finding]:
    """Whether the cached sources are what their names say."""
    directory = sources_below(settings.cache_directory)
    for path in _spoilt(directory / "blobs"):
        yield attention(
            CACHE, f"{path} has other bytes than its name says.", f"It is not used. {_REPAIR} removes it."
        )
    yield fine(CACHE, f"{directory}: {size(_bytes_below(directory))}. It may be deleted at any time.")


def _spoilt(blobs: Path) -> list[Path]:
    return [path for path in _entries(blobs) if re.fullmatch(r"[0-9a-f]{40}", path.name) and not _is_blob(path)]


def _is_blob(path: Path) -> bool:
    try:
        return git_blob_id(path.read_bytes()) == path.name
    except OSError:
        return not path.exists()


# --- repair ---


def repair(settings: Settings, *, deep: bool) -> Iterator[Finding]:
    """Move what cannot be read into quarantine, and remove leftovers. What can be read is never touched."""
    traces, uploads = traces_below(settings.data_directory), settings.data_directory / "uploads"
    store = TraceStore(traces)
    for id, _, problem, _ in _traces(store, deep=deep):
        if isinstance(problem, CorruptTrace) and not isinstance(problem, NewerTrace):
            try:
                if store.quarantine(id):
                    yield fine(REPAIR, f"Trace {id} was moved into quarantine.")
            except ProvenanceError as error:
                yield wrong(REPAIR, error.message, error.hint)
    for path in _ids(uploads):
        if _upload_problem(path):
            try:
                if _put_into_quarantine(path):
                    yield fine(REPAIR, f"File {path.name} was moved into quarantine.")
            except OSError as error:
                yield wrong(REPAIR, f"{path} cannot be moved: {error.strerror}.", "See the data directory above.")
    removed = sum(remove_leftovers(directory, 0) for directory in (traces, uploads)) + _clean_cache(settings)
    if removed:
        yield fine(REPAIR, f"{counted(removed, 'leftover')} removed.")


def _put_into_quarantine(path: Path) -> bool:
    with one_at_a_time(path.parent):
        reason = _upload_problem(path)  # again: it may have been handed in anew
        if reason:
            quarantine(path, reason)
        return bool(reason)


def _clean_cache(settings: Settings) -> int:
    directory = sources_below(settings.cache_directory)
    files = _files_below(directory, ".part-")
    parts = [path for path, seen in files if abs(time.time() - seen.st_mtime) > STALE_SECONDS]
    gone = [*parts, *_spoilt(directory / "blobs")]
    for path in gone:
        path.unlink(missing_ok=True)
    return len(gone)


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _ids(directory: Path) -> list[Path]:
    return [path for path in _entries(directory) if _ID.fullmatch(path.name)]


def _bytes_below(directory: Path, start: str = "") -> int:
    return sum(seen.st_size for _, seen in _files_below(directory, start))


def _files_below(directory: Path, start: str) -> Iterator[tuple[Path, os.stat_result]]:
    """The files whose names start so, with what the system says of each."""
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                if name.startswith(start):
                    yield Path(folder, name), os.lstat(Path(folder, name))


def counted(number: int, noun: str) -> str:
    """A number and its noun: `1 trace`, `2 traces`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(number_of_bytes: int) -> str:
    """Bytes for a person: `12 KiB`, `3.4 GiB`."""
    value, units = float(number_of_bytes), iter(("bytes", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while value >= 1024 and (larger := next(units, None)):
        value, unit = value / 1024, larger
    return f"{value:.{0 if value >= 10 or unit == 'bytes' else 1}f} {unit}"
