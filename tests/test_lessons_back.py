"""The ways back from a run to the lessons: to the chapter in the state that the run is of."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from api_client import FOX, Api, running
from html_tree import Node, tree

STATE = "d=16&heads=4&length=5&batch=2&layers=2&norm=pre&causal=yes&temperature=0.5&seed=7"
VECTORS: dict[str, Any] = {"model": "textbook-pre-causal-d16-h4-l2-t0.5", "length": 5, "batch": 2, "input_seed": 7}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("back")) as started:
        yield started


def recorded(api: Api, **wanted: Any) -> str:
    """The path of a trace, `/traces/…`."""
    return api.record(**wanted).removeprefix("/api")


def main(api: Api, address: str) -> Node:
    answer = api.ask("GET", address)
    assert answer.status_code == 200, answer.text
    return tree(answer.text).one("main")


def back(api: Api, address: str) -> dict[str, str]:
    """The links of a page to chapters, by their text."""
    links = main(api, address).all("a")
    return {a.text: a.attributes["href"] for a in links if a.attributes["href"].startswith("/lessons/")}


@pytest.mark.parametrize(
    ("place", "text", "slug"),
    [
        ("h.1.attn.q", "Lesson: scaled dot-product attention, with this run’s options", "scaled-dot-product"),
        ("h.0.attn.out", "Lesson: multi-head attention, with this run’s options", "multi-head"),
        ("h.1.resid_post", "Lesson: the transformer block, with this run’s options", "block"),
        ("h.0.attn.mask", "Lesson: the causal decoder, with this run’s options", "decoder"),
    ],
)
def test_a_tensor_leads_back_to_the_very_run_that_its_chapter_reads(
    api: Api, place: str, text: str, slug: str
) -> None:
    path = recorded(api, **VECTORS)
    assert back(api, f"{path}/{place}") == {text: f"/lessons/{slug}?{STATE}"}
    runs = main(api, f"/lessons/{slug}?{STATE}").one("p", "whereabouts").all("a")
    assert runs[0].attributes["href"] == path


def test_a_run_of_the_lessons_leads_to_the_first_chapter_in_its_state(api: Api) -> None:
    assert back(api, recorded(api, **VECTORS)) == {
        "The lesson “Scaled dot-product attention”, with this run’s options": f"/lessons/scaled-dot-product?{STATE}"
    }
    usual = recorded(api, model="textbook", length=20)
    assert list(back(api, usual).values()) == ["/lessons/scaled-dot-product"]
    assert list(back(api, f"{usual}/h.0.attn.q").values()) == ["/lessons/scaled-dot-product"]


@pytest.mark.parametrize(
    "wanted",
    [
        {"model": "textbook-l1", "length": 65, "batch": 1},
        {"model": "textbook-l1", "ids": [1, 0, 2], "batch": 1},
        {"model": "textbook-l1", "length": 3, "batch": 1, "edits": ["h.0.attn.weight *= 0"]},
    ],
    ids=["longer than a lesson takes", "in another order", "changed"],
)
def test_a_run_that_is_no_state_leads_to_the_chapter_as_it_usually_is(api: Api, wanted: dict[str, Any]) -> None:
    path = recorded(api, **wanted)
    assert back(api, path) == {}
    assert back(api, f"{path}/h.0.attn.q") == {"Lesson: scaled dot-product attention": "/lessons/scaled-dot-product"}


def test_a_text_leads_back_to_the_chapter_that_asks_for_one(api: Api) -> None:
    path = recorded(api, prompt="One, two & three?", steps=2)
    there = "/lessons/decoder?text=One%2C+two+%26+three%3F&steps=2"
    assert back(api, f"{path}/logits") == {"Lesson: the causal decoder, with this run’s text": there}
    assert back(api, path) == {"The lesson “The causal decoder”, with this run’s text": there}
    read = {urlsplit(a.attributes["href"]).path for a in main(api, there).one("section", id="loss").all("a")}
    assert path in {"/".join(each.split("/")[:3]) for each in read}
    assert back(api, f"{path}/h.0.attn.q") == {"Lesson: scaled dot-product attention": "/lessons/scaled-dot-product"}


@pytest.mark.parametrize(
    "wanted",
    [
        {"prompt": FOX, "steps": 0},
        {"prompt": "word " * 41, "steps": 1},
        {"ids": [39, 695, 78], "steps": 1},
        {"prompt": FOX, "steps": 3, "model": "demo"},
    ],
    ids=["without decode steps", "too long", "other tokens than the text has", "another model"],
)
def test_a_text_that_the_chapter_cannot_take_leads_to_its_usual_one(api: Api, wanted: dict[str, Any]) -> None:
    path = recorded(api, **wanted)
    assert back(api, path) == {}
    assert list(back(api, f"{path}/logits").values()) == ["/lessons/decoder"]
