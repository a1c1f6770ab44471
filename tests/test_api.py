"""The API over the whole application: what each address answers, and what is recorded."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_client import FOX, Api, running

import app.explorer
import provenance.recorder
import provenance.recording
from app.settings import version
from provenance.gpt2.catalogue import CATALOGUE
from provenance.lookup import search
from provenance.names import Address
from provenance.prompt import Tokenizer
from provenance.store import TraceStore

STEPS = 1
HEADERS = {"content-security-policy", "x-content-type-options", "referrer-policy"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api")) as api:
        yield api


@pytest.fixture(scope="module")
def trace(api: Api) -> str:
    """The address of the fox with one decode step."""
    return api.record(prompt=FOX, steps=STEPS)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the recipes that were run."""
    counted: list[str] = []
    record = provenance.recorder.record

    def counting(model: Any, recipe: Any, *rest: Any) -> Any:
        counted.append(recipe.id)
        return record(model, recipe, *rest)

    monkeypatch.setattr(provenance.recording, "record", counting)
    return counted


# --- server and catalogue ---


def test_the_server_says_that_it_is_well(api: Api) -> None:
    assert api.json("/healthz") == {"status": "ok", "version": version()}


def test_every_site_is_listed_in_order_of_computation(api: Api) -> None:
    listed = api.json("/api/sites")
    assert [row["site"] for row in listed] == [row.site for row in CATALOGUE]
    assert len(listed) > 60
    for row in listed:
        assert row["evidence"], row["site"]
        assert row["shape"].startswith("["), row["site"]


@pytest.mark.parametrize(
    "name",
    [
        "h.ln_1.out",
        "h.0.ln_1.out",
        "norm(x, 'ln_1')",
        'norm(x,"ln_1")',
        "blocks.{layer}.ln1.hook_out",
        "model%2Fh3%2Fln_1",
    ],
)
def test_a_site_is_found_by_each_of_its_names(api: Api, name: str) -> None:
    if name.startswith("blocks"):
        aliases = api.json("/api/sites/h.ln_1.out")["aliases"]
        name = next(alias for alias in aliases if "/" not in alias).replace("{layer}", "3")
    assert api.json(f"/api/sites/{name}")["site"] == "h.ln_1.out"


def test_an_expression_with_a_slash_is_a_name_too(api: Api) -> None:
    name = "ex%20%2F%20tf.reduce_sum(ex,%20axis=axis,%20keepdims=True)"
    assert api.json(f"/api/sites/{name}")["site"] == "h.attn.pattern"
    assert api.json(f"/api/sites/{name}/citations")[0]["role"] == "producer"


def test_a_site_carries_its_evidence(api: Api) -> None:
    row = api.json("/api/sites/h.ln_1.out")
    assert (row["name"], row["shape"]) == ("norm(x, 'ln_1')", "[B batch, T, 768 d]")
    assert row["shape_in_decode_step"] == "[B batch, 1, 768 d]"
    assert [(e["role"], e["lines"], e["revision"][:12]) for e in row["evidence"]] == [
        ("producer", "28–38", "9b63575ef427"),
        ("producer", "252–273", "71c6f699ac9b"),
        ("consumer", "50–56", "9b63575ef427"),
        ("consumer", "101–104", "9b63575ef427"),
        ("consumer", "185–191", "71c6f699ac9b"),
    ]
    assert row["evidence"][1]["spans"] == [[252, 252], [272, 273]]


def test_a_search_says_why_each_result_is_there(api: Api) -> None:
    found = api.json("/api/search?q=gelu&family=gpt2")
    assert found["query"] == "gelu"
    assert {result["site"] for result in found["results"]} >= {"h.mlp.h"}
    for result in found["results"]:
        assert set(result) == {"family", "site", "name", "title", "reason"}
        assert all(result.values())
    assert [r["site"] for r in found["results"]] == [m.row.site for m in search(CATALOGUE, "gelu")]
    assert api.json("/api/search")["results"] == []
    assert api.json("/api/search?q=zzzzzz")["results"] == []


# --- recording ---


def test_a_prompt_is_recorded_once_and_found_again(api: Api, runs: list[str]) -> None:
    wanted = {"prompt": "Recorded only once", "steps": 2}
    first = api.ask("POST", "/api/traces", json=wanted)
    assert first.status_code == 202
    assert first.json()["state"] in ("queued", "running")
    id = first.json()["id"]
    assert first.headers["Location"] == f"/api/traces/{id}"
    done = api.wait(first.headers["Location"])
    assert (done["state"], done["id"], done["prompt"]) == ("done", id, "Recorded only once")
    assert (done["model"], done["dtype"], done["trained"]) == ("tiny-untrained", "float32", False)
    assert [token["text"] for token in done["tokens"]] == ["Record", "ed", " only", " once"]
    assert len(done["generated"]) == 3
    again = api.ask("POST", "/api/traces", json=wanted)
    assert (again.status_code, again.json()) == (201, done)
    assert runs == [id]
    assert api.json(f"/api/traces/{id[:8]}")["id"] == id


def test_the_same_prompt_asked_at_once_runs_once(api: Api, runs: list[str]) -> None:
    asked = ("POST", "/api/traces", {"json": {"prompt": "Asked four times", "steps": 3}})
    answers = api.ask_at_once(asked, asked, asked, asked)
    (id,) = {answer.json()["id"] for answer in answers}
    assert api.wait(f"/api/traces/{id}")["state"] == "done"
    assert runs == [id]


