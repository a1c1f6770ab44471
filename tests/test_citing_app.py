"""Citations from the API and the command line: the same, and true to the bytes at hand."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
import yaml
from fastapi import FastAPI

from app import api_citing, cli_cite
from app.cli_shell import command_group
from app.explorer import Explorer
from app.settings import load_settings
from provenance.citation import Pin
from provenance.cited import code_citation
from provenance.citing import Format
from provenance.errors import InvalidInput
from provenance.gpt2.evidence import NORM, transformers
from provenance.gpt2.pins import TRANSFORMERS
from provenance.sources import Delivery, PackageCarrier, Sources
from provenance.trace import Trace

Get = Callable[[str], Any]
Run = Callable[..., str]
EMBEDDINGS = transformers("The two embeddings are added.", ("GPT2Model.forward:hidden_states", 577))


@pytest.fixture
def explorer(tiny_trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Explorer]:
    """An explorer that stores `tiny_trace`; the command line finds the same."""
    monkeypatch.setenv("TENSOR_PROVENANCE_DATA_DIRECTORY", str(tmp_path / "data"))
    monkeypatch.setenv("TENSOR_PROVENANCE_CACHE_DIRECTORY", str(tmp_path / "cache"))
    monkeypatch.setenv("TENSOR_PROVENANCE_NETWORK", "no")
    here = Explorer(load_settings())
    here.store.save(tiny_trace.recipe, tiny_trace.generated, tiny_trace.tensors)
    yield here
    here.close()


@pytest.fixture
def get(explorer: Explorer) -> Get:
    """Asks the API and returns its JSON."""
    application = FastAPI()
    application.state.explorer = explorer
    application.include_router(api_citing.router)

    async def ask(path: str) -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path)

    return lambda path: asyncio.run(ask(path)).raise_for_status().json()


@pytest.fixture
def run(explorer: Explorer, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `cite` and returns what it prints."""
    group: typer.Typer = command_group("A group.", bare=True)
    group.command()(cli_cite.cite)

    def call(*arguments: str) -> str:
        group(arguments, standalone_mode=False)
        return capsys.readouterr().out

    return call


def test_the_api_gives_each_evidence_in_every_format(get: Get) -> None:
    cited = get("/api/sites/norm(x, 'ln_1')/citations")
    first = cited[0]
    assert (first["role"], first["operation"], first["claim"]) == ("producer", "Pre-attention LayerNorm", NORM.claim)
    assert (first["lines"], first["settled"]) == ("28–38", True)
    assert first["url"] == NORM.citation.permalink
    assert first["bibtex"].startswith("@misc{openai-gpt-2-model.py-9b63575ef427-L28-38,\n")
    assert first["cff"].startswith("cff-version: 1.2.0\n")
    assert {entry["role"] for entry in cited} == {"producer", "consumer"}


def test_the_api_cites_a_trace(get: Get, tiny_trace: Trace) -> None:
    cited = get(f"/api/traces/{tiny_trace.id[:8]}/citation")
    assert cited["id"] == tiny_trace.id
    assert cited["weights_sha256"] == tiny_trace.recipe.model.weights_sha256
    assert (cited["prompt"], cited["token_ids"]) == (None, [11, 7, 96, 0, 7, 42])
    assert f"@misc{{trace-{tiny_trace.id[:12]}," in cited["bibtex"]


class AtRevision:
    """A git host in whose revision stands what a package carries."""

    name = "git host"
    remote = False

    def read(self, pin: Pin) -> Delivery | None:
        found = PackageCarrier().read(pin)
        return None if found is None else replace(found, at_revision=True)


def test_what_is_claimed_follows_what_was_read(tmp_path: Path) -> None:
    release = code_citation(Sources([PackageCarrier()], tmp_path / "a"), EMBEDDINGS)
    revision = code_citation(Sources([AtRevision()], tmp_path / "b"), EMBEDDINGS)
    nothing = code_citation(Sources([], tmp_path / "c"), EMBEDDINGS)
    assert (release.settled, revision.settled, nothing.settled) == (False, True, False)
    assert f"anchor=swh:1:rev:{TRANSFORMERS.revision}" in revision.swhid
    assert "anchor" not in release.swhid
    assert {code.blob for code in (release, revision, nothing)} == {TRANSFORMERS.blobs[0]}


def test_a_pin_of_one_content_is_settled_without_its_bytes(tmp_path: Path) -> None:
    assert code_citation(Sources([], tmp_path), NORM).settled


@pytest.mark.parametrize("format", [f for f in Format if f is not Format.JSON])
def test_the_command_prints_what_the_api_gives(run: Run, get: Get, format: Format) -> None:
    cited = get("/api/sites/h.ln_1.out/citations")
    printed = run("h.ln_1.out", "--format", format.value)
    assert all(entry[format.value] in printed for entry in cited)


def test_the_command_prints_json_as_the_api_gives_it(run: Run, get: Get, tiny_trace: Trace) -> None:
    printed = json.loads(run("h.ln_1.out", "--format", "json", "--trace", "latest"))
    assert printed["citations"] == get("/api/sites/h.ln_1.out/citations")
    assert printed["trace"] == get(f"/api/traces/{tiny_trace.id}/citation")


def test_no_entry_is_printed_twice_and_the_trace_comes_last(run: Run, tiny_trace: Trace) -> None:
    keys = re.findall(
        r"^@misc\{(.*),$", run("h.ln_1.out", "--format", "bibtex", "--trace", tiny_trace.id), re.MULTILINE
    )
    assert len(keys) == len(set(keys)) > 2
    assert keys[-1] == f"trace-{tiny_trace.id[:12]}"


def test_several_cff_files_are_several_documents(run: Run) -> None:
    documents = list(yaml.safe_load_all(run("h.ln_1.out", "--format", "cff")))
    assert len(documents) > 1
    assert {document["cff-version"] for document in documents} == {"1.2.0"}


def test_an_address_of_a_trace_is_refused(run: Run) -> None:
    with pytest.raises(InvalidInput, match="no address of its own"):
        run("h.ln_1.out", "--format", "url", "--trace", "latest")
