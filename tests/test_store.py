"""The trace store: whole or not at all, and clear about what cannot be read."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from conftest import THREADS, prompt_of, recorded

from provenance.errors import CorruptTrace, StorageFailed, UnknownTrace
from provenance.gpt2.model import GPT2
from provenance.recorder import plan, record
from provenance.store import TraceStore
from provenance.trace import Trace

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> TraceStore:
    return TraceStore(tmp_path / "traces")


@pytest.fixture
def trace(tiny_model: GPT2, store: TraceStore) -> Trace:
    """A stored trace that a test may spoil."""
    return recorded(tiny_model, store, steps=1)


@pytest.fixture
def other(tiny_model: GPT2, store: TraceStore) -> Trace:
    """A second one, which must stay readable."""
    return recorded(tiny_model, store, (1, 2, 3), steps=0)


def fresh(store: TraceStore) -> TraceStore:
    return TraceStore(store.directory)


def test_a_trace_is_read_back_as_it_was_written(tiny_model: GPT2, store: TraceStore) -> None:
    recipe = plan(tiny_model, prompt_of(), steps=2, threads=THREADS, temperature=0.7, seed=9)
    chosen, tensors = record(tiny_model, recipe)
    saved = store.save(recipe, prompt_of(chosen).tokens, tensors)
    for trace in (saved, fresh(store).open(recipe.id)):
        assert trace.recipe == recipe
        assert (trace.id, trace.recipe.id) == (recipe.id, recipe.id)
        assert tuple(token.id for token in trace.generated) == chosen
        assert trace.tensors.keys() == tensors.keys()
        assert all(torch.equal(trace.tensors[name], tensor) for name, tensor in tensors.items())
        assert [token.bytes for token in trace.tokens_of(0)] == [b"<%d>" % token.id for token in trace.tokens_of(0)]
        assert trace.tokens_of(2) == trace.generated[1:2]
    assert sorted(path.name for path in store.directory.iterdir()) == [recipe.id]


def test_saving_the_same_trace_twice_keeps_the_first(tiny_model: GPT2, store: TraceStore, trace: Trace) -> None:
    file = store.directory / trace.id / "trace.json"
    before = (file.stat().st_ino, file.read_bytes())
    again = recorded(tiny_model, store, steps=1)
    assert again.id == trace.id
    assert (file.stat().st_ino, file.read_bytes()) == before
    assert list(store.ids()) == [trace.id]
    assert [path.name for path in store.directory.iterdir()] == [trace.id]


def test_saving_again_repairs_a_trace_that_cannot_be_read(tiny_model: GPT2, store: TraceStore, trace: Trace) -> None:
    (store.directory / trace.id / "trace.json").write_text("{")
    recorded(tiny_model, store, steps=1)
    assert fresh(store).open(trace.id).tensors.keys() == trace.tensors.keys()
    assert {path.name for path in store.directory.iterdir()} == {trace.id, "quarantine"}


def test_two_threads_that_save_the_same_trace_leave_one(tiny_model: GPT2, store: TraceStore) -> None:
    failed: list[BaseException] = []
    barrier = threading.Barrier(4)

    def save() -> None:
        try:
            barrier.wait()
            recorded(tiny_model, fresh(store), steps=1)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=save) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(list(store.directory.iterdir())) == 1


def test_a_failed_save_leaves_nothing(store: TraceStore, trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = trace.recipe.model_copy(update={"threads": 7})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFailed, match="No space left"):
        store.save(recipe, trace.generated, trace.tensors)
    assert [path.name for path in store.directory.iterdir()] == [trace.id]


# --- ids ---


def test_a_beginning_of_an_id_finds_the_trace(store: TraceStore, trace: Trace, other: Trace) -> None:
    assert store.open(trace.id[:6]).id == trace.id
    assert store.open(other.id[:31]).id == other.id
    assert store.full_id(trace.id) == trace.id
    assert trace.id in store
    assert trace.id[:6] not in store
    assert "f" * 32 not in store


@pytest.mark.parametrize("id", ["", "abc", "f" * 32, "../traces", "..", "/", "f" * 33, "F" * 32, "a\x00b", "ffffff"])
def test_an_unknown_id_is_refused(store: TraceStore, trace: Trace, id: str) -> None:
    for action in (store.open, store.delete, store.full_id):
        with pytest.raises(UnknownTrace, match="There is no trace"):
            action(id)
    assert trace.id in store


def test_a_beginning_that_fits_two_traces_is_refused(store: TraceStore) -> None:
    for last in "01":
        (store.directory / ("abcdef" + "0" * 25 + last)).mkdir(parents=True)
    with pytest.raises(UnknownTrace):
        store.open("abcdef")


def test_a_store_without_directory_is_empty(store: TraceStore) -> None:
    assert (store.list(), list(store.ids()), store.clean()) == ((), [], 0)
    with pytest.raises(UnknownTrace):
        store.open("f" * 32)


def test_a_deleted_trace_is_gone(store: TraceStore, trace: Trace, other: Trace) -> None:
    store.delete(trace.id[:8])
    with pytest.raises(UnknownTrace):
        store.open(trace.id)
    assert [path.name for path in store.directory.iterdir()] == [other.id]
    assert [listed.id for listed in store.list()] == [other.id]


def test_a_trace_that_is_deleted_while_it_is_open_can_still_be_read(store: TraceStore, trace: Trace) -> None:
    held = fresh(store).open(trace.id)
    expected = {name: tensor.clone() for name, tensor in held.tensors.items()}
    store.delete(trace.id)
    assert all(torch.equal(held.tensors[name], tensor) for name, tensor in expected.items())


def test_the_newest_trace_is_listed_first(store: TraceStore, trace: Trace, other: Trace) -> None:
    for id, when in ((trace.id, "2024-01-02T00:00:00+00:00"), (other.id, "2024-01-01T00:00:00+00:00")):
        file = store.directory / id / "trace.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"created_at": when}))
    assert [listed.id for listed in store.list()] == [trace.id, other.id]


# --- what is on disk is not what was written ---


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def removed(file: Path) -> None:
    file.unlink()


def binary(file: Path) -> None:
    file.write_bytes(bytes(range(256)))


@pytest.mark.parametrize("spoil", [truncated, flipped, emptied, removed, binary])
@pytest.mark.parametrize("was_open", [False, True], ids=["unopened", "opened before"])
def test_spoilt_tensors_are_refused_and_the_others_stay(
    store: TraceStore, trace: Trace, other: Trace, spoil: object, was_open: bool
) -> None:
    spoil(store.directory / trace.id / "tensors.safetensors")  # type: ignore[operator]
    asked = store if was_open else fresh(store)
    with pytest.raises(CorruptTrace) as refused:
        asked.open(trace.id)
    assert trace.id in refused.value.message
    assert "Delete it and record again." in str(refused.value)
    assert other.id in {listed.id for listed in asked.list() if listed.record is not None}
    assert asked.open(other.id).id == other.id


def edited(**values: object) -> object:
    def spoil(file: Path) -> None:
        file.write_text(json.dumps(json.loads(file.read_text()) | values))

    return spoil


def retold(**values: object) -> object:
    def spoil(file: Path) -> None:
        data = json.loads(file.read_text())
        data["recipe"] |= values
        file.write_text(json.dumps(data))

    return spoil


RECORDS = {
    "truncated": truncated,
    "emptied": emptied,
    "removed": removed,
    "binary": binary,
    "format of no version": edited(format=0),
    "format that is no number": edited(format=True),
    "unknown field": edited(surprise=1),
    "other steps": retold(steps=2),
    "other seed type": retold(seed="x"),
    "NaN temperature": retold(temperature=float("nan")),
    "no tokens": retold(tokens=[]),
    "bytes that are no hexadecimals": edited(generated=[{"id": 1, "hex": "zz"}, {"id": 2, "hex": "00"}]),
    "half a byte": edited(generated=[{"id": 1, "hex": "abc"}, {"id": 2, "hex": "00"}]),
    "a token too few": edited(generated=[{"id": 1, "hex": "00"}]),
}


@pytest.mark.parametrize("spoil", RECORDS.values(), ids=RECORDS.keys())
@pytest.mark.parametrize("was_open", [False, True], ids=["unopened", "opened before"])
def test_a_spoilt_record_is_refused_and_listed_last_with_the_reason(
    store: TraceStore, trace: Trace, other: Trace, spoil: object, was_open: bool
) -> None:
    spoil(store.directory / trace.id / "trace.json")  # type: ignore[operator]
    asked = store if was_open else fresh(store)
    with pytest.raises(CorruptTrace) as refused:
        asked.open(trace.id)
    assert trace.id in refused.value.message
    assert "Delete it and record again." in str(refused.value)
    good, bad = asked.list()
    assert (good.id, good.problem) == (other.id, "")
    assert (bad.id, bad.record) == (trace.id, None)
    assert bad.problem.startswith(f"The record of trace {trace.id}")
    asked.delete(trace.id)
    assert [listed.id for listed in asked.list()] == [other.id]


def test_tensors_of_another_trace_are_refused(store: TraceStore, trace: Trace, other: Trace) -> None:
    stolen = (store.directory / other.id / "tensors.safetensors").read_bytes()
    (store.directory / trace.id / "tensors.safetensors").write_bytes(stolen)
    with pytest.raises(CorruptTrace, match="are not those that were written"):
        store.open(trace.id)


def test_a_trace_under_another_name_is_refused(store: TraceStore, trace: Trace) -> None:
    (store.directory / trace.id).rename(store.directory / ("0" * 32))
    with pytest.raises(CorruptTrace, match="does not belong to it"):
        fresh(store).open("0" * 32)


def test_files_that_are_no_traces_are_left_alone(store: TraceStore, trace: Trace) -> None:
    (store.directory / "notes.txt").write_text("mine")
    (store.directory / ".partial-mine").mkdir()
    assert [listed.id for listed in store.list()] == [trace.id]
    assert store.clean() == 0


# --- killed processes ---


def test_clean_removes_what_was_left_over_an_hour_ago_and_nothing_else(store: TraceStore, trace: Trace) -> None:
    old, new = store.directory / ".partial-old", store.directory / ".partial-new"
    for path in (old, new):
        path.mkdir()
        (path / "tensors.safetensors").write_bytes(b"half")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    os.utime(store.directory / trace.id, (0, 0))
    assert store.clean() == 1
    assert {path.name for path in store.directory.iterdir()} == {trace.id, new.name}


def test_clean_survives_a_save_that_ends_at_the_same_time(
    store: TraceStore, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    vanished = store.directory / ".partial-vanished"
    listed = Path.glob

    def glob(self: Path, pattern: str) -> list[Path]:
        return [*listed(self, pattern), vanished]

    monkeypatch.setattr(Path, "glob", glob)
    assert store.clean() == 0


# Forks a writer that saves without end for every line that it reads, and reports how each one died.
WRITERS = """
import os, sys
from pathlib import Path
from provenance.store import TraceStore

