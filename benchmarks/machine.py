"""What the figures were measured on: the machine, the versions, the allocator."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

RAISED = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""glibc then keeps freed memory for the next tensor, in place of fresh pages from the kernel each time."""

PACKAGES = ("torch", "transformers", "numpy", "safetensors", "fastapi", "uvicorn")

ALLOCATORS: Mapping[str, Mapping[str, str]] = {"defaults": {}, "raised": RAISED}


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and when it was measured. `load` is the load average when the run began."""

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    libc: str
    date: str
    load: float
    revision: str
    versions: Mapping[str, str]


def describe(
    packages: Iterable[str] = ("torch", "transformers", "numpy", "safetensors", "fastapi", "uvicorn"),
) -> Machine:
    """This machine, now."""
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=f"{platform.system()} {platform.release()}",
        libc=" ".join(platform.libc_ver()),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        load=round(os.getloadavg()[0], 2),
        revision=_revision(),
        versions={"python": platform.python_version()} | versions(packages),
    )


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Installed versions of those packages that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def environment(allocator: str, threads: int) -> dict[str, str]:
    """The environment of a measuring process: an allocator, a number of threads, and nothing of the user's."""
    kept = {name: value for name, value in os.environ.items() if not re.match(r"MALLOC_|TENSOR_PROVENANCE_", name)}
    return kept | {
        **ALLOCATORS[allocator],
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "PYTHONHASHSEED": "0",
    }


def status_bytes(field: str, process: int | None = None) -> int:
    """A size from /proc/…/status, such as VmRSS or VmHWM."""
    text = Path(f"/proc/{process or 'self'}/status").read_text()
    found = re.search(rf"^{field}:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def forget_peak() -> None:
    """Let VmHWM start again from what is resident now, where the kernel allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        print("the peak cannot be reset here: peaks include the loading", file=sys.stderr)


def _cpu() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1].strip() if found else platform.processor()


def _revision() -> str:
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
