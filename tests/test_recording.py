"""Recording into a store: a run with edits brings along the one without them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from app.jobs import Job, State
from app.pages.progress import progress_of
from provenance.edits import parse_edit
from provenance.errors import UnknownTrace
from provenance.models import Models
from provenance.names import Address
from provenance.recorder import Replayer, plan
from provenance.recording import record_into
from provenance.store import TraceStore
from provenance.trace import Recipe, Trace

MODEL = "tiny-untrained"


@pytest.fixture(scope="module")
def models() -> Models:
    return Models()


@pytest.fixture
def store(tmp_path: Path) -> TraceStore:
    return TraceStore(tmp_path)


def recipe_of(models: Models, store: TraceStore, *texts: str, prompt: str = "Two words", steps: int = 1) -> Recipe:
    model = models.get(MODEL, "float32")
    edits = [parse_edit(model.catalogue, model.layers, steps, text, store.full_id) for text in texts]
    return plan(model, models.encode(MODEL, prompt), steps=steps, edits=edits)


def reader(models: Models, store: TraceStore) -> Callable[[str, Address], tuple[Trace, Tensor]]:
    def read(id: str, address: Address) -> tuple[Trace, Tensor]:
        trace = store.open(id)
        return trace, Replayer().tensor(models.of(trace.recipe), trace, address)

    return read


def test_a_run_with_edits_brings_the_one_without_and_counts_the_parts_of_both(
    models: Models, store: TraceStore
) -> None:
    seen: list[tuple[int, int]] = []
    recipe = recipe_of(models, store, "h.0.attn.out = 0")
    record_into(store, models, recipe, reader(models, store), lambda done, total: seen.append((done, total)))
    assert set(store.ids()) == {recipe.id, recipe.unedited.id}
    done, totals = [done for done, _ in seen], {total for _, total in seen}
    assert done == sorted(done)
    assert totals == {done[-1]}


def test_where_the_run_without_is_stored_only_the_changed_one_runs(models: Models, store: TraceStore) -> None:
    plain, changed = recipe_of(models, store), recipe_of(models, store, "h.0.attn.out = 0")
    alone: list[int] = []
    record_into(store, models, plain, reader(models, store), lambda done, total: alone.append(total))
    seen: list[int] = []
    record_into(store, models, changed, reader(models, store), lambda done, total: seen.append(total))
    assert seen == alone


def test_a_patch_whose_source_is_gone_is_said(models: Models, store: TraceStore) -> None:
    source = recipe_of(models, store, prompt="Other words")
    record_into(store, models, source, reader(models, store))
    recipe = recipe_of(models, store, f"h.0.resid_post@0[token=1] = trace:{source.id}")
    store.delete(source.id)
    with pytest.raises(UnknownTrace):
        record_into(store, models, recipe, reader(models, store))


def test_a_trace_tells_its_edits_where_it_is_printed(models: Models, store: TraceStore) -> None:
    recipe = recipe_of(models, store, "h.0.attn.out = 0", "ln_f.g *= 2")
    record_into(store, models, recipe, reader(models, store))
    tokens = len(recipe.tokens)
    assert repr(store.open(recipe.id)) == (
        f"<Trace {recipe.id[:12]} {MODEL} {tokens}+1 tokens, changed: h.0.attn.out = 0; ln_f.g *= 2>"
    )
    assert repr(store.open(recipe.unedited.id)) == f"<Trace {recipe.unedited.id[:12]} {MODEL} {tokens}+1 tokens>"


def test_the_progress_of_a_changed_run_names_no_step_it_may_not_be_in(models: Models, store: TraceStore) -> None:
    recipe = recipe_of(models, store, "h.0.attn.out = 0")
    job = Job(recipe.id, recipe, State.RUNNING, done=5, total=16)
    assert progress_of(job).says == "5 of 16 parts of the model have run"