given, into = TraceStore(Path(sys.argv[1])), TraceStore(Path(sys.argv[2]))
trace = given.open(sys.argv[3])
for number, _ in enumerate(sys.stdin):
    child = os.fork()
    if child:
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    for threads in range(1, 100_000):
        recipe = trace.recipe.model_copy(update={"threads": 100_000 * number + threads})
        into.save(recipe, trace.generated, trace.tensors)
        if threads % 4 == 0:
            into.delete(recipe.id)
"""


def test_a_process_that_is_killed_leaves_no_half_trace(
    store: TraceStore, trace: Trace, tmp_path: Path, repository: Path
) -> None:
    into = TraceStore(tmp_path / "into")
    moments, whole, kills = random.Random(1), 0, 12
    command = [sys.executable, "-c", WRITERS, str(store.directory), str(into.directory), trace.id]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=repository
    ) as writers:
        assert writers.stdin is not None
        assert writers.stdout is not None
        for _ in range(kills):
            writers.stdin.write("go\n")
            writers.stdin.flush()
            writer = int(writers.stdout.readline())
            time.sleep(moments.uniform(0.005, 0.1))
            os.kill(writer, signal.SIGKILL)
            assert int(writers.stdout.readline()) == -signal.SIGKILL
            reader = fresh(into)
            for listed in reader.list():
                assert listed.problem == ""
                assert reader.open(listed.id).tensors.keys() == trace.tensors.keys()
                whole += 1
        writers.stdin.close()
    assert whole > 0
    left = [path for path in into.directory.iterdir() if path.name.startswith(".partial-")]
    assert left, "some writer was killed in the middle of a save"
    for path in left:
        os.utime(path, (0, 0))
    assert fresh(into).clean() == len(left)
    assert {path.name for path in into.directory.iterdir()} == set(into.ids())
