"""Recordings under way: cancelled, followed by events, and seen on the pages."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_client import Api, running
from conftest import prompt_of, tiny_model_of
from html_tree import tree, words
from paced_work import PATIENCE_SECONDS

from app.events import progress_events
from app.jobs import CANCELLED, Job, Jobs, State
from app.pages.progress import progress_of
from provenance.recorder import Progress, plan
from provenance.trace import Recipe

PARTS = 4


def recipe_of(last: int, steps: int = 0) -> Recipe:
    return plan(tiny_model_of(), prompt_of((1, 2, last)), steps=steps)


class Gate:
    """A recording of four parts that waits before each of them until it is let on."""

    def __init__(self) -> None:
        self.permits = threading.Semaphore(0)
        self.reached = threading.Semaphore(0)
        self.begun: list[str] = []
        self.done: list[str] = []

    def run(self, recipe: Recipe, progress: Progress) -> None:
        self.begun.append(recipe.id)
        for part in range(PARTS):
            self.reached.release()
            assert self.permits.acquire(timeout=PATIENCE_SECONDS)
            progress(part + 1, PARTS)
        self.done.append(recipe.id)

    def let(self, parts: int) -> None:
        for _ in range(parts):
            self.permits.release()

    def wait_for_part(self) -> None:
        assert self.reached.acquire(timeout=PATIENCE_SECONDS)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.let(1000)


def ended(jobs: Jobs, id: str) -> Job:
    """The job once it has ended; other work of the one worker thread waits behind it."""
    jobs._worker.submit(lambda: None).result(timeout=PATIENCE_SECONDS)
    job = jobs.get(id)
    assert job is not None and job.state in (State.DONE, State.FAILED)
    return job


# --- cancelling ---


def test_a_running_job_stops_at_the_next_part_and_frees_the_worker(gate: Gate) -> None:
    jobs = Jobs(gate.run, queue_length=4)
    first, second = jobs.submit(recipe_of(3)).id, jobs.submit(recipe_of(4)).id
    gate.wait_for_part()
    gate.let(1)
    gate.wait_for_part()
    cancelled = jobs.cancel(first)
    assert cancelled is not None and cancelled.state is State.RUNNING  # until its next part ends
    gate.let(1)
    gate.let(PARTS)
    job = ended(jobs, first)
    assert (job.state, job.error, job.done, job.total) == (State.FAILED, CANCELLED, 2, PARTS)
    assert gate.done == [second]
    assert ended(jobs, second).state is State.DONE
    jobs.close()


def test_a_job_that_waits_is_cancelled_at_once_and_never_runs(gate: Gate) -> None:
    jobs = Jobs(gate.run, queue_length=4)
    first, second = jobs.submit(recipe_of(3)).id, jobs.submit(recipe_of(4)).id
    gate.wait_for_part()
    cancelled = jobs.cancel(second)
    assert cancelled is not None and (cancelled.state, cancelled.error) == (State.FAILED, CANCELLED)
    gate.let(PARTS)
    assert ended(jobs, first).state is State.DONE
    assert gate.begun == [first]
    jobs.close()


def test_a_cancelled_job_can_be_recorded_again(gate: Gate) -> None:
    jobs = Jobs(gate.run, queue_length=4)
    id = jobs.submit(recipe_of(3)).id
    gate.wait_for_part()
    jobs.cancel(id)
    gate.let(1)
    assert ended(jobs, id).error == CANCELLED
    assert jobs.submit(recipe_of(3)).state is State.QUEUED
    gate.let(PARTS)
    assert ended(jobs, id).state is State.DONE
    jobs.close()


def test_asking_again_for_a_job_that_is_being_cancelled_lets_it_go_on(gate: Gate) -> None:
    jobs = Jobs(gate.run, queue_length=4)
    id = jobs.submit(recipe_of(3)).id
    gate.wait_for_part()
    jobs.cancel(id)
    assert jobs.submit(recipe_of(3)).state is State.RUNNING
    gate.let(PARTS)
    assert ended(jobs, id).state is State.DONE
    jobs.close()


def test_cancelling_what_has_ended_or_never_was_changes_nothing(gate: Gate) -> None:
    jobs = Jobs(gate.run, queue_length=4)
    id = jobs.submit(recipe_of(3)).id
    gate.let(PARTS)
    before = ended(jobs, id)
    assert jobs.cancel(id) == before
    assert jobs.cancel("0" * 32) is None
    jobs.close()


# --- events ---


def parsed(chunks: list[str]) -> list[tuple[str, Any]]:
    """Events of a stream as (name, data)."""
    fields = [dict(line.split(": ", 1) for line in chunk.strip().splitlines()) for chunk in chunks]
    return [(each["event"], json.loads(each["data"])) for each in fields if "event" in each]


async def collected(stream: AsyncIterator[str]) -> list[str]:
    return [chunk async for chunk in stream]


async def never() -> bool:
    return False


def story(*jobs: Job | None) -> Callable[[], Job | None]:
    """A job that is looked at several times, and is another one each time."""
    states = iter(jobs)
    return lambda: next(states)


def test_each_change_is_one_event_and_the_end_closes_the_stream() -> None:
    recipe = recipe_of(3)
    one, two = Job("a", recipe, State.RUNNING, 1, 5), Job("a", recipe, State.RUNNING, 2, 5)
    looked = story(Job("a", recipe), one, one, two, Job("a", recipe, State.DONE, 5, 5))
    chunks = asyncio.run(collected(progress_events(looked, never, look_seconds=0)))
    events = parsed(chunks)
    assert [(name, data["done"]) for name, data in events] == [
        ("progress", 0), ("progress", 1), ("progress", 2), ("end", 5),
    ]  # fmt: skip
    assert events[0][1]["says"] == "Waiting for its turn."
    assert events[-1][1]["state"] == "done"
    assert all(chunk.endswith("\n\n") for chunk in chunks)


def test_a_failure_ends_the_stream_with_its_reason() -> None:
    looked = story(Job("a", recipe_of(3), State.FAILED, 1, 5, CANCELLED))
    (event,) = parsed(asyncio.run(collected(progress_events(looked, never))))
    assert (event[0], event[1]["state"], event[1]["error"]) == ("end", "failed", "cancelled")


def test_a_reader_that_is_gone_ends_the_stream() -> None:
    seen = iter((False, False, True))

    async def gone() -> bool:
        return next(seen)

    job = Job("a", recipe_of(3), State.RUNNING, 1, 5)
    assert len(parsed(asyncio.run(collected(progress_events(lambda: job, gone, look_seconds=0))))) == 1


def test_the_loop_goes_on_while_a_stream_waits() -> None:
    async def work() -> int:
        job = Job("a", recipe_of(3), State.RUNNING, 1, 5)
        stream = asyncio.create_task(collected(progress_events(lambda: job, never, look_seconds=0)))
        turns = 0
        for _ in range(50):
            await asyncio.sleep(0)
            turns += 1
        stream.cancel()
        return turns

    assert asyncio.run(work()) == 50


def test_progress_is_said_in_steps_and_parts() -> None:
    recipe = recipe_of(3, steps=2)
    assert progress_of(Job("a", recipe, State.RUNNING)).says == "Loading the model."
    assert progress_of(Job("a", recipe, State.RUNNING, 3, 15)).says.startswith("Prefill, part 4 of 5")
    assert progress_of(Job("a", recipe, State.RUNNING, 11, 15)).says.startswith("Decode step 2 of 2, part 2 of 5")
    assert "being written" in progress_of(Job("a", recipe, State.RUNNING, 15, 15)).says


# --- the pages and the API ---


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("progress")) as api:
        yield api


@pytest.fixture
def paced(api: Api, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """The application's recordings wait at the gate before each of four parts; nothing is stored."""
    monkeypatch.setattr(api.explorer.jobs, "_run", gate.run)
    yield gate
    gate.let(1000)
    api.explorer.jobs._worker.submit(lambda: None).result(timeout=PATIENCE_SECONDS)


