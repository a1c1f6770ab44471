"""The chapter on the causal decoder and the teacher's page: each number again, from the API's own arrays."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np
import pytest
from api_client import Api, running
from html_tree import Node, tree, words

from app.explorer import EXAMPLE, EXAMPLE_STEPS
from app.pages.lessons.contents import CONTENTS
from app.pages.links import site_url
from provenance.catalogues import CATALOGUES
from provenance.lessons.chapters import CHAPTERS, chapter_of
from provenance.lessons.options import TEXT, Options

Array = np.ndarray[Any, np.dtype[np.float64]]
PAGE = "/lessons/decoder"
STATE = f"{PAGE}?heads=4&d=32&layers=2&length=6&at=3&steps=2&text=" + quote("One two three four five")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The application with the tiny model."""
    with running(tmp_path_factory.mktemp("lesson")) as started:
        yield started


@pytest.fixture(scope="module")
def shown(api: Api) -> Node:
    """The chapter in a state that is not the usual one."""
    return get(api, STATE)


def get(api: Api, address: str, status: int = 200) -> Node:
    answer = api.ask("GET", address)
    assert answer.status_code == status, answer.text
    return tree(answer.text)


def text_of(node: Node) -> str:
    return words(node.text)


def values(api: Api, page_url: str, site: str | None = None) -> Array:
    """The array behind a link to a tensor, or of another tensor of the same trace and step."""
    parts = urlsplit(page_url)
    _, traces, id, place = parts.path.split("/")
    query = f"?{parts.query}" if parts.query else ""
    return api.values(f"/api/{traces}/{id}/tensors/{site or place}.npy{query}").astype(np.float64)


def number(node: Node) -> float:
    return float(node.one("data").attributes["value"])


def section(page: Node, id: str) -> Node:
    return page.one("section", id=id)


def rows(part: Node, table: int = 0) -> list[list[Node]]:
    body = part.all("table")[table].one("tbody")
    return [[cell for cell in row.elements if cell.tag in ("th", "td")] for row in body.all("tr")]


def link(cell: Node) -> str:
    return cell.one("a", "live-number").attributes["href"]


def traces_compared(part: Node) -> list[tuple[str, str]]:
    urls = [a.attributes["href"] for a in part.all("a") if a.attributes["href"].startswith("/compare?")]
    asked = [parse_qs(urlsplit(url).query) for url in urls]
    return [(query["a"][0], query["b"][0]) for query in asked]


def layers_of(api: Api, id: str) -> int:
    return api.explorer.store.open(id).layers


def test_the_usual_text_is_the_applications_example() -> None:
    assert (TEXT, Options().steps) == (EXAMPLE, EXAMPLE_STEPS)


# --- the mask ---


@pytest.mark.parametrize(("row", "site"), [(0, "weight"), (1, "pattern"), (2, "weight")])
def test_what_the_future_gets_is_counted_in_every_layer(api: Api, shown: Node, row: int, site: str) -> None:
    _, cells, zero, largest, share = rows(section(shown, "mask"))[row]
    layers = layers_of(api, urlsplit(link(cells)).path.split("/")[2])
    weights = np.stack([values(api, link(cells), f"h.{n}.attn.{site}") for n in range(layers)])
    length = weights.shape[-1]
    later = [weights[..., t, s] for t in range(length) for s in range(t + 1, length)]
    assert number(cells) == sum(each.size for each in later)
    assert number(zero) == sum(int((each == 0).sum()) for each in later)
    assert number(largest) == max(float(each.max()) for each in later)
    assert number(share) == pytest.approx(sum(float(each.sum()) for each in later) / weights.sum(), rel=1e-12)


def test_both_masks_leave_exactly_nothing_and_the_listing_does_not(shown: Node) -> None:
    textbook, gpt2, listing = rows(section(shown, "mask"))
    assert number(textbook[1]) == number(textbook[2]) == 2 * 8 * 4 * 15  # layers, batch, heads, T(T - 1)/2
    assert number(gpt2[1]) == number(gpt2[2]) > 0
    assert number(listing[2]) == 0 and number(listing[3]) > 0


