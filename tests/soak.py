"""A soak: readers, writers, cancellations and uploads against a server process, for as long as is asked.

python tests/soak.py --seconds 300

Fails where an answer is a server's error, memory, threads or open files grow, or a file is left behind.
Nothing here depends on how fast the machine is.
"""

import argparse
import io
import math
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx
import numpy as np
from attack_server import PATIENCE_SECONDS, Server, serving

READERS, WRITERS = 3, 2
KEPT = 10
"""Traces that the writers leave; what is older they delete."""
WORDS = tuple("the quick brown fox jumps over a lazy dog while nobody looks and the rain falls on Paris".split())  # noqa: SIM905
PLACES = (
    "h.0.attn.pattern", "h.1.attn.scores_masked", "h.1.ln_1.out", "h.0.mlp.h", "h.1.resid_post", "logits", "embed.h",
    "h.0.attn.present", "h.1.attn.c_attn.c",
)  # fmt: skip
EDITS = ("h.0.attn.pattern[head=0]=0", "h.1.mlp.h2*=0.5", "h.0.resid_mid=0")
SETTINGS: dict[str, object] = {
    # Small, so that every cache is full when the warm-up ends.
    "replay_cache_mib": 1,
    "page_cache_mib": 1,
    "upload_limit_mib": 1,
    "uploads_total_mib": 1,
    "queue_length": 64,
    "steps_limit": 16,
}
ALLOCATOR = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "32768", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""The C library hands freed memory back at once, so that what grows is held by somebody."""
GROWTH = 1.05
SETTLED = 1.01
MOST_WARM_UPS = 12
TRANSPORT = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


@dataclass(frozen=True)
class Measured:
    """What a server process holds when nothing is under way."""

    rss_kib: int
    threads: int
    files: int
    zombies: int

    def __str__(self) -> str:
        return f"RSS {self.rss_kib / 1024:.1f} MiB, {self.threads} threads, {self.files} open files"


@dataclass
class Soak:
    """What happened so far."""

    server: Server
    statuses: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    traces: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def work(self, seed: int, *, seconds: float = math.inf, turns: int = 0) -> None:
        """Let everybody work for a time, or for a number of turns in all, and come back when all have ended."""
        end, most = time.monotonic() + seconds, sum(self.done.values()) + (turns or sys.maxsize)

        def over() -> bool:
            return bool(self.faults) or time.monotonic() >= end or sum(self.done.values()) >= most

        kinds = [*[read] * READERS, *[write] * WRITERS, cancel, upload]
        threads = [
            threading.Thread(target=self._repeat, args=(kind, Random(f"{seed} {number}"), over))
            for number, kind in enumerate(kinds)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.settle()

    def _repeat(
        self, kind: "Callable[[Soak, httpx.Client, Random], None]", draw: Random, over: Callable[[], bool]
    ) -> None:
        try:
            with httpx.Client(base_url=self.server.client.base_url, timeout=PATIENCE_SECONDS) as client:
                while not over():
                    kind(self, client, draw)
                    with self.lock:
                        self.done[kind.__name__] += 1
        except Exception as error:
            self.faults.append(f"{kind.__name__}: {type(error).__name__}: {error}")

    def saw(self, answer: httpx.Response, *others: int) -> httpx.Response:
        """Note an answer; one of another kind than 2xx, 3xx, and what is named, is a fault."""
        self.saw_status(answer, *others, says=answer.text[:300])
        return answer

    def saw_status(self, answer: httpx.Response, *others: int, says: str = "") -> None:
        """The same for an answer that is not read to its end."""
        with self.lock:
            self.statuses[f"{answer.status_code // 100}xx"] += 1
        if answer.status_code >= 400 and answer.status_code not in others:
            self.faults.append(f"{answer.request.method} {answer.request.url}: {answer.status_code} {says}")

    def some_trace(self, draw: Random) -> str | None:
        """The id of a trace that was there a moment ago."""
        with self.lock:
            return draw.choice(self.traces) if self.traces else None

    def settle(self) -> None:
        """Wait until no recording or verification is under way."""
        end = time.monotonic() + PATIENCE_SECONDS
        while any(trace["state"] in ("queued", "running") for trace in self.server.client.get("/api/traces").json()):
            assert time.monotonic() < end, "recordings do not end"
            time.sleep(0.05)

    def measure(self) -> Measured:
        """What the server process holds."""
        process = Path("/proc") / str(self.server.process.pid)
        _wait_until_idle(process)
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
        return Measured(
            int(status["VmRSS"].split()[0]),
            int(status["Threads"]),
            len(list((process / "fd").iterdir())),
            sum(_zombie(child) for child in (process / "task" / process.name / "children").read_text().split()),
        )


def _wait_until_idle(process: Path) -> None:
    """Wait until a process has done next to nothing for a second: no thread of it compiles or cleans up."""
    end, seen, quiet = time.monotonic() + PATIENCE_SECONDS, math.inf, 0
    while quiet < 4:
        assert time.monotonic() < end, "the server never rests"
        time.sleep(0.25)
        ticks = sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:13]))
        quiet = quiet + 1 if ticks - seen <= 1 else 0
        seen = ticks


def load_machine_code(soak: "Soak") -> None:
    """Have so many cells measured that the server makes the machine code for it, which stays in its memory."""
    maps = Path("/proc") / str(soak.server.process.pid) / "maps"
    number = 0
    while "llvmlite" not in maps.read_text():
        assert number < 1000, "no machine code"
        trace = soak.server.record(prompt=f"{number} cells", steps=0)
        for place in ("wte", "logits"):
            soak.saw(soak.server.client.get(f"/api/traces/{trace}/tensors/{place}"))
        soak.server.client.delete(f"/api/traces/{trace}")
        number += 1


def _zombie(pid: str) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def prompt(draw: Random) -> str:
    """A few words."""
    return " ".join(draw.choices(WORDS, k=draw.randint(1, 9)))


def read(soak: Soak, client: httpx.Client, draw: Random) -> None:
    """A page, a picture, a file or an answer of the API, of a trace that may be gone by now."""
    trace, other, place = soak.some_trace(draw), soak.some_trace(draw), draw.choice(PLACES)
    if trace is None:
        time.sleep(0.05)
        return
    step = draw.randint(0, 1)
    path = draw.choice((
        "/", "/traces", f"/traces/{trace}", f"/traces/{trace}/{place}", f"/traces/{trace}/{place}?step={step}",
        f"/traces/{trace}/{place}?head=1&view=values", f"/traces/{trace}/{place}/heatmap.png",
        f"/traces/{trace}/lens",
        f"/traces/{trace}/attribution", f"/compare?a={trace}&b={other}", f"/search?q=attn&trace={trace}",
        f"/map?trace={trace}", f"/cite/traces/{trace}", f"/traces/{trace}/verdict", "/sites/h.attn.scores",
        f"/api/traces/{trace}/tensors/{place}", f"/api/traces/{trace}/tensors/{place}.npy",
        f"/api/compare?a={trace}&b={other}",
        f"/api/traces/{trace}/lens", f"/api/traces/{trace}/next", f"/api/traces/{trace}/attribution",
        "/api/traces", "/api/sites",
        f"/api/traces/{trace}/export.npz?tensors={place}", f"/api/traces/{trace}/export.safetensors?tensors=logits",
        f"/api/traces/{trace}/tensors/logits.csv", "/models", "/healthz", "/nowhere", f"/traces/{'0' * 32}",
    ))  # fmt: skip
    if draw.random() < 0.1 and path.startswith(("/api/traces/", "/traces/")):
        with client.stream("GET", path) as answer:  # a reader who goes away
            next(answer.iter_raw(16), None)
            soak.saw_status(answer, 404, 410, 422)
        return
    try:
        soak.saw(client.get(path, headers={"HX-Request": "true"} if draw.random() < 0.2 else {}), 404, 410, 422)
    except TRANSPORT:
        # A file whose trace was deleted while it was sent ends early; so it is seen not to be whole.
        if ".npz" not in path and ".safetensors" not in path and ".csv" not in path:
            raise


def write(soak: Soak, client: httpx.Client, draw: Random) -> None:
    """A recording through the API or the form, some with an edit; the oldest are deleted."""
    wanted: dict[str, object] = {"prompt": prompt(draw), "steps": draw.randint(0, 2)}
    if draw.random() < 0.3:
        wanted["edits"] = [draw.choice(EDITS)]
    if draw.random() < 0.3:
        wanted.pop("edits", None)
        answer = soak.saw(client.post("/record", data={name: str(value) for name, value in wanted.items()}))
        id = answer.headers.get("Location", "").rpartition("/")[2]
    else:
        id = soak.saw(client.post("/api/traces", json=wanted)).json().get("id", "")
    if not id:
        return
    with client.stream("GET", f"/traces/{id}/events") as events:
        soak.saw_status(events, 404)
        for line in events.iter_lines():
            if line.startswith("event: end"):
                break
    with soak.lock:
        if id not in soak.traces:
            soak.traces.append(id)
        gone = soak.traces.pop(0) if len(soak.traces) > KEPT else ""
    if gone and draw.random() < 0.5:
        soak.saw(client.delete(f"/api/traces/{gone}"), 404)
    elif gone:
        soak.saw(client.post(f"/traces/{gone}/delete"), 404)
    if draw.random() < 0.03:
        soak.saw(client.post(f"/api/traces/{id}/verdict"), 404, 410)


def cancel(soak: Soak, client: httpx.Client, draw: Random) -> None:
    """A recording that is stopped before it ends, or just after."""
    id = soak.saw(client.post("/api/traces", json={"prompt": prompt(draw), "steps": 16})).json().get("id", "")
    time.sleep(draw.choice((0, 0.01, 0.1)))
    if draw.random() < 0.5:
        soak.saw(client.post(f"/api/traces/{id}/cancel"), 404)
    else:
        soak.saw(client.post(f"/traces/{id}/cancel"), 404)
    soak.server.until(f"/api/traces/{id}", "done", "failed")
    soak.saw(client.delete(f"/api/traces/{id}"), 404)


def upload(soak: Soak, client: httpx.Client, draw: Random) -> None:
    """A file of tensors, or of rubbish, that is compared and sometimes removed."""
    stream = io.BytesIO()
    values = np.random.default_rng(draw.randrange(2**32)).standard_normal((1, 4, 32), dtype=np.float32)
    np.savez(stream, **{"h.0.ln_1.out": values, "other": np.zeros(draw.randrange(60_000), dtype=np.float32)})
    content = stream.getvalue() if draw.random() < 0.8 else draw.randbytes(5000)
    answer = soak.saw(client.post("/api/uploads", files={"file": ("soak.npz", content)}), 422)
    trace = soak.some_trace(draw)
    if answer.status_code != 201 or trace is None:
        return
    id = answer.json()["id"]
    soak.saw(client.get("/api/compare", params={"a": trace, "b": f"file:{id}"}), 404, 410, 422)
    soak.saw(client.get("/compare", params={"a": trace, "b": f"file:{id}"}), 404, 410, 422)
    if draw.random() < 0.5:
        soak.saw(client.delete(f"/api/uploads/{id}"), 404)


def fill_summaries(soak: Soak, most: int) -> None:
    """Ask for so many statistics of different tensors; the server keeps the last 4,096 that it made."""
    sites = [site["site"] for site in soak.server.client.get("/api/sites").json()]
    places = [
        place for site in sites for place in ([f"h.{n}.{site[2:]}" for n in (0, 1)] if site[:2] == "h." else [site])
    ]
    asked = number = 0
    while asked < most:
        trace = soak.server.record(prompt=f"{number} {WORDS[number % len(WORDS)]}", steps=3)
        for path in (f"/api/traces/{trace}/tensors/{place}?step={step}" for place in places for step in range(4)):
            asked += soak.saw(soak.server.client.get(path), 404).status_code == 200
        soak.server.client.delete(f"/api/traces/{trace}")
        number += 1


def left_behind(server: Server, temporary: Path) -> list[str]:
    """Files that belong to nothing: in the store, among the uploads, and in the directory for temporary files."""
    traces = {trace["id"] for trace in server.client.get("/api/traces").json()}
    found = [str(path) for path in temporary.rglob("*") if path.is_file()]
    for path in (server.data / "traces").iterdir():
        inside = {"trace.json", "tensors.safetensors", "verdict.json"}
        if path.name not in traces:
            found.append(str(path))
        else:
            found += [str(part) for part in path.iterdir() if part.name not in inside]
    for path in (server.data / "uploads").iterdir() if (server.data / "uploads").is_dir() else ():
        if server.client.get(f"/api/uploads/{path.name}").status_code != 200:
            found.append(str(path))
    return found


def soak(
    seconds: float, turns: int, directory: Path, summaries: int = 0, say: Callable[[str], None] = print
) -> Measured:
    """Warm a server up in rounds of some turns until it grows no more, soak it, and return what it holds.

    Raises AssertionError for what is wrong.
    """
    (temporary := directory / "temporary").mkdir()
    with serving(directory, {"TMPDIR": str(temporary), **ALLOCATOR}, **SETTINGS) as server:
        run = Soak(server)
        first = server.record(prompt="warm", steps=1)
        run.traces.append(first)
        server.client.post(f"/api/traces/{first}/verdict")
        server.until(f"/api/traces/{first}/verdict", "done", "failed")
        load_machine_code(run)
        fill_summaries(run, summaries)
        warm = run.measure()
        settled = 0
        for number in range(MOST_WARM_UPS):
            run.work(-1 - number, turns=turns)
            now = run.measure()
            assert not run.faults, run.faults[:5]
            settled = settled + 1 if now.rss_kib < warm.rss_kib * SETTLED else 0
            warm = max(warm, now, key=lambda measured: measured.rss_kib)
            if settled == 2:
                break
        say(f"warm after {sum(run.done.values())} turns: {warm}")
        run.work(1, seconds=seconds)
        end = run.measure()
        figures = f"{end}; turns {dict(run.done)}; answers {dict(run.statuses)}"
        say(f"after {seconds:g} s more: {figures}; RSS {end.rss_kib / warm.rss_kib - 1:+.1%}")
        assert not run.faults, run.faults[:5]
        assert all(run.done[kind.__name__] for kind in (read, write, cancel, upload)), figures
        assert end.rss_kib <= warm.rss_kib * GROWTH, f"memory: {warm}, then {figures}"
        assert end.threads <= warm.threads + READERS + WRITERS + 2, f"threads: {warm}, then {figures}"
        assert end.files <= warm.files + READERS + WRITERS + 2, f"open files: {warm}, then {figures}"
        assert end.zombies == 0, f"{end.zombies} processes ended that nobody waited for"
        orphans = left_behind(server, temporary)
        assert not orphans, f"left behind: {orphans}"
        _, complaints = server.stop()
        assert not complaints, f"the server complained: {complaints}"
        return end


def main() -> None:
    """Soak for the time that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--turns", type=int, default=1000, help="of a round of the warm-up")
    parser.add_argument("--summaries", type=int, default=4200, help="statistics that the warm-up asks for")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        try:
            soak(asked.seconds, asked.turns, Path(directory), asked.summaries)
        except AssertionError as fault:
            sys.exit(f"soak: {fault}")


if __name__ == "__main__":
    main()
