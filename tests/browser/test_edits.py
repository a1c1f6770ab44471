"""Changing a tensor in the browser, with and without scripts: from its page to what the change did."""

import pytest
from playwright.sync_api import Page, expect

from .conftest import PHONE, Open, Site
from .kinds import check

pytestmark = pytest.mark.browser

PROMPT = "The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the"
SHOWN = 120_000


@pytest.fixture(scope="module")
def demo(site: Site) -> str:
    """A trace of the demonstration model: a sentence that begins a second time."""
    return site.served.record(PROMPT, steps=1, model="demo")


def ablate(tab: Page, demo: str) -> str:
    """Remove head 0 of layer 0 through the form; the changed trace's path."""
    tab.goto(f"{demo}/h.0.attn.pattern?head=0")
    tab.click("#change > summary")
    expect(tab.locator("#change").get_by_label("head")).to_have_value("0")
    expect(tab.get_by_label("set to the number")).to_be_checked()
    tab.click("text=Run with this change")
    tab.wait_for_selector("#effect", timeout=SHOWN)
    return "/traces/" + tab.url.rpartition("/")[2]


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_a_head_is_removed_through_the_form_and_the_effect_is_seen_and_compared(
    open_tab: Open, site: Site, demo: str, scripts: bool
) -> None:
    tab = open_tab(java_script_enabled=scripts)
    changed = ablate(tab, demo)
    out = site.served.json(changed)
    assert (out["edits"], out["unedited"]) == (["h.0.attn.pattern[head=0] = 0"], demo.removeprefix("/traces/"))
    kl = float(tab.locator("#effect .kl").first.get_attribute("value") or "")
    assert kl == site.served.json(f"{changed}/effect")["shifts"][0]["kl_nats"]
    assert kl > 0.1  # without it the repetition is not found any more
    tab.click(".edited >> text=compare the two")
    tab.wait_for_url(lambda url: url.endswith(f"/compare?a={out['unedited']}&b={out['id']}"))
    assert tab.locator("h1").inner_text() == "They first differ at softmax(w), layer 0"


def test_a_change_that_cannot_be_comes_back_with_the_reason_at_its_field(open_tab: Open, demo: str) -> None:
    tab = open_tab(deliberate=(422,))
    tab.goto(f"{demo}/h.0.attn.pattern?head=0")
    tab.click("#change > summary")
    tab.locator("#change").get_by_label("head").fill("9")
    tab.click("text=Run with this change")
    tab.wait_for_selector("#wrong-pick-0")
    focused = tab.locator(":focus")
    assert (focused.get_attribute("aria-describedby"), focused.input_value()) == ("wrong-pick-0", "9")
    check(tab)


@pytest.mark.parametrize(
    "page", ["{changed}", "{changed}/h.0.attn.pattern?head=0", "{changed}/h.2.ln_1.out", "{changed}/lens", "{demo}"]
)
def test_the_pages_of_a_changed_run_are_for_everybody(open_tab: Open, site: Site, demo: str, page: str) -> None:
    edits = ["h.0.attn.pattern[head=0] = 0", "ln_f.normalized@1[channel=0:4,9] *= 0.5"]
    changed = site.served.record(PROMPT, steps=1, model="demo", edits=edits)
    tab = open_tab()
    tab.goto(page.format(changed=changed, demo=demo))
    tab.wait_for_load_state("networkidle")
    check(tab)


def test_the_form_is_usable_on_a_phone_by_keyboard(open_tab: Open, site: Site, demo: str) -> None:
    tab = open_tab(viewport=PHONE)
    tab.goto(f"{demo}/h.1.mlp.h")
    tab.locator("#change > summary").focus()
    tab.keyboard.press("Enter")
    tab.locator("#pick-1").focus()
    tab.keyboard.type("0:8")
    tab.locator("input[name=what][value=set]").focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Control+a")
    tab.keyboard.type("2")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#effect", timeout=SHOWN)
    assert site.served.json("/traces/" + tab.url.rpartition("/")[2])["edits"] == ["h.1.mlp.h[channel=0:8] *= 2"]
