"""Six questions of people who have never seen the project: each is answered within four clicks from the home page.

The answer is read off the page and compared with the API, the catalogue, or the table of transformers'
variables; in the app and in a static site of the same trace.
"""

import re
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, Page

from provenance.gpt2.points_transformers import HOLDS

from .conftest import Open, Site
from .exported import Place

pytestmark = pytest.mark.browser

MOST_CLICKS = 4


@pytest.fixture(params=["live", "static"])
def place(request: pytest.FixtureRequest, site: Site) -> Place:
    """The app, and a static site of the same trace."""
    found: Place = Place(site.base) if request.param == "live" else request.getfixturevalue("exported")
    return found


@pytest.fixture
def tab(open_tab: Open, place: Place) -> Page:
    """A tab at that place."""
    return open_tab(base_url=place.base)


class Walk:
    """A reader who starts at the home page and counts their clicks."""

    def __init__(self, tab: Page, place: Place) -> None:
        self.tab = tab
        self.place = place
        self.clicks = 0
        tab.goto("/")

    def click(self, where: str | Locator, lands: str = "") -> None:
        """One click; where it leads to an address, wait for that."""
        self.clicks += 1
        assert self.clicks <= MOST_CLICKS
        (self.tab.locator(where) if isinstance(where, str) else where).click()
        if lands:
            self.tab.wait_for_url(f"**{self.place.at(lands)}")

    def start_here(self, title: str, lands: str) -> None:
        """One of the cards of the home page."""
        self.click(self.tab.locator(".cards a").filter(has=self.tab.get_by_text(title, exact=True)), lands)

    def number(self, id: str) -> float:
        """A number of the page, exactly."""
        return float(self.tab.locator(f"#{id} data").get_attribute("value") or "nan")

    def shape(self) -> list[int]:
        """The tensor's shape as the page states it."""
        found = re.search(r"\[([\d, ]+)\]", self.tab.locator(".shape.concrete").inner_text())
        assert found is not None
        return [int(size) for size in found[1].split(",")]


@pytest.fixture
def walk(tab: Page, place: Place) -> Walk:
    """A reader at the home page."""
    return Walk(tab, place)


def cells(site: Site, address: str, index: str) -> Any:
    return site.served.json(f"{site.trace}/tensors/{address}/slice", index=index)["values"]


def links_below(tab: Page, heading: str) -> list[str]:
    links = tab.locator(f"section[aria-labelledby={heading}] a").all()
    return [str(link.evaluate("a => a.pathname + a.search")) for link in links]


def test_which_line_scales_the_scores_and_what_is_the_largest_of_head_3_in_layer_5(
    tab: Page, site: Site, walk: Walk
) -> None:
    walk.start_here("Scaled attention scores", f"{site.trace}/h.0.attn.scores")
    walk.click("#layer-5", f"{site.trace}/h.5.attn.scores")
    walk.click("#head-3", f"{site.trace}/h.5.attn.scores?head=3")

    known = site.served.json("/sites/h.attn.scores")["evidence"]
    cited = next(each["lines"] for each in known if each["label"] == "openai")
    computes = tab.locator(".testimony", has=tab.locator("h3", has_text="computes this tensor"))
    openai = computes.locator(".label-openai")
    (held,) = site.served.json("/sites/h.attn.scores")["points"]
    assert cited == "93–94"
    assert held.endswith("line 94)")
    assert "lines 93–94" in openai.locator(".cite").inner_text()
    line = openai.locator(".line", has=tab.locator(".n", has_text=re.compile("^94$")))
    assert "rsqrt" in line.inner_text()

    values = cells(site, "h.5.attn.scores", "0,3,0:9,0:9")
    whole = cells(site, "h.5.attn.scores", "0,0:8,0:9,0:9")
    assert np.float32(walk.number("part-maximum")) == np.float32(max(values))
    assert np.float32(walk.number("stat-maximum")) == np.float32(max(whole)) > np.float32(max(values))
    assert "head 3" in tab.locator(".measures.part").inner_text()


def test_what_does_transformers_call_this_tensor(tab: Page, site: Site, walk: Walk) -> None:
    walk.start_here("Scaled attention scores", f"{site.trace}/h.0.attn.scores")
    walk.click(tab.locator("summary", has_text="Other names"))
    said = tab.locator("dt", has_text="In transformers 5.15.0").locator("xpath=following-sibling::dd[1]").inner_text()
    held = [place for place, holder in HOLDS.items() if holder.site == "h.attn.scores"]
    assert held == [("eager_attention_forward", 58, "attn_weights")]
    assert " ".join(said.split()) == "attn_weights (eager_attention_forward, line 58) modeling_gpt2.py"


