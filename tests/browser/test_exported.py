"""The pages of a static site, on a plain web server: the checks of the live pages, where no server is needed."""

import pytest
from playwright.sync_api import Page, expect

from .conftest import Open, Site
from .exported import Place
from .kinds import PAGES, check

pytestmark = pytest.mark.browser

NEEDS_THE_APP = (
    "change a tensor", "compare", "delete", "error", "model", "norms", "search", "traces", "verdict", "lesson",
    "family", "vectors", "tensor: proven", "attribution: a lead",
)  # fmt: skip
"""Kinds of pages that a static site does not have, or not of this trace; `verdict: nobody asked` it has."""

EXPORTED = [kind for kind in PAGES if kind == "verdict: nobody asked" or not kind.startswith(NEEDS_THE_APP)]


@pytest.mark.parametrize("kind", EXPORTED)
def test_a_page_of_a_static_site_is_for_everybody(open_tab: Open, site: Site, exported: Place, kind: str) -> None:
    tab = open_tab(base_url=exported.base)
    id = site.trace.removeprefix("/traces/")
    answer = tab.goto(exported.at(PAGES[kind].format(trace=site.trace, id=id)))
    assert answer is not None and answer.status == 200, exported.at(PAGES[kind])
    tab.wait_for_load_state("networkidle")
    assert tab.locator("h1").count() == 1
    assert "static export" in tab.locator("footer .export").inner_text()
    check(tab)


@pytest.fixture
def tab(open_tab: Open, exported: Place) -> Page:
    """A tab at the static site."""
    return open_tab(base_url=exported.base)


def test_keys_and_themes_work_without_a_server(tab: Page, site: Site, exported: Place) -> None:
    tab.goto(exported.at(f"{site.trace}/h.0.attn.scores"))
    tab.keyboard.press("]")
    tab.wait_for_url(f"**{exported.at(f'{site.trace}/h.1.attn.scores')}")
    tab.keyboard.press("/")
    tab.keyboard.press("?")
    keys = tab.locator("#keys")
    expect(keys).to_be_visible()
    assert "search" not in keys.inner_text()
    tab.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    tab.click("#theme")
    assert tab.evaluate("document.documentElement.dataset.theme") == "light"


def test_it_works_without_javascript_too(open_tab: Open, site: Site, exported: Place) -> None:
    tab = open_tab(base_url=exported.base, java_script_enabled=False)
    tab.goto(exported.at(f"{site.trace}/h.0.attn.pattern"))
    tab.click("#head-7")
    tab.wait_for_url(f"**{exported.at(f'{site.trace}/h.0.attn.pattern?head=7')}")
    assert tab.locator("#heatmap-image").evaluate("image => image.naturalWidth") > 0
    assert tab.locator("#sources pre").count() >= 2
