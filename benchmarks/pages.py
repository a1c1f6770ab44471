"""The pages of a running server: how fast under several readers, how many bytes, how soon after the start."""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.plan import Plan
from benchmarks.reader import Reading, read_together
from benchmarks.serving import Server, serving
from benchmarks.timing import Timed
from benchmarks.visit import Visit, first_visit

READERS = 8
TO_FIRST_ANSWER, IMPORT_TORCH = "process start to the first answer", "python -c 'import torch'"


@dataclass(frozen=True, slots=True)
class Pages:
    """Readings of warm tensor pages and of catalogue pages, first visits, and starts in milliseconds."""

    tensor_pages: Reading
    catalogue_pages: Reading
    visits: tuple[Visit, ...]
    start: Timed
    import_torch: Timed


def measure(plan: Plan) -> Pages:
    """Start servers with the demo model and its example trace, and read from them."""
    with tempfile.TemporaryDirectory() as directory, serving(Path(directory)) as server:
        server.first_answer()
        id = server.example()
        tensors, catalogue = _paths(server, id)
        read = read_together(server.port, tensors, READERS, plan.seconds)
        print(f"tensor pages: {_told(read)}", flush=True)
        listed = read_together(server.port, catalogue, READERS, plan.seconds)
        print(f"catalogue pages: {_told(listed)}", flush=True)
        visits = tuple(first_visit(server.port, path) for path in ("/", catalogue[len(catalogue) // 2], tensors[-1]))
        for visit in visits:
            print(
                f"{visit.path}: {visit.without_pictures:,} bytes, {visit.with_pictures:,} with pictures", flush=True
            )
    start, torch_alone = _starts(plan.repeats)
    print(f"start: {start.median:.0f} ms, torch alone {torch_alone.median:.0f} ms", flush=True)
    return Pages(read, listed, visits, start, torch_alone)


def _paths(server: Server, id: str) -> tuple[list[str], list[str]]:
    """Tensor pages of a trace, one for each of its sites at step 0; the pages of all sites."""
    sites = server.get("/api/sites")
    inside = [site["site"] for site in sites if site["exists_in"] in ("every step", "prefill only")]
    addresses = [f"h.1.{site[2:]}" if site.startswith("h.") else site for site in inside]
    return [f"/traces/{id}/{address}" for address in addresses], [f"/sites/{site['site']}" for site in sites]


def _starts(rounds: int) -> tuple[Timed, Timed]:
    """Times to the first answer, each with new data, in turns with processes that only import torch."""
    start, torch_alone = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as directory, serving(Path(directory)) as server:
            server.first_answer()
            start.append((time.perf_counter() - began) * 1e3)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        torch_alone.append((time.perf_counter() - began) * 1e3)
    return Timed(TO_FIRST_ANSWER, tuple(start)), Timed(IMPORT_TORCH, tuple(torch_alone))


def _told(reading: Reading) -> str:
    failed = f", {reading.failures} failed" if reading.failures else ""
    return (
        f"p50 {reading.p50_ms:.1f} ms, p99 {reading.p99_ms:.1f} ms, {reading.per_second:.0f} a second "
        f"with {reading.readers} readers{failed}"
    )
