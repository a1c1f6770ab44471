"""What another thread or process does in the middle of a step: each test puts it exactly there."""

import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import prompt_of, tiny_model_of
from paced_work import PATIENCE_SECONDS, Work, until

import app.explorer
import app.uploads
from app import doctor_disk
from app.explorer import Explorer
from app.findings import Finding, Level
from app.jobs import Jobs, State
from app.settings import Settings
from app.uploads import Uploads
from provenance import trace_files
from provenance.errors import Busy, Unavailable, UnknownUpload
from provenance.names import Address
from provenance.places import sources_below
from provenance.recorder import Progress, plan
from provenance.sources import git_blob_id
from provenance.store import TraceStore
from provenance.trace import Recipe, Record, Trace

MIB = 1 << 20
BLOCKED_SECONDS = 0.3
"""So long something is seen to wait. It waits for a lock: more time would change nothing."""


def recipe_of(last: int = 2) -> Recipe:
    return plan(tiny_model_of(), prompt_of((1, last)), steps=0, threads=1)


def saved(store: TraceStore, recipe: Recipe, cells: int) -> Trace:
    return store.save(recipe, prompt_of((5,)).tokens, {"logits": torch.ones(cells)})


def npz(cells: int) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, x=np.arange(float(cells)))
    return stream.getvalue()


# --- traces ---