def start(api: Api, prompt: str) -> str:
    """The id of a recording that was asked for by the form."""
    answer = api.ask("POST", "/record", data={"prompt": prompt, "steps": "0"})
    assert answer.status_code == 303
    return str(answer.headers["location"]).removeprefix("/traces/")


def test_the_page_has_a_bar_that_a_reload_finds_again(api: Api, paced: Gate) -> None:
    id = start(api, "a bar & <b>")
    paced.wait_for_part()
    paced.let(1)
    paced.wait_for_part()
    for headers in ({}, {}, {"HX-Request": "true", "HX-Target": "progress"}):
        answer = api.ask("GET", f"/traces/{id}", headers=headers)
        assert ("<html" in answer.text) == (not headers)
        shown = tree(answer.text)
        bar = shown.one("progress")
        assert (bar.attributes["value"], bar.attributes["max"]) == ("1", "4")
        assert "part 2 of 4" in shown.one("span", class_="says").text
        assert shown.one("div", id="progress").attributes["data-events"] == f"/traces/{id}/events"
    whole = tree(api.ask("GET", f"/traces/{id}").text)
    assert whole.one("blockquote").text == "a bar & <b>"
    assert whole.one("noscript")
    assert [a.attributes["href"] for a in tree(api.ask("GET", "/").text).all("a") if id in a.attributes["href"]]
    assert id in api.ask("GET", "/traces").text


