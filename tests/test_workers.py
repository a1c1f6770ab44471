"""Two web workers and one engine as processes: whichever worker answers, the answer is the same."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_server import FOX, LONG, Server, partial_files

from app.jobs import CANCELLED

pytestmark = pytest.mark.slow

_PATIENCE_SECONDS = 90
_MIB = 1 << 20


@dataclass(frozen=True)
class Several(Server):
    """A server of several processes."""

    engine: int
    workers: tuple[int, ...]

    @contextmanager
    def only(self, worker: int) -> Iterator[None]:
        """All requests go to one worker: the others are stopped meanwhile."""
        others = [self.workers[number] for number in range(len(self.workers)) if number != worker]
        for process in others:
            os.kill(process, signal.SIGSTOP)
        try:
            for process in others:
                until(lambda process=process: state_of(process) == "T")
            yield
        finally:
            for process in others:
                os.kill(process, signal.SIGCONT)

    def bytes(self, path: str) -> bytes:
        """What stands at a path."""
        with urllib.request.urlopen(self.address + path, timeout=_PATIENCE_SECONDS) as answer:
            content: bytes = answer.read()
            return content

    def from_each(self, path: str) -> list[bytes]:
        """What each worker answers."""
        found = []
        for worker in range(len(self.workers)):
            with self.only(worker):
                found.append(self.bytes(path))
        return found


@contextmanager
def serving(data: Path, model: str, workers: int = 2) -> Iterator[Several]:
    """A server of several workers on a free port, with data below a directory; no example is recorded."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TENSOR_PROVENANCE_")}
    own = {
        "TENSOR_PROVENANCE_DATA_DIRECTORY": str(data),
        "TENSOR_PROVENANCE_CACHE_DIRECTORY": str(data / "cache"),
        "TENSOR_PROVENANCE_EXAMPLE": "no",
        "TENSOR_PROVENANCE_NETWORK": "no",
    }
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--model", model, "--workers", str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=kept | own)
    with process:
        try:
            assert process.stdout is not None
            (address,) = re.findall(r"http://[\d.:]+", process.stdout.readline()) or [""]
            engine, *others = map(int, re.findall(r"\d+(?=[,)])", process.stdout.readline()))
            yield Several(process, address, engine, tuple(others))
        finally:
            process.kill()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def descendants(process: int) -> set[int]:
    """All processes that a process has started, and they in turn."""
    found = set()
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended since
            for child in map(int, task.read_text().split()):
                found |= {child} | descendants(child)
    return found


