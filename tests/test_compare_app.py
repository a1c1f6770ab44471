"""Comparing over the API and on the command line: answers, exit codes, and what is refused."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from api_client import Api, running
from safetensors.torch import save_file

from app.cli import main
from provenance.names import Address
from provenance.store import TraceStore

MORNING, EVENING = "Hello world and good morning", "Hello world and good evening"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(scope="module")
def api(place: Path) -> Iterator[Api]:
    with running(place) as api:
        yield api


@pytest.fixture(scope="module")
def morning(api: Api) -> str:
    return api.record(prompt=MORNING, steps=1).rpartition("/")[2]


@pytest.fixture(scope="module")
def evening(api: Api) -> str:
    return api.record(prompt=EVENING, steps=1).rpartition("/")[2]


@pytest.fixture(scope="module")
def file(api: Api, morning: str, place: Path) -> Path:
    """Three tensors of the first trace, one of them wrong, under names of three schemes."""
    trace = api.explorer.store.open(morning)

    def read(address: str) -> torch.Tensor:
        return api.explorer.tensor(trace, Address.parse(address)).clone()

    wrong = read("h.1.mlp.h")
    wrong[0, 2, 5] += 1.0
    path = place / "port.safetensors"
    tensors = {"blocks.0.attn.hook_pattern": read("h.0.attn.pattern"), "h.1.mlp.h": wrong, "logits": read("logits")}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    return path


# --- the API ---


def test_two_traces_over_the_api(api: Api, morning: str, evening: str) -> None:
    out = api.json(f"/api/compare?a={morning}&b={evening}")
    assert (out["a"], out["b"], out["how"], out["agrees"]) == (morning, evening, "steps", False)
    divergence = out["first_divergence"]
    assert divergence["address"] == "tokens"
    assert divergence["first_index"] == [0, 4]
    assert divergence["evidence"][0]["repository"] == "openai/gpt-2"
    assert divergence["evidence"][0]["lines"] == "150"
    assert sum(out["counts"].values()) == len(out["rows"])
    assert out["rows"][0]["address"] == "tokens"


def test_a_trace_that_agrees_has_no_first_divergence(api: Api, morning: str) -> None:
    out = api.json(f"/api/compare?a={morning[:8]}&b={morning}")
    assert (out["agrees"], out["first_divergence"], out["notes"]) == (True, None, [])
    assert out["counts"]["same"] == len(out["rows"])


def test_the_tolerance_and_the_way_can_be_chosen(api: Api, morning: str) -> None:
    ids = [token["id"] for token in api.json(f"/api/traces/{morning}")["tokens"]]
    chosen = api.json(f"/api/traces/{morning}")["generated"][0]["id"]
    longer = api.record(ids=[*ids, chosen]).rpartition("/")[2]
    out = api.json(f"/api/compare?a={morning}&b={longer}")
    assert (out["how"], out["agrees"]) == ("positions", True)
    worst = max(row["relative"] for row in out["rows"])
    assert 0 < worst < 1e-5
    strict = api.json(f"/api/compare?a={morning}&b={longer}&tolerance={worst / 2:.3g}")
    assert strict["first_divergence"] is not None
    forced = api.json(f"/api/compare?a={morning}&b={longer}&how=steps")
    assert (forced["how"], forced["agrees"]) == ("steps", False)
    assert forced["counts"]["unfit"] > 0


def test_an_uploaded_file_is_compared_by_names(api: Api, morning: str, file: Path) -> None:
    answer = api.ask("POST", "/api/uploads", files={"file": ("port.safetensors", file.read_bytes())})
    assert answer.status_code == 201, answer.text
    id = answer.json()["id"]
    out = api.json(f"/api/compare?a={morning}&b=file:{id}")
    assert (out["how"], out["b"]) == ("names", f"file:{id}")
    assert out["first_divergence"]["address"] == "h.1.mlp.h"
    assert out["first_divergence"]["first_index"] == [0, 2, 5]
    assert [row["address"] for row in out["rows"]] == ["h.0.attn.pattern", "h.1.mlp.h", "logits"]
    api.problem("GET", f"/api/compare?a={morning}&b=file:{id}&how=steps", 422)
    assert api.ask("DELETE", f"/api/uploads/{id}").status_code == 204
    api.problem("GET", f"/api/compare?a={morning}&b=file:{id}", 404)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("a={id}&b=ffffffffffffffffffffffffffffffff", 404),
        ("a=ffffff&b={id}", 404),
        ("a={id}&b=file:ffffffffffffffff", 404),
        ("a={id}&b={id}&tolerance=-1", 422),
        ("a={id}&b={id}&tolerance=nan", 422),
        ("a={id}&b={id}&tolerance=inf", 422),
        ("a={id}&b={id}&tolerance=small", 422),
        ("a={id}&b={id}&how=luck", 422),
        ("a={id}&b={id}&how=names", 422),
        ("a={id}", 422),
        ("a=file:0123456789abcdef&b={id}", 422),
    ],
)
def test_what_cannot_be_compared_is_a_problem(api: Api, morning: str, query: str, status: int) -> None:
    assert api.problem("GET", f"/api/compare?{query.format(id=morning)}", status)["detail"]


def test_a_comparison_is_kept(api: Api, morning: str, evening: str) -> None:
    first = api.explorer.compare(morning, evening)
    assert api.explorer.compare(morning[:10], evening) is first
    assert api.explorer.compare(morning, evening, 1e-3) is not first


# --- the command line ---


@pytest.fixture
def surroundings(place: Path, morning: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in [key for key in os.environ if key.startswith("TENSOR_PROVENANCE_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("TENSOR_PROVENANCE_DATA_DIRECTORY", str(place / "data"))
    monkeypatch.setenv("TENSOR_PROVENANCE_CACHE_DIRECTORY", str(place / "cache"))
    monkeypatch.setenv("TENSOR_PROVENANCE_MODEL", "tiny-untrained")
    monkeypatch.setenv("COLUMNS", "80")


class Shell:
    """Runs `compare` in this process."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(["compare", *map(str, arguments)])
        out, err = self._capture.readouterr()
        assert isinstance(stopped.value.code, int)
        return stopped.value.code, out, err

    def json(self, code: int, *arguments: str | Path) -> Any:
        found, out, err = self(*arguments, "--json")
        assert (found, err) == (code, "")
        return json.loads(out)


