"""Whole walks: recording a prompt, down to a tensor by clicks and by keys, back and forth, without JavaScript."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page

from .conftest import PHONE, Open, Site

pytestmark = pytest.mark.browser

NORM = "norm(x, 'ln_1')"
TREE = "nav.tree"


def record(tab: Page, prompt: str, steps: int = 2) -> str:
    """Record by the form; the path of the trace, whose page is shown then."""
    tab.goto("/")
    tab.fill("#prompt", prompt)
    tab.fill("#steps", str(steps))
    tab.select_option("#model", "tiny-untrained")
    tab.click("#record button:has-text('Record')")
    tab.wait_for_selector("#prediction", timeout=120_000)
    assert tab.text_content("h1") == f"“{prompt}”"
    return urlsplit(tab.url).path


def path_of(tab: Page) -> str:
    parts = urlsplit(tab.url)
    return parts.path + (f"?{parts.query}" if parts.query else "")


def is_the_norm(tab: Page, path: str) -> None:
    assert path_of(tab) == path
    assert tab.text_content("h1") == "Normalized attention input"
    assert tab.locator(".expression code").inner_text() == NORM


def first_cell(site: Site, address: str, index: str, step: int = 0, trace: str = "") -> float:
    query = {"index": index, "step": step}
    found: float = site.served.json(f"{trace or site.trace}/tensors/{address}/slice", **query)["values"][0]
    return found


def test_a_prompt_is_recorded_and_walked_by_clicks_to_the_norm(tab: Page) -> None:
    trace = record(tab, "A walk by clicks")
    id = trace.removeprefix("/traces/")
    tab.locator("main").get_by_role("link", name="Transformer block 0", exact=True).click()
    tab.wait_for_url(f"**/groups/transformer-block?trace={id}")
    tab.locator("main").get_by_role("link", name="Attention", exact=True).click()
    tab.wait_for_url(f"**/groups/transformer-block/attention?trace={id}")
    tab.get_by_role("rowheader").get_by_role("link", name="Normalized attention input").click()
    tab.wait_for_url(f"**{trace}/h.0.ln_1.out")
    is_the_norm(tab, f"{trace}/h.0.ln_1.out")
    assert tab.locator(".crumbs a").all_text_contents() == ["Transformer block 0", "Attention", "LayerNorm 1"]


def test_the_tree_at_the_side_leads_there_too(tab: Page, site: Site) -> None:
    tab.goto(site.tiny)
    for group in ("Transformer block 0", "Attention", "LayerNorm 1"):
        tab.locator(f"{TREE} summary", has_text=re.compile(f"^{group}$")).click()
    tab.locator(TREE).get_by_role("link", name="Normalized attention input").click()
    tab.wait_for_url("**/h.0.ln_1.out")
    is_the_norm(tab, f"{site.tiny}/h.0.ln_1.out")


def test_a_prompt_is_recorded_and_walked_by_keys_to_the_norm(tab: Page) -> None:
    tab.goto("/")
    tab.focus("#prompt")
    tab.keyboard.press("Control+a")
    tab.keyboard.type("A walk by keys")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Control+a")
    tab.keyboard.type("1")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#prediction", timeout=120_000)
    trace = urlsplit(tab.url).path
    tab.keyboard.press("/")
    tab.keyboard.type(NORM)
    tab.wait_for_selector(f'#live [data-query="{NORM}"]')
    tab.keyboard.press("Enter")
    for key, address in (
        ("", "h.0.ln_1.out"), ("k", "h.0.ln_1.normalized"), ("j", "h.0.ln_1.out"), ("]", "h.1.ln_1.out"),
        (".", "h.1.ln_1.out?step=1"), (",", "h.1.ln_1.out"), ("[", "h.0.ln_1.out"),
    ):  # fmt: skip
        if key:
            tab.keyboard.press(key)
        tab.wait_for_url(f"**{trace}/{address}")
    is_the_norm(tab, f"{trace}/h.0.ln_1.out")
    tab.keyboard.press("?")
    tab.wait_for_selector("#keys[open]")
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#keys", state="hidden")


def test_layer_head_and_step_are_changed_and_history_knows_each(tab: Page, open_tab: Open, site: Site) -> None:
    def shows(query: str, address: str, index: str, step: int = 0) -> None:
        """The address, and the first cell of the table of values, are those."""
        tab.wait_for_url(f"**{site.trace}/{query}")
        wanted = first_cell(site, address, index, step)
        tab.wait_for_selector(f'table.values tbody tr:first-child th + td[title="{wanted!r}"]')
        assert tab.locator(".whereabouts .address").inner_text() == (f"{address}@{step}" if step else address)

    visits = [
        ("h.0.ln_1.out", "h.0.ln_1.out", "0,0,0"),
        ("h.0.attn.scores", "h.0.attn.scores", "0,0,0,0"),
        ("h.4.attn.scores", "h.4.attn.scores", "0,0,0,0"),
        ("h.4.attn.scores?head=5", "h.4.attn.scores", "0,5,0,0"),
        ("h.4.attn.scores?step=2&head=5", "h.4.attn.scores", "0,5,0,0", 2),
    ]
    tab.goto(f"{site.trace}/h.0.ln_1.out")
    shows(*visits[0])
    tab.locator(f"{TREE} summary", has_text=re.compile("^Scores$")).click()
    for link, visit in zip(
        (f"{TREE} a:has-text('Scaled attention scores')", "#layer-4", "#head-5", "#step-2"), visits[1:], strict=True
    ):
        tab.locator(link).click()
        shows(*visit)
    for visit in reversed(visits[:-1]):
        tab.go_back()
        shows(*visit)
    for visit in visits[1:]:
        tab.go_forward()
        shows(*visit)
    before = tab.locator("main").inner_text()
    tab.reload()
    shows(*visits[-1])
    assert tab.locator("main").inner_text() == before
    other = open_tab()
    other.goto(path_of(tab))
    other.wait_for_load_state("networkidle")
    assert other.locator("main").inner_text() == before, "a link shows another reader the same"
    assert other.locator("#head-5").get_attribute("aria-current") == "true"


def test_everything_is_done_without_javascript(open_tab: Open) -> None:
    tab = open_tab(java_script_enabled=False)
    trace = record(tab, "No scripts at all", steps=2)
    assert not tab.locator("#theme").is_visible()
    tab.get_by_role("rowheader").get_by_role("link", name="Scaled attention scores").click()
    tab.wait_for_url(f"**{trace}/h.0.attn.scores")
    for link, there in (("layer-1", ""), ("step-2", "?step=2"), ("head-1", "?step=2&head=1")):
        tab.click(f"#{link}")
        tab.wait_for_url(f"**{trace}/h.1.attn.scores{there}")
    assert tab.locator("table.values").is_visible()
    assert tab.locator(".heatmap img").evaluate("image => image.naturalWidth") > 0
    tab.click("button:has-text('Verify this trace')")
    tab.wait_for_selector("#sources .figures", timeout=120_000)
    assert path_of(tab) == f"{trace}/h.1.attn.scores?step=2&head=1"
    tab.fill("#search", "blocks.1.attn.hook_pattern")
    tab.click("#search-form button")
    tab.click(".results a")
    tab.wait_for_url(f"**{trace}/h.1.attn.pattern?step=2")


def test_a_reader_on_a_phone_opens_a_tensor_and_reads_its_value(open_tab: Open, site: Site) -> None:
    tab = open_tab(viewport=PHONE, has_touch=True, is_mobile=True)
    tab.goto("/")
    tab.locator(".cards a", has_text="Attention pattern").tap()
    tab.wait_for_url("**/h.0.attn.pattern")
    image = tab.locator("#heatmap-image")
    image.scroll_into_view_if_needed()
    box = image.bounding_box()
    assert box is not None
    tab.touchscreen.tap(box["x"] + box["width"] * 2.5 / 9, box["y"] + box["height"] * 5.5 / 9)
    said = tab.locator("#readout").filter(has_text="key 2")
    said.wait_for()
    assert float(" ".join(said.inner_text().split()).split(": ")[1]) == first_cell(
        site, "h.0.attn.pattern", "0,0,5,2", trace=path_of(tab).removesuffix("/h.0.attn.pattern")
    )
    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
