"""The page of drift and the `repin` command say what the engine found, with texts only where they are at hand."""

import asyncio
import json
import zipfile
from collections.abc import Iterator
from contextlib import closing
from importlib import metadata
from pathlib import Path

import httpx
import pytest

from app import cli
from app.cli_repin import repin
from app.explorer import Explorer
from app.main import create_app
from app.pages import drift as page
from app.settings import Settings, load_settings
from provenance.citation import Blob, Package
from provenance.errors import UnknownSource
from provenance.gpt2.pins import TRANSFORMERS
from provenance.gpt2.releases import RELEASES, Release
from provenance.sources import Drift, git_blob_id

FILE = "transformers/models/gpt2/modeling_gpt2.py"
SCALING_LINES = (96, 98)


def installed() -> bytes:
    return Path(str(metadata.distribution("transformers").locate_file(FILE))).read_bytes()


def another() -> bytes:
    """The installed file with a line more on top, one cited line changed, and one cited place taken out."""
    lines = installed().split(b"\n")
    lines[57] = lines[57].replace(b"scaling", b"factor")
    kept = [line for n, line in enumerate(lines, 1) if not SCALING_LINES[0] <= n <= SCALING_LINES[1]]
    return b"\n".join([b"# <b>first</b>", *kept])


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(
        data_directory=tmp_path / "data", cache_directory=tmp_path / "cache", example=False, network=False
    )


@pytest.fixture
def explorer(settings: Settings) -> Iterator[Explorer]:
    with closing(Explorer(settings)) as opened:
        yield opened