@pytest.fixture
def shell(surroundings: None, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def test_the_exit_code_says_whether_two_traces_agree(shell: Shell, morning: str, evening: str) -> None:
    code, out, err = shell(morning[:8], morning)
    assert (code, err) == (0, "")
    assert out.startswith("They agree.\n")
    out = shell.json(1, morning[:8], evening)
    assert out["first_divergence"]["address"] == "tokens"
    assert shell.json(0, morning, morning)["first_divergence"] is None


def test_latest_is_a_trace(shell: Shell, morning: str, place: Path) -> None:
    newest = TraceStore(place / "data" / "traces").list()[0].id
    assert shell.json(0, "latest", newest)["a"] == newest


def test_the_text_names_the_first_divergence_its_lines_and_what_lies_before(
    shell: Shell, morning: str, file: Path
) -> None:
    code, out, err = shell(morning[:8], file)
    assert (code, err) == (1, "")
    assert out.startswith("They diverge at h.1.mlp.h.\n")
    assert "  first at [0, 2, 5]: " in out
    divergence = shell.json(1, morning, file)["first_divergence"]
    assert f"First divergence: h.1.mlp.h, {divergence['operation']}\n" in out
    assert len(divergence["evidence"]) == 2
    for cited in divergence["evidence"]:
        cited_lines = ", ".join("–".join(map(str, sorted(set(span)))) for span in cited["spans"])
        assert f"  {cited['repository']} {cited['path']} {cited_lines}\n" in out
    assert "    ? h.1.mlp.c_fc.c               not compared\n" in out
    lines = [line.split() for line in out.splitlines() if line.startswith(("  ✓  ", "  ≠  "))]
    assert [line[:3] for line in lines] == [
        ["✓", "h.0.attn.pattern", "same"], ["≠", "h.1.mlp.h", "differs"], ["✓", "logits", "same"],
    ]  # fmt: skip
    assert lines[1][-1] == "0,2,5"
    assert max(len(line) for line in out.splitlines()) <= 100


def test_a_long_table_is_cut_and_printed_whole_with_all(shell: Shell, morning: str, evening: str) -> None:
    code, cut, _ = shell(morning, evening)
    assert code == 1
    assert "more rows: --all prints them." in cut
    _, whole, _ = shell(morning, evening, "--all")
    assert "more rows" not in whole
    rows = [line for line in whole.splitlines() if line.startswith(("  ✓  ", "  ≠  "))]
    assert len(rows) == len(shell.json(1, morning, evening)["rows"])


def test_a_file_may_stand_first_and_two_files_are_compared(shell: Shell, morning: str, file: Path) -> None:
    out = shell.json(1, file, morning)
    assert (out["a"], out["b"]) == (morning, "port.safetensors")
    assert out["notes"][0] == "The trace is the reference, so it stands first."
    assert shell.json(0, file, file)["counts"]["same"] == 3


def test_a_tolerance_lets_a_difference_pass(shell: Shell, morning: str, file: Path) -> None:
    assert shell.json(0, morning, file, "--tolerance", "100")["first_divergence"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ffffff", "{id}"), "There is no trace"),
        (("{id}", "missing.npz"), "is no file"),
        (("{id}", "{id}", "--tolerance", "-1"), "tolerance"),
        (("{id}", "{id}", "--tolerance", "nan"), "tolerance"),
        (("{id}", "{id}", "--how", "luck"), "no way 'luck'"),
        (("{id}", "{id}", "--how", "names"), "same names"),
        (("{id}",), "Missing argument"),
    ],
)
def test_a_wrong_call_exits_with_2(shell: Shell, morning: str, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = shell(*(argument.format(id=morning) for argument in arguments))
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err