def test_every_check_of_the_page_holds_and_says_by_how_much(shown: Node) -> None:
    checks = shown.all("div", "check")
    assert len(checks) == 6
    for check in checks:
        difference, tolerance = (float(data.attributes["value"]) for data in check.all("data"))
        assert difference <= tolerance
        assert "holds" in check.one("span", "badge").text
        assert check.one("math")


@pytest.mark.slow
@pytest.mark.parametrize("slug", CONTENTS)
def test_no_formula_of_a_chapter_stands_without_a_check(api: Api, slug: str) -> None:
    main = get(api, f"/lessons/{slug}").one("main")
    formulas = main.all("div", "formula")
    assert formulas
    assert len(main.all("math")) == len(formulas) == len(main.all("div", "check"))


# --- the loss ---


def test_the_loss_of_each_token_is_that_of_the_recorded_logits(api: Api, shown: Node) -> None:
    part = section(shown, "loss")
    found = rows(part)
    url = link(found[0][3])
    logits, ids = values(api, url)[0], values(api, url, "tokens")[0].astype(int)
    assert len(found) == len(ids) - 1
    losses = []
    for t, cells in enumerate(found):
        shares = np.exp(logits[t] - logits[t].max())
        share = shares[ids[t + 1]] / shares.sum()
        losses.append(-math.log(share))
        assert number(cells[2]) == pytest.approx(share, rel=1e-9)
        assert number(cells[3]) == pytest.approx(losses[-1], rel=1e-9)
    mean, perplexity, uniform, *_ = (number(live) for live in part.all("p")[-2].all("a", "live-number"))
    assert mean == pytest.approx(sum(losses) / len(losses), rel=1e-9)
    assert perplexity == pytest.approx(math.exp(mean), rel=1e-9)
    assert uniform == pytest.approx(math.log(logits.shape[-1]), rel=1e-12)


def test_the_table_names_the_token_that_really_follows(shown: Node) -> None:
    following = [cells[1].text for cells in rows(section(shown, "loss"))]
    assert "".join(each.strip("“”") for each in following).endswith(" two three four five")


# --- the cache ---


@pytest.mark.parametrize(
    ("row", "place"), tuple(enumerate(("h.{}.attn.k", "h.{}.attn.v", "h.{}.resid_post", "logits")))
)
def test_the_same_positions_with_and_without_the_cache(api: Api, shown: Node, row: int, place: str) -> None:
    part = section(shown, "cache")
    ((whole, decoded),) = traces_compared(part)
    prompt = len(api.json(f"/api/traces/{decoded}")["tokens"])
    largest = 0.0
    for layer in range(layers_of(api, whole)):
        one = values(api, f"/traces/{whole}/{place.format(layer)}")
        for step in (1, 2):
            other = values(api, f"/traces/{decoded}/{place.format(layer)}?step={step}")
            largest = max(largest, float(np.abs(one[..., prompt + step - 1, :] - other[..., 0, :]).max()))
    _, difference, tolerance, within = rows(part)[row]
    assert number(difference) == largest <= number(tolerance)
    assert text_of(within) == "yes"


def test_both_runs_read_the_same_tokens(api: Api, shown: Node) -> None:
    ((whole, decoded),) = traces_compared(section(shown, "cache"))
    steps = [values(api, f"/traces/{decoded}/tokens?step={step}") for step in (0, 1, 2)]
    assert np.array_equal(values(api, f"/traces/{whole}/tokens"), np.concatenate(steps, axis=1))


def test_what_the_cache_keeps_is_counted_from_the_recorded_shape(api: Api, shown: Node) -> None:
    part = section(shown, "cache")
    ((_, decoded),) = traces_compared(part)
    shape = values(api, f"/traces/{decoded}/h.0.attn.present?step=1").shape
    lives = part.all("p")[-1].all("a", "live-number")
    assert lives[0].one("data").attributes["value"] == str(list(shape))
    each = math.prod(shape) * layers_of(api, decoded)
    prompt = len(api.json(f"/api/traces/{decoded}")["tokens"])
    assert [number(live) for live in lives[1:]] == [each, each * (prompt + 2)]
    run_with, run_without = (float(data.attributes["value"]) for data in part.all("p")[-1].all("data")[-2:])
    assert (run_with, run_without) == (prompt + 2, 3 * prompt + 3)


