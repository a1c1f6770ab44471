"""How glibc keeps freed memory: tensors of one recording then take the pages of the one before.

By default glibc hands every large block back at once, and the kernel clears fresh pages for the next
one; that was up to a third of the time of recording. The price: freed memory stays with the process.
"""

import ctypes
import os
import platform
from collections.abc import Callable, Mapping

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # as <malloc.h> numbers them
_MIB = 1 << 20

LIMITS: Mapping[int, int] = {
    _MMAP_THRESHOLD: 1024 * _MIB,  # only larger blocks are mapped by themselves
    _TRIM_THRESHOLD: 512 * _MIB,  # as much may stay free at the heap's end
    _TOP_PAD: 64 * _MIB,  # what a heap grows by
}
_CHOSEN_BY_THE_USER = ("MALLOC_", "GLIBC_TUNABLES")

Mallopt = Callable[[int, int], int]


def keep_freed_memory(mallopt: Mallopt | None = None) -> bool:
    """Raise the thresholds above which glibc gives memory back; whether that was done.

    Nothing is done where the allocator is another one, or was set by the environment.
    """
    if any(name.startswith(_CHOSEN_BY_THE_USER) for name in os.environ):
        return False
    call = mallopt or _mallopt()
    return call is not None and all(call(parameter, value) == 1 for parameter, value in LIMITS.items())


def _mallopt() -> Mallopt | None:
    if platform.libc_ver()[0] != "glibc":
        return None
    try:
        found: Mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return None
    return found
