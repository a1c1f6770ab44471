"""Every kind of page, for everybody: axe-core finds nothing in light and dark, and a phone scrolls one way."""

from typing import Any

import pytest
from paced_work import Work, until

from .conftest import Open, Site
from .kinds import PAGES, SECOND, check, look

pytestmark = pytest.mark.browser

KINDS = [kind for kind in PAGES if not kind.startswith(SECOND)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_for_everybody(open_tab: Open, site: Site, kind: str) -> None:
    look(open_tab, site, kind)


def test_a_form_that_is_refused_is_for_everybody(open_tab: Open) -> None:
    tab = open_tab(deliberate=(422,))
    tab.goto("/")
    tab.fill("#steps", "many")
    tab.click("#record button:has-text('Record')")
    tab.wait_for_selector("#wrong-steps")
    assert tab.locator(":focus").get_attribute("aria-describedby") == "wrong-steps"
    check(tab)


def test_seeded_vectors_that_are_refused_are_for_everybody_and_then_recorded(open_tab: Open) -> None:
    tab = open_tab(deliberate=(422,))
    tab.goto("/")
    tab.fill("#batch", "100")
    tab.click("#record-vectors button:has-text('Record')")
    tab.wait_for_selector("#wrong-batch")
    assert tab.locator(":focus").get_attribute("aria-describedby") == "wrong-batch"
    check(tab)
    tab.fill("#batch", "2")
    tab.fill("#length", "3")
    tab.click("#record-vectors button:has-text('Record')")
    tab.wait_for_selector("#token-2")
    assert tab.locator("h1").text_content() == "3 vectors #0 #1 #2 from seed 0, batch 2"


def test_a_recording_is_for_everybody_survives_a_reload_and_ends_as_the_trace(
    open_tab: Open, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, work = site.served.explorer.jobs, Work()
    record = jobs._run

    def slowly(recipe: Any, progress: Any) -> None:
        work.record(recipe, progress)
        record(recipe, progress)

    monkeypatch.setattr(jobs, "_run", slowly)
    tab = open_tab()
    tab.goto("/")
    tab.fill("#prompt", "Slowly, slowly")
    tab.select_option("#model", "tiny-untrained")
    tab.click("#record button:has-text('Record')")
    tab.wait_for_selector("progress")
    until(lambda: len(work.begun) == 1)
    tab.reload()
    assert tab.locator("#cancel").is_visible()
    check(tab)
    work.let_end()
    tab.wait_for_selector("#prediction")
    assert tab.locator("h1").text_content() == "“Slowly, slowly”"
    assert tab.url.endswith(f"/traces/{work.ended[0]}")
