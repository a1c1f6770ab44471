"""Where a reader is: the marked link of the navigation, the parts of a long page, and sizes that can be read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_client import FOX, Api, running
from html_tree import Node, tree

from app.explorer import EXAMPLE


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("orientation")) as api:
        yield api


@pytest.fixture(scope="module")
def trace(api: Api) -> str:
    return api.record(prompt=FOX, steps=1).removeprefix("/api")


def page(api: Api, address: str) -> Node:
    return tree(api.ask("GET", address).raise_for_status().text)


@pytest.mark.parametrize(
    ("address", "marked"),
    [
        ("/", []),
        ("/map/transformer-block", ["Map"]),
        ("/sites/h.attn.k", ["All tensors"]),
        ("/groups/transformer-block/attention", ["All tensors"]),
        ("/lessons", ["Lessons"]),
        ("/lessons/multi-head?d=8&heads=2&layers=1&T=4", ["Lessons"]),
        ("/traces", ["Traces"]),
        ("/compare", ["Compare"]),
        ("/models/tiny-untrained", ["Models"]),
        ("/sources/drift", ["Sources"]),
        ("/search", []),
    ],
)
def test_the_navigation_marks_where_a_page_belongs(api: Api, address: str, marked: list[str]) -> None:
    places = page(api, address).one("nav", class_="places")
    assert [link.text for link in places.all("a", **{"aria-current": "true"})] == marked


@pytest.mark.parametrize("address", ["", "/h.0.attn.pattern", "/logits"])
def test_links_to_the_parts_of_a_page_lead_to_its_headings(api: Api, trace: str, address: str) -> None:
    shown = page(api, trace + address)
    found = [link.attributes["href"] for link in shown.one("nav", class_="jumps").all("a")]
    ids = {node.attributes.get("id") for node in shown.elements}
    assert len(found) >= 4
    assert all(href.startswith("#") and href[1:] in ids for href in found)


def test_what_the_first_page_shows_of_a_trace_is_of_the_trace_that_it_names(api: Api, trace: str) -> None:
    start = page(api, "/").one("section", id="start")
    named = start.one("p", class_="cards-of").one("a").attributes["href"]
    cards = start.all("ul", class_="cards")[-1].all("a")
    assert named == trace
    assert len(cards) >= 5
    assert all(card.attributes["href"].startswith(trace) for card in cards)


def test_a_small_trace_has_a_size_in_kilobytes_and_none_of_zero(api: Api, trace: str) -> None:
    sizes = page(api, f"/traces?q={trace.removeprefix('/traces/')}").one("table", class_="traces").all("data")
    number, unit = sizes[0].text.split()
    bytes, _ = sizes[0].attributes["value"].split()
    assert len(sizes) == 1
    assert unit == "kB"
    assert int(number) == round(int(bytes) / 1000) > 0


def test_the_first_page_starts_from_the_default_models_example_whatever_else_is_recorded(tmp_path: Path) -> None:
    def start(api: Api) -> str:
        return page(api, "/").one("section", id="start").one("p", class_="cards-of").one("a").attributes["href"]

    with running(tmp_path) as api:
        other = api.record(prompt=EXAMPLE, model="demo").removeprefix("/api")
        assert start(api) == other, "better than none"
        example = api.record(prompt=EXAMPLE).removeprefix("/api")
        assert start(api) == example
        api.record(prompt=EXAMPLE, model="demo", steps=1)
        api.record(prompt=FOX + " again")
        assert start(api) == example
