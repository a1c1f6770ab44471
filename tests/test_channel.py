"""Calls between processes, here between threads: what travels, what is refused, and an end that is gone."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import PROMPT_IDS, prompt_of
from paced_work import PATIENCE_SECONDS, Work, until

from app.channel import Answering, Asking, Endpoint, packed, receive, send
from app.jobs import Job, State
from provenance.errors import (
    AmbiguousName,
    CorruptTrace,
    InvalidInput,
    PromptTooLong,
    ProvenanceError,
    Unavailable,
    UnknownSite,
)
from provenance.gpt2.model import GPT2
from provenance.lens import Candidate, Distribution
from provenance.names import Address
from provenance.recorder import Check, plan
from provenance.store import TraceStore
from provenance.trace import Trace


def carried(value: object, store: TraceStore) -> Any:
    """A value as the other end of a socket has it."""
    here, there = socket.socketpair()
    with here, there:
        sending = threading.Thread(target=send, args=(here, packed(value)))
        sending.start()
        found = receive(there, store)
        sending.join()
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool])
def test_a_tensor_arrives_bit_for_bit(dtype: torch.dtype, tiny_store: TraceStore) -> None:
    tensor = (torch.arange(24).reshape(2, 3, 4) % 7).to(dtype)
    for given in (tensor, tensor.transpose(0, 2), tensor[:, 1], tensor[0, 0, 0], tensor[:0]):
        found = carried(given, tiny_store)
        assert (found.dtype, found.shape) == (given.dtype, given.shape)
        assert torch.equal(found, given)
    assert bytes(carried(torch.tensor([float("nan"), -0.0]), tiny_store).numpy()) == bytes(
        torch.tensor([float("nan"), -0.0]).numpy()
    )


def test_a_view_sends_no_more_than_it_shows() -> None:
    whole = torch.zeros(1000, 1000)
    assert sum(len(memoryview(piece).cast("B")) for piece in packed(whole[3])) < 5000


def test_a_trace_is_opened_in_the_readers_store(tiny_store: TraceStore, tiny_trace: Trace, tmp_path: Path) -> None:
    found, address = carried((tiny_trace, Address("h.attn.scores", 2, 1)), tiny_store)
    assert found is tiny_store.open(tiny_trace.id)
    assert address == Address("h.attn.scores", 2, 1)
    assert sum(len(memoryview(piece).cast("B")) for piece in packed(tiny_trace)) < 200
    with pytest.raises(ProvenanceError, match="no trace"):
        carried(tiny_trace, TraceStore(tmp_path))


def test_records_arrive_equal(tiny_model: GPT2, tiny_store: TraceStore) -> None:
    recipe = plan(tiny_model, prompt_of(PROMPT_IDS), steps=1)
    values = (
        recipe,
        Job(recipe.id, recipe, State.RUNNING, 3, 8),
        Check(2, True, 0.0),
        Distribution(97, (Candidate(4, 1.5, 0.25, 1),), 2.0),
        tiny_model.info,
        None,
    )
    assert carried(values, tiny_store) == values


@pytest.mark.parametrize(
    "error",
    [
        InvalidInput("What was wrong.", hint="What to do."),
        UnknownSite("h.nothing", ("h.out",)),
        AmbiguousName("x", ("one", "two")),
        PromptTooLong(30, 2, 24),
        CorruptTrace("Broken."),
    ],
)
def test_an_error_arrives_with_all_that_it_says(error: ProvenanceError, tiny_store: TraceStore) -> None:
    found = carried(error, tiny_store)
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))


# --- calls ---


@contextmanager
def answering(directory: Path, store: TraceStore, **calls: Callable[..., object]) -> Iterator[Endpoint]:
    endpoint = Endpoint(directory / "engine", b"a secret")
    with closing(Answering(endpoint, calls, store)):
        yield endpoint


@contextmanager
def asking_of(directory: Path, store: TraceStore, **calls: Callable[..., object]) -> Iterator[Asking]:
    with answering(directory, store, **calls) as endpoint, closing(Asking(endpoint, store)) as asking:
        yield asking


def test_a_call_gives_what_was_returned_or_raises_what_was_raised(tmp_path: Path, tiny_store: TraceStore) -> None:
    def fail(name: str) -> None:
        raise UnknownSite(name)

    with asking_of(tmp_path, tiny_store, add=lambda a, b: a + b, fail=fail) as asking:
        assert asking.call("add", 2, b=3) == 5
        with pytest.raises(UnknownSite, match="no tensor named 'x'"):
            asking.call("fail", "x")
        assert asking.call("add", "a", "b") == "ab"


def test_a_fault_of_ours_is_no_error_of_the_person_who_asked(
    tmp_path: Path, tiny_store: TraceStore, caplog: pytest.LogCaptureFixture
) -> None:
    with asking_of(tmp_path, tiny_store, divide=lambda a: 1 / a, lock=threading.Lock) as asking:
        with pytest.raises(RuntimeError, match="ZeroDivisionError in the engine"):
            asking.call("divide", 0)
        with pytest.raises(RuntimeError, match="KeyError in the engine"):
            asking.call("os.system", "true")
        with pytest.raises(RuntimeError, match="TypeError in the engine"):
            asking.call("lock")  # what cannot be sent
        assert asking.call("divide", 4) == 0.25
    assert "ZeroDivisionError" in caplog.text


def test_one_slow_call_holds_up_no_other(tmp_path: Path, tiny_store: TraceStore) -> None:
    work = Work()
    with asking_of(tmp_path, tiny_store, slow=work.run, quick=lambda: 1) as asking:
        slow = threading.Thread(target=asking.call, args=("slow", "a"))
        slow.start()
        until(lambda: work.begun == ["a"])
        assert asking.call("quick") == 1
        work.let_end(1)
        slow.join()


def test_nobody_is_answered_without_the_secret(
    tmp_path: Path, tiny_store: TraceStore, caplog: pytest.LogCaptureFixture
) -> None:
    with answering(tmp_path, tiny_store, quick=lambda: 1) as endpoint:
        with pytest.raises(AuthenticationError):
            Client(str(endpoint.path), "AF_UNIX", authkey=b"a guess")
        with closing(Asking(Endpoint(endpoint.path, b"a guess"), tiny_store)) as wrong, pytest.raises(Unavailable):
            wrong.call("quick")
        with closing(Asking(endpoint, tiny_store)) as asking:
            assert asking.call("quick") == 1


def test_nobody_finds_it_before_it_listens(
    tmp_path: Path, tiny_store: TraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen, there = socket.socket.listen, []

    def meanwhile(self: socket.socket, *given: int) -> None:
        there.append((tmp_path / "engine").exists())
        listen(self, *given)

    monkeypatch.setattr(socket.socket, "listen", meanwhile)
    with asking_of(tmp_path, tiny_store, quick=lambda: 1) as asking:
        assert asking.call("quick") == 1
    assert there == [False]
    assert list(tmp_path.iterdir()) == []


def test_one_who_connects_and_says_nothing_holds_up_no_other(tmp_path: Path, tiny_store: TraceStore) -> None:
    with asking_of(tmp_path, tiny_store, quick=lambda: 1) as asking, socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(tmp_path / "engine"))
        assert asking.call("quick") == 1


def test_an_end_that_is_gone_is_said_and_the_next_one_at_its_place_is_found(
    tmp_path: Path, tiny_store: TraceStore
) -> None:
    with closing(Asking(Endpoint(tmp_path / "engine", b"a secret"), tiny_store, patience_seconds=0)) as asking:
        with pytest.raises(Unavailable, match="ask once more"):
            asking.call("which")
        for number in range(2):
            with answering(tmp_path, tiny_store, which=lambda number=number: number):
                assert asking.call("which") == number
            with pytest.raises(Unavailable, match="not running"):
                asking.call("which")


def test_who_waits_for_an_answer_is_told_when_the_other_end_goes(tmp_path: Path, tiny_store: TraceStore) -> None:
    work, told = Work(), []

    def ask(asking: Asking) -> None:
        with pytest.raises(Unavailable) as caught:
            asking.call("slow", "a")
        told.append(caught.value)

    with answering(tmp_path, tiny_store, slow=work.run) as endpoint, closing(Asking(endpoint, tiny_store)) as asking:
        waiting = threading.Thread(target=ask, args=(asking,))
        waiting.start()
        until(lambda: work.begun == ["a"])
    waiting.join(PATIENCE_SECONDS)
    work.let_end(1)
    assert len(told) == 1
