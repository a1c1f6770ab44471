"""The garbage collector at the start: hardly anything that is imported ever becomes garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def starting() -> Iterator[None]:
    """Collect no garbage meanwhile, and never look again at what there is after it.

    Looking for garbage among new modules took a sixth of the start; later it would hold up answers.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
