"""The store under faults: killed writers, full disks, spoilt files, two writers at once, clocks that jump."""

import errno
import io
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from api_client import running
from conftest import prompt_of, tiny_model_of
from killed_writers import Killed

from app.uploads import Uploads
from provenance import migration
from provenance.durable import leftovers, remove_leftovers
from provenance.errors import CorruptTrace, NewerTrace, StorageFailed, Unavailable, UnknownTrace, UnknownUpload
from provenance.recorder import plan
from provenance.store import TraceStore
from provenance.trace import Recipe, Trace

pytestmark = pytest.mark.slow

SMALL = {"h.0.ln_1.out": torch.arange(6.0), "logits": torch.ones(2, 3)}
"""What is stored need not be what the recipe would give: the store does not look into it."""


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return plan(tiny_model_of(), prompt_of((1, 2)), steps=0, threads=1)


def saved(store: TraceStore, recipe: Recipe, number: int = 1) -> Trace:
    return store.save(recipe.model_copy(update={"threads": number}), prompt_of((5,)).tokens, SMALL)


@pytest.fixture(scope="module")
def killed(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    given = TraceStore(tmp_path_factory.mktemp("given"))
    process = Killed(given.directory, saved(given, recipe).id)
    yield process
    process.close()


@pytest.fixture
def store(tmp_path: Path) -> TraceStore:
    return TraceStore(tmp_path / "traces")


def fresh(store: TraceStore) -> TraceStore:
    return TraceStore(store.directory)


def assert_whole(store: TraceStore) -> int:
    """Every trace that is listed can be opened, and is what was saved; returns how many there are."""
    listed = fresh(store).list()
    for each in listed:
        assert each.problem == ""
        opened = fresh(store).open(each.id)
        assert all(torch.equal(opened.tensors[name], tensor) for name, tensor in SMALL.items())
    return len(listed)


def assert_cleaned(store: TraceStore) -> None:
    """Nothing but whole traces is left once the leftovers are removed."""
    remove_leftovers(store.directory, 0)
    assert {path.name for path in store.directory.iterdir()} == set(store.ids())


# --- killed ---


def test_a_writer_killed_before_any_call_of_the_system_leaves_all_or_nothing(
    store: TraceStore, recipe: Recipe, killed: Killed
) -> None:
    id = recipe.id
    outcomes = []
    for call in range(1, 10_000):
        ended = killed.run("save", store.directory, call=call)
        there = assert_whole(store)
        outcomes.append(there)
        if store.directory.is_dir():
            assert_cleaned(store)
        if there:
            store.delete(id)
        if ended:
            break
    assert len(outcomes) > 12
    assert outcomes == sorted(outcomes), "once it is there, it stays"
    assert {0, 1} == set(outcomes)


def test_a_writer_killed_at_any_byte_of_its_files_leaves_nothing(store: TraceStore, killed: Killed) -> None:
    killed.run("save", store.directory)
    (id,) = store.ids()
    tensors, record = ((store.directory / id / name).stat().st_size for name in ("tensors.safetensors", "trace.json"))
    store.delete(id)
    assert record > tensors
    for size in (*range(0, tensors, 32), *range(tensors, record, 23), record - 1):
        assert not killed.run("save", store.directory, bytes=size)
        (left,) = leftovers(store.directory)
        sizes = {path.name: path.stat().st_size for path in left.iterdir()}
        assert sizes.get("trace.json", 0) == (size if size >= tensors else 0)
        assert sizes.get("tensors.safetensors", 0) == (tensors if size >= tensors else 0)
        assert assert_whole(store) == 0
        assert_cleaned(store)
    assert killed.run("save", store.directory, bytes=record)
    assert assert_whole(store) == 1


@pytest.mark.parametrize("do", ["delete", "attach"])
def test_what_is_done_to_a_trace_is_done_wholly_or_not_at_all(
    do: str, store: TraceStore, recipe: Recipe, killed: Killed
) -> None:
    ends = []
    for call in range(1, 10_000):
        id = saved(store, recipe).id
        store.attach(id, "verdict.json", "before")
        ended = killed.run(do, store.directory, call=call, text="after")
        there = assert_whole(store)
        if do == "attach":
            assert there == 1
            ends.append(store.attached(id, "verdict.json"))
        else:
            ends.append("before" if there else "after")
        assert_cleaned(store)
        if ended:
            break
    assert {"before", "after"} == set(ends)
    assert ends == sorted(ends, reverse=True)


def test_a_corrupt_trace_is_put_into_quarantine_wholly_or_not_at_all(
    store: TraceStore, recipe: Recipe, killed: Killed
) -> None:
    ends = []
    for call in range(1, 10_000):
        id = saved(store, recipe).id
        (store.directory / id / "trace.json").write_text("{")
        ended = killed.run("quarantine", store.directory, call=call)
        aside = list((store.directory / "quarantine").glob("*/trace.json"))
        ends.append(len(aside))
        assert list(store.ids()) == ([] if aside else [id])
        for path in aside:
            assert path.read_text() == "{"
            assert path.parent.with_name(f"{path.parent.name}.json").is_file(), "its report came first"
            path.parent.rename(store.directory / ".partial-looked-at")
        remove_leftovers(store.directory, 0)
        assert {p.name for p in store.directory.iterdir()} - {"quarantine"} == set(store.ids())
        if list(store.ids()):
            store.delete(id)
        if ended:
            break
    assert {0, 1} == set(ends)
    assert ends == sorted(ends)


def test_a_file_handed_in_is_kept_whole_or_not_at_all(tmp_path: Path, killed: Killed) -> None:
    stream = io.BytesIO()
    np.savez(stream, x=np.arange(3.0))
    uploads, kept = Uploads(tmp_path, 1 << 20, 1 << 20), []
    for call in range(1, 10_000):
        ended = killed.run("upload", tmp_path, call=call, text=stream.getvalue().decode("latin-1"))
        found = uploads.list()
        kept.append(len(found))
        for upload in found:
            assert (tmp_path / upload.id / "content").read_bytes() == stream.getvalue()
            uploads.delete(upload.id)
        remove_leftovers(tmp_path, 0)
        assert list(tmp_path.iterdir()) == []
        if ended:
            break
    assert set(kept) == {0, 1}
    assert kept == sorted(kept)


def test_many_writers_of_the_same_traces_killed_at_random_leave_only_whole_ones(
    store: TraceStore, killed: Killed
) -> None:
    moments, seen, left = random.Random(7), 0, 0
    for number in range(30):
        first = killed.start("endless", store.directory, number=10)
        second = killed.start("endless", store.directory, number=12)
        end = time.monotonic() + moments.uniform(0.003, 0.08)
        while time.monotonic() < end:
            if number % 2:
                remove_leftovers(
                    store.directory, 0
                )  # beside living writers: a writer that loses its files ends with 1
        os.kill(first, signal.SIGKILL)
        time.sleep(moments.uniform(0, 0.005))
        os.kill(second, signal.SIGKILL)
        assert [killed.ended(), killed.ended()] == [-signal.SIGKILL, -signal.SIGKILL]
        seen += assert_whole(store)
        left += remove_leftovers(store.directory, 0)
        assert {path.name for path in store.directory.iterdir()} == set(store.ids())
    assert seen > 30
    assert left > 0, "some writer was killed in the middle"


def test_two_processes_that_write_the_same_trace_both_succeed_and_leave_one(
    store: TraceStore, killed: Killed
) -> None:
    for number in range(1, 41):
        killed.start("save", store.directory, number=number)
        killed.start("save", store.directory, number=number)
        assert [killed.ended(), killed.ended()] == [0, 0]
        assert len(list(store.ids())) == number
    assert assert_whole(store) == 40
    assert {path.name for path in store.directory.iterdir()} == set(store.ids())


def test_two_processes_that_replace_the_same_corrupt_trace_both_succeed(
    store: TraceStore, recipe: Recipe, killed: Killed
) -> None:
    for number in range(1, 21):
        id = saved(store, recipe, number).id
        (store.directory / id / "trace.json").write_text("{")
        killed.start("save", store.directory, number=number)
        killed.start("save", store.directory, number=number)
        assert [killed.ended(), killed.ended()] == [0, 0]
        assert len(list(store.ids())) == number
    assert assert_whole(store) == 20


def test_a_good_trace_that_took_the_place_of_a_corrupt_one_is_not_put_into_quarantine(
    store: TraceStore, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = saved(store, recipe).id
    (store.directory / id / "trace.json").write_text("{")
    first, open, put = fresh(store), TraceStore.open, []

    def meanwhile(self: TraceStore, wanted: str) -> Trace:
        try:
            return open(self, wanted)
        except CorruptTrace:
            if self is first and not put:  # replaced by another writer just after the first saw that it is corrupt
                saved(store, recipe)
                put.append((store.directory / id).stat().st_ino)
            raise

    monkeypatch.setattr(TraceStore, "open", meanwhile)
    saved(first, recipe)
    assert [(store.directory / id).stat().st_ino] == put, "the other writer's trace stays"
    assert len([path for path in (store.directory / "quarantine").iterdir() if path.is_dir()]) == 1
    assert assert_whole(store) == 1


def test_a_trace_that_can_be_read_is_never_put_into_quarantine(store: TraceStore, recipe: Recipe) -> None:
    id = saved(store, recipe).id
    assert not store.quarantine(id)
    assert assert_whole(store) == 1
    store.delete(id)
    assert not store.quarantine(id)
    assert list(store.directory.iterdir()) == []


def test_a_trace_is_not_deleted_while_something_is_put_into_it(
    store: TraceStore, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = saved(store, recipe).id
    other = threading.Thread(target=fresh(store).delete, args=(id,))
    rename, waited = Path.rename, []

    def meanwhile(self: Path, target: Path) -> Path:
        if target.name == "verdict.json":
            other.start()
            other.join(0.3)
            waited.append(other.is_alive())
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", meanwhile)
    store.attach(id, "verdict.json", "text")
    other.join()
    assert waited == [True]
    assert list(store.ids()) == []


# --- leftovers and clocks ---


def test_a_living_writer_keeps_its_directory_whatever_the_clock_says(
    store: TraceStore, killed: Killed, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = killed.start("hold", store.directory)
    end = time.monotonic() + 60
    while not (store.directory / "held").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    (partial,) = store.directory.glob(".partial-*")
    year = 365 * 86_400
    for jump in (10 * year, -10 * year):
        monkeypatch.setattr(time, "time", lambda real=time.time_ns, jump=jump: real() / 1e9 + jump)
        assert store.clean() == 0
        assert leftovers(store.directory) == ()
        assert partial.is_dir()
    os.utime(partial, (0, 0))
    assert store.clean() == 0
    monkeypatch.undo()
    os.kill(writer, signal.SIGKILL)
    assert killed.ended() == -signal.SIGKILL
    os.utime(partial, (time.time() + 10 * year,) * 2)  # written before the clock was set back
    assert store.clean() == 1
    assert not partial.exists()


def set_clock(monkeypatch: pytest.MonkeyPatch, back: timedelta) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Clock":  # type: ignore[override]
            return cls.fromtimestamp((datetime.now(UTC) - back).timestamp(), tz)

    monkeypatch.setattr("provenance.store.datetime", Clock)


def test_the_newest_trace_is_first_though_the_clock_was_set_back(
    store: TraceStore, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [saved(store, recipe, 1).id]
    for number, hours in ((2, 1), (3, 5), (4, 2)):
        set_clock(monkeypatch, timedelta(hours=hours))
        ids.append(saved(store, recipe, number).id)
    assert [listed.id for listed in store.list()] == ids[::-1]


def test_a_clock_that_was_wrong_by_years_is_not_followed(
    store: TraceStore, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, -timedelta(days=3650))
    future = saved(store, recipe, 1)
    os.utime(store.directory / future.id, (time.time() + 3650 * 86_400,) * 2)
    set_clock(monkeypatch, timedelta())
    now = saved(store, recipe, 2)
    assert abs(datetime.fromisoformat(now.record.created_at) - datetime.now(UTC)) < timedelta(hours=1)
    assert [listed.id for listed in store.list()] == [future.id, now.id]


def test_the_last_file_handed_in_counts_as_the_newest_though_the_clock_was_set_back(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path, 1 << 20, 1 << 20)
    ids = []
    for number in range(3):
        stream = io.BytesIO()
        np.savez(stream, x=np.full(2, number))
        ids.append(uploads.add(stream.getvalue(), "x").id)
        if number == 0:  # since then, the clock was set back by a day
            os.utime(tmp_path / ids[0] / "upload.json", (time.time() + 86_400,) * 2)
    assert [upload.id for upload in uploads.list()] == ids[::-1]


# --- a full disk ---


def refusing(number: int) -> Any:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("call", ["os.fsync", "os.rename", "os.mkdir", "pathlib.Path.write_text"])
def test_a_write_that_the_system_refuses_says_so_and_leaves_nothing(
    store: TraceStore, recipe: Recipe, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    first = saved(store, recipe, 1)
    store.attach(first.id, "verdict.json", "before")
    with monkeypatch.context() as patched:
        patched.setattr(call, refusing(number))
        for act in (lambda: saved(store, recipe, 2), lambda: store.attach(first.id, "verdict.json", "after")):
            with pytest.raises(StorageFailed) as refused:
                act()
            assert os.strerror(number) in refused.value.message
            assert refused.value.hint
            assert isinstance(refused.value, Unavailable)
        if number in (errno.ENOSPC, errno.EDQUOT):
            assert "Make room" in refused.value.hint
    assert {path.name for path in store.directory.iterdir()} == {first.id}
    assert store.attached(first.id, "verdict.json") == "before"
    saved(store, recipe, 2)
    assert assert_whole(store) == 2


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("nothing may be mounted here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_disk_that_is_full_loses_nothing_and_lets_go_what_is_deleted(tiny_disk: Path, recipe: Recipe) -> None:
    store = TraceStore(tiny_disk / "traces")
    first = saved(store, recipe, 1)
    for _ in range(3):
        with pytest.raises(StorageFailed, match="No space left on device"):
            store.save(recipe, prompt_of((5,)).tokens, {"logits": torch.ones(100_000)})
    assert {path.name for path in store.directory.iterdir()} == {first.id}
    with suppress(OSError), (tiny_disk / "ballast").open("wb", buffering=0) as stream:
        while stream.write(bytes(1024)):
            pass
    for act in (lambda: saved(store, recipe, 2), lambda: store.attach(first.id, "verdict.json", "x" * 100)):
        with pytest.raises(StorageFailed, match="No space left on device"):
            act()
    uploads = Uploads(tiny_disk / "uploads", 1 << 20, 1 << 20)
    with pytest.raises(StorageFailed, match="No space left on device"):
        uploads.add(bytes(5000), "port.npz")
    assert assert_whole(store) == 1
    store.delete(first.id)
    assert list(store.directory.iterdir()) == []
    (tiny_disk / "ballast").unlink()
    saved(store, recipe, 2)
    assert assert_whole(store) == 1


def test_the_server_goes_on_when_its_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO()
    np.savez(stream, logits=np.ones(3))
    handed_in = {"files": {"file": ("x.npz", stream.getvalue(), "application/octet-stream")}}
    with running(tmp_path) as api:
        kept = api.record(prompt="Hello")
        with monkeypatch.context() as full:
            full.setattr(os, "fsync", refusing(errno.ENOSPC))
            asked = api.ask("POST", "/api/traces", json={"prompt": "Hello world"}).headers["Location"]
            failed = api.wait(asked)
            assert failed["state"] == "failed"
            assert "No space left on device" in failed["error"]
            assert "Make room" in failed["error"]
            problem = api.problem("POST", "/api/uploads", 503, **handed_in)
            assert "No space left on device" in problem["detail"]
            assert str(tmp_path) not in json.dumps([failed, problem])
            assert api.json(kept)["state"] == "done"
        assert api.record(prompt="Hello world") == asked
        assert api.ask("POST", "/api/uploads", **handed_in).status_code == 201
    assert not list(tmp_path.rglob(".partial-*"))


# --- spoilt files ---


def test_a_file_spoilt_anywhere_is_refused_and_never_read(store: TraceStore, recipe: Recipe) -> None:
    id, other = saved(store, recipe, 1).id, saved(store, recipe, 2).id
    chance = random.Random(3)
    for name in ("tensors.safetensors", "trace.json"):
        file = store.directory / id / name
        whole = file.read_bytes()
        for number in range(60):
            spoilt = bytearray(whole)
            at = chance.randrange(len(whole))
            if number % 2:
                del spoilt[at:]
            else:
                spoilt[at] ^= 0x80  # in JSON, no text any more
            file.write_bytes(spoilt)
            with pytest.raises(CorruptTrace):
                fresh(store).open(id)
            assert fresh(store).open(other).id == other
            assert {listed.id for listed in fresh(store).list()} == {id, other}
        file.write_bytes(whole)
    assert assert_whole(store) == 2


def test_a_trace_that_is_cut_short_while_it_is_open_does_not_end_the_process(
    store: TraceStore, recipe: Recipe, killed: Killed
) -> None:
    id = store.save(recipe, prompt_of((5,)).tokens, {"logits": torch.ones(100_000)}).id
    assert killed.run("truncate", store.directory)
    with pytest.raises(CorruptTrace):
        store.open(id)


def test_recording_again_puts_a_spoilt_trace_into_quarantine(store: TraceStore, recipe: Recipe) -> None:
    id = saved(store, recipe).id
    (store.directory / id / "tensors.safetensors").write_bytes(b"spoilt")
    saved(store, recipe)
    assert assert_whole(store) == 1
    (aside,) = (path for path in (store.directory / "quarantine").iterdir() if path.is_dir())
    assert aside.name.startswith(f"{id}-")
    assert (aside / "tensors.safetensors").read_bytes() == b"spoilt"
    report = json.loads(aside.with_name(f"{aside.name}.json").read_text())
    assert report["id"] == id
    assert report["reason"] == f"The tensors of trace {id} are not those that were written."
    assert abs(datetime.fromisoformat(report["moved_at"]) - datetime.now(UTC)) < timedelta(minutes=5)


def test_a_spoilt_trace_is_answered_with_410_the_rest_served_and_recorded_anew(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        spoilt, kept = api.record(prompt="Hello"), api.record(prompt="Hello world")
        id = spoilt.rpartition("/")[2]
        os.truncate(tmp_path / "data" / "traces" / id / "tensors.safetensors", 100)
        problem = api.problem("GET", f"{spoilt}/tensors/logits", 410)
        assert "are not those that were written" in problem["detail"]
        assert api.ask("GET", f"{kept}/tensors/logits").status_code == 200
        assert api.ask("GET", "/").status_code == 200
        assert api.record(prompt="Hello") == spoilt
        assert api.ask("GET", f"{spoilt}/tensors/logits").status_code == 200
    assert len(list((tmp_path / "data" / "traces" / "quarantine").glob(f"{id}-*/trace.json"))) == 1


def test_a_file_that_the_system_cannot_read_now_is_not_called_corrupt(
    store: TraceStore, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = saved(store, recipe).id
    with monkeypatch.context() as failing:
        failing.setattr(Path, "read_bytes", refusing(errno.EIO))
        for act in (lambda: fresh(store).open(id), lambda: id in fresh(store), lambda: saved(fresh(store), recipe)):
            with pytest.raises(StorageFailed, match="Input/output error"):
                act()
        (listed,) = fresh(store).list()
        assert listed.problem == f"Trace {id} cannot be read now: Input/output error."
    assert assert_whole(store) == 1


def test_what_is_deleted_meanwhile_is_unknown(store: TraceStore, recipe: Recipe) -> None:
    id = saved(store, recipe).id
    store.delete(id)
    for act in (lambda: store.open(id), lambda: store.attach(id, "x", "y"), lambda: store.delete(id)):
        with pytest.raises(UnknownTrace):
            act()
    with pytest.raises(UnknownUpload):
        Uploads(store.directory, 1, 1).delete(id)


# --- format versions ---


def retold(store: TraceStore, id: str, **values: object) -> bytes:
    file = store.directory / id / "trace.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    return file.read_bytes()


def test_a_newer_format_is_refused_with_what_to_do_and_stays(store: TraceStore, recipe: Recipe) -> None:
    id = saved(store, recipe).id
    written = retold(store, id, format=3, what_only_a_newer_version_knows=True)
    for act in (lambda: fresh(store).open(id), lambda: saved(fresh(store), recipe)):
        with pytest.raises(NewerTrace, match="by a newer version: it has format 3, this one reads up to 2") as no:
            act()
        assert "Update tensor-provenance" in no.value.hint
    assert (store.directory / id / "trace.json").read_bytes() == written
    assert {path.name for path in store.directory.iterdir()} == {id}
    (listed,) = fresh(store).list()
    assert "newer version" in listed.problem


def test_an_older_format_is_migrated_as_it_is_read_and_not_rewritten(
    store: TraceStore, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = saved(store, recipe)
    as_zero = json.loads((store.directory / trace.id / "trace.json").read_text())
    as_zero["when"] = as_zero.pop("created_at")
    as_zero["format"] = 0
    file = store.directory / trace.id / "trace.json"
    file.write_text(json.dumps(as_zero))

    with pytest.raises(CorruptTrace, match="has format 0, which was never in use"):
        fresh(store).open(trace.id)

    def step(tree: dict[str, Any]) -> dict[str, Any]:
        return {("created_at" if key == "when" else key): value for key, value in tree.items()}

    monkeypatch.setattr(migration, "MIGRATIONS", {0: step, **migration.MIGRATIONS})
    before = file.read_bytes()
    assert fresh(store).open(trace.id).record == trace.record
    assert [listed.record for listed in fresh(store).list()] == [trace.record]
    assert file.read_bytes() == before


def test_a_trace_from_before_runs_could_be_drawn_keeps_its_id(store: TraceStore, recipe: Recipe) -> None:
    trace = saved(store, recipe)
    file = store.directory / trace.id / "trace.json"
    tree = json.loads(file.read_text()) | {"format": 1}
    del tree["recipe"]["drawn"]
    file.write_text(json.dumps(tree))
    assert fresh(store).open(trace.id).record == trace.record


def test_each_older_format_has_its_step_and_the_number_is_documented(repository: Path) -> None:
    assert sorted(migration.MIGRATIONS) == list(range(1, migration.FORMAT))
    assert f"`format`; today it is {migration.FORMAT}." in (repository / "docs" / "data.md").read_text()