def test_the_button_cancels_and_the_page_offers_to_record_again(api: Api, paced: Gate) -> None:
    id = start(api, "to be stopped")
    paced.wait_for_part()
    answer = api.ask("POST", f"/traces/{id}/cancel")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/traces/{id}")
    paced.let(1)
    assert ended(api.explorer.jobs, id).error == CANCELLED
    shown = tree(api.ask("GET", f"/traces/{id}").text)
    assert shown.one("h1").text == "Recording cancelled"
    assert "after 1 of 4 parts" in words(shown.one("main").text)
    assert not shown.all("progress")
    again = {i.attributes["name"]: i.attributes["value"] for i in shown.all("input", type="hidden")}
    assert api.ask("POST", "/record", data=again).headers["location"] == f"/traces/{id}"


def test_the_api_cancels_and_says_failed(api: Api, paced: Gate) -> None:
    id = start(api, "to be stopped by the API")
    paced.wait_for_part()
    assert api.ask("POST", f"/api/traces/{id}/cancel").json()["state"] == "running"
    paced.let(1)
    ended(api.explorer.jobs, id)
    found = api.json(f"/api/traces/{id}")
    assert (found["state"], found["error"]) == ("failed", "cancelled")
    api.problem("POST", f"/api/traces/{'0' * 32}/cancel", 404)
    assert api.ask("POST", f"/traces/{'0' * 32}/cancel").status_code == 404


def test_the_stream_of_a_recording_ends_when_it_is_done(
    api: Api, paced: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = start(api, "followed to its end")
    paced.wait_for_part()
    look, looks = api.explorer.job, []

    def looked(id: str) -> Job | None:
        looks.append(look(id))
        if len(looks) == 2:  # the route has looked, and then the stream
            paced.let(PARTS)
        return looks[-1]

    monkeypatch.setattr(api.explorer, "job", looked)
    answer = api.ask("GET", f"/traces/{id}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    events = parsed(answer.text.split("\n\n")[:-1])
    assert events[0][0] == "progress" and events[0][1]["done"] == 0
    assert events[-1] == ("end", {**events[-1][1], "state": "done", "done": PARTS, "total": PARTS})
    assert api.ask("GET", f"/traces/{'0' * 32}/events").status_code == 404


def test_the_stream_of_a_stored_trace_ends_at_once(api: Api) -> None:
    id = api.explorer.record(api.explorer.plan("stored already")).id
    assert parsed(api.ask("GET", f"/traces/{id}/events").text.split("\n\n")[:-1]) == [("end", {})]


def test_a_poll_that_finds_the_trace_done_asks_for_the_whole_page(api: Api) -> None:
    id = api.explorer.record(api.explorer.plan("polled")).id
    answer = api.ask("GET", f"/traces/{id}", headers={"HX-Request": "true", "HX-Target": "progress"})
    assert (answer.headers["hx-refresh"], answer.text) == ("true", "")


def test_the_script_stays_small(repository: Path) -> None:
    assert (repository / "static" / "progress.js").stat().st_size <= 1500
