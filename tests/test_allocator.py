"""Freed memory is kept where the allocator is glibc's, and nothing happens elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app import allocator

ROOT = Path(__file__).resolve().parents[1]
GLIBC = allocator._mallopt() is not None

# A block of 256 MiB is written to, freed, and asked for again; then the page faults of writing are counted.
FAULTS = """
import ctypes, resource
from app.allocator import keep_freed_memory
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
{apply}
def once():
    block = libc.malloc(256 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for start in range(0, 256 << 20, 4096):
        ctypes.memset(block + start, 1, 1)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    libc.free(block)
    return faults
print(once(), once())
"""


@pytest.fixture(autouse=True)
def _nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_TUNABLES"))]:
        monkeypatch.delenv(name)


def faults(apply: str) -> tuple[int, int]:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS.format(apply=apply)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    first, again = done.stdout.split()
    return int(first), int(again)


@pytest.mark.skipif(not GLIBC, reason="the allocator is not glibc's")
@pytest.mark.slow
def test_a_freed_block_is_used_again_without_fresh_pages() -> None:
    first, again = faults("assert keep_freed_memory()")
    assert again < first / 10
    _, by_default = faults("")
    assert again < by_default / 10


def test_every_limit_is_set_by_its_number() -> None:
    said: list[tuple[int, int]] = []

    def mallopt(parameter: int, value: int) -> int:
        said.append((parameter, value))
        return 1

    assert allocator.keep_freed_memory(mallopt)
    assert said == [(-3, 1 << 30), (-1, 1 << 29), (-2, 1 << 26)]
    assert all(value < 2**31 for _, value in said), "the values are C integers"


def test_a_limit_that_is_refused_is_no_failure() -> None:
    assert not allocator.keep_freed_memory(lambda parameter, value: 0)


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_environment_chose_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert not allocator.keep_freed_memory(lambda parameter, value: pytest.fail("it was called"))


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert not allocator.keep_freed_memory()
