"""The store's interface: files and memory do the same, and the whole application runs on either."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from api_client import FOX, Api
from conftest import PROMPT_IDS, recorded
from memory_store import MemoryStore

from app.explorer import Explorer
from app.jobs import State
from app.main import create_app
from app.settings import Settings
from provenance.errors import UnknownTrace
from provenance.gpt2.model import GPT2
from provenance.names import Address
from provenance.storage import Store
from provenance.store import TraceStore


@pytest.fixture(params=["files", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return TraceStore(tmp_path / "traces") if request.param == "files" else MemoryStore()


def test_a_trace_that_is_saved_is_read_back_bit_for_bit_and_kept_once(store: Store, tiny_model: GPT2) -> None:
    first = recorded(tiny_model, store)
    again = recorded(tiny_model, store)
    assert again.record == first.record
    opened = store.open(first.id[:8])
    assert opened.record == first.record
    assert opened.tensors.keys() == first.tensors.keys()
    assert all(torch.equal(opened.tensors[name], first.tensors[name]) for name in first.tensors)
    assert list(store.ids()) == [first.id]
    assert first.id in store and first.id[:8] not in store


def test_traces_are_listed_newest_first_and_gone_once_deleted(store: Store, tiny_model: GPT2) -> None:
    traces = [recorded(tiny_model, store, (number, *PROMPT_IDS), steps=0) for number in range(3)]
    newest = sorted(traces, key=lambda trace: trace.record.created_at, reverse=True)
    assert [listed.record for listed in store.list()] == [trace.record for trace in newest]
    store.delete(traces[1].id)
    assert {listed.id for listed in store.list()} == {traces[0].id, traces[2].id}
    for missing in (traces[1].id, "abcdef", traces[0].id[:5]):
        with pytest.raises(UnknownTrace):
            store.open(missing)


def test_an_attached_text_takes_the_place_of_an_earlier_one_and_goes_with_its_trace(
    store: Store, tiny_model: GPT2
) -> None:
    trace = recorded(tiny_model, store, steps=0)
    assert store.attached(trace.id, "verdict.json") is None
    for text in ("first", "second, größer"):
        store.attach(trace.id, "verdict.json", text)
        assert store.attached(trace.id, "verdict.json") == text
    store.delete(trace.id)
    with pytest.raises(UnknownTrace):
        store.attach(trace.id, "verdict.json", "late")
    assert store.attached(recorded(tiny_model, store, steps=0).id, "verdict.json") is None


def test_its_state_changes_with_what_is_kept_and_with_nothing_else(store: Store, tiny_model: GPT2) -> None:
    empty = store.state()
    trace = recorded(tiny_model, store, steps=0)
    assert store.state() != empty
    before = store.state(), store.state_of(trace.id)
    store.open(trace.id)
    store.list()
    assert (store.state(), store.state_of(trace.id)) == before
    store.attach(trace.id, "verdict.json", "{}")
    assert store.state_of(trace.id) != before[1]
    known = store.state()
    store.delete(trace.id)
    assert store.state() != known
    assert store.state_of(trace.id) != before[1]


@pytest.fixture
def api(store: Store, tmp_path: Path) -> Iterator[Api]:
    settings = Settings(
        data_directory=tmp_path,
        cache_directory=tmp_path / "cache",
        model="tiny-untrained",
        example=False,
        network=False,
    )
    app = create_app(settings, lambda settings: Explorer(settings, store))
    lifespan = app.router.lifespan_context(app)
    with asyncio.Runner() as runner:
        runner.run(lifespan.__aenter__())
        try:
            yield Api(app, runner)
        finally:
            runner.run(lifespan.__aexit__(None, None, None))


def test_the_application_runs_on_either(api: Api, store: Store) -> None:
    trace = api.record(prompt=FOX, steps=1)
    assert [listed.id for listed in store.list()] == [trace.rpartition("/")[2]]
    summary = api.json(f"{trace}/tensors/h.0.attn.scores")
    assert summary["shape"] == [1, 4, 9, 9]
    assert api.ask("GET", f"{trace.removeprefix('/api')}/h.0.attn.scores").status_code == 200
    assert api.ask("DELETE", trace).status_code == 204
    api.problem("GET", trace, 404)


def test_an_engine_needs_only_the_interface(tmp_path: Path) -> None:
    settings = Settings(
        data_directory=tmp_path, cache_directory=tmp_path / "cache", model="tiny-untrained", network=False
    )
    with closing(Explorer(settings, MemoryStore())) as explorer:
        trace = explorer.record(explorer.plan(FOX, steps=1))
        assert explorer.submit(trace.recipe).state is State.DONE
        scores = explorer.tensor(trace, Address.parse("h.1.attn.scores@1"))
        assert explorer.check(trace, Address.parse("h.1.attn.scores@1")).bit_for_bit
        assert scores.shape[-1] == len(trace.recipe.tokens) + 1
    assert not (tmp_path / "traces").exists()
