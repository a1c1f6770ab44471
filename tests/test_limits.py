"""Limits: how much one client may ask for, how much is kept, how large and how slow a request may be."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from api_client import Api, running
from conftest import prompt_of
from html_tree import tree
from paced_work import PATIENCE_SECONDS, until
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from app.access import Access
from app.guard import Guard
from app.jobs import Jobs, State
from app.limits import Window, asking, client_now, client_of, in_words
from app.settings import load_settings
from provenance.errors import Busy, LimitReached
from provenance.gpt2.model import GPT2
from provenance.recorder import Progress, plan
from provenance.trace import Recipe


class Clock:
    """A time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# --- clients ---


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::", "2001:db8:1:3::/64"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("testclient", "testclient"),
    ],
)
def test_a_client_is_an_address_or_a_network_of_64_bits(address: str, client: str) -> None:
    assert client_of(address) == client


def test_outside_of_a_request_there_is_no_client() -> None:
    assert client_now() == ""
    with asking("203.0.113.9"):
        assert client_now() == "203.0.113.9"
    assert client_now() == ""


# --- how often ---


def test_a_window_says_when_there_is_room_again() -> None:
    clock = Clock()
    window = Window(2, 60, clock)
    assert window.take("a") == 0
    clock.now += 10
    assert window.take("a") == 0
    clock.now += 20.5
    assert window.take("a") == window.wait("a") == 30  # the first is 30.5 s old: 29.5 s are left, rounded up
    assert window.take("b") == 0
    clock.now += 29.5
    assert window.wait("a") == 0
    assert window.take("a") == 0
    assert window.take("a") == 10


def test_zero_and_nobody_are_without_a_limit() -> None:
    assert [Window(0, 60).take("a") for _ in range(3)] == [0, 0, 0]
    assert [Window(1, 60).take("") for _ in range(3)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("seconds", "words"), [(1, "1 second"), (119, "119 seconds"), (120, "2 minutes"), (3541, "60 minutes")]
)
def test_a_wait_is_said_in_words(seconds: int, words: str) -> None:
    assert in_words(seconds) == words


# --- recordings ---


@pytest.fixture(scope="module")
def recipes(tiny_model: GPT2) -> list[Recipe]:
    return [plan(tiny_model, prompt_of((id,)), threads=1) for id in range(5)]


@contextmanager
def held(**limits: Any) -> Iterator[tuple[Jobs, threading.Event]]:
    """Jobs whose recordings wait until the event is set."""
    go = threading.Event()

    def run(recipe: Recipe, progress: Progress) -> None:
        progress(0, 2)
        go.wait(PATIENCE_SECONDS)
        progress(1, 2)

    jobs = Jobs(run, **{"queue_length": 16, **limits})
    try:
        yield jobs, go
    finally:
        go.set()
        jobs.close()


def until_running(jobs: Jobs, id: str) -> None:
    until(lambda: (job := jobs.get(id)) is not None and job.state is State.RUNNING)


def test_those_that_wait_know_their_place_and_move_up(recipes: list[Recipe]) -> None:
    with held() as (jobs, _):
        jobs.submit(recipes[0])
        until_running(jobs, recipes[0].id)
        assert [jobs.submit(recipe).position for recipe in recipes[1:4]] == [1, 2, 3]
        assert [(job.state.value, job.position) for job in jobs.waiting()] == [
            ("running", 0), ("queued", 1), ("queued", 2), ("queued", 3),
        ]  # fmt: skip
        jobs.cancel(recipes[1].id)
        assert [getattr(jobs.get(recipe.id), "position", None) for recipe in recipes[:4]] == [0, 0, 1, 2]
        tally = jobs.tally()
        assert (tally.running, tally.waiting, tally.cancelled, tally.begun) == (1, 2, 1, 1)


def test_one_client_leaves_room_for_others(recipes: list[Recipe]) -> None:
    with held(client_waiting=2) as (jobs, _):
        jobs.submit(recipes[0], "a")
        jobs.submit(recipes[1], "a")
        with pytest.raises(LimitReached, match="2 recordings of yours wait or run already"):
            jobs.submit(recipes[2], "a")
        assert jobs.submit(recipes[1], "a").id == recipes[1].id  # no further one
        jobs.submit(recipes[2], "b")
        jobs.submit(recipes[3])  # the server's own
        jobs.cancel(recipes[1].id)
        jobs.submit(recipes[4], "a")


def test_a_client_s_hour_ends_with_a_time(recipes: list[Recipe]) -> None:
    clock = Clock()
    with held(client_per_hour=2, clock=clock) as (jobs, go):
        go.set()
        jobs.submit(recipes[0], "a")
        clock.now += 600
        jobs.submit(recipes[1], "a")
        with pytest.raises(LimitReached) as told:
            jobs.submit(recipes[2], "a")
        assert told.value.retry_after_seconds == 3000
        assert str(told.value) == "You have recorded 2 times in the last hour. Ask again in 50 minutes."
        jobs.submit(recipes[2], "b")
        clock.now += 3000
        jobs.submit(recipes[3], "a")