def state_of(process: int) -> str:
    """What a process does, by the letter of the system: T is stopped, Z has ended; nothing where it is gone."""
    try:
        found = re.search(r"^State:\t(\w)", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return found[1] if found else ""


def lives(process: int) -> bool:
    """Whether a process runs; one that has ended and was not collected by an outer one does not."""
    return state_of(process) not in ("", "Z", "X")


def without_carriers(page: bytes) -> bytes:
    """A page without where a worker found the cited bytes: the first one to ask puts them into the cache."""
    return re.sub(rb"(?<=, from )[^<]+(?=</summary>)", b"", page)


def own_memory(process: int) -> int:
    """The memory in bytes that a process has for itself."""
    (kib,) = re.findall(r"^RssAnon:\s+(\d+) kB$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    return int(kib) << 10


def test_a_recording_is_the_same_from_every_worker_and_the_model_is_loaded_once(tmp_path: Path) -> None:
    with serving(tmp_path, "gpt2-untrained") as server:
        assert len(server.from_each("/healthz")) == 2
        with server.only(0):
            first, second, third = (server.post("/api/traces", prompt=LONG + end, steps=20)["id"] for end in ".!?")
        with server.only(1):
            server.until(f"/api/traces/{first}", "running")
            assert [job["id"] for job in server.get("/api/traces")] == [first, second, third]
            assert server.get(f"/api/traces/{second}")["state"] == "queued"
            assert server.post("/api/traces", prompt=LONG + ".", steps=20)["id"] == first
            assert server.post(f"/api/traces/{third}/cancel")["error"] == CANCELLED
        with server.only(0):
            assert server.get(f"/api/traces/{third}")["error"] == CANCELLED
            server.until(f"/api/traces/{second}", "done")
        with server.only(1):
            assert server.get(f"/api/traces/{first}")["state"] == "done"
        one, other = server.from_each(f"/api/traces/{first}/tensors/h.3.attn.scores.npy")
        assert one == other
        assert len(one) > 12 * 360 * 360 * 4
        one, other = map(without_carriers, server.from_each(f"/traces/{first}/h.3.attn.scores"))
        assert one == other
        assert b"bit for bit" in one
        for answer in server.from_each("/api/models/gpt2-untrained"):
            assert b'"loaded":["float32"]' in answer
        weights = 124_439_808 * 4
        assert own_memory(server.engine) > weights
        assert all(own_memory(worker) < weights for worker in server.workers)
        assert server.stop() == (-signal.SIGTERM, "")
    assert {path.name for path in (tmp_path / "traces").iterdir()} == {first, second}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_no_process_is_left_when_the_first_one_ends(number: signal.Signals, tmp_path: Path) -> None:
    with serving(tmp_path, "tiny-untrained") as server:
        server.until(f"/api/traces/{server.post('/api/traces', prompt=FOX)['id']}", "done")
        started = descendants(server.process.pid)
        assert {server.engine, *server.workers} <= started
        server.process.send_signal(number)
        _, err = server.process.communicate(timeout=_PATIENCE_SECONDS)
        assert server.process.returncode == (0 if number == signal.SIGINT else -number)
        assert "Traceback" not in err
        until(lambda: not any(map(lives, started)))
    assert partial_files(tmp_path) == []


def test_an_engine_that_dies_is_said_and_started_again(tmp_path: Path) -> None:
    with serving(tmp_path, "tiny-untrained") as server:
        trace = f"/api/traces/{server.post('/api/traces', prompt=FOX)['id']}"
        server.until(trace, "done")
        before = server.bytes(f"{trace}/tensors/h.0.attn.scores.npy")
        server.process.send_signal(signal.SIGSTOP)  # it starts no other one before it is let
        os.kill(server.engine, signal.SIGKILL)
        until(lambda: not lives(server.engine))
        with pytest.raises(urllib.error.HTTPError) as refused:
            server.post("/api/traces", prompt="another")
        server.process.send_signal(signal.SIGCONT)
        assert refused.value.code == 503
        assert b"started again" in refused.value.read()
        assert server.get("/healthz")["status"] == "ok"
        until(lambda: answers(server, "/api/models"))
        another = server.post("/api/traces", prompt="another")["id"]
        server.until(f"/api/traces/{another}", "done")
        assert server.from_each(f"{trace}/tensors/h.0.attn.scores.npy") == [before, before]
        assert server.engine not in descendants(server.process.pid)
        code, err = server.stop()
    assert (code, err.count("\n")) == (-signal.SIGTERM, 1)
    assert "The engine ended (exit code -9) and is started again." in err


def test_a_worker_that_dies_is_started_again_and_the_other_answers_meanwhile(tmp_path: Path) -> None:
    with serving(tmp_path, "tiny-untrained") as server:
        trace = f"/api/traces/{server.post('/api/traces', prompt=FOX)['id']}"
        server.until(trace, "done")
        before = descendants(server.process.pid)
        os.kill(server.workers[0], signal.SIGKILL)
        assert server.get(trace)["state"] == "done"
        until(lambda: bool(descendants(server.process.pid) - before))
        code, err = server.stop()
    assert code == -signal.SIGTERM
    assert "Web worker 1 ended (exit code -9) and is started again." in err


def answers(server: Several, path: str) -> bool:
    try:
        server.get(path)
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
        return False
    return True
