"""Moving about by keys, search and the map, and switching the theme."""

import pytest
from playwright.sync_api import Page

from .conftest import Site

pytestmark = pytest.mark.browser


def test_keys_walk_through_tensors_layers_and_steps(tab: Page, site: Site) -> None:
    trace = site.tiny
    tab.goto(f"{trace}/h.0.ln_1.normalized")
    for key, there in (
        ("j", "h.0.ln_1.out"), ("]", "h.1.ln_1.out"), (".", "h.1.ln_1.out?step=1"), (",", "h.1.ln_1.out"),
        ("[", "h.0.ln_1.out"), ("k", "h.0.ln_1.normalized"),
    ):  # fmt: skip
        tab.keyboard.press(key)
        tab.wait_for_url(f"**{trace}/{there}")
    tab.keyboard.press("[")
    assert tab.url.endswith("/h.0.ln_1.normalized"), "there is no layer below the first"


def test_keys_do_nothing_while_one_types(tab: Page, site: Site) -> None:
    tab.goto(f"{site.tiny}/h.0.ln_1.out")
    tab.keyboard.press("/")
    tab.keyboard.type("jk[],.?/")
    assert tab.input_value("#search") == "jk[],.?/"
    assert tab.url.endswith("/h.0.ln_1.out")
    assert not tab.evaluate("document.getElementById('keys').open")
    tab.goto("/")
    tab.focus("#prompt")
    tab.keyboard.press("?")
    assert not tab.evaluate("document.getElementById('keys').open")


def test_a_question_mark_lists_the_keys_and_escape_closes_the_list(tab: Page) -> None:
    tab.goto("/map")
    tab.keyboard.press("?")
    tab.wait_for_selector("#keys[open]")
    assert tab.locator("#keys dt").count() == 9
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#keys", state="hidden")
    tab.click("#show-keys")
    tab.wait_for_selector("#keys[open]")


def test_search_is_walked_with_arrows_and_enter_opens_the_best(tab: Page, site: Site) -> None:
    tab.goto(f"{site.tiny}/h.0.ln_1.out")
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


def test_the_theme_is_switched_and_remembered(tab: Page) -> None:
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


def test_the_map_is_zoomed_by_clicks_down_to_one_tensor(tab: Page, site: Site) -> None:
    id = site.tiny.removeprefix("/traces/")
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
