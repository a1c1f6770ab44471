"""The second model family on the command line, in files, in static sites and in notebooks."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from api_client import Api, running
from html_tree import tree
from safetensors.numpy import load_file, save_file
from shell import Shell

import provenance.notebook.sites as sites
from app.doctor_disk import check_traces
from app.export.site import MARKER, export_site
from app.findings import Diagnosis
from app.settings import load_settings
from provenance.catalogues import OUTLINES
from provenance.errors import InvalidInput, InvalidPrompt, UnknownFamily, UnknownSite
from provenance.export import shape_of
from provenance.inputs import numbers, said, unquoted
from provenance.models import constants_of
from provenance.names import Address
from provenance.notebook.trace import Trace
from provenance.notebook.workspace import Workspace
from provenance.order import computation_order

OURS = "textbook"
SMALL = f"{OURS}-causal-d8-h2-l1"
NOTHING = "The model of this trace predicts nothing"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    for name, value in {
        "DATA_DIRECTORY": str(tmp_path / "data"), "CACHE_DIRECTORY": str(tmp_path / "cache"),
        "MODEL": "tiny-untrained", "NETWORK": "no",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"TENSOR_PROVENANCE_{name}", value)
    monkeypatch.setenv("COLUMNS", "80")
    return Shell(capsys)


# --- the command line ---


def test_seeded_vectors_are_recorded_listed_and_shown(shell: Shell) -> None:
    said_first = shell.out("record", "--model", SMALL, "--length", "4", "--batch", "3", "--input-seed", "7")
    assert "vectors  4, drawn from seed 7, batch 3: [#0] [#1] [#2] [#3]" in said_first
    assert "generated" not in said_first and "prefill" not in said_first
    assert "show h.attn.q --trace" in said_first
    again = shell.json("record", "--model", SMALL, "--ids", "0,1,2,3", "--batch", "3", "--input-seed", "7")
    assert (again["batch"], again["input_seed"], again["generated"]) == (3, 7, [])
    (listed,) = shell.json("traces")
    assert listed["id"] == again["id"]
    assert f"{SMALL}  4+0     vectors from" in shell.out("traces")
    tensor = shell.json("show", "h.0.attn.weight", "--trace", "latest")
    assert tensor["shape"] == [3, 2, 4, 4]
    assert "in a decode step" not in shell.out("show", "h.attn.weight")


def test_without_a_length_there_are_twenty_in_eight_entries(shell: Shell) -> None:
    out = shell.json("record", "--model", SMALL)
    assert (len(out["tokens"]), out["batch"], out["input_seed"]) == (20, 8, 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("Hello", "--model", SMALL), "it takes no text"),
        (("--model", SMALL, "--steps", "1"), "predicts nothing, so it has no decode steps"),
        (("--model", SMALL, "--length", "513"), "There is no vector #512"),
        (("--model", SMALL, "--length", "2", "--ids", "1,2"), "Give either TEXT or --ids"),
        (("--length", "3"), "reads the tokens of a text, so it takes no length"),
        (("Hello", "--batch", "2"), "takes no batch"),
        ((), "Give either TEXT or --ids"),
    ],
)
def test_what_does_not_go_together_is_refused(shell: Shell, arguments: tuple[str, ...], says: str) -> None:
    assert says in shell.refusal("record", *arguments)


def test_verify_records_and_computes_the_equations(shell: Shell) -> None:
    text = shell.out("verify", "--model", SMALL, "--length", "3", "--batch", "2")
    assert "everything that applies holds" in text
    assert "No code is cited for this model: its equations were computed." in text
    assert "Bytes" not in text and "Coverage" not in text and "Execution" not in text
    report = shell.json("verify", "--trace", "latest")
    assert {parity["source"] for parity in report["parities"]} == {"equation"}


def test_sites_are_listed_shown_and_cited_by_family(shell: Shell) -> None:
    listed = shell.json("sites", "--family", OURS)
    assert [out["site"] for out in listed] == list(OUTLINES[OURS].catalogue.rows)
    assert shell.json("sites")[0]["site"] == "tokens"
    assert shell.json("show", "h.attn.q", "--family", OURS)["family"] == OURS
    assert shell.json("show", "h.attn.weight")["family"] == OURS
    assert "There is no model family 'x'" in shell.refusal("show", "h.attn.q", "--family", "x")
    assert "its equation is what stands behind it" in shell.refusal("cite", "h.attn.weight")
    shell.out("record", "--model", SMALL, "--length", "2", "--batch", "1")
    assert "2 vectors, batch 1, drawn from seed 0" in shell.out("cite", "h.attn.weight", "--trace", "latest")
    assert NOTHING in shell.refusal("attribute", "latest")


def test_models_are_listed_with_their_family(shell: Shell) -> None:
    known = {model["name"]: model for model in shell.json("models")}
    assert known[OURS]["family"] == OURS and known["demo"]["family"] == "gpt2"
    shown = shell.json("models", "show", SMALL)
    assert (shown["config"]["n_embd"], shown["config"]["causal"], shown["problem"]) == (8, 1, "")


def test_a_changed_run_says_nothing_of_predictions(shell: Shell) -> None:
    edit = "h.0.attn.weight[batch=1]=0"
    text = shell.out("record", "--model", SMALL, "--length", "3", "--batch", "2", "--set", edit)
    assert "KL" not in text and "recorded now" in text


def test_the_doctor_reads_such_traces(shell: Shell) -> None:
    shell.out("record", "--model", SMALL, "--length", "2", "--batch", "1")
    assert Diagnosis(findings=list(check_traces(load_settings(), deep=True))).is_fine


# --- files ---


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("families")) as started:
        yield started


@pytest.fixture(scope="module")
def id(api: Api) -> str:
    return api.record(model=SMALL, length=4, batch=3).removeprefix("/api/traces/")


def test_every_shape_is_known_without_its_tensor(api: Api, id: str) -> None:
    here, trace = api.explorer, api.explorer.store.open(id)
    catalogue, constants = here.catalogue(trace), constants_of(trace.recipe.model)
    for at in computation_order(catalogue, trace.layers, 0):
        assert shape_of(catalogue, constants, trace, at) == tuple(here.tensor(trace, at).shape), at


def test_a_golden_file_says_where_its_vectors_come_from(
    api: Api, id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TENSOR_PROVENANCE_DATA_DIRECTORY", str(api.explorer.settings.data_directory))
    shell, out = Shell(capsys), tmp_path / "golden.safetensors"
    shell.out("golden", id, "--out", str(out))
    manifest = json.loads((tmp_path / "golden.safetensors.manifest.json").read_text())
    assert (manifest["tokens"], manifest["generated"]) == ([0, 1, 2, 3], [])
    assert manifest["drawn"] == {"batch": 3, "seed": 0}
    tensors = load_file(out)
    # Two files tell by their names of which family they are, and are compared in its order of computation.
    other = {**tensors, "h.0.attn.weight": tensors["h.0.attn.weight"] * 0.5}
    save_file(other, tmp_path / "other.safetensors")
    code, text, _ = shell("compare", str(out), str(tmp_path / "other.safetensors"))
    assert code == 1 and "They diverge at h.0.attn.weight." in text
    assert "means no tensor known here" not in text


@pytest.mark.slow
def test_a_static_site_of_such_a_trace_has_no_dead_links(api: Api, id: str, tmp_path: Path) -> None:
    done = export_site(api.explorer.settings, id, tmp_path / "site")
    files = {path.relative_to(done.directory).as_posix() for path in done.directory.rglob("*") if path.is_file()}
    assert MARKER in files and not done.left_out
    assert not [file for file in files if "lens" in file or "attribution" in file or "position-" in file]
    assert "trace/h.0.attn.weight.batch-2.html" in files and "trace/h.0.attn.weight.head-1.html" in files
    assert f"sites/h.attn.weight.family-{OURS}.html" in files
    assert not [file for file in files if file.startswith(("cite/sites", "sources/"))]
    for file in sorted(files):
        if file.endswith(".html"):
            _check_links(done.directory, file, files)
    first = (done.directory / "index.html").read_text()
    assert "4 vectors #0 #1 #2 #3 from seed 0, batch 3" in first and "Record seeded vectors" not in first


def _check_links(directory: Path, file: str, files: set[str]) -> None:
    shown = tree((directory / file).read_text())
    for node in shown.elements:
        link = node.attributes.get("href") or node.attributes.get("src") or ""
        parts = urlsplit(link)
        if parts.scheme or not parts.path:
            continue
        target = (directory / file).parent / unquote(parts.path)
        assert target.resolve().relative_to(directory.resolve()).as_posix() in files, (file, link)


# --- Python and notebooks ---


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return Workspace(tmp_path_factory.mktemp("notebook")).record(model=SMALL, length=5, batch=2, input_seed=3)


def test_a_notebook_records_seeded_vectors_and_shows_them(notebook: Trace) -> None:
    assert "5 vectors #0 … #4 from seed 3, batch 2" in repr(notebook)
    assert repr(notebook).endswith("5 vectors, batch 2, seed 3>")
    card = tree(notebook._repr_html_())
    heads = [head.text for head in card.all("th")]
    assert "Vectors" in heads and "Prompt" not in heads and "Chosen" not in heads
    weight = notebook["h.0.attn.weight"].numpy()
    assert weight.shape == (2, 2, 5, 5)
    np.testing.assert_allclose(weight.sum(-1), 1, rtol=1e-6)
    for ask in (notebook.next_tokens, notebook.lens):
        with pytest.raises(InvalidInput, match=NOTHING):
            ask()
    assert notebook.verify().holds


def test_a_notebook_refuses_what_does_not_go_together(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    with pytest.raises(InvalidPrompt, match="takes no text"):
        work.record("Hello", model=SMALL)
    with pytest.raises(InvalidInput, match="takes no batch"):
        work.record("Hello", model="tiny-untrained", batch=2)
    with pytest.raises(InvalidPrompt, match="empty"):
        work.record(model="tiny-untrained")


def test_sites_of_a_family_in_a_notebook() -> None:
    assert sites.site("h.attn.weight").family == OURS
    assert sites.site("h.attn.q").family == "gpt2"
    ours = sites.site("h.attn.q", family=OURS)
    assert ours.shape == "[B batch, 8 head, T, 8 head_dim]"
    assert f"sites/h.attn.q?family={OURS}" in ours._repr_html_()
    assert [site.site for site in sites.sites(family=OURS)] == list(OUTLINES[OURS].catalogue.rows)
    assert {site.family for site in sites.search("residual stream")} == set(OUTLINES)
    with pytest.raises(UnknownFamily):
        sites.sites(family="x")
    with pytest.raises(UnknownSite):
        sites.site("h.attn.weight", family="gpt2")
    with pytest.raises(InvalidInput, match="No code is cited"):
        ours.cite()


def test_what_was_read_is_said_in_a_few_words(notebook: Trace) -> None:
    assert numbers([0]) == "1 vector #0"
    assert numbers([3, 1]) == "2 vectors #3 #1"
    assert numbers(list(range(20))) == "20 vectors #0 … #19"
    assert numbers([2, 0, 1, 4, 3]) == "5 vectors #2 #0 #1 #4 …"
    recipe = notebook.recipe
    assert said(recipe) == unquoted(recipe) == "5 vectors #0 … #4 from seed 3, batch 2"
    text = recipe.model_copy(update={"text": "a b", "drawn": None})
    assert (said(text), unquoted(text)) == ("“a b”", "a b")
    assert said(recipe.model_copy(update={"drawn": None})) == "token ids 0 1 2 3 4"


def test_a_masked_tensor_of_a_model_without_a_mask_has_none(api: Api) -> None:
    path = api.record(model=f"{OURS}-d8-h2-l1", length=3, batch=1)
    trace = api.explorer.store.open(path.removeprefix("/api/traces/"))
    assert api.explorer.masked(trace, Address("h.attn.weight", 0)) is None
    assert api.ask("GET", f"{path.removeprefix('/api')}/h.0.attn.weight").status_code == 200
