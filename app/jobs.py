"""Recordings that wait, run, or failed: one worker thread, so one recording at a time."""

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from enum import StrEnum

from app.limits import Window, limit_reached
from provenance.errors import Busy, ProvenanceError, Unavailable
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
    position: int = 0
    """The place in the queue of one that waits: 1 is the next."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many recordings wait and run, and since the start: ended so or so, begun, and waited in all."""

    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    begun: int = 0
    queue_seconds: float = 0.0
    busy_seconds: float = 0.0


class Jobs:
    """Runs recordings one after the other, and remembers those that have not become traces yet.

    One client may have `client_waiting` of them wait or run, and ask for `client_per_hour`; 0 is no limit.
    """

    def __init__(
        self,
        run: Callable[[Recipe, Progress], None],
        queue_length: int,
        client_waiting: int = 0,
        client_per_hour: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._queue_length = queue_length
        self._client_waiting = client_waiting
        self._hour = Window(client_per_hour, 3600, clock)
        self._clock = clock
        self._clients: dict[str, str] = {}
        self._since: dict[str, float] = {}
        self._tally = Tally()
        self._last: Future[None] | None = None
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False
        self._cancelled: set[str] = set()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="record")

    def get(self, id: str) -> Job | None:
        """The job of that trace id, if there is one."""
        with self._lock:
            return self._placed(id)

    def submit(self, recipe: Recipe, client: str = "") -> Job:
        """Queue a recording; the same one is queued once.

        Raises Busy when too many wait, LimitReached when this client has its share, Unavailable once closed.
        """
        with self._lock:
            if self._closed:
                raise Unavailable("The server is stopping.", hint="Record again when it has started anew.")
            known = self._jobs.get(recipe.id)
            if known is not None and known.state in (State.QUEUED, State.RUNNING):
                self._cancelled.discard(recipe.id)  # asked for again, it goes on
                return self._placed(recipe.id) or known
            self._check_limits(client)
            self._jobs[recipe.id] = Job(recipe.id, recipe)
            self._jobs.move_to_end(recipe.id)
            self._clients[recipe.id] = client
            self._since[recipe.id] = self._clock()
            self._forget()
            self._last = self._worker.submit(self._perform, recipe)
            return self._placed(recipe.id) or self._jobs[recipe.id]

    def _check_limits(self, client: str) -> None:
        waiting = sum(job.state is State.QUEUED for job in self._jobs.values())
        if waiting >= self._queue_length:
            raise Busy(
                f"{waiting} recordings are waiting already.",
                hint="Try again in a little while.",
                retry_after_seconds=self._turn_seconds(),
            )
        own = sum(self._clients.get(id) == client for id in self._under_way())
        if client and self._client_waiting and own >= self._client_waiting:
            raise limit_reached(f"{own} recordings of yours wait or run already.", self._turn_seconds())
        if seconds := self._hour.take(client):
            raise limit_reached(f"You have recorded {self._hour.most} times in the last hour.", seconds)

    def _turn_seconds(self) -> int:
        """How long one recording has taken so far, on the average."""
        ended = self._tally.done + self._tally.failed + self._tally.cancelled
        return max(1, math.ceil(self._tally.busy_seconds / ended)) if ended else 10

    def waiting(self) -> tuple[Job, ...]:
        """Jobs that have not ended, in the order in which they run."""
        with self._lock:
            return tuple(job for id in self._under_way() if (job := self._placed(id)) is not None)

    def tally(self) -> Tally:
        """How many there are and were."""
        with self._lock:
            running = sum(job.state is State.RUNNING for job in self._jobs.values())
            return replace(self._tally, running=running, waiting=len(self._under_way()) - running)

    def _under_way(self) -> list[str]:
        return [id for id, job in self._jobs.items() if job.state in (State.QUEUED, State.RUNNING)]

    def _placed(self, id: str) -> Job | None:
        """A job with its place in the queue."""
        job = self._jobs.get(id)
        if job is None or job.state is not State.QUEUED:
            return job
        queued = [each.id for each in self._jobs.values() if each.state is State.QUEUED]
        return replace(job, position=queued.index(id) + 1)

    def cancel(self, id: str) -> Job | None:
        """Stop a recording: one that waits at once, one that runs before its next segment.

        It ends as failed, with the error "cancelled". One that has ended already stays as it is.
        """
        with self._lock:
            job = self._jobs.get(id)
            if job is not None and job.state is State.QUEUED:
                job = self._jobs[id] = replace(job, state=State.FAILED, error=CANCELLED)
                self._tally = replace(self._tally, cancelled=self._tally.cancelled + 1)
            elif job is not None and job.state is State.RUNNING:
                self._cancelled.add(id)
            return job

    def close(self, patience_seconds: float | None = None) -> None:
        """Finish the running job, drop those that wait; one that outlasts the patience is dropped too."""
        with self._lock:
            self._closed = True
            for id in [job.id for job in self._jobs.values() if job.state is State.QUEUED]:
                del self._jobs[id]
            running = self._under_way()
        if patience_seconds is not None and running and self._last is not None:
            # The queue is in order: nothing is left to run when the last one is over.
            wait([self._last], patience_seconds)
            self._cancelled.update(running)
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _perform(self, recipe: Recipe) -> None:
        if not self._begin(recipe.id):
            return

        def progress(done: int, total: int) -> None:
            self._update(recipe.id, done=done, total=total)
            if recipe.id in self._cancelled:
                raise Cancelled

        began, problem = self._clock(), ""
        try:
            self._run(recipe, progress)
        except Cancelled:
            problem = CANCELLED
        except ProvenanceError as error:
            problem = str(error)
        except Exception:
            log.exception("recording %s failed", recipe.id)
            problem = "The recording failed; the server's log says why."
        self._end(recipe.id, problem, self._clock() - began)

    def _end(self, id: str, problem: str, seconds: float) -> None:
        """Note how a recording ended, and count it: nobody sees the one without the other."""
        with self._lock:
            self._cancelled.discard(id)
            if id in self._jobs:
                state = State.FAILED if problem else State.DONE
                self._jobs[id] = replace(self._jobs[id], state=state, error=problem)
            now, ended = self._tally, "failed" if problem else "done"
            if problem == CANCELLED:
                ended = "cancelled"
            number = getattr(now, ended) + 1
            self._tally = replace(now, busy_seconds=now.busy_seconds + seconds, **{ended: number})

    def _begin(self, id: str) -> bool:
        """Mark a queued recording as running; False where it was cancelled before its turn."""
        with self._lock:
            job = self._jobs.get(id)
            if job is None or job.state is not State.QUEUED:
                return False
            self._jobs[id] = replace(job, state=State.RUNNING)
            self._cancelled.discard(id)
            waited = self._clock() - self._since.get(id, self._clock())
            self._tally = replace(
                self._tally, begun=self._tally.begun + 1, queue_seconds=self._tally.queue_seconds + waited
            )
            return True

    def _update(self, id: str, **changes: object) -> None:
        with self._lock:
            if id in self._jobs:
                self._jobs[id] = replace(self._jobs[id], **changes)  # type: ignore[arg-type]

    def _forget(self) -> None:
        ended = [job.id for job in self._jobs.values() if job.state in (State.DONE, State.FAILED)]
        for id in ended[: max(0, len(self._jobs) - _REMEMBERED)]:
            del self._jobs[id]
            self._clients.pop(id, None)
            self._since.pop(id, None)
