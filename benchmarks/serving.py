"""A real server in a process of its own, as `tensor-provenance serve` starts it."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PATIENCE_SECONDS = 180


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    process: "subprocess.Popen[bytes]"
    port: int

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=_PATIENCE_SECONDS) as answer:
            return json.load(answer)

    def first_answer(self, path: str = "/") -> None:
        """Wait until a page is there, asking again every few milliseconds while nobody listens."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=_PATIENCE_SECONDS) as page:
                    page.read()
                return
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise TimeoutError(f"the server does not answer: {error}") from error
                time.sleep(0.005)

    def example(self) -> str:
        """The id of the example trace, once every recording of the first start is done."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            traces = self.get("/api/traces")
            if traces and all(trace["state"] == "done" for trace in traces):
                return str(traces[-1]["id"])
            time.sleep(0.1)
        raise TimeoutError("the example trace was not recorded")


@contextmanager
def serving(data: Path, model: str = "demo", **settings: object) -> Iterator[Server]:
    """A server on a free port with its data below a directory; it sets its own threads and allocator."""
    ours = re.compile(r"TENSOR_PROVENANCE_|MALLOC_|OMP_|MKL_")
    environment = {name: value for name, value in os.environ.items() if not ours.match(name)} | {
        "TENSOR_PROVENANCE_CACHE_DIRECTORY": str(data / "cache"),
        "TENSOR_PROVENANCE_NETWORK": "no",
        **{f"TENSOR_PROVENANCE_{name.upper()}": str(value) for name, value in settings.items()},
    }
    port = _free_port()
    command = [sys.executable, "-m", "app.cli", "serve", "--port", str(port), "--model", model]
    process = subprocess.Popen(
        [*command, "--data-directory", str(data)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with process:
        try:
            yield Server(process, port)
        finally:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
