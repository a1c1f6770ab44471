"""Verifications that wait, run or failed; their reports are stored beside the traces."""

import logging
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pydantic import ValidationError

from app.jobs import State
from provenance.errors import ProvenanceError, Unavailable
from provenance.storage import Store
from provenance.trace import Trace
from provenance.verdict import FILE, Report
from provenance.verification import Progress

log = logging.getLogger(__name__)
_REMEMBERED = 256
"""Failed verifications whose reason is kept."""


@dataclass(frozen=True, slots=True)
class Verification:
    """One verification: its state, what it is proving now, and why it failed."""

    state: State
    proving: str = ""
    error: str = ""


class Reports:
    """The reports beside the stored traces; those that were read last are kept in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reports: dict[Hashable, Report] = {}
        self._lock = threading.Lock()

    def report(self, trace: Trace) -> Report | None:
        """The stored report, or None where the trace was not verified by this version."""
        key = self._key(trace)
        with self._lock:
            if key in self._reports:
                return self._reports[key]
        text = self._store.attached(trace.id, FILE)
        try:
            report = Report.model_validate_json(text) if text else None
        except ValidationError:
            return None
        if report is None or report.trace != trace.id:
            return None
        with self._lock:
            self._reports[key] = report
            while len(self._reports) > 32:
                self._reports.pop(next(iter(self._reports)))
        return report

    def _key(self, trace: Trace) -> Hashable:
        """Another one once the trace was verified anew, by another process too, or deleted and recorded again."""
        return trace.id, self._store.state_of(trace.id)


class Verifications(Reports):
    """Verifies traces one after the other, in the background, and keeps the reports."""

    def __init__(self, store: Store, run: Callable[[Trace, Progress], Report]) -> None:
        super().__init__(store)
        self._run = run
        self._under_way: dict[str, Verification] = {}
        self._closed = False
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="verify")

    def state(self, trace: Trace) -> Verification | None:
        """What became of the verification of a trace; None where nobody asked for one."""
        under_way = self.under_way(trace.id)
        if under_way is not None:
            return under_way
        return Verification(State.DONE) if self.report(trace) else None

    def under_way(self, id: str) -> Verification | None:
        """The verification of a trace that waits, runs or failed."""
        with self._lock:
            return self._under_way.get(id)

    def submit(self, trace: Trace) -> Verification:
        """Verify in the background; a trace that is verified, or being verified, is not run again.

        Raises Unavailable once closed.
        """
        if self.report(trace) is not None:
            return Verification(State.DONE)
        with self._lock:
            if self._closed:
                raise Unavailable("The server is stopping.", hint="Verify again when it has started anew.")
            known = self._under_way.get(trace.id)
            if known is not None and known.state in (State.QUEUED, State.RUNNING):
                return known
            if self._key(trace) in self._reports:  # it has ended since
                return Verification(State.DONE)
            queued = self._under_way[trace.id] = Verification(State.QUEUED)
            self._worker.submit(self._perform, trace)
        return queued

    def verify(self, trace: Trace, progress: Progress = lambda what: None) -> Report:
        """Verify now, in this thread, and store the report."""
        report = self._run(trace, progress)
        self._store.attach(trace.id, FILE, report.model_dump_json())
        self.report(trace)  # it is remembered
        return report

    def close(self) -> None:
        """Finish the running verification, drop those that wait."""
        with self._lock:
            self._closed = True
            for id in [id for id, known in self._under_way.items() if known.state is State.QUEUED]:
                del self._under_way[id]
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _perform(self, trace: Trace) -> None:
        self._update(trace.id, Verification(State.RUNNING))
        try:
            self.verify(trace, lambda what: self._update(trace.id, Verification(State.RUNNING, proving=what)))
        except ProvenanceError as error:
            self._update(trace.id, Verification(State.FAILED, error=str(error)))
        except Exception:
            log.exception("verifying %s failed", trace.id)
            self._update(trace.id, Verification(State.FAILED, error="It failed; the server's log says why."))
        else:
            with self._lock:
                self._under_way.pop(trace.id, None)

    def _update(self, id: str, verification: Verification) -> None:
        with self._lock:
            self._under_way[id] = verification
            failed = [known for known, one in self._under_way.items() if one.state is State.FAILED]
            for known in failed[:-_REMEMBERED]:
                del self._under_way[known]
