"""Moving about: strips, keys, search and the theme, as pages without JavaScript and in a real browser."""

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
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
    places = [e.attributes["href"] for e in shown.elements[start:] if e.tag == "a"][:5]
    assert places == ["/map", "/sites", "/traces", "/models", "/sources"]
    assert {place: client.get(place).status_code for place in places} == dict.fromkeys(places, 200)
    assert shown.one("button", id="theme").attributes.keys() >= {"hidden"}, "of no use without JavaScript"
    assert "/sources/drift" in page(client, "/sources").source


def test_our_part_of_the_javascript_is_small() -> None:
    assert sum(len((ROOT / "static" / name).read_bytes()) for name in OWN) < 5 * 1024


# --- in a browser ---


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of a running server, and of a trace on it."""
    app = create_app(settings_in(tmp_path_factory.mktemp("served")))
    running = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=running.run)
    thread.start()
    while not running.started:
        time.sleep(0.02)
    explorer: Explorer = app.state.explorer
    recorded = explorer.record(explorer.plan(EXAMPLE, steps=2))
    port = running.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}", f"/traces/{recorded.id}"
    running.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if found is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium: Any, server: tuple[str, str]) -> Iterator[Any]:
    context = chromium.new_context(base_url=server[0], viewport={"width": 1280, "height": 900}, color_scheme="light")
    tab = context.new_page()
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    yield tab
    context.close()
    assert complaints == []


@pytest.mark.browser
def test_keys_walk_through_tensors_layers_and_steps(tab: Any, server: tuple[str, str]) -> None:
    trace = server[1]
    tab.goto(f"{trace}/h.0.ln_1.normalized")
    for key, there in (
        ("j", "h.0.ln_1.out"), ("]", "h.1.ln_1.out"), (".", "h.1.ln_1.out?step=1"), (",", "h.1.ln_1.out"),
        ("[", "h.0.ln_1.out"), ("k", "h.0.ln_1.normalized"),
    ):  # fmt: skip
        tab.keyboard.press(key)
        tab.wait_for_url(f"**{trace}/{there}")
    tab.keyboard.press("[")
    assert tab.url.endswith("/h.0.ln_1.normalized"), "there is no layer below the first"


@pytest.mark.browser
def test_keys_do_nothing_while_one_types(tab: Any, server: tuple[str, str]) -> None:
    tab.goto(f"{server[1]}/h.0.ln_1.out")
    tab.keyboard.press("/")
    tab.keyboard.type("jk[],.?/")
    assert tab.input_value("#search") == "jk[],.?/"
    assert tab.url.endswith("/h.0.ln_1.out")
    assert not tab.evaluate("document.getElementById('keys').open")
    tab.goto("/")
    tab.focus("#prompt")
    tab.keyboard.press("?")
    assert not tab.evaluate("document.getElementById('keys').open")


@pytest.mark.browser
def test_a_question_mark_lists_the_keys_and_escape_closes_the_list(tab: Any) -> None:
    tab.goto("/map")
    tab.keyboard.press("?")
    tab.wait_for_selector("#keys[open]")
    assert tab.locator("#keys dt").count() == 9
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#keys", state="hidden")
    tab.click("#show-keys")
    tab.wait_for_selector("#keys[open]")


@pytest.mark.browser
def test_search_is_walked_with_arrows_and_enter_opens_the_best(tab: Any, server: tuple[str, str]) -> None:
    tab.goto(f"{server[1]}/h.0.ln_1.out")
    tab.keyboard.press("/")
    tab.keyboard.type("blocks.1.attn.hook_")
    tab.wait_for_selector('#live [data-query="blocks.1.attn.hook_"]')
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowDown")
    titles = tab.locator("#live .results a").all_text_contents()
    assert tab.evaluate("document.activeElement.textContent") == titles[1]
    tab.keyboard.press("ArrowUp")
    tab.keyboard.press("ArrowUp")
    assert tab.evaluate("document.activeElement.id") == "search"
    tab.keyboard.press("Escape")
    assert tab.locator("#live a").count() == 0
    tab.fill("#search", "blocks.1.attn.hook_pattern")
    tab.wait_for_selector('#live [data-query="blocks.1.attn.hook_pattern"]')
    assert tab.text_content("#found") == "1 tensor found."
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/h.1.attn.pattern")


@pytest.mark.browser
def test_the_theme_is_switched_and_remembered(tab: Any) -> None:
    def paper() -> str:
        return str(tab.evaluate("getComputedStyle(document.body).backgroundColor"))

    tab.goto("/map")
    light = paper()
    tab.click("#theme")
    assert (tab.get_attribute("#theme", "aria-label"), paper()) == ("Theme: light", light)
    tab.click("#theme")
    dark = paper()
    assert dark != light
    tab.goto("/sites")
    assert paper() == dark
    tab.click("#theme")
    assert (tab.get_attribute("#theme", "aria-label"), paper()) == ("Theme: system", light)
    tab.emulate_media(color_scheme="dark")
    assert paper() == dark


@pytest.mark.browser
def test_the_map_is_zoomed_by_clicks_down_to_one_tensor(tab: Any, server: tuple[str, str]) -> None:
    id = server[1].removeprefix("/traces/")
    tab.goto(f"/map?trace={id}")
    tab.click("svg.map a.stacked")
    tab.wait_for_url("**/map/transformer-block?trace=*")
    tab.click("svg.map a.frame-title:has-text('Attention')")
    tab.wait_for_url("**/transformer-block/attention?*")
    tab.click("svg.map a.frame-title:has-text('LayerNorm 1')")
    tab.wait_for_url("**/attention/layernorm-1?*")
    tab.click("svg.map a.node:has-text('Normalized attention input')")
    tab.wait_for_url(f"**/traces/{id}/h.0.ln_1.out")
    assert tab.text_content("h1") == "Normalized attention input"


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "address", ["/map", "/map/transformer-block", "/map/transformer-block/attention", "tensor", "/search?q=x"]
)
def test_axe_finds_nothing_and_a_phone_scrolls_one_way(
    tab: Any, server: tuple[str, str], address: str, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    id = server[1].removeprefix("/traces/")
    where = f"{server[1]}/h.1.attn.scores" if address == "tensor" else address
    tab.emulate_media(color_scheme=scheme)
    tab.goto(where if "?" in where or address == "tensor" else f"{where}?trace={id}&site=h.attn.scores")
    found = axe.run(tab).response["violations"]
    own = [(v["id"], node["target"]) for v in found for node in v["nodes"]]
    assert own == [], json.dumps(own)
    tab.set_viewport_size({"width": 390, "height": 844})
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    sizes = tab.evaluate(
        "[...document.querySelectorAll('svg.map text')].map(t => parseFloat(getComputedStyle(t).fontSize)"
        " * t.getScreenCTM().a)"
    )
    assert not sizes or min(sizes) >= 12
