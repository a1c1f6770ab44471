"""Recordings that wait: their order, what is run once, and what becomes of failures."""

import threading
from collections.abc import Iterator

import pytest
from conftest import prompt_of
from paced_work import PATIENCE_SECONDS, Work, until

from app.jobs import Jobs, State
from provenance.errors import CorruptTrace, Unavailable
from provenance.gpt2.model import GPT2
from provenance.recorder import plan
from provenance.trace import Recipe


@pytest.fixture
def work() -> Iterator[Work]:
    work = Work()
    yield work
    work.let_end(1000)


@pytest.fixture
def jobs(work: Work) -> Iterator[Jobs]:
    jobs = Jobs(work.record, queue_length=2)
    yield jobs
    work.let_end(1000)
    jobs.close()


@pytest.fixture(scope="session")
def recipes(tiny_model: GPT2) -> list[Recipe]:
    return [plan(tiny_model, prompt_of((id,)), threads=1) for id in range(5)]


def state(jobs: Jobs, recipe: Recipe) -> State | None:
    job = jobs.get(recipe.id)
    return job.state if job else None


def test_recordings_run_one_at_a_time_in_the_order_of_asking(jobs: Jobs, work: Work, recipes: list[Recipe]) -> None:
    ids = [recipe.id for recipe in recipes[:3]]
    jobs.submit(recipes[0])
    until(lambda: work.begun == ids[:1])
    assert [jobs.submit(recipe).state for recipe in recipes[1:3]] == [State.QUEUED, State.QUEUED]
    assert [(job.id, job.state.value) for job in jobs.waiting()] == [
        (ids[0], "running"),
        (ids[1], "queued"),
        (ids[2], "queued"),
    ]
    assert work.begun == ids[:1]
    work.let_end(3)
    until(lambda: not jobs.waiting())
    assert work.begun == work.ended == ids
    assert [state(jobs, recipe) for recipe in recipes[:3]] == [State.DONE] * 3


def test_progress_is_told_while_it_runs(jobs: Jobs, work: Work, recipes: list[Recipe]) -> None:
    jobs.submit(recipes[0])
    until(lambda: bool(work.begun))
    (job,) = jobs.waiting()
    assert (job.state, job.done, job.total, job.error) == (State.RUNNING, 1, 4, "")


def test_the_same_recipe_is_queued_once(jobs: Jobs, work: Work, recipes: list[Recipe]) -> None:
    jobs.submit(recipes[0])
    until(lambda: bool(work.begun))
    jobs.submit(recipes[1])
    assert jobs.submit(recipes[0]).state is State.RUNNING
    assert jobs.submit(recipes[1]).state is State.QUEUED
    assert len(jobs.waiting()) == 2
    work.let_end(4)
    until(lambda: not jobs.waiting())
    assert work.begun == [recipes[0].id, recipes[1].id]


def test_a_full_queue_refuses_and_keeps_what_it_has(jobs: Jobs, work: Work, recipes: list[Recipe]) -> None:
    jobs.submit(recipes[0])
    until(lambda: bool(work.begun))
    jobs.submit(recipes[1])
    jobs.submit(recipes[2])
    with pytest.raises(Unavailable, match="2 recordings are waiting already"):
        jobs.submit(recipes[3])
    assert jobs.get(recipes[3].id) is None
    assert jobs.submit(recipes[2]).state is State.QUEUED  # it waits already, and takes no new place
    work.let_end()
    until(lambda: work.begun == [recipes[0].id, recipes[1].id])
    assert jobs.submit(recipes[3]).state is State.QUEUED


def test_a_failure_keeps_its_message_and_can_be_tried_again(jobs: Jobs, work: Work, recipes: list[Recipe]) -> None:
    recipe = recipes[0]
    work.failures[recipe.id] = CorruptTrace("The disk forgot it.", hint="Buy another.")
    work.let_end()
    jobs.submit(recipe)
    until(lambda: state(jobs, recipe) is State.FAILED)
    failed = jobs.get(recipe.id)
    assert failed is not None
    assert failed.error.startswith("The disk forgot it.")
    assert jobs.waiting() == ()
    work.failures.clear()
    work.let_end()
    assert jobs.submit(recipe).state is State.QUEUED
    until(lambda: state(jobs, recipe) is State.DONE)
    again = jobs.get(recipe.id)
    assert again is not None
    assert again.error == ""
    assert work.ended == [recipe.id]


def test_an_unforeseen_failure_is_logged_and_the_next_one_runs(
    jobs: Jobs, work: Work, recipes: list[Recipe], caplog: pytest.LogCaptureFixture
) -> None:
    work.failures[recipes[0].id] = RuntimeError("secret path")
    work.let_end(2)
    jobs.submit(recipes[0])
    jobs.submit(recipes[1])
    until(lambda: state(jobs, recipes[1]) is State.DONE)
    failed = jobs.get(recipes[0].id)
    assert failed is not None
    assert (failed.state, failed.error) == (State.FAILED, "The recording failed; the server's log says why.")
    assert "secret path" in caplog.text


def test_what_waits_when_the_queue_closes_never_begins(jobs: Jobs, work: Work, recipes: list[Recipe]) -> None:
    jobs.submit(recipes[0])
    until(lambda: bool(work.begun))
    jobs.submit(recipes[1])
    closing = threading.Thread(target=jobs.close)
    closing.start()
    until(lambda: jobs.get(recipes[1].id) is None)
    work.let_end(2)
    closing.join(PATIENCE_SECONDS)
    assert work.ended == [recipes[0].id]
    assert jobs.waiting() == ()
    with pytest.raises(Unavailable, match="The server is stopping"):
        jobs.submit(recipes[2])


def test_only_ended_recordings_are_forgotten(work: Work, tiny_model: GPT2) -> None:
    many = [plan(tiny_model, prompt_of((a, b)), threads=1) for a in range(20) for b in range(20)]
    jobs = Jobs(work.record, queue_length=1000)
    work.let_end(300)
    for recipe in many[:300]:
        jobs.submit(recipe)
    until(lambda: len(work.ended) == 300)
    for recipe in many[300:]:
        jobs.submit(recipe)
    until(lambda: len(work.begun) == 301)
    assert len(jobs.waiting()) == 100
    assert jobs.get(many[0].id) is None
    assert state(jobs, many[299]) is State.DONE
    work.let_end(1000)
    jobs.close()