@pytest.fixture
def release(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Release:
    """A release 99.0 whose wheel lies among the archives, and which the page has a report about."""
    archives = settings.cache_directory / "sources" / "archives"
    archives.mkdir(parents=True)
    with zipfile.ZipFile(archives / "transformers-99.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(FILE, another())
    blob = Blob(git_blob_id(another()), (Package("transformers", "99.0", FILE),))
    made = Release(TRANSFORMERS, blob, TRANSFORMERS.blobs[0].id, ())
    monkeypatch.setattr(page, "RELEASES", (*RELEASES, made))
    return made


def test_a_changed_place_stands_side_by_side_with_its_changed_line_marked(
    explorer: Explorer, release: Release
) -> None:
    shown = page.drift_page(explorer, "99.0")
    assert shown.advice == ""
    place = next(p for p in shown.places if p.old.lines == "58")
    assert (place.badge.sign, place.badge.word, place.open) == ("≠", "changed", True)
    assert place.new is not None
    assert [(line.number, line.mark) for line in place.old.code] == [(58, "−")]
    assert [(line.number, line.mark) for line in place.new.code] == [(59, "+")]
    assert "factor" in place.new.code[0].text


def test_a_vanished_place_has_one_side_and_a_reason(explorer: Explorer, release: Release) -> None:
    place = next(p for p in page.drift_page(explorer, "99.0").places if p.old.lines == "96–98")
    assert (place.badge.word, place.new, place.open) == ("vanished", None, True)
    assert "no counterpart" in place.note


def test_a_place_that_only_moved_has_no_marks_and_is_closed(explorer: Explorer, release: Release) -> None:
    place = next(p for p in page.drift_page(explorer, "99.0").places if p.old.lines == "60–61")
    assert place.new is not None
    assert (place.badge.word, place.new.lines, place.open) == ("moved", "61–62", False)
    assert {line.mark for line in (*place.old.code, *place.new.code)} == {""}


def test_without_the_text_the_saved_report_stands_alone_and_says_how_to_get_it(explorer: Explorer) -> None:
    shown = page.drift_page(explorer, "5.24.0")
    assert "not at hand" in shown.advice
    assert shown.command == "tensor-provenance repin transformers 5.24.0"
    assert all(not place.old.code for place in shown.places)
    logits = next(p for p in shown.places if p.old.lines == "698")
    assert (logits.badge.word, logits.new and logits.new.lines) == ("changed", "698")


@pytest.mark.parametrize(
    ("version", "counts"),
    [("4.57.6", (0, 28, 6, 1)), ("5.6.0", (23, 12, 0, 0)), ("5.14.1", (23, 12, 0, 0)), ("5.24.0", (4, 25, 6, 0))],
)
def test_the_table_counts_every_cited_place_of_a_release(
    explorer: Explorer, version: str, counts: tuple[int, ...]
) -> None:
    shown = page.drift_page(explorer, version)
    link = next(link for link in shown.releases if link.version == version)
    assert tuple(count for _, count in link.counts) == counts
    assert sum(counts) == len(shown.places)
    assert [other.version for other in shown.releases if other.current] == [version]


def test_a_release_without_a_report_is_unknown(explorer: Explorer) -> None:
    with pytest.raises(UnknownSource, match=r"4\.57\.6"):
        page.drift_page(explorer, "1.0")


def test_a_report_about_other_citations_is_not_shown(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = Release(TRANSFORMERS, RELEASES[0].blob, "0" * 40, ())
    monkeypatch.setattr(page, "RELEASES", (stale,))
    with pytest.raises(UnknownSource):
        page.drift_page(explorer)


def test_the_page_is_html_with_escaped_code_and_focusable_excerpts(settings: Settings, release: Release) -> None:
    answer, unknown, newest = asyncio.run(
        get(settings, "/sources/drift?release=99.0", "/sources/drift?release=<b>", "/sources/drift")
    )
    assert answer.status_code == newest.status_code == 200
    assert "≠" in answer.text and "changed" in answer.text
    assert answer.text.count('<pre class="code" tabindex="0"') == answer.text.count("<pre ")
    assert unknown.status_code == 404 and "<b>" not in unknown.text


async def get(settings: Settings, *addresses: str) -> list[httpx.Response]:
    app = create_app(settings)
    with closing(Explorer(settings)) as opened:
        app.state.explorer = opened
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return [await client.get(address) for address in addresses]


# --- the command ---


def run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def environment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOR_PROVENANCE_CACHE_DIRECTORY", str(settings.cache_directory))
    monkeypatch.setenv("TENSOR_PROVENANCE_DATA_DIRECTORY", str(settings.data_directory))
    monkeypatch.setenv("TENSOR_PROVENANCE_NETWORK", "false")


@pytest.mark.usefixtures("environment")
def test_the_installed_release_holds_and_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["repin", "transformers", metadata.version("transformers")]) == 0
    assert "35 cited places: 35 same, 0 moved, 0 changed, 0 vanished." in capsys.readouterr().out


@pytest.mark.usefixtures("environment", "release")
def test_changed_and_vanished_places_are_shown_and_exit_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["repin", "huggingface/transformers", "transformers==99.0"]) == 1
    shown = capsys.readouterr().out
    assert "Vanished: 96–98, cited by Attention scores" in shown
    changed = shown.split("Changed: 58 → 59, cited by Attention scores\n")[1].split("\n")
    assert changed[0].startswith("  -") and changed[1].startswith("  +") and "factor" in changed[1]


@pytest.mark.usefixtures("environment", "release")
def test_json_has_the_same_places(capsys: pytest.CaptureFixture[str], settings: Settings) -> None:
    assert run(["repin", "transformers", "99.0", "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed == repin(settings, "transformers", "99.0").model_dump(mode="json")
    vanished = [place for place in printed["places"] if place["state"] == Drift.VANISHED]
    assert [(place["lines"], place["new_lines"]) for place in vanished] == [(list(SCALING_LINES), None)]


@pytest.mark.usefixtures("environment", "release")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["elsewhere/model", "99.0"], "Nothing cites a repository"),
        (["transformers", "main"], "is neither a revision nor a release"),
        (["transformers", "99.0", "--revision", "d" * 40], "--revision is what --write pins"),
        (["transformers", "99.0", "--write"], "which revision it was made from"),
        (["transformers", "99.0", "--write", "--revision", "d" * 40], "without a counterpart"),
    ],
)
def test_what_cannot_be_done_exits_with_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(["repin", *arguments]) == 2
    assert message in capsys.readouterr().err
