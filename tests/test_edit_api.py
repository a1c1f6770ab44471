"""Edits through the API and the command line: what comes back, what is refused, and what they did."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_client import FOX, Api, running
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.cli import main

EDIT = "h.1.attn.pattern[head=1] = 0"
SHORT = "Two words"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("edits")) as api:
        yield api


# --- the API ---


def test_a_trace_with_edits_names_them_and_the_run_without(api: Api) -> None:
    trace = api.record(prompt=FOX, steps=1, edits=["blocks.1.attn.hook_pattern[head=1]=0", "ln_f.g*=.5"])
    out = api.json(trace)
    assert out["edits"] == [EDIT, "ln_f.g *= 0.5"]
    plain = api.json(f"/api/traces/{out['unedited']}")  # recorded along with it
    assert (plain["state"], plain["edits"], plain["unedited"]) == ("done", [], None)
    assert [token["id"] for token in plain["tokens"]] == [token["id"] for token in out["tokens"]]
    listed = {each["id"]: each["edits"] for each in api.json("/api/traces")}
    assert (listed[out["id"]], listed[plain["id"]]) == (out["edits"], [])


def test_the_effect_is_that_of_the_two_runs_logits(api: Api) -> None:
    trace = api.record(prompt=FOX, steps=1, edits=[EDIT])
    out = api.json(f"{trace}/effect?top=3")
    rows = [
        api.values(f"/api/traces/{id}/tensors/logits.npy")[0].astype(np.float64)
        for id in (out["unedited"], out["trace"])
    ]
    logs = [row - np.log(np.exp(row - row.max(-1, keepdims=True)).sum(-1, keepdims=True)) - row.max(-1, keepdims=True)
            for row in rows]  # fmt: skip
    kl = (np.exp(logs[0]) * (logs[0] - logs[1])).sum(-1)
    assert out["kl_along"][: len(kl)] == pytest.approx(kl, rel=1e-6, abs=1e-12)
    shift = out["shifts"][0]
    assert (shift["step"], shift["position"]) == (0, 8)
    assert shift["kl_nats"] == pytest.approx(kl[-1], rel=1e-6)
    assert shift["kl_nats"] > 0
    before = np.exp(logs[0][-1])
    best = [moved["token"]["id"] for moved in sorted(shift["moved"], key=lambda m: m["before"]["rank"])[:3]]
    assert best == list(np.argsort(-before)[:3])
    for moved in shift["moved"]:
        assert moved["after"]["probability"] == pytest.approx(float(np.exp(logs[1][-1][moved["token"]["id"]])))
    assert [(t["address"], t["chosen"], t["changed"]) for t in out["touched"]] == [
        ("h.1.attn.pattern", 81, 45), ("h.1.attn.pattern@1", 10, 10),
    ]  # fmt: skip


def test_a_trace_without_edits_has_no_effect(api: Api) -> None:
    trace = api.record(prompt=SHORT)
    assert "no edits" in api.problem("GET", f"{trace}/effect", 422)["detail"]


def test_an_edit_without_effect_says_why(api: Api) -> None:
    trace = api.record(prompt=SHORT, edits=["h.0.attn.out *= 1"])
    assert api.json(f"{trace}/effect")["none"].startswith("The chosen cells had these values before")


@pytest.mark.parametrize("top", ["0", "101", "x"])
def test_a_top_that_cannot_be_is_refused(api: Api, top: str) -> None:
    trace = api.record(prompt=SHORT, edits=["h.0.attn.out *= 1"])
    api.problem("GET", f"{trace}/effect?top={top}", 422)


@pytest.mark.parametrize(
    ("edits", "status", "says"),
    [
        (["h.1.attn.pattern"], 422, "is no edit"),
        (["h.1.attn.pattern[head=9]=0"], 404, "no head 9"),
        (["h.1.attn.patern=0"], 404, "patern"),
        (["h.1.attn.out=trace:abcdef"], 404, "no trace 'abcdef'"),
        (["h.1.attn.out=" + "0" * 500], 422, "edits"),
        (["h.0.attn.out=0"] * 33, 422, "edits"),
        ("h.0.attn.out=0", 422, "edits"),
    ],
)
def test_an_edit_that_cannot_be_is_refused_before_it_runs(api: Api, edits: Any, status: int, says: str) -> None:
    answer = api.ask("POST", "/api/traces", json={"prompt": SHORT, "edits": edits})
    assert answer.status_code == status, answer.text
    assert says in answer.json()["detail"]


def test_a_patch_that_does_not_fit_is_a_failed_recording_with_the_reason(api: Api) -> None:
    source = api.record(prompt=FOX).removeprefix("/api/traces/")
    wanted = {"prompt": SHORT, "edits": [f"h.0.resid_post=trace:{source}"]}
    failed = api.wait(api.ask("POST", "/api/traces", json=wanted).headers["Location"])
    assert failed["state"] == "failed"
    assert "does not fit" in failed["error"]


_PIECES = st.sampled_from(
    ["h.1.attn.pattern", "h.0.mlp.h", "ln_f.s", "logits", "wte", "tokens", "@0", "@1", "[head=0]", "[token=1:2]",
     "[channel=3,4]", "=", "*=", "0", "-1e30", "1e39", "nan", "trace:", "abcdef", "[", "]", " ", "é", "\x00",
     "\ud800"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=60), st.lists(_PIECES, max_size=6).map("".join)))
@example("h.1.attn.pattern[head=0]*=1e39")
@example("h.1.attn.pattern[head=0]=1e39")
@example("ln_f.s=-1")
@example("h.1.attn.pattern@1[head=0]=0")
@example("h.0.attn.mask.m=1")
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_edit_text_is_answered_with_a_fault(api: Api, text: str) -> None:
    content = json.dumps({"ids": [5, 6], "steps": 1, "edits": [text]})
    answer = api.ask("POST", "/api/traces", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (201, 202, 404, 422), answer.text
    if answer.status_code in (201, 202):
        trace = answer.headers["Location"]
        assert api.wait(trace)["state"] == "done"
        assert api.ask("GET", f"{trace}/effect").status_code == 200
        assert api.ask("GET", trace.removeprefix("/api")).status_code == 200


# --- the command line ---


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in [key for key in os.environ if key.startswith("TENSOR_PROVENANCE_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("TENSOR_PROVENANCE_DATA_DIRECTORY", str(tmp_path / "data"))
    monkeypatch.setenv("TENSOR_PROVENANCE_CACHE_DIRECTORY", str(tmp_path / "cache"))
    monkeypatch.setenv("TENSOR_PROVENANCE_MODEL", "tiny-untrained")
    monkeypatch.setenv("TENSOR_PROVENANCE_NETWORK", "no")
    monkeypatch.setenv("COLUMNS", "80")


def shell(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    out, err = capsys.readouterr()
    assert isinstance(stopped.value.code, int)
    return stopped.value.code, out, err


def test_record_with_set_prints_what_the_change_did(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = shell(
        capsys, "record", FOX, "--steps", "1", "--set", "h.1.attn.pattern[head=1]=0", "--set", "h.0.mlp.h@0 *= 0"
    )
    assert (code, err) == (0, "")
    assert "  h.1.attn.pattern[head=1] = 0\n    91 cells chosen in 2 steps, 55 changed, by up to 1\n" in out
    assert "  h.0.mlp.h@0 *= 0\n" in out
    assert "The run without the changes is trace " in out
    assert "step     KL, nats" in out
    assert "Its most likely tokens after the prefill:" in out
    assert max(map(len, out.split("Changed")[1].split("Look at it")[0].splitlines())) <= 80


def test_record_says_why_a_change_has_no_effect(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = shell(capsys, "record", SHORT, "--set", "h.1.attn.out *= 1")
    assert "No effect: The chosen cells had these values before" in " ".join(out.split())
    assert "KL" not in out


def test_the_json_of_a_changed_run_is_the_traces_and_the_list_marks_it(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = shell(capsys, "record", SHORT, "--set", EDIT, "--json")
    assert json.loads(out)["edits"] == [EDIT]
    _, listed, _ = shell(capsys, "traces")
    assert [line.endswith("changed: Two words") for line in listed.splitlines()[1:]].count(True) == 1
    assert len(listed.splitlines()) == 3


@pytest.mark.parametrize(
    "edit", ["h.1.attn.pattern", "h.1.attn.patern=0", "h.9.attn.out=0", "h.1.attn.out=trace:abcdef"]
)
@pytest.mark.slow
def test_a_set_that_cannot_be_exits_with_2(capsys: pytest.CaptureFixture[str], edit: str) -> None:
    code, out, err = shell(capsys, "record", SHORT, "--set", edit)
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
