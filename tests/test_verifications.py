"""Verifications that wait: their order, what is run once, and where their reports are kept."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import recorded
from paced_work import PATIENCE_SECONDS, Work, until

from app.jobs import State
from app.verifications import Verification, Verifications
from provenance.errors import CorruptTrace, Unavailable
from provenance.gpt2.model import GPT2
from provenance.store import TraceStore
from provenance.trace import Trace
from provenance.verdict import Report


@pytest.fixture
def work() -> Iterator[Work]:
    work = Work()
    yield work
    work.let_end(1000)


@pytest.fixture
def traces(tiny_model: GPT2, tmp_path: Path) -> tuple[TraceStore, list[Trace]]:
    store = TraceStore(tmp_path)
    return store, [recorded(tiny_model, store, (id, 1), steps=0) for id in range(3)]


@pytest.fixture
def verifications(traces: tuple[TraceStore, list[Trace]], work: Work) -> Iterator[Verifications]:
    def prove(trace: Trace, progress: Callable[[str], None]) -> Report:
        progress("the bytes")
        work.run(trace.id)
        return _report(trace)

    verifications = Verifications(traces[0], prove)
    yield verifications
    work.let_end(1000)
    verifications.close()


def _report(trace: Trace) -> Report:
    return Report(
        trace=trace.id,
        model=trace.recipe.model.name,
        created_at="2026-01-01T00:00:00+00:00",
        versions={},
        seconds=0.5,
        bytes=(),
        coverage=(),
        executions=(),
        parities=(),
        departures={},
        held_at={},
    )


def test_verifications_run_one_at_a_time_and_keep_their_reports(
    traces: tuple[TraceStore, list[Trace]], verifications: Verifications, work: Work
) -> None:
    store, (first, second, third) = traces
    assert verifications.state(first) is None
    verifications.submit(first)
    until(lambda: bool(work.begun))
    assert verifications.submit(second) == Verification(State.QUEUED)
    assert verifications.submit(second) == Verification(State.QUEUED)
    assert verifications.submit(first) == Verification(State.RUNNING, proving="the bytes")
    assert verifications.state(second) == Verification(State.QUEUED)
    work.let_end(2)
    until(lambda: verifications.state(second) == Verification(State.DONE))
    assert verifications.submit(first) == Verification(State.DONE)
    assert work.begun == [first.id, second.id]
    assert verifications.report(first) == _report(first)
    assert verifications.report(third) is None
    assert Report.model_validate_json(store.attached(first.id, "verdict.json") or "") == _report(first)


def test_a_stored_report_is_found_after_a_restart(
    traces: tuple[TraceStore, list[Trace]], verifications: Verifications, work: Work
) -> None:
    store, (first, second, _) = traces
    work.let_end()
    verifications.verify(first, lambda what: None)
    anew = Verifications(store, verifications._run)
    assert anew.submit(first) == Verification(State.DONE)
    assert anew.report(first) == _report(first)
    assert work.begun == [first.id]
    # The report of another trace, or of another version, proves nothing about this one.
    store.attach(second.id, "verdict.json", _report(first).model_dump_json())
    assert anew.state(second) is None
    store.attach(second.id, "verdict.json", '{"trace": "of an older version"}')
    assert anew.state(second) is None
    anew.close()


def test_a_failed_verification_keeps_its_message_and_can_be_tried_again(
    traces: tuple[TraceStore, list[Trace]],
    verifications: Verifications,
    work: Work,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, (first, second, _) = traces
    work.failures = {first.id: CorruptTrace("The disk forgot it."), second.id: RuntimeError("secret path")}
    work.let_end(2)
    verifications.submit(first)
    verifications.submit(second)
    until(lambda: (known := verifications.state(second)) is not None and known.state is State.FAILED)
    assert verifications.state(first) == Verification(State.FAILED, error="The disk forgot it.")
    assert verifications.state(second) == Verification(State.FAILED, error="It failed; the server's log says why.")
    assert "secret path" in caplog.text
    work.failures.clear()
    work.let_end()
    assert verifications.submit(first) == Verification(State.QUEUED)
    until(lambda: verifications.state(first) == Verification(State.DONE))


def test_a_trace_deleted_while_it_is_verified_fails_and_leaves_nothing(
    traces: tuple[TraceStore, list[Trace]], verifications: Verifications, work: Work
) -> None:
    store, (first, *_) = traces
    verifications.submit(first)
    until(lambda: bool(work.begun))
    store.delete(first.id)
    work.let_end()
    until(lambda: (known := verifications.state(first)) is not None and known.state is State.FAILED)
    assert sorted(path.name for path in store.directory.iterdir()) == sorted(trace.id for trace in traces[1][1:])


def test_closing_finishes_the_verification_that_runs_and_drops_the_others(
    traces: tuple[TraceStore, list[Trace]], verifications: Verifications, work: Work
) -> None:
    _, (first, second, third) = traces
    verifications.submit(first)
    until(lambda: bool(work.begun))
    verifications.submit(second)
    closing = threading.Thread(target=verifications.close)
    closing.start()
    until(lambda: verifications.state(second) is None)
    with pytest.raises(Unavailable, match="The server is stopping"):
        verifications.submit(third)
    work.let_end(2)
    closing.join(PATIENCE_SECONDS)
    assert work.ended == [first.id]
    assert verifications.report(first) == _report(first)


def test_a_trace_that_is_deleted_and_recorded_again_is_not_verified_yet(
    traces: tuple[TraceStore, list[Trace]], verifications: Verifications, work: Work, tiny_model: GPT2
) -> None:
    store, (first, *_) = traces
    work.let_end(1)
    verifications.verify(first, lambda what: None)
    assert verifications.report(first) == _report(first)
    store.delete(first.id)
    again = recorded(tiny_model, store, (0, 1), steps=0)
    assert again.id == first.id
    assert verifications.report(again) is None
    assert verifications.state(again) is None


def test_a_report_that_another_process_has_made_anew_takes_the_place_of_the_one_that_was_read(
    traces: tuple[TraceStore, list[Trace]], verifications: Verifications, work: Work
) -> None:
    store, (first, *_) = traces
    work.let_end()
    verifications.verify(first)
    assert verifications.report(first) == _report(first)
    newer = _report(first).model_copy(update={"seconds": 0.25})
    TraceStore(store.directory).attach(first.id, "verdict.json", newer.model_dump_json())
    assert verifications.report(first) == newer


def test_of_many_that_failed_the_last_keep_their_reason(
    traces: tuple[TraceStore, list[Trace]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(trace: Trace, progress: Callable[[str], None]) -> Report:
        raise Unavailable(f"{trace.id} cannot be proven.")

    monkeypatch.setattr("app.verifications._REMEMBERED", 2)
    store, some = traces
    verifications = Verifications(store, fail)
    for trace in some:
        verifications.submit(trace)
        until(lambda trace=trace: verifications.under_way(trace.id).state is State.FAILED)
    assert verifications.under_way(some[0].id) is None
    assert [verifications.under_way(trace.id).error for trace in some[1:]] == [
        f"{trace.id} cannot be proven." for trace in some[1:]
    ]
    verifications.close()
