"""What runs on seeded vectors are refused for, and that the reason reaches the reader."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from api_client import FOX, Api, running
from html_tree import tree

from provenance.compare import How, Recorded, compare_traces
from provenance.errors import InvalidInput, UnknownFamily, UnknownModel
from provenance.models import Models
from provenance.prompt import Drawn, Prompt, Token
from provenance.recorder import Replayer, plan, record
from provenance.store import TraceStore
from provenance.textbook.config import Config
from provenance.textbook.shelf import Textbooks
from provenance.trace import Recipe, Trace
from provenance.vectors import Vectors

SHELF = Textbooks()
MODEL = "textbook-d8-h2-l1"
REASON = "n_embd 64 cannot be split into n_head 3 heads of equal width."


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("refused")) as started:
        yield started


def planned(config: Config, length: int, batch: int = 1, seed: int = 0, temperature: float = 0.0) -> Recipe:
    prompt = Prompt(None, tuple(Token(number, b"") for number in range(length)))
    return plan(SHELF.load(config.name), prompt, temperature=temperature, drawn=Drawn(batch, seed))


# --- sizes ---


def test_the_largest_state_of_the_lessons_can_be_recorded() -> None:
    assert planned(Config(n_head=16, n_layer=1), length=64, batch=8).drawn == Drawn(8, 0)


def test_scores_of_64_mib_are_the_most() -> None:
    narrow = Config(n_embd=8, n_head=4, n_layer=1)
    planned(narrow, length=512, batch=16)  # 16 · 4 · 512² · 4 bytes = 2²⁶
    with pytest.raises(InvalidInput, match=r"h.attn.score_raw alone, 17 × 4 × 512 × 512, would take 68 MiB") as no:
        planned(narrow, length=512, batch=17)
    assert no.value.hint == "Ask for a smaller batch or fewer positions."


def test_the_width_of_the_mlp_counts_too() -> None:
    with pytest.raises(InvalidInput, match=r"h.mlp.hidden alone, 40 × 512 × 1024, would take 80 MiB"):
        planned(Config(n_embd=256, n_head=1, n_layer=1), length=512, batch=40)


def test_a_run_that_is_too_large_is_refused_at_the_field(api: Api) -> None:
    sent = {"model": "textbook", "length": "512", "batch": "64"}
    answer = api.ask("POST", "/record", data=sent)
    assert answer.status_code == 422
    assert "This run is too large" in tree(answer.text).one("p", id="wrong-length").text


def test_a_length_over_every_context_is_refused_before_its_numbers_are_written_down() -> None:
    with pytest.raises(InvalidInput, match="The length must lie between 1 and 1000000, not 10000000000000"):
        Vectors(length=10**13).drawn(None, None)


def test_more_vectors_than_the_model_reads_are_called_vectors(api: Api) -> None:
    answer = api.problem("POST", "/api/traces", 422, json={"model": MODEL, "ids": [0] * 600})
    assert answer["detail"] == "600 vectors are more than the 512 that this model reads."


# --- what does not apply ---


def test_a_temperature_is_refused_where_nothing_is_chosen(api: Api) -> None:
    wanted = {"model": MODEL, "length": 3, "temperature": 1.0}
    detail = api.problem("POST", "/api/traces", 422, json=wanted)["detail"]
    says = "predicts nothing, so it has no temperature of its choices. Ask for a temperature of 0."
    assert detail == f"'{MODEL}' {says}"


def test_an_empty_prompt_is_a_text_too(api: Api) -> None:
    detail = api.problem("POST", "/api/traces", 422, json={"model": MODEL, "prompt": ""})["detail"]
    assert "it takes no text" in detail


# --- names ---


def test_why_a_name_says_no_model_reaches_the_reader(api: Api) -> None:
    for method, address, body in (
        ("GET", "/api/models/textbook-h3", None),
        ("POST", "/api/traces", {"model": "textbook-h3", "length": 3}),
    ):
        assert REASON in api.problem(method, address, 404, json=body)["detail"]
    answer = api.ask("POST", "/record", data={"model": "textbook-h3", "length": "3"})
    assert REASON in tree(answer.text).one("p", id="wrong-vectors-model").text
    with pytest.raises(UnknownModel, match="There is no model named 'textbooks' here"):
        api.explorer.models.get("textbooks")


def test_a_seeded_model_is_here_and_can_be_the_server_s(tmp_path: Path) -> None:
    models = Models()
    models.check_here("textbook-l2")
    models.check_here("tiny-untrained")
    with pytest.raises(UnknownModel, match=REASON):
        models.check_here("textbook-h3")
    with running(tmp_path, model="textbook-l2") as api:
        assert api.ask("GET", "/readyz").status_code == 200
        assert api.json("/api/models/textbook-l2")["available"]


def test_a_folder_cannot_take_a_built_in_model_s_name(tmp_path: Path) -> None:
    for name in ("textbook", "textbook-l2", "tiny-untrained"):
        (tmp_path / name).mkdir()
        with pytest.raises(InvalidInput, match=f"'{name}' is the name of a built-in model"):
            Models([tmp_path / name])
    (tmp_path / "textbook-of-mine").mkdir()
    assert Models([tmp_path / "textbook-of-mine"]).family("textbook-of-mine") == "gpt2"


def test_a_trace_of_a_family_that_is_not_here_does_not_hide_the_others(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        path = api.record(prompt=FOX, steps=0).removeprefix("/api")
        store = api.explorer.store
        trace = store.open(path.removeprefix("/traces/"))
        model = replace(trace.recipe.model, family="gpt9")
        recipe = trace.recipe.model_copy(update={"model": model})
        other = store.save(recipe, tuple(record.token for record in trace.record.generated), dict(trace.tensors))
        assert recipe.id != trace.id
        for address in ("/traces", "/"):
            shown = api.ask("GET", address)
            assert shown.status_code == 200
            assert path in shown.text and other.id in shown.text
        assert "gpt9" in api.problem("GET", f"/api/traces/{other.id}/tensors/logits", 404)["detail"]
        assert api.ask("GET", f"/traces/{other.id}").status_code == 404
        with pytest.raises(UnknownFamily):
            api.explorer.catalogue(other)


# --- comparing ---


def side(directory: Path, config: Config, length: int, batch: int = 2, seed: int = 0) -> Recorded:
    model, recipe = SHELF.load(config.name), planned(config, length, batch, seed)
    trace: Trace = TraceStore(directory).save(recipe, (), record(model, recipe)[1])
    replayer = Replayer(0)
    return Recorded(trace, model.catalogue, model.layers, lambda at: replayer.tensor(model, trace, at), trace.id)


SMALL = Config(n_embd=8, n_head=2, n_layer=1)


def test_the_same_numbers_of_another_seed_are_no_common_positions(tmp_path: Path) -> None:
    a, b = side(tmp_path, SMALL, 3), side(tmp_path, SMALL, 4, seed=7)
    found = compare_traces(a, b)
    assert found.parameters_only
    assert "The vectors are drawn from other seeds, 0 and 7: the same number is another vector." in found.notes
    assert any("only 0 positions from the start have the same vectors" in note for note in found.notes)


def test_other_batches_are_said_and_their_tensors_do_not_fit(tmp_path: Path) -> None:
    found = compare_traces(side(tmp_path, SMALL, 3), side(tmp_path, SMALL, 3, batch=1))
    assert "The batches have 2 and 1 entries, so their tensors do not fit." in found.notes
    statuses = {row.address.place: row.status.name for row in found.rows}
    assert statuses["h.0.attn.weight"] == "UNFIT" and statuses["h.0.attn.in_proj.w"] == "SAME"


def test_by_positions_it_is_said_that_an_unmasked_model_looks_ahead(tmp_path: Path) -> None:
    ahead = "A's model masks nothing: what it computes at a position rests on later ones too."
    found = compare_traces(side(tmp_path, SMALL, 3), side(tmp_path, SMALL, 4))
    assert found.how is How.POSITIONS and ahead in found.notes
    causal = replace(SMALL, causal=True)
    found = compare_traces(side(tmp_path, causal, 3), side(tmp_path, causal, 4))
    assert ahead not in found.notes
    assert not [row for row in found.rows if row.status.name == "DIFFERS"]


def test_a_run_on_tokens_and_one_on_vectors_say_so(tmp_path: Path, tiny_trace: Trace, tiny_model: object) -> None:
    a = side(tmp_path, SMALL, len(tiny_trace.recipe.tokens), batch=1)
    b = Recorded(tiny_trace, a.catalogue, 0, lambda at: torch.zeros(1), "tokens")
    notes = compare_traces(b, replace(a), how=How.POSITIONS).notes
    assert "Only B read vectors drawn from a seed; the other read tokens." in notes