# --- a changed token ---


def stream(api: Api, id: str, place: str) -> Array:
    return np.stack([values(api, f"/traces/{id}/{place.format(n)}") for n in range(layers_of(api, id))])


def apart(one: Array, other: Array) -> list[float]:
    """The largest difference at each position, which is the second axis from the end."""
    return [float(np.abs(one[..., t, :] - other[..., t, :]).max()) for t in range(one.shape[-2])]


def test_a_later_token_changes_nothing_before_it(api: Api, shown: Node) -> None:
    part = section(shown, "future")
    one, other = traces_compared(part)[0]
    found = rows(part, 0)
    expected = apart(stream(api, one, "h.{}.resid_post"), stream(api, other, "h.{}.resid_post"))
    assert [number(cells[1]) for cells in found] == expected
    ids = [values(api, f"/traces/{id}/tokens")[0].tolist() for id in (one, other)]
    assert [t for t in range(len(expected)) if ids[0][t] != ids[1][t]] == [3]
    assert expected[:3] == [0.0] * 3
    assert all(difference > 0 for difference in expected[3:])


def test_without_the_mask_earlier_positions_learn_of_a_later_one(api: Api, shown: Node) -> None:
    part = section(shown, "future")
    causal, unmasked = traces_compared(part)[1:]
    found = rows(part, 1)
    for column, (one, other) in enumerate((causal, unmasked), start=1):
        place = "h.{}.post.norm2.out"
        assert [number(cells[column]) for cells in found] == apart(stream(api, one, place), stream(api, other, place))
    assert [number(cells[1]) for cells in found[:3]] == [0.0] * 3
    assert all(number(cells[1]) > 0 for cells in found[3:])
    assert all(number(cells[2]) > 0 for cells in found)


@pytest.mark.parametrize("table", [0, 1])
def test_the_largest_differences_lead_to_the_tensors_that_differ_so(api: Api, shown: Node, table: int) -> None:
    part = section(shown, "future")
    pairs = traces_compared(part)
    if table == 0:
        sentence = next(p for p in part.all("p") if "equal to the last bit" in p.text)
        cells = [*(cell for row in rows(part, 0) for cell in row[1:]), sentence]
        for cell in cells:
            for found in cell.all("a", "live-number"):
                one = found.attributes["href"]
                other = one.replace(*pairs[0])
                assert number(found) in (0, *apart(values(api, one), values(api, other))), one
        return
    for row in rows(part, 1):
        for cell, pair in zip(row[1:], pairs[1:], strict=True):
            one = link(cell)
            assert number(cell) in (0, *apart(values(api, one), values(api, one.replace(*pair)))), one


# --- states, and what cannot be one ---


def test_a_norm_before_each_half_is_a_state_too(api: Api) -> None:
    changed = get(api, f"{PAGE}?layers=2&length=5&norm=pre&at=2")
    _, (one, other), _ = traces_compared(section(changed, "future"))
    place = "h.{}.resid_post"
    found = [number(cells[1]) for cells in rows(section(changed, "future"), 1)]
    assert found == apart(stream(api, one, place), stream(api, other, place))


@pytest.mark.parametrize(
    ("query", "field", "says"),
    [
        ("text=a", "text", "1 token; this chapter takes from 2 to 40"),
        ("text=" + "a%20" * 60, "text", "tokens; this chapter takes from 2 to 40"),
        ("text=" + "a" * 301, "text", "longer than 300 characters"),
        ("at=64", "at", "a whole number from 0 to 63"),
        ("at=12&length=64", "at", "a position of the text, 1 to 8, not 12"),
        ("at=5&length=4", "at", "1 to 3, not 5"),
        ("steps=0", "steps", "a whole number from 1 to 8"),
        ("heads=7", "heads", "7 heads cannot share 64 channels"),
    ],
)
def test_an_option_that_cannot_be_taken_is_said_at_its_field(api: Api, query: str, field: str, says: str) -> None:
    refused = get(api, f"{PAGE}?{query}", 422)
    assert says in text_of(refused.one("p", id=f"wrong-{field}"))
    assert refused.one("input", id=f"option-{field}").attributes["aria-describedby"] == f"wrong-{field}"