def test_a_full_queue_is_busy_for_about_one_recording(recipes: list[Recipe]) -> None:
    with held(queue_length=1) as (jobs, _):
        jobs.submit(recipes[0])
        until_running(jobs, recipes[0].id)
        jobs.submit(recipes[1])
        with pytest.raises(Busy) as told:
            jobs.submit(recipes[2])
        assert not isinstance(told.value, LimitReached)
        assert told.value.retry_after_seconds == 10  # nothing has ended yet


def test_a_stop_drops_a_recording_that_outlasts_its_patience(recipes: list[Recipe]) -> None:
    stopped = threading.Event()

    def run(recipe: Recipe, progress: Progress) -> None:
        for part in range(100_000):
            progress(part, 100_000)
            stopped.wait(0.001)

    jobs = Jobs(run, queue_length=4)
    recipe = recipes[0]
    jobs.submit(recipe)
    until_running(jobs, recipe.id)
    jobs.close(patience_seconds=0)
    job = jobs.get(recipe.id)
    assert job is not None
    assert (job.state, job.error) == (State.FAILED, "cancelled")
    assert jobs.tally().cancelled == 1


# --- over HTTP ---


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("limits"), client_traces_per_hour=2, traces_limit=3) as api:
        api.explorer.jobs._hour._clock = Clock()  # type: ignore[attr-defined]
        for prompt in ("one", "two"):
            api.record(prompt=prompt)
        yield api


def test_a_client_over_its_limit_is_told_when(full: Api) -> None:
    problem = full.ask("POST", "/api/traces", json={"prompt": "three"})
    assert problem.status_code == 429
    assert problem.headers["Retry-After"] == "3600"
    assert problem.json()["title"] == "Too many requests"
    assert problem.json()["detail"] == "You have recorded 2 times in the last hour. Ask again in 60 minutes."


def test_so_is_its_form_which_comes_back_as_it_was_typed(full: Api) -> None:
    answer = full.ask("POST", "/record", data={"prompt": "three words typed"})
    assert answer.status_code == 429
    assert answer.headers["Retry-After"] == "3600"
    page = tree(answer.text)
    assert page.one("textarea").text.strip() == "three words typed"
    assert "Ask again in 60 minutes." in page.text


def test_what_is_recorded_already_costs_nothing(full: Api) -> None:
    assert full.ask("POST", "/api/traces", json={"prompt": "one"}).status_code == 201


def test_a_full_store_says_so_and_deletes_nothing(tmp_path: Path) -> None:
    with running(tmp_path, traces_limit=1) as api:
        kept = api.record(prompt="one")
        answer = api.ask("POST", "/api/traces", json={"prompt": "two"})
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "3600")
        assert answer.json()["detail"] == (
            "This server keeps 1 traces, and has them. Nothing can be recorded until some are deleted."
        )
        assert api.json(kept)["state"] == "done"
        assert api.ask("DELETE", kept).status_code == 204
        api.record(prompt="two")


@pytest.mark.slow
def test_so_does_a_full_disk_budget(tmp_path: Path) -> None:
    with running(tmp_path, store_limit_mib=1) as api:
        record = api.json(api.record(prompt="one"))
        listed = api.explorer.store.list()[0]
        assert record["tensors_bytes"] == listed.record.tensors_bytes  # type: ignore[union-attr]
        api.explorer.store.list = lambda: (listed,) * ((1 << 20) // record["tensors_bytes"] + 1)  # type: ignore[method-assign]
        answer = api.ask("POST", "/api/traces", json={"prompt": "two"})
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "3600")
        assert answer.json()["detail"].startswith("The 1 MiB that this server has for traces are used.")


