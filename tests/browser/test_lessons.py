"""The lessons in a browser: a reader changes an option, and sees another run, its numbers and its address."""

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from .conftest import Open, Site

pytestmark = pytest.mark.browser

CHAPTERS = ("scaled-dot-product", "multi-head", "positions", "block", "decoder")
RUN = ".whereabouts"


def model_of(site: Site, tab: Page) -> str:
    """The model of the run that the chapter says it reads, as the API has it."""
    path = urlsplit(tab.locator(f"{RUN} a").first.get_attribute("href") or "").path
    return str(site.served.json(path)["model"])


def test_a_reader_changes_the_heads_and_sees_the_result_and_the_address_change(open_tab: Open, site: Site) -> None:
    tab = open_tab()
    tab.goto("/lessons/multi-head")
    before = tab.locator("main").inner_text()
    assert model_of(site, tab) == "textbook"
    tab.fill("#option-heads", "4")
    tab.click("button:has-text('Compute')")
    tab.wait_for_url("**/lessons/multi-head?*heads=4*")
    assert tab.locator("#option-heads").input_value() == "4"
    assert model_of(site, tab) == "textbook-h4"
    assert tab.locator("main").inner_text() != before
    tab.go_back()
    expect(tab.locator("#option-heads")).to_have_value("8")
    assert model_of(site, tab) == "textbook"


def test_the_counted_cells_of_the_mask_follow_the_form_without_javascript(open_tab: Open) -> None:
    tab = open_tab(java_script_enabled=False)
    tab.goto("/lessons/decoder?layers=2&length=6")
    counted = tab.locator("#mask table tbody tr").first.locator("data")
    assert counted.evaluate_all("all => all.slice(0, 2).map(each => each.value)") == ["1920", "1920"]
    tab.fill("#option-heads", "4")
    tab.press("#option-heads", "Enter")
    tab.wait_for_url("**/lessons/decoder?*heads=4*")
    assert counted.evaluate_all("all => all.slice(0, 2).map(each => each.value)") == ["960", "960"]


def test_a_number_leads_to_the_tensor_it_was_computed_from_and_back_to_the_chapter(tab: Page) -> None:
    tab.goto("/lessons/decoder")
    tab.locator("#mask p .live-number").first.click()
    tab.wait_for_url("**/traces/*/h.0.attn.mask")
    tab.get_by_role("link", name="Lesson: the causal decoder, with this run’s options").click()
    tab.wait_for_url("**/lessons/decoder?causal=yes")


def test_the_chapters_lead_from_one_to_the_next_in_the_same_state(tab: Page) -> None:
    tab.goto(f"/lessons/{CHAPTERS[0]}?heads=4")
    for slug in CHAPTERS[1:]:
        tab.click(".lesson-order [rel=next]")
        tab.wait_for_url(f"**/lessons/{slug}?*")
        assert parse_qs(urlsplit(tab.url).query) == {"heads": ["4"]}
    assert tab.locator(".lesson-order [rel=next]").count() == 0


def test_an_option_that_cannot_be_taken_is_said_where_it_was_typed(open_tab: Open) -> None:
    tab = open_tab(deliberate=(422,))
    tab.goto("/lessons/decoder")
    tab.fill("#option-text", "One")
    tab.click("button:has-text('Compute')")
    tab.wait_for_selector("#wrong-text")
    assert "takes from 2 to 40" in tab.locator("#wrong-text").inner_text()
    assert tab.locator("#option-text").input_value() == "One"


def test_the_teachers_page_is_printed_without_what_stands_around_it(tab: Page) -> None:
    tab.goto("/lessons/teacher")
    assert tab.locator(".answered").count() == len(CHAPTERS)
    assert tab.locator("nav.tree").is_visible()
    tab.emulate_media(media="print")
    assert tab.locator(".answer").first.is_visible()
    assert not tab.locator("nav.tree").is_visible()
    assert not tab.locator("nav.places").is_visible()