def test_a_text_is_shown_as_text(api: Api) -> None:
    text = '"><script>alert(1)</script> and more'
    shown = get(api, f"{PAGE}?layers=1&length=4&text=" + quote(text))
    assert shown.one("input", id="option-text").attributes["value"] == text
    assert all("src" in script.attributes for script in shown.all("script"))


def test_without_the_default_model_the_textbooks_part_stands(tmp_path: Path) -> None:
    with running(tmp_path, model="gpt2") as bare:
        shown = get(bare, f"{PAGE}?layers=2&length=5")
        assert "needs a model that predicts" in text_of(section(shown, "loss"))
        assert len(rows(section(shown, "mask"))) == 2
        assert len(shown.all("p", "answer")) == 2
        assert not shown.all("section", id="cache")


def test_a_server_that_only_shows_says_why_it_computes_nothing(tmp_path: Path) -> None:
    with running(tmp_path, read_only=True) as still:
        assert "only shows what is" in text_of(get(still, PAGE, 503).one("main"))
        teacher = get(still, "/lessons/teacher")
        assert "only shows what is" in text_of(teacher.one("section", id="decoder"))
        assert not teacher.all("p", "answer")


# --- questions and the teacher's page ---


@pytest.mark.parametrize("state", ["", "heads=4&layers=2&length=6&batch=2"])
@pytest.mark.slow
def test_the_teachers_page_has_every_question_of_every_chapter(api: Api, state: str) -> None:
    teacher = get(api, f"/lessons/teacher?{state}")
    assert [part.attributes["id"] for part in teacher.all("section", "answered")] == [each.slug for each in CHAPTERS]
    for each in CHAPTERS:
        chapter = get(api, f"/lessons/{each.slug}?{state}").one("ol", "questions").all("li")
        listed = teacher.one("section", id=each.slug).one("ol", "questions").all("li")
        assert len(listed) == len(chapter) >= 3
        for ours, theirs in zip(listed, chapter, strict=True):
            assert text_of(ours.all("p")[0]) == text_of(theirs.all("p")[0])
            assert text_of(ours.one("p", "answer")) == text_of(theirs.one("p", "answer"))
            urls = [a.attributes["href"] for a in ours.all("a")]
            assert all(api.ask("GET", url).status_code == 200 for url in urls), urls
            assert theirs.attributes["id"] == urlsplit(urls[-1]).fragment


def test_every_chapter_has_its_page_in_the_order_of_reading() -> None:
    assert list(CONTENTS) == [each.slug for each in CHAPTERS]


def test_the_answers_of_this_chapter_say_the_pages_own_numbers(shown: Node) -> None:
    answers = [text_of(each) for each in shown.all("p", "answer")]
    assert len(answers) == 5
    assert answers[0].startswith("15 of 36:")
    assert answers[1].startswith(
        "With the mask 3 of the 6 positions, all from 3 on: the largest difference before it is 0."
    )
    assert "Without the mask 6 change" in answers[1]


def test_a_state_that_is_none_is_refused_on_the_teachers_page(api: Api) -> None:
    refused = get(api, "/lessons/teacher?heads=0", 422)
    assert "heads must be a whole number from 1 to 16" in text_of(refused.one("main"))


# --- the way back from tensors ---


@pytest.mark.parametrize("family", CATALOGUES)
@pytest.mark.slow
def test_the_page_of_a_site_leads_to_its_chapter(api: Api, family: str) -> None:
    for row in CATALOGUES[family]:
        chapter = chapter_of(family, row.site)
        found = get(api, site_url(row.site, family)).one("main")
        links = [a.attributes["href"] for a in found.all("a") if a.text.startswith("Lesson: ")]
        assert links == ([f"/lessons/{chapter.slug}"] if chapter else []), row.site


def test_a_tensor_leads_to_its_chapter(api: Api, shown: Node) -> None:
    url = link(rows(section(shown, "loss"))[0][3])
    found = get(api, url).one("main")
    (back,) = [a for a in found.all("a") if a.text.startswith("Lesson: ")]
    assert back.text == "Lesson: the causal decoder, with this run’s text"
    assert back.attributes["href"] == f"{PAGE}?text=One+two+three+four+five&steps=2"
