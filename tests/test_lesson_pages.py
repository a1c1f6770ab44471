"""The pages of the lessons: every number is recomputed from the API's arrays, by another implementation."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import SecretStr

from app.examples import record_examples
from app.pages.lessons.contents import CONTENTS
from provenance.lessons.chapters import CHAPTERS
from tests.api_client import Api, running
from tests.html_tree import Node, tree, words

Array = NDArray[np.float64]
ATTENTION = ("scaled-dot-product", "multi-head")
STATES = ("", "causal=yes", "heads=1", "d=32&heads=4&length=7", "temperature=0.5&scaled=no", "layers=2&norm=pre")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("lessons")) as found:
        yield found


@dataclass
class Lesson:
    """A chapter's page, with the arrays of the run that it reads."""

    api: Api
    slug: str
    query: str = ""

    @cached_property
    def page(self) -> Node:
        answer = self.api.ask("GET", f"/lessons/{self.slug}?{self.query}")
        assert answer.status_code == 200, answer.text
        return tree(answer.text)

    def trace_of(self, link: Node) -> str:
        return link.attributes["href"].split("?")[0].split("/")[2]

    @cached_property
    def trace(self) -> str:
        return self.trace_of(self.page.one("p", "whereabouts").all("a")[0])

    def array(self, place: str, trace: str = "") -> Array:
        values = self.api.values(f"/api/traces/{trace or self.trace}/tensors/{place}.npy")
        return values.astype(np.float64)

    def arrays(self, *places: str) -> tuple[torch.Tensor, ...]:
        return tuple(torch.from_numpy(self.array(f"h.0.attn.{place}")) for place in places)

    @property
    def has_mask(self) -> bool:
        return "causal=yes" in self.query

    def table(self, caption: str) -> dict[str, list[float | str]]:
        """The cells of a table by the headings of its rows: exact numbers, or texts."""
        (found,) = [each for each in self.page.all("table") if caption in each.one("caption").text]
        return {
            words(row.one("th").text): [_cell(cell) for cell in row.all("td")] for row in found.one("tbody").all("tr")
        }

    def checks(self) -> dict[str, tuple[float, str]]:
        """The difference that each check shows, and its badge, by the title of what was checked."""
        found = {}
        for check in self.page.all("div", "check"):
            said = check.one("p", "checked")
            of = [words(each.text) for each in said.all("a")]
            found[f"{of[-1]} from {', '.join(of[:-1])}"] = (
                _exact(said.all("data")[0]),
                words(said.one("span", "badge").text),
            )
        return found

    def live(self, within: str) -> list[float]:
        """The live numbers in the prose of a section, tables left out."""
        section = self.page.one("section", id=within)
        return [_exact(a.one("data")) for p in section.all("p") for a in p.all("a", "live-number")]

    def answers(self) -> list[list[float]]:
        return [[_exact(each) for each in p.all("data")] for p in self.page.all("p", "answer")]


def _exact(node: Node) -> float:
    return float(node.attributes["value"])


def _cell(cell: Node) -> float | str:
    numbers = cell.all("data")
    return _exact(numbers[0]) if numbers else words(cell.text)


def close(*expected: float) -> Any:
    return pytest.approx(list(expected), rel=1e-9, abs=1e-12)


def softness(weights: torch.Tensor, keys: torch.Tensor) -> list[float]:
    """Entropy in nats, as a part of the most, the largest weight, and the trace of the softmax's derivative."""
    entropy = torch.distributions.Categorical(probs=weights).entropy()
    most = keys.double().log().expand_as(entropy)
    even = (entropy[most > 0] / most[most > 0]).mean()
    derivative = torch.diag_embed(weights) - weights[..., :, None] * weights[..., None, :]
    trace = derivative.diagonal(dim1=-2, dim2=-1).sum(-1)
    return [entropy.mean().item(), even.item(), weights.amax(-1).mean().item(), trace.mean().item()]


# --- all chapters ---