def test_how_does_the_shape_of_k_change_from_prefill_to_the_second_decode_step(
    tab: Page, site: Site, walk: Walk
) -> None:
    def shape(address: str, step: int) -> list[int]:
        found: list[int] = site.served.json(f"{site.trace}/tensors/{address}", step=step)["shape"]
        return found

    walk.start_here("The text, token by token", site.trace)
    walk.click(tab.get_by_role("rowheader").get_by_role("link", name="Keys", exact=True), f"{site.trace}/h.0.attn.k")
    assert walk.shape() == shape("h.0.attn.k", 0) == [1, 8, 9, 4]
    walk.click("#step-2", f"{site.trace}/h.0.attn.k?step=2")
    assert walk.shape() == shape("h.0.attn.k", 2) == [1, 8, 1, 4]
    readers = tab.locator("section[aria-labelledby=to-heading]")
    walk.click(readers.get_by_role("link", name="All keys"), f"{site.trace}/h.0.attn.k_all?step=2")
    assert walk.shape() == shape("h.0.attn.k_all", 2) == [1, 8, 11, 4]


def test_which_tokens_does_the_last_position_attend_to_most_in_layer_0_head_7(
    tab: Page, site: Site, walk: Walk
) -> None:
    walk.start_here("Attention pattern", f"{site.trace}/h.0.attn.pattern")
    walk.click("#head-7", f"{site.trace}/h.0.attn.pattern?head=7")
    assert " ".join(tab.locator("#attends-heading").inner_text().split()) == "Head 7, from query 8 dog"
    rows = tab.locator("table.attended tbody tr").all()
    shown = [
        (int(row.locator("td").first.inner_text()), float(row.locator("data").get_attribute("value") or ""))
        for row in rows
    ]
    weights = cells(site, "h.0.attn.pattern", "0,7,8,0:9")
    wanted = sorted(range(9), key=lambda key: -weights[key])[: len(rows)]
    assert shown == [(key, weights[key]) for key in wanted]
    tokens = [token["text"] for token in site.served.json(site.trace)["tokens"]]
    assert [row.locator(".token").inner_text() for row in rows] == [tokens[key] for key in wanted]


def test_at_which_layer_does_the_lens_first_predict_the_final_token(tab: Page, site: Site, walk: Walk) -> None:
    known = site.served.json(f"{site.trace}/lens", position=8)["positions"]
    last = next(each for each in known if each["position"] == 8)
    layer = re.fullmatch(r"h\.(\d)\.resid_post", last["first_stage"])
    assert layer is not None
    walk.start_here("Through the layers", f"{site.trace}/lens")
    heads = tab.locator("table.lens thead th")
    column = next(n for n in range(heads.count()) if "current" in (heads.nth(n).get_attribute("class") or ""))
    row = tab.locator("table.lens tfoot tr", has_text="First predicted after")
    assert row.locator("th, td").nth(column).inner_text() == f"block {layer[1]}"
    walk.click(tab.locator(".downloads a", has_text="What comes next at position 8"), f"{site.trace}?position=8")
    said = tab.locator("#lens .answer")
    assert said.locator("strong").first.inner_text() == f"after block {layer[1]}"
    assert said.locator(".token").inner_text() == last["final"]["text"]


def test_which_tensors_read_the_stream_between_attention_and_mlp(tab: Page, site: Site, walk: Walk) -> None:
    readers = site.served.json("/sites/h.resid_mid")["readers"]
    wanted = [walk.place.at(f"{site.trace}/{reader.replace('h.', 'h.0.', 1)}") for reader in readers]
    assert len(wanted) >= 3
    walk.start_here("Residual stream after attention", f"{site.trace}/h.0.resid_mid")
    assert links_below(tab, "to-heading") == wanted


def test_a_search_from_the_home_page_answers_it_too(open_tab: Open, site: Site) -> None:
    readers = site.served.json("/sites/h.resid_mid")["readers"]
    tab = open_tab()
    tab.goto("/")
    tab.keyboard.press("/")
    tab.keyboard.type("Residual stream after attention")
    tab.wait_for_selector('#live [data-query="Residual stream after attention"]')
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/h.resid_mid")
    assert links_below(tab, "to-heading") == [f"/sites/{reader}" for reader in readers]