@pytest.mark.parametrize("act", [TraceStore.open, TraceStore.check], ids=["open", "check"])
def test_a_trace_that_is_replaced_while_it_is_read_is_not_called_corrupt(
    act: Callable[[TraceStore, str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, read, replaced = recipe_of(), trace_files.record_of, []
    id = saved(TraceStore(tmp_path), recipe, 3).id

    def meanwhile(directory: Path) -> Record:
        record = read(directory)
        if not replaced:  # after its record was read, and before its tensors are
            replaced.append(id)
            TraceStore(tmp_path).delete(id)
            saved(TraceStore(tmp_path), recipe, 4)
        return record

    monkeypatch.setattr(trace_files, "record_of", meanwhile)
    found = act(TraceStore(tmp_path), id)
    record = found.record if isinstance(found, Trace) else found
    assert record == read(tmp_path / id)


# --- files that are handed in ---


def test_a_file_that_is_handed_in_again_is_there_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, rename, names = Uploads(tmp_path, MIB, MIB), Path.rename, []
    content = npz(3)
    id = reader.add(content, "one").id

    def meanwhile(self: Path, target: Path) -> Path:
        names.append(reader.get(id).name)
        found = rename(self, target)
        names.append(reader.get(id).name)
        return found

    monkeypatch.setattr(Path, "rename", meanwhile)
    Uploads(tmp_path, MIB, MIB).add(content, "two")
    assert names == sorted(names)
    assert {names[0], names[-1]} == {"one", "two"}
    assert (tmp_path / id / "content").read_bytes() == content


@pytest.mark.parametrize("moment", ["before it is looked for", "before it is opened"])
def test_a_file_that_is_removed_while_it_is_read_is_unknown(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = Uploads(tmp_path, MIB, MIB).add(npz(3), "x").id
    reader, read, is_file = Uploads(tmp_path, MIB, MIB), app.uploads.read_tensors, Path.is_file

    def read_later(*given: Any, **options: Any) -> Any:
        Uploads(tmp_path, MIB, MIB).delete(id)
        return read(*given, **options)

    def looked_for(self: Path) -> bool:
        there = is_file(self)
        if self.name == "content" and there:
            Uploads(tmp_path, MIB, MIB).delete(id)
        return there

    if moment == "before it is opened":
        monkeypatch.setattr(Path, "is_file", looked_for)
    else:
        monkeypatch.setattr(app.uploads, "read_tensors", read_later)
    with pytest.raises(UnknownUpload):
        reader.open(id)


def test_a_file_is_not_removed_while_another_process_puts_it_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = npz(3)
    id = Uploads(tmp_path, MIB, MIB).add(content, "one").id
    other = threading.Thread(target=Uploads(tmp_path, MIB, MIB).delete, args=(id,))
    rename, waited = Path.rename, []

    def meanwhile(self: Path, target: Path) -> Path:
        if self.name == "upload.json":
            other.start()
            other.join(BLOCKED_SECONDS)
            waited.append(other.is_alive())
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", meanwhile)
    Uploads(tmp_path, MIB, MIB).add(content, "two")
    other.join(PATIENCE_SECONDS)
    assert waited == [True]
    assert Uploads(tmp_path, MIB, MIB).list() == ()


# --- the check-up beside a server that runs ---


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_directory=tmp_path / "data", cache_directory=tmp_path / "cache")


@pytest.fixture
def uploads(settings: Settings) -> Uploads:
    return Uploads(settings.data_directory / "uploads", MIB, MIB)


def not_fine(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level is not Level.FINE]


def test_a_spoilt_file_that_was_handed_in_again_meanwhile_is_not_put_into_quarantine(
    settings: Settings, uploads: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, judge = npz(3), doctor_disk._upload_problem
    id = uploads.add(content, "x").id
    (uploads.directory / id / "content").write_bytes(b"spoilt")

    def judged(path: Path) -> str:
        problem = judge(path)
        if problem:
            uploads.add(content, "again")
        return problem

    monkeypatch.setattr(doctor_disk, "_upload_problem", judged)
    assert not_fine(list(doctor_disk.repair(settings, deep=False))) == []
    assert uploads.get(id).name == "again"
    assert not (uploads.directory / "quarantine").exists()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_file_that_is_removed_while_all_are_checked_is_no_problem(
    moment: str, settings: Settings, uploads: Uploads, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, gone = doctor_disk._upload_problem, uploads.add(npz(3), "x").id
    uploads.add(npz(4), "y")

    def judged(path: Path) -> str:
        if path.name == gone and moment == "before":
            uploads.delete(gone)
        problem = judge(path)
        if path.name == gone and moment == "after":
            uploads.delete(gone)
        return problem

    monkeypatch.setattr(doctor_disk, "_upload_problem", judged)
    assert not_fine(list(doctor_disk.check_uploads(settings))) == []


def test_what_a_writer_takes_away_while_the_cache_is_looked_at_is_no_fault(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = sources_below(settings.cache_directory) / "blobs"
    blobs.mkdir(parents=True)
    part, blob = blobs / ".part-1", blobs / git_blob_id(b"good")
    part.write_bytes(b"half")
    blob.write_bytes(b"good")
    (blobs / "below").mkdir()
    sized, read, lstat = os.stat, Path.read_bytes, os.lstat

    def seen(of: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def stat(path: Any, *given: Any, **options: Any) -> os.stat_result:
            if str(path) == str(part):
                part.unlink(missing_ok=True)
            return of(path, *given, **options)

        return stat

    def read_late(self: Path) -> bytes:
        if self == blob:
            blob.unlink()
        return read(self)

    monkeypatch.setattr(os, "stat", seen(sized))
    monkeypatch.setattr(os, "lstat", seen(lstat))
    monkeypatch.setattr(Path, "read_bytes", read_late)
    assert not_fine(list(doctor_disk.check_cache(settings))) == []
    assert not part.exists() and not blob.exists()
    part.write_bytes(b"half")
    assert list(doctor_disk.repair(settings, deep=False)) == []


# --- recordings ---


class Watched:
    """A lock; what is true whenever it is let go is noted."""

    def __init__(self, note: Callable[[], None]) -> None:
        self._lock, self._note = threading.Lock(), note

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._note()
        self._lock.release()


def test_whoever_sees_that_a_recording_has_ended_sees_it_counted() -> None:
    work = Work()
    jobs = Jobs(work.record, queue_length=4)
    recipes = [recipe_of(last) for last in (2, 3, 4)]
    work.failures[recipes[1].id] = RuntimeError("a test")
    seen: list[tuple[int, int]] = []

    def note() -> None:
        ended = sum(job.state in (State.DONE, State.FAILED) for job in jobs._jobs.values())
        tally = jobs._tally
        seen.append((ended, tally.done + tally.failed + tally.cancelled))

    jobs._lock = Watched(note)  # type: ignore[assignment]
    for recipe in recipes:
        jobs.submit(recipe)
    jobs.cancel(recipes[2].id)
    work.let_end(2)
    until(lambda: not jobs.waiting())
    jobs.close()
    assert seen[-1] == (3, 3)
    assert all(ended == counted for ended, counted in seen)


def recording(tmp_path: Path, run: Callable[[Recipe, Progress], None], **limits: int) -> Explorer:
    """An explorer of the tiny model whose recordings are `run`."""
    explorer = Explorer(
        Settings(
            data_directory=tmp_path / "data", cache_directory=tmp_path / "cache", model="tiny-untrained",
            example=False, network=False, **limits,
        )
    )  # fmt: skip
    explorer.jobs._run = run  # type: ignore[attr-defined]
    return explorer


def test_a_trace_that_is_stored_but_not_ended_takes_one_place_of_the_store(tmp_path: Path) -> None:
    work = Work()

    def run(recipe: Recipe, progress: Progress) -> None:
        saved(TraceStore(tmp_path / "data" / "traces"), recipe, 3)
        work.run(recipe.id)

    explorer = recording(tmp_path, run, traces_limit=2)
    first, second, third = (explorer.plan(text) for text in ("one", "two", "three"))
    try:
        explorer.submit(first)
        until(lambda: work.begun == [first.id])
        assert explorer.submit(second).state is State.QUEUED
        with pytest.raises(Busy, match="keeps 2 traces"):
            explorer.submit(third)
    finally:
        work.let_end(2)
        explorer.close()


def test_two_who_ask_at_once_do_not_share_the_last_place_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work()
    explorer = recording(tmp_path, work.record, traces_limit=1)
    recipes, check, told = [explorer.plan(text) for text in ("one", "two")], app.explorer.check_room, []

    def second() -> None:
        try:
            explorer.submit(recipes[1])
        except Busy as problem:
            told.append(problem.message)

    other = threading.Thread(target=second)

    def meanwhile(*given: Any) -> None:
        check(*given)
        if not other.ident:
            other.start()
            other.join(BLOCKED_SECONDS)

    monkeypatch.setattr(app.explorer, "check_room", meanwhile)
    try:
        explorer.submit(recipes[0])
        other.join(PATIENCE_SECONDS)
        assert told == ["This server keeps 1 traces, and has them."]
        assert [job.id for job in explorer.jobs.waiting()] == [recipes[0].id]
    finally:
        work.let_end(2)
        explorer.close()


def test_who_asks_for_a_tensor_while_the_server_stops_is_told_so(tmp_path: Path) -> None:
    explorer = Explorer(
        Settings(data_directory=tmp_path, cache_directory=tmp_path, model="tiny-untrained", example=False)
    )
    trace = explorer.record(explorer.plan("stopped"))
    address = Address("h.attn.scores", 0)
    busy, told = Work(), []

    def ask() -> None:
        try:
            explorer.tensor(trace, address)
        except Unavailable as problem:
            told.append(problem.message)

    explorer.engine._worker.submit(busy.run, "a")  # type: ignore[attr-defined]
    until(lambda: busy.begun == ["a"])
    waiting = threading.Thread(target=ask)
    waiting.start()
    until(lambda: explorer.engine._worker._work_queue.qsize() == 1)  # type: ignore[attr-defined]
    closing = threading.Thread(target=explorer.close)
    closing.start()
    until(lambda: explorer.engine._worker.closed)  # type: ignore[attr-defined]
    busy.let_end()
    waiting.join(PATIENCE_SECONDS)
    closing.join(PATIENCE_SECONDS)
    ask()
    assert told == ["The server is stopping."] * 2