def test_the_list_leads_to_every_chapter_and_to_the_teachers_page(api: Api) -> None:
    page = tree(api.ask("GET", "/lessons").raise_for_status().text)
    listed = page.one("ol", "chapters").all("a")
    assert [link.attributes["href"] for link in listed] == [f"/lessons/{each.slug}" for each in CHAPTERS]
    assert page.one("p", "teacher").one("a").attributes["href"] == "/lessons/teacher"


def test_the_lessons_are_in_the_header_of_every_page(api: Api) -> None:
    for address in ("/", "/sites", "/lessons"):
        header = tree(api.ask("GET", address).text).one("nav", "places")
        assert "/lessons" in [link.attributes["href"] for link in header.all("a")]


def test_an_unknown_chapter_is_not_found(api: Api) -> None:
    answer = api.ask("GET", "/lessons/rnn")
    assert answer.status_code == 404
    assert "no lesson named" in answer.text


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.slug)
@pytest.mark.slow
def test_a_chapter_leads_to_those_beside_it_in_the_same_state(api: Api, chapter: Any) -> None:
    page = Lesson(api, chapter.slug, "causal=yes").page
    beside = {link.attributes["rel"]: link.attributes["href"] for link in page.one("nav", "lesson-order").all("a")}
    expected = {"prev": chapter.number - 2, "next": chapter.number}
    assert beside == {
        rel: f"/lessons/{CHAPTERS[at].slug}?causal=yes" for rel, at in expected.items() if 0 <= at < len(CHAPTERS)
    }


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.slug)
def test_every_check_of_a_chapter_holds_and_ids_are_unique(api: Api, chapter: Any) -> None:
    lesson = Lesson(api, chapter.slug)
    assert lesson.checks()
    assert {badge for _, badge in lesson.checks().values()} == {"✓ holds"}
    ids = [node.attributes["id"] for node in lesson.page.elements if "id" in node.attributes]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("query", STATES)
@pytest.mark.parametrize("slug", ATTENTION)
@pytest.mark.slow
def test_a_state_is_a_url_and_its_checks_hold(api: Api, slug: str, query: str) -> None:
    lesson = Lesson(api, slug, query)
    assert {badge for _, badge in lesson.checks().values()} == {"✓ holds"}
    said = lesson.page.one("p", "whereabouts").all("a")[1].attributes["href"]
    assert said == f"/lessons/{slug}" + (f"?{query}" if query else "")
    sent = {each.attributes["name"]: each.attributes["value"] for each in _typed(lesson.page)}
    for name, value in (pair.split("=") for pair in query.split("&") if pair):
        assert sent[name] == value


def _typed(page: Node) -> list[Node]:
    """What the form would send."""
    form = page.one("form", "lesson-form")
    chosen = [
        Node("input", {"name": select.attributes["name"], "value": option.attributes["value"]})
        for select in form.all("select")
        for option in select.all("option")
        if "selected" in option.attributes
    ]
    return form.all("input") + chosen


@pytest.mark.parametrize("slug", ATTENTION)
@pytest.mark.slow
def test_what_a_chapter_links_and_draws_is_there(api: Api, slug: str) -> None:
    main = Lesson(api, slug, "causal=yes").page.one("main")
    found = {link.attributes["href"] for link in main.all("a")} | {img.attributes["src"] for img in main.all("img")}
    broken = {address for address in found if api.ask("GET", address).status_code != 200}
    assert broken == set()
    assert len(found) > 20


