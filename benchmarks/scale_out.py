"""What one machine carries with one process and with several web workers: `python -m benchmarks.scale_out`.

Readers ask for tensor pages, rendered anew each time and as kept pages, and for tensors as .npy;
recordings are queued and timed to the last one. Figures go to standard output, as Markdown and as JSON.
"""

import argparse
import json
import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from benchmarks.machine import describe
from benchmarks.reader import Reading, read_together
from benchmarks.serving import Server, serving

SITES = ("attn.scores", "attn.pattern", "ln_1.out", "attn.q", "mlp.c_fc.c", "mlp.h")
TOKENS = 64
_TIMEOUT_SECONDS = 300
_UNLIMITED: dict[str, Any] = {
    "client_traces_waiting": 0,
    "client_traces_per_hour": 0,
    "queue_length": 1000,
    "example": "no",
}


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the server: its share of memory where pages are shared, and what it has for itself."""

    role: str
    pss_bytes: int
    own_bytes: int


@dataclass(frozen=True, slots=True)
class Carried:
    """What a server with so many web workers carried; recordings are a minute."""

    workers: int
    rendered: Reading
    kept: Reading
    values: Reading
    recordings: dict[str, float]
    processes: tuple[Process, ...]


def measure(workers: int, readers: int, seconds: float, recordings: int) -> Carried:
    """Start a server, and read and record until everything is measured."""
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(serving(data, workers=workers, **_UNLIMITED, page_cache_mib=0))
        trace = _record(server, "demo", 1)[0]
        pages = [f"/traces/{trace}/h.{layer}.{site}" for layer in (0, 1) for site in SITES]
        arrays = [f"/api/traces/{trace}/tensors/h.{layer}.{site}.npy" for layer in (0, 1) for site in SITES]
        read_together(server.port, pages, readers, seconds)  # every worker has then shown a page
        rendered = read_together(server.port, pages, readers, seconds)
        values = read_together(server.port, arrays, readers, seconds)
        per_minute = {model: _per_minute(server, model, recordings) for model in ("demo", "gpt2-untrained")}
        processes = _processes(server.process.pid)
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(serving(data, workers=workers, **_UNLIMITED))
        trace = _record(server, "demo", 1)[0]
        read_together(server.port, pages[:1], readers, seconds)
        kept = read_together(
            server.port, [page.replace(page.split("/")[2], trace) for page in pages], readers, seconds
        )
    return Carried(workers, rendered, kept, values, per_minute, processes)


def _per_minute(server: Server, model: str, count: int) -> float:
    _record(server, model, 1, first=10_000)  # loads the model
    began = time.perf_counter()
    _record(server, model, count)
    return 60 * count / (time.perf_counter() - began)


def _record(server: Server, model: str, count: int, first: int = 0) -> list[str]:
    """Record so many prompts of 64 tokens, all queued at once, and wait for the last."""
    if not first:
        server.first_answer()
    ids = []
    for number in range(first, first + count):
        body = {"model": model, "ids": [number + 11 * place for place in range(TOKENS)]}
        request = Request(
            f"http://127.0.0.1:{server.port}/api/traces",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            ids.append(str(json.load(answer)["id"]))
    while (state := server.get(f"/api/traces/{ids[-1]}")["state"]) != "done":
        assert state != "failed"
        time.sleep(0.02)
    return ids


def _processes(parent: int) -> tuple[Process, ...]:
    children = sorted(map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()))
    seen = [_process("parent" if children else "server", parent)]
    for child in children:
        if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text():
            seen.append(_process("engine" if len(seen) == 1 else "web worker", child))
    return tuple(seen)


def _process(role: str, number: int) -> Process:
    rollup = Path(f"/proc/{number}/smaps_rollup").read_text()
    pss, own = (re.search(rf"^{name}:\s+(\d+) kB$", rollup, re.MULTILINE) for name in ("Pss", "Private_Dirty"))
    return Process(role, int(pss[1]) << 10 if pss else 0, int(own[1]) << 10 if own else 0)


def markdown(found: Sequence[Carried]) -> str:
    """The figures as a table, one column for each number of workers."""
    rows = [
        ("", *(f"{each.workers} worker{'s' * (each.workers > 1)}" for each in found)),
        ("---", *("---" for _ in found)),
        ("tensor pages, rendered anew", *(_reading(each.rendered) for each in found)),
        ("tensor pages, kept", *(_reading(each.kept) for each in found)),
        ("tensors as .npy", *(_reading(each.values) for each in found)),
        *(
            (f"recordings a minute, {model}, {TOKENS} tokens", *(f"{each.recordings[model]:.0f}" for each in found))
            for model in found[0].recordings
        ),
        ("memory (PSS)", *("; ".join(f"{p.role} {p.pss_bytes >> 20} MiB" for p in each.processes) for each in found)),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _reading(found: Reading) -> str:
    assert not found.failures
    return f"{found.per_second:.0f}/s (p50 {found.p50_ms:.0f} ms, p99 {found.p99_ms:.0f} ms)"


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options.add_argument("--readers", type=int, default=8)
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--recordings", type=int, default=30)
    given = options.parse_args()
    machine = describe()
    found = [measure(workers, given.readers, given.seconds, given.recordings) for workers in given.workers]
    state = f"{machine.cores} cores, load {machine.load} at the start"
    print(f"{machine.date}, {machine.cpu}, {state}; {given.readers} readers\n")
    print(markdown(found))
    print()
    print(json.dumps({"machine": asdict(machine), "carried": [asdict(each) for each in found]}))


if __name__ == "__main__":
    main()
