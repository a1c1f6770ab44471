"""Work in another thread that ends when the test says so."""

import threading
import time
from collections.abc import Callable

from provenance.recorder import Progress
from provenance.trace import Recipe

PATIENCE_SECONDS = 120


class Work:
    """Work that is done, or fails, when the test says so; it remembers what it was given, in order."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.failures: dict[str, Exception] = {}
        self._may_end = threading.Semaphore(0)

    def run(self, id: str) -> None:
        """Wait for leave to end."""
        self.begun.append(id)
        assert self._may_end.acquire(timeout=PATIENCE_SECONDS)
        if id in self.failures:
            raise self.failures[id]
        self.ended.append(id)

    def record(self, recipe: Recipe, progress: Progress) -> None:
        """Work as a recording."""
        progress(1, 4)
        self.run(recipe.id)

    def let_end(self, count: int = 1) -> None:
        """Give leave to end to so many runs."""
        self._may_end.release(count)


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)
