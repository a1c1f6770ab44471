"""Moving about: strips, search and what stands around every page, without JavaScript."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_pages import Client, page, words

from app.explorer import EXAMPLE, Explorer
from app.main import create_app
from app.pages import norms
from app.pages.what import with_left_side
from app.settings import Settings, load_settings
from provenance.gpt2.catalogue import CATALOGUE
from provenance.lookup import near, search
from provenance.names import Address
from provenance.trace import Trace

ROOT = Path(__file__).resolve().parents[1]
OWN = ("app.js", "theme.js")


def settings_in(directory: Path) -> Settings:
    return load_settings(
        data_directory=directory / "data", cache_directory=directory / "cache", model="tiny-untrained",
        example=False, network=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    app = create_app(settings_in(tmp_path_factory.mktemp("moving")))
    running = app.router.lifespan_context(app)
    with asyncio.Runner() as runner:
        runner.run(running.__aenter__())
        yield Client(app, runner)
        runner.run(running.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def explorer(client: Client) -> Explorer:
    explorer: Explorer = client.app.state.explorer
    return explorer


@pytest.fixture(scope="module")
def trace(explorer: Explorer) -> Trace:
    return explorer.record(explorer.plan(EXAMPLE, steps=2))


# --- a site over the layers ---


def test_a_kept_site_shows_its_size_in_every_layer_at_once(client: Client, explorer: Explorer, trace: Trace) -> None:
    shown = page(client, f"/traces/{trace.id}/h.1.resid_post")
    assert len(shown.all("a", class_="layer-bar", tabindex="-1")) == trace.layers
    table = [e for e in shown.elements if e.tag == "caption" and e.text == "Root mean square by layer"]
    assert len(table) == 1
    values = [float(e.attributes["value"]) for e in shown.all("data")[: trace.layers]]
    wanted = [
        float(explorer.tensor(trace, Address("h.resid_post", n)).double().square().mean() ** 0.5) for n in (0, 1)
    ]
    assert values == pytest.approx(wanted)


def test_another_site_shows_them_when_they_are_asked_for(client: Client, explorer: Explorer) -> None:
    fresh = explorer.record(explorer.plan("asked for", steps=1))
    address = f"/traces/{fresh.id}/h.1.mlp.h"
    link = next(e for e in page(client, address).all("a") if words(e.text) == "RMS in every layer")
    assert link.attributes["hx-get"] == link.attributes["href"] == f"/traces/{fresh.id}/norms/h.mlp.h?layer=1"
    assert link.attributes["hx-trigger"] == "load, click", "few tokens: fetched without asking"
    whole = page(client, link.attributes["href"])
    rows = [float(e.attributes["value"]) for e in whole.all("data")]
    wanted = [float(explorer.tensor(fresh, Address("h.mlp.h", n)).double().square().mean() ** 0.5) for n in (0, 1)]
    assert rows[:2] == pytest.approx(wanted)
    assert "RMS in every layer" not in page(client, address).source, "now they are at hand"


def test_a_long_prompt_is_not_replayed_unasked(
    client: Client, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(norms, "MOST_CELLS", 3)
    fresh = explorer.record(explorer.plan("not by itself"))
    link = next(e for e in page(client, f"/traces/{fresh.id}/h.0.mlp.h").all("a") if "norms" in e.attributes["href"])
    assert "hx-trigger" not in link.attributes


@pytest.mark.parametrize(
    "address", ["norms/logits", "norms/h.attn.mask.m", "norms/h.attn.pk", "norms/h.mlp.h?layer=9"]
)
def test_what_has_no_size_by_layer_is_refused(client: Client, trace: Trace, address: str) -> None:
    assert client.get(f"/traces/{trace.id}/{address}").status_code in (404, 422)


# --- what a tensor is ---


def test_a_formula_names_the_variable_that_it_gives() -> None:
    formulas = {row.site: with_left_side(row) for row in CATALOGUE}
    assert formulas["h.resid_mid"] == r"x \leftarrow x + a"
    assert formulas["h.mlp.h"] == r"h = \mathrm{gelu}(x)"
    assert formulas["h.attn.softmax.ex"] == r"\mathrm{ex} = e^{x_{ij}}"
    assert formulas["h.ln_1.g"] == "g"
    assert formulas["h.attn.pattern"].count("=") == 1


def test_each_axis_says_what_it_counts(client: Client) -> None:
    shown = page(client, "/sites/h.attn.q")
    assert "12 head attention heads" in words(shown.one("ul", class_="axes").text)


# --- search ---


def test_a_hook_that_is_half_typed_is_found_in_its_layer(client: Client, trace: Trace) -> None:
    shown = page(client, f"/search?q=blocks.1.attn.hook_p&trace={trace.id}&layer=0&step=0")
    first = shown.one("ol", class_="results")
    link = next(e for e in shown.all("a") if e.attributes["href"] == f"/traces/{trace.id}/h.1.attn.pattern")
    assert "Attention pattern" in link.text
    assert "layer 1" in first.text
    assert "TransformerLens' hook: blocks.N.attn.hook_pattern" in first.text


def test_a_search_says_how_much_it_found(client: Client) -> None:
    matches = page(client, "/search?q=softmax(w)").one("div", class_="matches")
    assert matches.attributes["data-query"] == "softmax(w)"
    found = len(search(CATALOGUE, "softmax(w)"))
    assert matches.attributes["data-says"] == f"{found} tensor{'s' if found > 1 else ''} found."


@pytest.mark.parametrize(
    ("query", "site"),
    [
        ("sofmax(w)", "h.attn.pattern"),
        ("blocks.3.attn.hook_patern", "h.attn.pattern"),
        ("transformer.h.11.atn.c_attn", "h.attn.c_attn.c"),
        ("atention pattern", "h.attn.pattern"),
    ],
)
def test_a_slip_of_the_pen_has_near_matches_with_reasons(client: Client, query: str, site: str) -> None:
    assert search(CATALOGUE, query) == ()
    assert site in [match.row.site for match in near(CATALOGUE, query)]
    shown = page(client, "/search?q=" + query)
    assert f"/sites/{site}" in [e.attributes["href"] for e in shown.all("a")]


@pytest.mark.parametrize("query", ["", "qqqqqqqqqqqqqq"])
def test_a_search_without_results_shows_queries_that_find_something(client: Client, query: str) -> None:
    shown = page(client, f"/search?q={query}")
    examples = [e.attributes["href"] for e in shown.all("a") if e.attributes["href"].startswith("/search?q=")]
    assert len(examples) == 7
    for example in examples:
        assert page(client, example).all("ol", class_="results"), example


# --- around every page ---


def test_every_place_in_the_header_is_there(client: Client) -> None:
    shown = page(client, "/")
    start = next(n for n, e in enumerate(shown.elements) if e.attributes.get("aria-label") == "Site")
    places = [e.attributes["href"] for e in shown.elements[start:] if e.tag == "a"][:7]
    assert places == ["/map", "/sites", "/lessons", "/traces", "/compare", "/models", "/sources"]
    assert {place: client.get(place).status_code for place in places} == dict.fromkeys(places, 200)
    assert shown.one("button", id="theme").attributes.keys() >= {"hidden"}, "of no use without JavaScript"
    assert "/sources/drift" in page(client, "/sources").source


def test_our_part_of_the_javascript_is_small() -> None:
    assert sum(len((ROOT / "static" / name).read_bytes()) for name in OWN) < 5 * 1024
