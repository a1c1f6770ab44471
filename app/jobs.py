"""Recordings that wait, run, or failed: one worker thread, so one recording at a time."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum

from provenance.errors import ProvenanceError, Unavailable
from provenance.recorder import Progress
from provenance.trace import Recipe

log = logging.getLogger(__name__)
_REMEMBERED = 256
CANCELLED = "cancelled"
"""The error of a recording that was stopped by a person."""


class Cancelled(Exception):
    """Raised out of a recording's progress, to end it."""


class State(StrEnum):
    """What a recording is doing."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Job:
    """One recording: its trace's id, its state, and how many of its segments are done."""

    id: str
    recipe: Recipe
    state: State = State.QUEUED
    done: int = 0
    total: int = 0
    error: str = ""


class Jobs:
    """Runs recordings one after the other, and remembers those that have not become traces yet."""

    def __init__(self, run: Callable[[Recipe, Progress], None], queue_length: int) -> None:
        self._run = run
        self._queue_length = queue_length
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False
        self._cancelled: set[str] = set()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="record")

    def get(self, id: str) -> Job | None:
        """The job of that trace id, if there is one."""
        with self._lock:
            return self._jobs.get(id)

    def submit(self, recipe: Recipe) -> Job:
        """Queue a recording; the same one is queued once. Raises Unavailable when too many wait, or once closed."""
        with self._lock:
            if self._closed:
                raise Unavailable("The server is stopping.", hint="Record again when it has started anew.")
            known = self._jobs.get(recipe.id)
            if known is not None and known.state in (State.QUEUED, State.RUNNING):
                self._cancelled.discard(recipe.id)  # asked for again, it goes on
                return known
            waiting = sum(job.state is State.QUEUED for job in self._jobs.values())
            if waiting >= self._queue_length:
                raise Unavailable(f"{waiting} recordings are waiting already.", hint="Try again in a little while.")
            job = self._jobs[recipe.id] = Job(recipe.id, recipe)
            self._jobs.move_to_end(recipe.id)
            self._forget()
            self._worker.submit(self._perform, recipe)
        return job

    def waiting(self) -> tuple[Job, ...]:
        """Jobs that have not ended, in the order in which they run."""
        with self._lock:
            return tuple(job for job in self._jobs.values() if job.state in (State.QUEUED, State.RUNNING))

    def cancel(self, id: str) -> Job | None:
        """Stop a recording: one that waits at once, one that runs before its next segment.

        It ends as failed, with the error "cancelled". One that has ended already stays as it is.
        """
        with self._lock:
            job = self._jobs.get(id)
            if job is not None and job.state is State.QUEUED:
                job = self._jobs[id] = replace(job, state=State.FAILED, error=CANCELLED)
            elif job is not None and job.state is State.RUNNING:
                self._cancelled.add(id)
            return job

    def close(self) -> None:
        """Finish the running job, drop those that wait."""
        with self._lock:
            self._closed = True
            for id in [job.id for job in self._jobs.values() if job.state is State.QUEUED]:
                del self._jobs[id]
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _perform(self, recipe: Recipe) -> None:
        if not self._begin(recipe.id):
            return

        def progress(done: int, total: int) -> None:
            self._update(recipe.id, done=done, total=total)
            if recipe.id in self._cancelled:
                raise Cancelled

        try:
            self._run(recipe, progress)
        except Cancelled:
            self._update(recipe.id, state=State.FAILED, error=CANCELLED)
        except ProvenanceError as error:
            self._update(recipe.id, state=State.FAILED, error=str(error))
        except Exception:
            log.exception("recording %s failed", recipe.id)
            self._update(recipe.id, state=State.FAILED, error="The recording failed; the server's log says why.")
        else:
            self._update(recipe.id, state=State.DONE)
        finally:
            self._cancelled.discard(recipe.id)

    def _begin(self, id: str) -> bool:
        """Mark a queued recording as running; False where it was cancelled before its turn."""
        with self._lock:
            job = self._jobs.get(id)
            if job is None or job.state is not State.QUEUED:
                return False
            self._jobs[id] = replace(job, state=State.RUNNING)
            self._cancelled.discard(id)
            return True

    def _update(self, id: str, **changes: object) -> None:
        with self._lock:
            if id in self._jobs:
                self._jobs[id] = replace(self._jobs[id], **changes)  # type: ignore[arg-type]

    def _forget(self) -> None:
        ended = [job.id for job in self._jobs.values() if job.state in (State.DONE, State.FAILED)]
        for id in ended[: max(0, len(self._jobs) - _REMEMBERED)]:
            del self._jobs[id]
