"""The heatmap's read-out: by pointer and by keys, equal to the API's value."""

import re

import httpx
import pytest
from playwright.sync_api import Page

from .conftest import Open, Site

pytestmark = pytest.mark.browser


def value(site: Site, address: str, index: str) -> float:
    answer = httpx.get(f"{site.base}/api{site.tiny}/tensors/{address}/slice", params={"index": index})
    found: float = answer.raise_for_status().json()["values"][0]
    return found


def read_out(tab: Page, says: str) -> str:
    """The read-out once it says something."""
    line = tab.locator("#readout")
    line.filter(has_text=says).wait_for()
    return " ".join(line.inner_text().split())


def hover(tab: Page, row: int, col: int, rows: int, cols: int) -> None:
    image = tab.locator("#heatmap-image")
    image.scroll_into_view_if_needed()
    box = image.bounding_box()
    assert box is not None
    tab.mouse.move(box["x"] + box["width"] * (col + 0.5) / cols, box["y"] + box["height"] * (row + 0.5) / rows)


def test_the_pointer_reads_the_value_of_the_api(tab: Page, site: Site) -> None:
    tab.goto(f"{site.base}{site.tiny}/h.1.attn.pattern?head=2")
    hover(tab, 6, 3, 9, 9)
    said = read_out(tab, "key 3")
    assert said.startswith("query 6 “ the” · key 3 “ fox” · head 2: ")
    assert float(said.split(": ")[1]) == value(site, "h.1.attn.pattern", "0,2,6,3")
    hover(tab, 3, 6, 9, 9)
    assert "(masked)" in read_out(tab, "key 6")


def test_arrow_keys_move_the_cursor(tab: Page, site: Site) -> None:
    tab.goto(f"{site.base}{site.tiny}/h.0.ln_1.out")
    frame = tab.locator(".heatmap .frame")
    frame.focus()
    tab.keyboard.press("ArrowRight")
    assert read_out(tab, "channel 0").startswith("token 0 “The” · channel 0: ")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Shift+ArrowRight")
    tab.keyboard.press("ArrowLeft")
    said = read_out(tab, "channel 9")
    assert said.startswith("token 1 “ quick” · channel 9: ")
    assert float(said.split(": ")[1]) == value(site, "h.0.ln_1.out", "0,1,9")
    tab.keyboard.press("ArrowUp")
    tab.keyboard.press("ArrowUp")
    assert read_out(tab, "token 0").startswith("token 0 “The” · channel 9: ")
    assert tab.locator("#readout").get_attribute("aria-live") == "polite"


def test_a_turned_picture_and_joined_cells_are_read_right(tab: Page, site: Site) -> None:
    tab.goto(f"{site.base}{site.tiny}/h.0.attn.k?rows=hd&cols=T")
    hover(tab, 5, 7, 8, 9)
    said = read_out(tab, "token 7")
    assert float(said.split(": ")[1]) == value(site, "h.0.attn.k", "0,0,7,5")
    tab.goto(f"{site.base}{site.tiny}/logits")
    hover(tab, 2, 1, 9, 256)
    said = read_out(tab, "entry 197–393")
    cells = httpx.get(f"{site.base}/api{site.tiny}/tensors/logits/slice?index=0,2,197:394").json()["values"]
    found = re.search(r"furthest from zero (\S+) at 2, (\d+)", said)
    assert found is not None
    assert float(found[1]) == max(cells, key=abs) == cells[int(found[2]) - 197]


def test_the_read_out_works_after_a_swap_too(tab: Page, site: Site) -> None:
    tab.goto(f"{site.base}{site.tiny}/h.0.attn.pattern")
    tab.locator("#head-3").click()
    tab.locator("#heatmap[data-fixed='head 3']").wait_for()
    tab.locator(".heatmap .frame").focus()
    tab.keyboard.press("ArrowDown")
    said = read_out(tab, "head 3:")
    assert float(said.split(": ")[1]) == value(site, "h.0.attn.pattern", "0,3,0,0")


def test_without_scripts_links_and_table_are_there(open_tab: Open, site: Site) -> None:
    tab = open_tab(java_script_enabled=False)
    tab.goto(f"{site.base}{site.tiny}/h.0.attn.pattern")
    tab.locator("#thumb-2").click()
    assert tab.url.endswith("?head=2")
    tab.locator("summary", has_text="Choose what the picture shows").click()
    tab.locator("select[name=rows]").select_option("H")
    tab.locator(".controls button").click()
    assert "rows=H" in tab.url
    assert "head 0" in (tab.locator("#heatmap-image").get_attribute("alt") or "") + tab.content()
    assert tab.locator("table.values").is_visible()