def test_many_requests_are_refused_without_a_page(tmp_path: Path) -> None:
    with running(tmp_path, client_requests_per_minute=3) as api:
        answers = [api.ask("GET", "/api/models") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert 1 <= int(answers[3].headers["Retry-After"]) <= 60
        assert answers[3].headers["content-type"] == "application/problem+json"
        assert answers[3].json()["title"] == "Too many requests"
        assert api.ask("GET", "/sites").text.startswith("Too many requests\n\nMore than 3 requests")
        assert api.ask("GET", "/healthz").status_code == api.ask("GET", "/static/style.css").status_code == 200


def test_behind_a_trusted_proxy_each_client_has_its_own_limit(tmp_path: Path) -> None:
    with running(tmp_path, client_requests_per_minute=1, trusted_proxies=("127.0.0.0/8",)) as api:

        def asked(by: str) -> int:
            return api.ask("GET", "/api/models", headers={"X-Forwarded-For": by}).status_code

        # What a client writes itself stands before what the proxy adds, and does not count.
        answers = [asked("203.0.113.1"), asked("203.0.113.2"), asked("198.51.100.7, 203.0.113.1")]
        assert answers == [200, 200, 429]


def test_without_one_the_header_is_anybody_s_word(tmp_path: Path) -> None:
    with running(tmp_path, client_requests_per_minute=1) as api:
        answers = [api.ask("GET", "/api/models", headers={"X-Forwarded-For": by}) for by in ("1.2.3.4", "1.2.3.5")]
        assert [answer.status_code for answer in answers] == [200, 429]


def test_a_large_body_is_refused_whether_it_says_so_or_not(tmp_path: Path) -> None:
    with running(tmp_path, body_limit_kib=2) as api:
        body = b'{"prompt": "' + b"a" * 3000 + b'"}'

        async def in_parts() -> Any:
            for start in range(0, len(body), 1000):
                yield body[start : start + 1000]

        for content in (body, in_parts()):
            answer = api.ask("POST", "/api/traces", content=content, headers={"Content-Type": "application/json"})
            assert answer.status_code == 413
            assert answer.headers["content-type"] == "application/problem+json"
            assert "2 KiB here" in answer.json()["detail"]
        assert api.ask("POST", "/record", data={"prompt": "a" * 3000}).status_code == 413
        assert api.json("/api/traces") == []


# --- time ---


def guarded(app: Any, **settings: Any) -> Guard:
    def answer(request: Request, error: Exception) -> PlainTextResponse:
        return PlainTextResponse(str(error), 500)

    return Guard(app, load_settings(**settings), Access(None), answer)


def asked(guard: Guard, receive: Receive, until: asyncio.Event | None = None, method: str = "GET") -> list[Message]:
    """What a client is sent; with `until`, the application is held until the client has its answer."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and until is not None:
            until.set()

    scope: Scope = {
        "type": "http", "method": method, "path": "/api/x", "headers": [(b"host", b"localhost")], "client": ("::1", 1)
    }  # fmt: skip
    asyncio.run(guard(scope, receive, send))
    return sent


async def nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def test_a_request_that_takes_too_long_is_answered_while_it_still_runs() -> None:
    answered = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await answered.wait()
        await PlainTextResponse("too late")(scope, receive, send)

    guard = guarded(slow)
    guard.settings = guard.settings.model_copy(update={"request_timeout_seconds": 0.01})
    start, body = asked(guard, nothing, answered)
    assert start["status"] == 503
    assert dict(start["headers"])[b"retry-after"] == b"1"
    assert b"took longer than the 0.01 seconds allowed here" in body["body"]


def test_a_body_that_trickles_is_cut() -> None:
    answered = asyncio.Event()
    parts = [b"a", b"b"]

    async def trickle() -> Message:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": True}
        await answered.wait()
        return {"type": "http.disconnect"}

    async def reads(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        raise ConnectionError

    guard = guarded(reads)
    guard.settings = guard.settings.model_copy(update={"request_timeout_seconds": 0.01})
    start, body = asked(guard, trickle, answered, "POST")
    assert start["status"] == 408
    assert dict(start["headers"])[b"connection"] == b"close"
    assert b"came too slowly" in body["body"]


def test_an_answer_that_has_begun_may_take_its_time() -> None:
    async def streams(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(0.05)
        await send({"type": "http.response.body", "body": b"whole"})

    guard = guarded(streams)
    guard.settings = guard.settings.model_copy(update={"request_timeout_seconds": 0.01})
    assert [message.get("status", message.get("body")) for message in asked(guard, nothing)] == [200, b"whole"]


# --- one that waits ---


def test_a_recording_that_waits_shows_its_place_and_can_be_taken_back(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        recipes = [api.explorer.plan(f"number {number}") for number in range(3)]
        go = threading.Event()
        real = api.explorer.jobs._run  # type: ignore[attr-defined]

        def held_back(recipe: Recipe, progress: Progress) -> None:
            go.wait(PATIENCE_SECONDS)
            real(recipe, progress)

        api.explorer.jobs._run = held_back  # type: ignore[attr-defined]
        first, second, third = (api.ask("POST", "/api/traces", json={"prompt": recipe.text}) for recipe in recipes)
        until_running(api.explorer.jobs, recipes[0].id)  # type: ignore[arg-type]
        address = third.headers["Location"]
        assert [api.json(each.headers["Location"])["position"] for each in (first, second, third)] == [None, 1, 2]
        page = tree(api.ask("GET", address.removeprefix("/api")).text)
        assert "Waiting for its turn: number 2 in the queue." in page.text
        assert api.ask("DELETE", second.headers["Location"]).status_code == 204
        assert api.json(second.headers["Location"])["error"] == "cancelled"
        page = tree(api.ask("GET", address.removeprefix("/api")).text)
        assert "Waiting for its turn, as the next." in page.text
        go.set()
        assert api.wait(address)["state"] == "done"
        assert recipes[1].id not in api.explorer.store