@pytest.mark.parametrize(
    ("slug", "query", "field", "value", "says"),
    [
        ("scaled-dot-product", "heads=5", "heads", "5", "5 heads cannot share 64 channels"),
        ("scaled-dot-product", "temperature=hot", "temperature", "hot", "from 0.01 to 100, not 'hot'"),
        ("multi-head", "d=1000", "d", "1000", "from 8 to 256"),
        ("multi-head", "norm=<b>", "norm", "<b>", "post or pre"),
        ("multi-head", "batch=0", "batch", "0", "from 1 to 8"),
    ],
)
def test_an_option_that_cannot_be_taken_is_said_at_its_field(
    api: Api, slug: str, query: str, field: str, value: str, says: str
) -> None:
    answer = api.ask("GET", f"/lessons/{slug}?causal=yes&{query}")
    assert answer.status_code == 422
    page = tree(answer.text)
    (wrong,) = [node for node in page.elements if node.attributes.get("aria-invalid")]
    assert wrong.attributes["name"] == field
    assert says in page.one("p", "wrong", id=wrong.attributes["aria-describedby"]).text
    sent = {each.attributes["name"]: each.attributes["value"] for each in _typed(page)}
    assert (sent[field], sent["causal"]) == (value, "yes")
    assert not page.all("div", "check")


