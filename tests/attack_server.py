"""A real server process on a free port, for tests that attack it over HTTP."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

PATIENCE_SECONDS = 120


@dataclass(frozen=True)
class Server:
    """A running server: its process, a client of it, where its data lie, and where it complains."""

    process: "subprocess.Popen[str]"
    client: httpx.Client
    data: Path
    errors: Path

    def record(self, **wanted: Any) -> str:
        """The id of a trace that was asked for and is done."""
        answer = self.client.post("/api/traces", json=wanted)
        assert answer.status_code in (201, 202), answer.text
        id: str = answer.json()["id"]
        assert self.ended(id)["state"] == "done"
        return id

    def ended(self, id: str) -> Any:
        """What became of a recording."""
        return self.until(f"/api/traces/{id}", "done", "failed")

    def until(self, path: str, *states: str) -> Any:
        """The JSON at a path once it has one of these states."""
        end = time.monotonic() + PATIENCE_SECONDS
        while (found := self.client.get(path).raise_for_status().json())["state"] not in states:
            assert time.monotonic() < end, found
            time.sleep(0.02)
        return found

    def stop(self) -> tuple[int, str]:
        """Ask it to stop: its exit code, and what it complained of."""
        self.process.terminate()
        return self.process.wait(PATIENCE_SECONDS), self.errors.read_text()


@contextmanager
def serving(directory: Path, environment: Mapping[str, str] | None = None, **settings: object) -> Iterator[Server]:
    """A server with the tiny model and data below a directory; it is killed in the end if it still runs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TENSOR_PROVENANCE_")}
    wanted = {
        "model": "tiny-untrained",
        "example": False,
        "network": False,
        "data_directory": directory / "data",
        "cache_directory": directory / "cache",
        "client_traces_waiting": 0,
        "client_traces_per_hour": 0,
        **settings,
    }
    own = {f"TENSOR_PROVENANCE_{name.upper()}": str(value) for name, value in wanted.items()}
    errors = directory / "stderr"
    with errors.open("w") as complaints:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            env=kept | own | {"OMP_NUM_THREADS": "1"} | dict(environment or {}),
        )
    with process:
        try:
            assert process.stdout is not None
            found = re.findall(r"http://[\d.:]+", process.stdout.readline())
            assert found, errors.read_text()
            limits = httpx.Limits(max_connections=None)
            with httpx.Client(base_url=found[0], timeout=PATIENCE_SECONDS, limits=limits) as client:
                yield Server(process, client, directory / "data", errors)
        finally:
            process.kill()
