"""The server as a process of its own: it answers at once, stays responsive, stops cleanly, and remembers."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

_PATIENCE_SECONDS = 90
FOX = "The quick brown fox jumps over the lazy dog"
LONG = FOX * 40
STEPS = 15
"""Recording the long prompt in GPT-2 small with so many steps takes two seconds or more, on fast machines too."""


@dataclass(frozen=True)
class Server:
    """A running server and its address."""

    process: "subprocess.Popen[str]"
    address: str

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        with urllib.request.urlopen(self.address + path, timeout=_PATIENCE_SECONDS) as answer:
            return json.load(answer)

    def post(self, path: str, **body: object) -> Any:
        """The JSON that a request is answered with."""
        request = urllib.request.Request(
            self.address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as answer:
            return json.load(answer)

    def until(self, path: str, *states: str) -> Any:
        """The JSON at a path once it has one of these states."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while (found := self.get(path))["state"] not in states:
            assert time.monotonic() < end, found
            time.sleep(0.02)
        return found

    def example(self) -> Any:
        """The trace that the server records by itself, in any state."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while not (traces := self.get("/api/traces")):
            assert time.monotonic() < end
            time.sleep(0.02)
        return traces[0]

    def stop(self) -> tuple[int, str]:
        """Ask it to stop: its exit code, and what it complained of."""
        self.process.terminate()
        _, err = self.process.communicate(timeout=_PATIENCE_SECONDS)
        return self.process.returncode, err


@contextmanager
def serving(data: Path, model: str, *, example: bool = True) -> Iterator[Server]:
    """A server on a free port, with data below a directory."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TENSOR_PROVENANCE_")}
    own = {
        "TENSOR_PROVENANCE_DATA_DIRECTORY": str(data),
        "TENSOR_PROVENANCE_CACHE_DIRECTORY": str(data / "cache"),
        "TENSOR_PROVENANCE_EXAMPLE": str(example),
        "TENSOR_PROVENANCE_NETWORK": "no",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--model", model],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=kept | own,
    )
    with process:
        try:
            assert process.stdout is not None
            (address,) = re.findall(r"http://[\d.:]+", process.stdout.readline()) or [""]
            yield Server(process, address)
        finally:
            process.kill()


def partial_files(data: Path) -> list[str]:
    """What an unfinished writer leaves."""
    return [path.name for path in data.rglob("*") if path.name.startswith(".partial-")]


def test_it_answers_while_it_loads_and_records_and_stops_when_a_recording_is_whole(tmp_path: Path) -> None:
    with serving(tmp_path, "gpt2-untrained") as server:
        assert server.get("/healthz")["status"] == "ok"
        assert not [trace for trace in server.get("/api/traces") if trace["state"] == "done"]
        with urllib.request.urlopen(server.address + "/", timeout=_PATIENCE_SECONDS) as answer:
            assert answer.status == 200
        done = server.until(f"/api/traces/{server.example()['id']}", "done", "failed")
        assert (done["state"], done["prompt"], done["steps"]) == ("done", FOX, 3)
        shapes = [server.get(f"/api/traces/{done['id']}/tensors/h.0.ln_1.out?step={n}")["shape"] for n in (0, 1)]
        assert shapes == [[1, 9, 768], [1, 1, 768]]
        running, waiting = (server.post("/api/traces", prompt=LONG + end, steps=STEPS)["id"] for end in ".!")
        assert _answers_during(server, running) > 3
        server.until(f"/api/traces/{waiting}", "running")
        last = server.post("/api/traces", prompt=LONG + "?", steps=STEPS)["id"]
        assert server.stop() == (-signal.SIGTERM, "")
    assert {path.name for path in (tmp_path / "traces").iterdir()} == {done["id"], running, waiting}
    assert last not in {done["id"], running, waiting}


def _answers_during(server: Server, id: str) -> int:
    """How often the server said that it is well, and still recorded after that."""
    server.until(f"/api/traces/{id}", "running")
    answers = 0
    while True:
        assert server.get("/healthz")["status"] == "ok"
        if server.get(f"/api/traces/{id}")["state"] != "running":
            return answers
        answers += 1


def test_a_signal_while_the_model_is_loaded_ends_it_cleanly(tmp_path: Path) -> None:
    with serving(tmp_path, "gpt2-untrained") as server:
        server.get("/healthz")
        code, err = server.stop()
    assert code == -signal.SIGTERM
    assert "Traceback" not in err
    assert "terminate called" not in err
    assert partial_files(tmp_path) == []


def test_a_second_start_finds_the_example_and_does_not_record_it_again(tmp_path: Path) -> None:
    with serving(tmp_path, "tiny-untrained") as first:
        done = first.until(f"/api/traces/{first.example()['id']}", "done", "failed")
        assert first.stop() == (-signal.SIGTERM, "")
    (folder,) = (tmp_path / "traces").iterdir()
    written = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    with serving(tmp_path, "tiny-untrained") as second:
        assert [trace["id"] for trace in second.get("/api/traces")] == [done["id"]]
        assert second.post("/api/traces", prompt=FOX, steps=3) == done
        assert second.get("/api/traces") == [done]
        assert second.stop() == (-signal.SIGTERM, "")
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == written
    assert list((tmp_path / "traces").iterdir()) == [folder]