def test_ids_take_the_place_of_a_prompt(api: Api, trace: str, runs: list[str]) -> None:
    ids = [token["id"] for token in api.json(trace)["tokens"]]
    assert ids == list(Tokenizer.load().encode(FOX).ids)
    assert api.record(ids=ids, steps=STEPS) == trace
    assert runs == []


def test_the_seed_decides_at_a_temperature_only(api: Api, trace: str) -> None:
    assert api.record(prompt=FOX, steps=STEPS, seed=7) == trace
    warm = [api.record(prompt=FOX, steps=STEPS, seed=seed, temperature=2) for seed in (1, 2, 1)]
    assert warm[0] == warm[2] != warm[1]
    assert trace not in warm


def test_traces_are_listed_the_newest_first_and_deleted(api: Api, trace: str) -> None:
    newest = api.record(prompt="To be deleted")
    listed = [out["id"] for out in api.json("/api/traces")]
    assert f"/api/traces/{listed[0]}" == newest
    assert trace.rsplit("/", 1)[1] in listed
    gone = api.ask("DELETE", newest)
    assert (gone.status_code, gone.content) == (204, b"")
    assert api.ask("GET", newest).status_code == 404
    assert api.ask("DELETE", newest).status_code == 404
    assert listed[0] not in [out["id"] for out in api.json("/api/traces")]
    assert api.record(prompt="To be deleted") == newest


def test_a_failed_recording_is_told_and_can_be_repeated(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(provenance.recording, "record", lambda *_: 1 / 0)
        answer = api.ask("POST", "/api/traces", json={"prompt": "It will fail"})
        failed = api.wait(answer.headers["Location"])
    assert (failed["state"], failed["error"]) == ("failed", "The recording failed; the server's log says why.")
    assert "ZeroDivisionError" in caplog.text
    assert api.record(prompt="It will fail") == answer.headers["Location"]


def test_a_failed_recording_that_the_command_line_made_since_is_done(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(provenance.recording, "record", lambda *_: 1 / 0)
        answer = api.ask("POST", "/api/traces", json={"prompt": "It will fail here"})
        assert api.wait(answer.headers["Location"])["state"] == "failed"
    api.explorer.record(api.explorer.plan("It will fail here"))
    assert api.json(answer.headers["Location"])["state"] == "done"


def test_prompts_at_once_give_the_tensors_of_each_alone(api: Api, tmp_path: Path) -> None:
    prompts = ["One prompt of two", "Another that is a little longer", "A third"]
    posts = [("POST", "/api/traces", {"json": {"prompt": prompt, "steps": 2}}) for prompt in prompts]
    traces = [answer.headers["Location"] for answer in api.ask_at_once(*posts)]
    assert {api.wait(trace)["state"] for trace in traces} == {"done"}
    places = ["h.1.attn.scores.npy?step=2", "h.0.mlp.h.npy", "logits.npy?step=1", "h.1.attn.present.npy"]
    gets = [("GET", f"{trace}/tensors/{place}", dict[str, Any]()) for place in places for trace in traces]
    answers = iter(api.ask_at_once(*gets))
    alone = app.explorer.Explorer(api.explorer.settings.model_copy(update={"data_directory": tmp_path}))
    recorded = [alone.record(alone.plan(prompt, steps=2)) for prompt in prompts]
    for place in places:
        address = Address.parse(place.replace(".npy", "").replace("?step=", "@"))
        for one in recorded:
            expected = alone.tensor(one, address).numpy()
            got = np.load(io.BytesIO(next(answers).raise_for_status().content))
            assert got.tobytes() == expected.tobytes(), (one, place)
    alone.close()


# --- verdicts ---


def test_a_trace_is_verified_in_the_background(api: Api, trace: str) -> None:
    assert api.json(f"{trace}/verdict")["state"] is None
    asked = api.ask("POST", f"{trace}/verdict")
    assert asked.status_code == 202
    assert asked.headers["Location"] == f"{trace}/verdict"
    verdict = api.wait(f"{trace}/verdict")
    assert (verdict["state"], verdict["error"]) == ("done", "")
    assert verdict["holds"] is True
    assert verdict["report"]["trace"] == verdict["trace"] == trace.rsplit("/", 1)[1]
    again = api.ask("POST", f"{trace}/verdict")
    assert (again.status_code, again.json()) == (201, verdict)


# --- all of it ---


def test_a_second_start_finds_what_the_first_recorded(tmp_path: Path, runs: list[str]) -> None:
    with running(tmp_path) as first:
        address = first.record(prompt="Kept")
        shown = first.json(address)
    with running(tmp_path) as second:
        assert second.record(prompt="Kept") == address
        assert second.json(address) == shown
    assert len(runs) == 1
    assert list(TraceStore(tmp_path / "data" / "traces").ids()) == runs


def test_an_example_is_recorded_at_the_first_start(tmp_path: Path, runs: list[str]) -> None:
    for _ in range(2):
        with running(tmp_path, example=True) as api:
            while not (traces := api.json("/api/traces")):
                pass
            done = api.wait(f"/api/traces/{traces[0]['id']}")
        assert (done["prompt"], done["steps"], done["state"]) == (FOX, 3, "done")
    assert len(runs) == 1


@pytest.mark.parametrize("address", ["/", "/healthz", "/api/sites", "/api/nothing", "/nothing", "/static/style.css"])
def test_every_answer_has_the_headers_that_protect(api: Api, address: str) -> None:
    headers = api.ask("GET", address).headers
    assert set(headers) >= HEADERS
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in headers["content-security-policy"]
