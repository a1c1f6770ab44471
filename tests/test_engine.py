"""An engine asked over the channel answers as one in this process does; here both are in this process."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from api_client import FOX
from paced_work import until

from app.channel import Endpoint
from app.engine_client import RemoteEngine, answering
from app.explorer import Explorer
from app.jobs import CANCELLED, State
from app.settings import Settings
from provenance.errors import InvalidPrompt, OutOfRange, Unavailable, UnknownModel
from provenance.lens import position_of
from provenance.model import ModelInfo
from provenance.names import Address
from provenance.places import traces_below
from provenance.store import TraceStore
from provenance.trace import Trace

SCORES = Address.parse("h.1.attn.scores")


class Pair:
    """An explorer with an engine of its own, and one that asks that engine; both read the same files."""

    def __init__(self, directory: Path) -> None:
        settings = Settings(
            data_directory=directory, cache_directory=directory / "cache", model="tiny-untrained", network=False
        )
        self.here = Explorer(settings)
        endpoint = Endpoint(directory / "engine", b"a secret")
        self.calls = answering(self.here.engine, endpoint, self.here.store)
        store = TraceStore(traces_below(directory))
        self.there = Explorer(settings, store, RemoteEngine(settings, store, endpoint, cache_bytes=1 << 20))
        self.trace = self.here.record(self.here.plan(FOX, steps=2))
        edited = self.here.plan_edited(self.trace, "h.0.mlp.h2 = 0")
        self.edited = self.here.record(edited)

    def close(self) -> None:
        self.there.close()
        self.calls.close()
        self.here.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with closing(Pair(tmp_path_factory.mktemp("pair"))) as pair:
        yield pair


ASKED: dict[str, Callable[[Explorer, Trace, Trace], object]] = {
    "plan": lambda x, trace, edited: x.plan(FOX, steps=1, temperature=0.5, seed=3, edits=["h.0.mlp.h2 = 0"]),
    "plan of ids": lambda x, trace, edited: x.plan(ids=iter([1, 2, 3])),
    "plan_edited": lambda x, trace, edited: x.plan_edited(trace, "h.1.attn.out *= 2"),
    "check": lambda x, trace, edited: x.check(trace, SCORES),
    "summary": lambda x, trace, edited: x.summary(trace, SCORES),
    "distribution": lambda x, trace, edited: x.distribution(trace, position_of(trace, step=2), 5),
    "lens": lambda x, trace, edited: x.lens(trace, (position_of(trace, step=2),), 4),
    "attribution": lambda x, trace, edited: x.attribution(trace, position_of(trace, step=2)),
    "effect": lambda x, trace, edited: x.effect(edited),
    "output_edits": lambda x, trace, edited: x.engine.output_edits(edited),
    "compare": lambda x, trace, edited: x.compare(trace.id, edited.id),
    "loaded": lambda x, trace, edited: x.engine.loaded(),
    "waiting": lambda x, trace, edited: x.jobs.waiting(),
    "tally": lambda x, trace, edited: x.jobs.tally(),
    "memory": lambda x, trace, edited: x.memory(),
}


@pytest.mark.parametrize("asked", ASKED)
def test_both_answer_the_same(asked: str, pair: Pair) -> None:
    there = ASKED[asked](pair.there, pair.there.store.open(pair.trace.id), pair.there.store.open(pair.edited.id))
    assert there == ASKED[asked](pair.here, pair.trace, pair.edited)


def test_a_tensor_is_the_same_bit_for_bit_and_sent_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = pair.there.store.open(pair.trace.id)
    found = pair.there.tensor(trace, SCORES)
    assert torch.equal(found, pair.here.tensor(pair.trace, SCORES))
    monkeypatch.setattr(pair.there.engine, "_asking", None)
    assert pair.there.tensor(trace, SCORES) is found


def test_tensors_are_kept_within_their_budget(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, trace = pair.there.engine, pair.there.store.open(pair.trace.id)
    assert isinstance(engine, RemoteEngine)
    wanted = [Address.parse(f"h.{layer}.{site}") for layer in (0, 1) for site in ("attn.scores", "attn.pattern")]
    size = pair.there.tensor(trace, wanted[0]).nbytes
    monkeypatch.setattr(engine, "_tensors", type(engine._tensors)(2 * size))
    for address in wanted:
        engine.tensor(trace, address)
    assert [name for _, name in engine._tensors._kept] == [str(address) for address in wanted[2:]]


def test_a_recording_is_seen_from_both_and_stopped_by_either(pair: Pair) -> None:
    recipe = pair.there.plan("a recording of either", steps=1)
    assert pair.there.submit(recipe).state in (State.QUEUED, State.RUNNING)
    until(lambda: recipe.id in pair.here.store)
    assert pair.there.submit(recipe).state is State.DONE
    long = [pair.there.plan(f"{FOX} {number}", steps=8) for number in range(3)]
    for recipe in long:
        pair.here.submit(recipe)
    pair.there.jobs.cancel(long[2].id)
    until(lambda: not pair.there.jobs.waiting())
    job = pair.here.job(long[2].id)
    assert job is not None and job.error == CANCELLED
    assert pair.there.job(long[2].id) == job
    assert pair.there.job(long[0].id) == pair.here.job(long[0].id)


def test_what_is_refused_there_is_refused_here(pair: Pair) -> None:
    trace = pair.there.store.open(pair.trace.id)
    with pytest.raises(OutOfRange, match="no layer 99"):
        pair.there.tensor(trace, Address.parse("h.99.attn.scores"))
    with pytest.raises(InvalidPrompt, match="empty"):
        pair.there.plan("")
    with pytest.raises(UnknownModel):
        pair.there.plan(FOX, model="nobody")


def test_a_model_that_is_gone_is_counted_where_it_was_missed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(recipe: object) -> None:
        raise UnknownModel("It is gone.")

    before = pair.there.missing
    monkeypatch.setattr(pair.here.models, "of", gone)
    with pytest.raises(UnknownModel, match="gone"):
        pair.there.attribution(pair.trace, position_of(pair.trace, 0, 1))
    assert pair.there.missing == before + 1


def test_no_model_is_ever_loaded_where_it_is_asked_for(pair: Pair) -> None:
    with pytest.raises(Unavailable, match="engine's memory"):
        pair.there.models.get("tiny-untrained")
    assert pair.there.models.loaded() == ()
    assert all(isinstance(info, ModelInfo) for info in pair.there.engine.loaded())


def test_what_a_trace_keeps_is_read_without_the_engine(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = pair.there.store.open(pair.trace.id)
    monkeypatch.setattr(pair.there.engine, "_asking", None)
    kept = Address.parse(next(iter(trace.tensors)))
    assert torch.equal(pair.there.tensor(trace, kept), pair.trace.tensors[str(kept)])
