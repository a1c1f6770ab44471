"""Several readers at once, in a process of their own: `python -m benchmarks.reader PORT READERS SECONDS`.

The paths come on standard input, one a line. Each reader keeps one connection and asks for the next path
as soon as it has the last answer. The result goes to standard output as JSON.
"""

import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from benchmarks.timing import percentile

ACCEPTED = "gzip, deflate, br, zstd"
"""The encodings that browsers ask for."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What all readers saw together."""

    readers: int
    answers: int
    failures: int
    seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def per_second(self) -> float:
        """Answers per second."""
        return self.answers / self.seconds


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as it came over the wire."""

    status: int
    type: str
    body: bytes
    encoding: str
    wire_bytes: int


def read_together(port: int, paths: Sequence[str], readers: int, seconds: float) -> Reading:
    """Let readers ask a server for paths, in another process so that they do not wait for this one."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.reader", str(port), str(readers), str(seconds)],
        input="\n".join(paths),
        capture_output=True,
        text=True,
        check=True,
    )
    return Reading(**json.loads(done.stdout))


async def ask(stream: "tuple[asyncio.StreamReader, asyncio.StreamWriter]", path: str) -> Answer:
    """Ask for a path over an open connection and read the whole answer."""
    reader, writer = stream
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: {ACCEPTED}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body, framing = await _body(reader, fields)
    return Answer(
        int(first.split(" ")[1]),
        fields.get("content-type", ""),
        body,
        fields.get("content-encoding", ""),
        len(body) + framing,
    )


async def _body(reader: asyncio.StreamReader, fields: dict[str, str]) -> tuple[bytes, int]:
    if "chunked" not in fields.get("transfer-encoding", ""):
        return await reader.readexactly(int(fields.get("content-length", "0"))), 0
    parts, framing = [], 0
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line, 16)
        parts.append((await reader.readexactly(size + 2))[:-2])
        framing += len(line) + 2
        if not size:
            return b"".join(parts), framing


async def _reader(port: int, paths: Iterator[str], end: float, taken: list[float], failed: list[str]) -> None:
    stream = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    while (started := time.perf_counter()) < end:
        path = next(paths)
        answer = await ask(stream, path)
        taken.append((time.perf_counter() - started) * 1e3)
        if answer.status != 200:
            failed.append(path)
    stream[1].close()


async def _all(port: int, readers: int, seconds: float, paths: Sequence[str]) -> Reading:
    stream = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    for path in paths:  # warm
        await ask(stream, path)
    stream[1].close()
    taken: list[float] = []
    failed: list[str] = []
    started = time.perf_counter()
    turns = itertools.cycle(paths)
    await asyncio.gather(*(_reader(port, turns, started + seconds, taken, failed) for _ in range(readers)))
    took = time.perf_counter() - started
    return Reading(readers, len(taken), len(failed), took, percentile(taken, 50), percentile(taken, 99))


if __name__ == "__main__":
    _port, _readers, _seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    print(json.dumps(asdict(asyncio.run(_all(_port, _readers, _seconds, sys.stdin.read().split())))))