@pytest.mark.slow
def test_a_read_only_server_shows_what_is_stored_and_says_so_where_it_is_not(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        assert first.ask("GET", "/lessons/multi-head?layers=1").status_code == 200
    with running(tmp_path, read_only=True) as second:
        assert second.ask("GET", "/lessons/multi-head?layers=1").status_code == 200
        answer = second.ask("GET", "/lessons/multi-head?layers=2")
        assert answer.status_code == 503
        assert "is not stored here" in answer.text


def test_a_page_records_for_those_who_have_the_token_and_shows_what_is_stored_to_all(tmp_path: Path) -> None:
    token = "a token of enough length"
    with running(tmp_path, token=SecretStr(token)) as api:
        refused = api.ask("GET", "/lessons/scaled-dot-product")
        assert refused.status_code == 401
        assert "/login" in refused.text
        signed = {"Authorization": f"Bearer {token}"}
        assert api.ask("GET", "/lessons/scaled-dot-product", headers=signed).status_code == 200
        assert api.ask("GET", "/lessons/scaled-dot-product").status_code == 200


@pytest.mark.slow
def test_behind_a_token_the_first_start_records_what_the_lessons_usually_read(tmp_path: Path) -> None:
    with running(tmp_path, token=SecretStr("a token of enough length"), example=True) as api:
        record_examples(api.explorer)
        for slug in CONTENTS:
            assert api.ask("GET", f"/lessons/{slug}").status_code == 200


def test_a_full_store_is_said_on_the_page(tmp_path: Path) -> None:
    with running(tmp_path, traces_limit=1) as api:
        assert api.ask("GET", "/lessons/scaled-dot-product").status_code == 200
        answer = api.ask("GET", "/lessons/scaled-dot-product?heads=4")
        assert answer.status_code == 503
        assert "keeps 1 traces" in answer.text


# --- scaled dot-product ---


def standard(x: torch.Tensor) -> torch.Tensor:
    """Heads side by side (B, T, d), every channel with mean 0 and variance 1."""
    wide = x.transpose(1, 2).flatten(2)
    flat = wide.flatten(0, 1)
    return ((flat - flat.mean(0)) / flat.std(0, correction=0)).view_as(wide)


@pytest.fixture(scope="module", params=["", "causal=yes", "d=32&heads=2&length=9&temperature=0.5", "scaled=no"])
def scaled(request: pytest.FixtureRequest, api: Api) -> Lesson:
    return Lesson(api, "scaled-dot-product", request.param)


def test_the_variances_are_those_of_the_recorded_tensors(scaled: Lesson) -> None:
    q, k, raw = scaled.arrays("q", "k", "score_raw")
    width, heads = q.shape[-1], q.shape[1]
    product = (q.var(correction=0) * k.var(correction=0)).item()
    cut = [standard(x).unflatten(2, (heads, width)) for x in (q, k)]
    unit = torch.einsum("bthc,bshc->bhts", *cut).var(correction=0).item()
    measured = [x.var(correction=0).item() for x in (q, k, raw, raw / math.sqrt(width))]
    found = list(scaled.table("Variances").values())
    # The scaled scores are the recorded float32 ones where the run scales them so.
    assert [row[0] for row in found] == pytest.approx([*measured, unit, unit / width], rel=1e-6)
    assert [row[1] for row in found[2:]] == close(width * product, product, width, 1)


def test_the_scores_over_fewer_channels_are_recomputed(scaled: Lesson) -> None:
    q, k = map(standard, scaled.arrays("q", "k"))
    table = scaled.table("Scores over the first channels")
    assert list(table)[-1] == str(q.shape[-1])
    for channels, row in table.items():
        n = int(channels)
        raw = torch.einsum("btc,bsc->bts", q[..., :n], k[..., :n])
        largest = [(x.softmax(-1).amax(-1).mean().item()) for x in (raw, raw / math.sqrt(n))]
        variance = raw.var(correction=0).item()
        assert row == close(variance, n, variance / n, *largest)


def keys_of(lesson: Lesson, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Masked scores, and how many keys each query sees."""
    length = scores.shape[-1]
    if not lesson.has_mask:
        return scores, torch.full((length,), length)
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -math.inf), torch.arange(1, length + 1)


def test_the_saturation_is_recomputed_at_every_temperature(scaled: Lesson) -> None:
    (raw,) = scaled.arrays("score_raw")
    q = scaled.arrays("q")[0]
    table = scaled.table("How far the softmax is from even")
    assert len(table) == 6
    current = [words(each.one("th").text) for each in scaled.page.all("tr", "current")]
    for heading, row in table.items():
        divisor = 1.0 if heading.startswith("not") else math.sqrt(q.shape[-1])
        scores, keys = keys_of(scaled, raw / divisor / float(heading.split()[-1]))
        # The present state is that of the recorded float32 weights.
        precision = 1e-5 if heading in current else 1e-9
        assert row == pytest.approx(softness(scores.softmax(-1), keys), rel=precision)


def test_both_divisors_of_the_text_and_the_code_are_recomputed(scaled: Lesson) -> None:
    q, raw = scaled.arrays("q", "score_raw")
    width, d = q.shape[-1], q.shape[-1] * q.shape[1]
    by_text, by_code = scaled.table("Two divisors").values()
    for row, channels in ((by_text, d), (by_code, width)):
        scores, keys = keys_of(scaled, raw / math.sqrt(channels))
        _, even, largest, _ = softness(scores.softmax(-1), keys)
        variance = (raw / math.sqrt(channels)).var(correction=0).item()
        assert row == close(math.sqrt(channels), variance, even, largest)


def test_the_checks_show_the_differences_from_torch_in_float64(scaled: Lesson) -> None:
    q, k, v, raw, score, weight, context = scaled.arrays(
        "q", "k", "v", "score_raw", "score", "weight", "context"
    )  # fmt: skip
    warm = 0.5 if "temperature=0.5" in scaled.query else 1.0
    divisor = warm * (1.0 if "scaled=no" in scaled.query else math.sqrt(q.shape[-1]))
    masked, _ = keys_of(scaled, score)
    whole = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=scaled.has_mask, scale=1 / divisor)
    pairs = {
        "Raw attention scores": (q @ k.mT, raw),
        "Scaled attention scores": (raw / divisor, score),
        "Attention weights": (masked.softmax(-1), weight),
        "Context by head from weight,": (weight @ v, context),
        "Context by head from q,": (whole, context),
    }
    shown = scaled.checks()
    for title, (ours, recorded) in pairs.items():
        (difference,) = [value for name, (value, _) in shown.items() if name.startswith(title)]
        assert difference == pytest.approx((ours - recorded).abs().max().item(), abs=1e-12)
    assert len(shown) == len(pairs) + scaled.has_mask


def test_an_output_is_a_mean_of_the_values(scaled: Lesson) -> None:
    weight, v, context = scaled.arrays("weight", "v", "context")
    off, outside, spread_mixed, spread = scaled.live("output")
    assert off == pytest.approx((weight.sum(-1) - 1).abs().max().item(), abs=1e-15)
    assert off < 1e-6
    assert [spread_mixed, spread] == close(context.std(correction=0).item(), v.std(correction=0).item())
    seen = torch.where(weight[..., None] > 0, v[:, :, None], math.nan)
    low, high = (torch.from_numpy(f(seen.numpy(), axis=-2)) for f in (np.nanmin, np.nanmax))
    expected = torch.maximum(low - context, context - high).max().clamp(min=0).item()
    assert outside == pytest.approx(expected, abs=1e-15)


def test_the_shapes_are_those_of_the_recorded_tensors(scaled: Lesson) -> None:
    shapes = [row[1] for row in scaled.table("Shapes").values()]
    places = ("q", "k", "v", "score_raw", "weight", "context", "merged")
    assert shapes == [" × ".join(map(str, each.shape)) for each in scaled.arrays(*places)]


def test_layer_0_of_gpt2_stands_beside_the_textbook(scaled: Lesson) -> None:
    table = scaled.table("Layer 0 of both models")
    link = scaled.page.one("section", id="in-gpt2").one("table").all("a", "live-number")[1]
    gpt2 = scaled.trace_of(link)
    q, k, raw, scores, weight = (
        torch.from_numpy(scaled.array(f"h.0.attn.{place}", gpt2))
        for place in ("q", "k", "scores_raw", "scores", "pattern")
    )
    width, length = q.shape[-1], q.shape[-2]
    _, even, largest, _ = softness(weight, torch.arange(1, length + 1))
    q_var, k_var, raw_var, score_var = (x.var(correction=0).item() for x in (q, k, raw, scores))
    expected = (width, q_var, k_var, raw_var, width * q_var * k_var, score_var, even, largest)
    assert [row[1] for row in table.values()] == pytest.approx(list(expected), rel=1e-6)
    q, k, raw, scores, weight = scaled.arrays("q", "k", "score_raw", "score", "weight")
    _, keys = keys_of(scaled, scores)
    _, even, largest, _ = softness(weight, keys)
    q_var, k_var, raw_var, score_var = (x.var(correction=0).item() for x in (q, k, raw, scores))
    width = q.shape[-1]
    expected = (width, q_var, k_var, raw_var, width * q_var * k_var, score_var, even, largest)
    assert [row[0] for row in table.values()] == pytest.approx(list(expected), rel=1e-6)


def test_the_answers_on_scaling_are_computed(scaled: Lesson) -> None:
    q, raw, weight, v, context = scaled.arrays("q", "score_raw", "weight", "v", "context")
    first, second, third, fourth, fifth = scaled.answers()
    width = q.shape[-1]
    variance = raw.var(correction=0).item()
    assert first == pytest.approx([width, variance, variance / width, width], rel=1e-6)
    row = weight[0, 0, -1]
    assert second == [row.argmax().item(), row.max().item()]
    assert third == [(row > 0).sum().item(), len(row)]
    scores, _ = keys_of(scaled, torch.zeros_like(raw))
    level = scores.softmax(-1) @ v
    assert fourth == close(((level - context).norm() / context.norm()).item())
    assert 0 <= fifth[0] < 1e-6


# --- multi-head ---


@pytest.fixture(scope="module", params=["", "causal=yes&layers=3", "heads=4&norm=pre&layers=2", "heads=1&layers=1"])
def heads(request: pytest.FixtureRequest, api: Api) -> Lesson:
    return Lesson(api, "multi-head", request.param)


def total_variation(weight: torch.Tensor, one: int, other: int) -> float:
    return (torch.cdist(weight[:, one, :, None], weight[:, other, :, None], p=1) / 2).mean().item()


def mean_of_pairs(weight: torch.Tensor) -> float:
    count = weight.shape[1]
    pairs = [total_variation(weight, one, other) for one in range(count) for other in range(one)]
    return sum(pairs) / len(pairs) if pairs else math.nan


def test_the_distances_of_heads_are_recomputed(heads: Lesson) -> None:
    (weight,) = heads.arrays("weight")
    count = weight.shape[1]
    if count == 1:
        assert not [each for each in heads.page.all("caption") if "two heads look" in each.text]
        return
    table = heads.table("How differently two heads look")
    assert list(table) == [f"head {head}" for head in range(count)]
    for one, row in enumerate(table.values()):
        assert row[one] == "–"
        others = [other for other in range(count) if other != one]
        assert [row[other] for other in others] == close(*(total_variation(weight, one, other) for other in others))
    assert heads.live("heads") == close(mean_of_pairs(weight))


def losses(
    weight: torch.Tensor, v: torch.Tensor, merged: torch.Tensor, out: torch.Tensor,
    project: Callable[[torch.Tensor], torch.Tensor], keys: torch.Tensor,
) -> list[float]:  # fmt: skip
    """The row of the table for a layer, without its first cell."""
    count, length = weight.shape[1], weight.shape[-1]
    mean = torch.stack([weight.sum(1) / count] * count, dim=1)
    moved = torch.stack([weight[:, (head - 1) % count] for head in range(count)], dim=1)
    level = (torch.arange(length) < keys[:, None]).double() / keys[:, None]

    def errors(pattern: torch.Tensor) -> tuple[float, float]:
        again = torch.einsum("bhts,bhsc->bthc", pattern.expand_as(weight), v).flatten(2)
        results = ((again, merged), (project(again), out))
        apart = [((found - kept).pow(2).sum() / kept.pow(2).sum()).sqrt().item() for found, kept in results]
        return apart[0], apart[1]

    return [*errors(mean), errors(moved)[1], errors(level)[1]]


def test_what_is_lost_in_each_layer_is_recomputed(heads: Lesson) -> None:
    table = heads.table("Relative error in textbook")
    for layer, row in enumerate(table.values()):
        names = ("weight", "v", "merged", "out", "out_proj.w", "out_proj.b")
        weight, v, merged, out, w, b = (torch.from_numpy(heads.array(f"h.{layer}.attn.{name}")) for name in names)
        _, keys = keys_of(heads, weight)

        def project(x: torch.Tensor, w: torch.Tensor = w, b: torch.Tensor = b) -> torch.Tensor:
            return torch.nn.functional.linear(x, w, b)

        assert row[1:] == pytest.approx(losses(weight, v, merged, out, project, keys), rel=1e-6, abs=1e-6)
        if weight.shape[1] > 1:
            assert row[0] == pytest.approx(mean_of_pairs(weight), rel=1e-9)
        else:
            assert row[0] == "–"
    assert len(table) == int(dict(part.split("=") for part in heads.query.split("&") if part).get("layers", 6))


def test_what_gpt2_would_lose_is_recomputed(heads: Lesson) -> None:
    links = heads.page.one("section", id="in-gpt2").one("table").all("a", "live-number")
    gpt2 = heads.trace_of(links[0])
    for heading, row in heads.table("Relative error in tiny-untrained").items():
        layer = heading.split()[-1]
        names = ("pattern", "v", "merged", "out", "c_proj.w", "c_proj.b")
        weight, v, merged, out, w, b = (
            torch.from_numpy(heads.array(f"h.{layer}.attn.{name}", gpt2)) for name in names
        )

        def project(x: torch.Tensor, w: torch.Tensor = w, b: torch.Tensor = b) -> torch.Tensor:
            return torch.einsum("btd,de->bte", x, w[0]) + b

        keys = torch.arange(1, weight.shape[-1] + 1)
        expected = [mean_of_pairs(weight), *losses(weight, v, merged, out, project, keys)]
        assert row == pytest.approx(expected, rel=1e-6)


def test_the_listing_attends_over_all_channels_at_once(heads: Lesson) -> None:
    q, k, v, merged = heads.arrays("q", "k", "v", "merged")
    wide = [x.transpose(1, 2).flatten(2) for x in (q, k, v)]
    single = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=heads.has_mask)
    shape = " × ".join(map(str, merged.shape))
    listing, block = heads.table("Both ways").values()
    apart = ((single - merged).norm() / merged.norm()).item()
    assert listing == [shape, pytest.approx(apart, rel=1e-6, abs=1e-6)]
    again = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=heads.has_mask)
    again = again.transpose(1, 2).flatten(2)
    assert block == [shape, pytest.approx(((again - merged).norm() / merged.norm()).item(), abs=1e-12)]
    assert isinstance(block[1], float) and 0 < block[1] < 1e-6


def test_the_checks_of_split_and_merge_are_exact_and_those_of_products_recomputed(heads: Lesson) -> None:
    shown = {name.split(" from ")[0]: value for name, (value, _) in heads.checks().items()}
    assert [shown[part] for part in ("Queries", "Keys", "Values", "Merged heads")] == [0, 0, 0, 0]
    qkv, *cut = heads.arrays("qkv", "q", "k", "v")
    for fused, part in zip(qkv.chunk(3, dim=-1), cut, strict=True):
        assert torch.equal(part.transpose(1, 2).flatten(2), fused)
    merged, out, w, b = heads.arrays("merged", "out", "out_proj.w", "out_proj.b")
    difference = (torch.nn.functional.linear(merged, w, b) - out).abs().max().item()
    assert shown["Attention output"] == pytest.approx(difference, abs=1e-12)
    stream = torch.from_numpy(heads.array("h.0.pre.norm1.out" if "norm=pre" in heads.query else "embed.h"))
    w, b, qkv = heads.arrays("in_proj.w", "in_proj.b", "qkv")
    difference = (torch.nn.functional.linear(stream, w, b) - qkv).abs().max().item()
    assert shown["Fused queries, keys and values"] == pytest.approx(difference, abs=1e-12)


@pytest.mark.slow
def test_whether_the_model_beside_is_trained_is_said(heads: Lesson, scaled: Lesson) -> None:
    for lesson in (heads, scaled):
        part = words(lesson.page.one("section", id="in-gpt2").text)
        assert "△ untrained" in part
        assert "In a trained model" not in part


@pytest.mark.parametrize("slug", ["scaled-dot-product", "decoder"])
def test_a_mask_is_checked_against_the_rule_and_not_against_itself(api: Api, slug: str) -> None:
    shown = Lesson(api, slug, "causal=yes&layers=1&length=4").checks()
    masked = [name for name in shown if name.startswith(("Masked attention scores", "Attention pattern"))]
    assert masked and not [name for name in masked if "tril" in name or name.endswith(", m")]


@pytest.mark.slow
def test_every_head_has_its_picture(heads: Lesson) -> None:
    (weight,) = heads.arrays("weight")
    pictures = heads.page.one("div", "lesson-figures").all("img")
    assert len(pictures) == weight.shape[1]
    png = heads.api.ask("GET", pictures[-1].attributes["src"])
    assert png.headers["content-type"] == "image/png"


def test_the_answers_on_heads_are_computed(heads: Lesson) -> None:
    weight, v, merged, out, w, b, w_in, b_in = heads.arrays(
        "weight", "v", "merged", "out", "out_proj.w", "out_proj.b", "in_proj.w", "in_proj.b"
    )
    batch, count = weight.shape[:2]
    layers = len(heads.table("Relative error in textbook"))
    first, second, third, *rest = heads.answers()
    assert first == [batch * count * layers, batch, count, layers]
    parameters = sum(each.numel() for each in (w, b, w_in, b_in))
    assert second == [parameters, parameters]
    assert heads.live("one")[-1] == parameters
    _, keys = keys_of(heads, weight)
    lost = losses(weight, v, merged, out, lambda x: torch.nn.functional.linear(x, w, b), keys)
    assert third == pytest.approx(lost[:2], rel=1e-6, abs=1e-6)
    if count == 1:
        assert rest == []
        return
    apart = {total_variation(weight, one, other): (one, other) for other in range(count) for one in range(other)}
    assert rest == [[*apart[max(apart)], pytest.approx(max(apart), rel=1e-9)]]
