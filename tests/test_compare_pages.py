"""The pages of comparisons: the form, what came out, one tensor of it, its picture, and files that are handed in."""

import math
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import torch
from api_client import FOX, Api, running
from html_tree import Node, tree, words
from numpy.typing import NDArray
from safetensors.numpy import save
from test_pictures_heatmap import decoded

from app.pages import compare_rows
from provenance.difference import tolerated

CAT = FOX.replace("fox", "cat")
INJECTION = '"><script>alert(1)</script>'
HTMX = {"HX-Request": "true", "HX-Target": "focus"}
LIMIT_MIB = 1
Array = NDArray[Any]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("comparisons"), upload_limit_mib=LIMIT_MIB) as api:
        yield api


def recorded(api: Api, prompt: str, **wanted: object) -> str:
    return api.record(prompt=prompt, **wanted).rpartition("/")[2]


@pytest.fixture(scope="module")
def fox(api: Api) -> str:
    return recorded(api, FOX, steps=1)


@pytest.fixture(scope="module")
def cat(api: Api) -> str:
    return recorded(api, CAT, steps=1)


def page(api: Api, address: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Node:
    answer = api.ask("GET", address, headers=headers)
    assert answer.status_code == status, answer.text[:1500]
    return tree(answer.text)


def cells(api: Api, trace: str, address: str) -> Array:
    return api.values(f"/api/traces/{trace}/tensors/{address}.npy")


def hand_in(api: Api, a: str, content: bytes, name: str = "port.safetensors", **fields: str) -> Any:
    sent = {"a": a, "b": "", "tolerance": "", **fields}
    return api.ask("POST", "/compare", data=sent, files={"file": (name, content)})


def compared_file(api: Api, a: str, tensors: Mapping[str, Array], name: str = "port.safetensors") -> str:
    """The address of the comparison with a file of such tensors."""
    answer = hand_in(api, a, save({key: np.ascontiguousarray(array) for key, array in tensors.items()}), name)
    assert answer.status_code == 303, answer.text[:1500]
    address: str = answer.headers["location"]
    return address


def headline(shown: Node) -> str:
    return words(shown.one("h1").text)


def number_of(shown: Node, label: str) -> float:
    """A figure of the tensor that is looked at, exactly."""
    focus = shown.one("section", id="focus")
    (each,) = [div for div in focus.one("dl", "measures").all("div") if div.one("dt").text == label]
    return float(each.one("data").attributes["value"])


def rows(shown: Node) -> dict[str, str]:
    """The words of every listed row, by the address or name that its link looks at."""
    found = {}
    for table in shown.all("table", "differences"):
        for row in table.one("tbody").all("tr"):
            link = row.one("th").one("a").attributes["href"]
            found[parse_qs(urlsplit(link).query)["at"][0]] = words(
                " ".join(c.text for c in row.inside if isinstance(c, Node))
            )
    return found


# --- the form ---


def test_the_form_offers_the_traces_newest_first_and_preselects_one(api: Api, fox: str, cat: str) -> None:
    shown = page(api, f"/compare?a={fox[:10]}")
    options = shown.one("select", id="a").all("option")
    values = [option.attributes["value"] for option in options]
    assert values.index(cat) < values.index(fox)
    assert [o.attributes["value"] for o in options if "selected" in o.attributes] == [fox]
    text = next(option.text for option in options if option.attributes["value"] == cat)
    assert text.startswith("“The quick brown cat") and "tiny-untrained" in text and "9 + 1 tokens" in text
    assert f"tensor-provenance golden {fox[:12]} --out" in shown.one("pre", "code").text


def test_the_form_leads_to_the_comparison_of_two_traces(api: Api, fox: str, cat: str) -> None:
    answer = api.ask("POST", "/compare", data={"a": fox, "b": cat, "tolerance": " 1e-4 "})
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/compare?a={fox}&b={cat}&tolerance=1e-4"


@pytest.mark.parametrize(
    ("field", "change", "says"),
    [
        ("b", {"b": ""}, "There is nothing to compare it with."),
        ("a", {"a": ""}, "Trace A is missing."),
        ("tolerance", {"tolerance": "small"}, "The tolerance must be a number from 0 to 1, not 'small'."),
        ("tolerance", {"tolerance": "nan"}, "not 'nan'"),
        ("tolerance", {"tolerance": "-1"}, "not '-1'"),
    ],
)
def test_a_form_that_is_wrong_comes_back_as_it_was_filled_in(
    api: Api, fox: str, cat: str, field: str, change: Mapping[str, str], says: str
) -> None:
    sent = {"a": fox, "b": cat, "tolerance": "1e-3", **change}
    answer = api.ask("POST", "/compare", data=sent)
    assert answer.status_code == 422
    shown = tree(answer.text)
    assert says in words(shown.one("p", "wrong", id=f"wrong-{field}").text)
    assert shown.one("input", id="tolerance").attributes["value"] == sent["tolerance"]
    for side in ("a", "b"):
        chosen = [o for o in shown.one("select", id=side).all("option") if "selected" in o.attributes]
        assert [option.attributes["value"] for option in chosen] == ([sent[side]] if sent[side] else [])


def test_both_sides_cannot_be_the_same_trace(api: Api, fox: str) -> None:
    answer = api.ask("POST", "/compare", data={"a": fox, "b": fox})
    assert answer.status_code == 422 and "Both sides are the same trace." in answer.text


def test_a_wrong_tolerance_in_the_address_gives_the_form(api: Api, fox: str, cat: str) -> None:
    shown = page(api, f"/compare?a={fox}&b={cat}&tolerance=lots", 422)
    assert "not 'lots'" in shown.one("p", id="wrong-tolerance").text


# --- what came out of two traces ---


def test_two_prompts_first_differ_at_their_ids_and_every_figure_is_numpys(api: Api, fox: str, cat: str) -> None:
    shown = page(api, f"/compare?a={fox}&b={cat}")
    assert headline(shown) == "They first differ at X"
    assert [words(side.text) for side in shown.one("div", "sides").all("h2")][1].endswith(f"“{CAT}” △ untrained")
    focus = shown.one("section", id="focus")
    assert "token 3 “ fox”" in words(focus.one("p", "first").text)
    ids = [cells(api, trace, "tokens")[0, 3] for trace in (fox, cat)]
    values = [each.attributes["value"] for each in focus.one("p", "first").all("data")]
    assert values == [repr(float(id)) for id in ids]

    at = page(api, f"/compare?a={fox}&b={cat}&at=h.1.attn.pattern")
    a, b = (cells(api, trace, "h.1.attn.pattern").astype(np.float64) for trace in (fox, cat))
    assert number_of(at, "max |A − B|") == np.abs(a - b).max()
    assert number_of(at, "relative") == pytest.approx(np.abs(a - b).max() / a.max())
    cosine = (a * b).sum() / math.sqrt((a * a).sum() * (b * b).sum())
    assert number_of(at, "cosine") == pytest.approx(cosine)
    assert at.one("section", id="focus").all("a", href=f"/compare?a={fox}&b={cat}"), "back to the first divergence"


def test_rows_stand_in_computation_order_by_part_and_step(api: Api, fox: str, cat: str) -> None:
    shown = page(api, f"/compare?a={fox}&b={cat}")
    parts = [words(part.one("summary").one("strong").text) for part in shown.all("details", "segment-rows")]
    assert parts == ["Embedding", *(f"Transformer block {n}" for n in range(len(parts) - 2)), "Output"]
    listed = list(rows(shown))
    assert listed.index("tokens") < listed.index("embed.h") < listed.index("h.0.ln_1.out") < listed.index("logits")
    assert rows(shown)["wte"].startswith("✓ bit for bit") and rows(shown)["embed.h"].startswith("≠ differs")
    later = page(api, f"/compare?a={fox}&b={cat}&step=1")
    assert all(name.endswith("@1") for name in rows(later))
    assert later.one("a", id="step-1").attributes["aria-current"] == "true"


def test_of_a_deep_model_only_the_parts_that_matter_are_listed(
    api: Api, fox: str, cat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_rows, "MOST_ROWS", 20)
    shown = page(api, f"/compare?a={fox}&b={cat}&at=h.1.attn.v")
    listed = [words(part.one("summary").one("strong").text) for part in shown.all("details", "segment-rows")]
    assert listed == ["Embedding", "Transformer block 1", "Output"]
    link = shown.all("p", "segment-link")[0]
    assert "Transformer block 0 ≠ " in words(link.text)
    other = page(api, link.one("a").attributes["href"].partition("#")[0])
    assert "h.0.attn.v" in rows(other) and "h.1.attn.v" not in rows(other)


def test_only_those_that_differ_can_be_listed(api: Api, fox: str, cat: str) -> None:
    whole = rows(page(api, f"/compare?a={fox}&b={cat}"))
    shown = page(api, f"/compare?a={fox}&b={cat}&show=differing")
    assert list(rows(shown)) == [name for name, text in whole.items() if not text.startswith("✓")]
    assert shown.one("a", id="show-all").attributes["href"] == f"/compare?a={fox}&b={cat}#tensors"


def test_the_strip_says_in_words_where_the_difference_starts(api: Api, fox: str, cat: str) -> None:
    growth = page(api, f"/compare?a={fox}&b={cat}&at=h.0.ln_1.out").one("figure", "growth")
    says = words(growth.one("p", "says").text)
    assert "The first that is not equal bit for bit is tokens." in says
    assert "The first over the tolerance is tokens." in says
    assert "▲ first divergence" in growth.text
    assert growth.all("a", "tensor-bar")[0].attributes["tabindex"] == "-1"


def test_equal_runs_agree_bit_for_bit_and_have_nothing_to_draw(api: Api, fox: str) -> None:
    longer = recorded(api, FOX, steps=2)
    shown = page(api, f"/compare?a={fox}&b={longer}")
    assert headline(shown).startswith("Both are equal bit for bit: ")
    assert "Only B has decode steps over 1" in shown.text
    assert not shown.all("figure", "growth") and not shown.all("section", id="focus")


@pytest.mark.slow
def test_two_dtypes_say_so_and_keep_their_own_tolerance(api: Api, fox: str) -> None:
    coarse = recorded(api, FOX, steps=1, dtype="bfloat16")
    shown = page(api, f"/compare?a={fox}&b={coarse}&at=h.0.ln_1.out")
    assert "The dtypes differ: float32 and bfloat16" in shown.text
    a = cells(api, fox, "h.0.ln_1.out")
    shape = list(a.shape)
    assert f"A {shape} float32, B {shape} bfloat16" in words(shown.one("p", "whereabouts").text)
    relative = tolerated(torch.float32, torch.bfloat16)
    assert number_of(shown, "tolerance") == pytest.approx(relative * float(np.abs(a).max()))
    strict = page(api, f"/compare?a={fox}&b={coarse}&tolerance=1e-9")
    assert "The tolerance is 1.0e-9 of the largest value of A." in strict.text
    assert headline(strict).startswith("They first differ at wpe")


def test_prefill_is_compared_with_decode_position_by_position(api: Api, fox: str) -> None:
    generated = api.json(f"/api/traces/{fox}")["generated"][0]["text"]
    whole = recorded(api, FOX + generated)
    shown = page(api, f"/compare?a={fox}&b={whole}")
    assert "Compared position by position" in shown.text
    assert headline(shown).startswith(("Both agree: ", "Both are equal bit for bit: "))
    at = page(api, f"/compare?a={fox}&b={whole}&at=h.1.attn.pattern")
    assert "[1, 4, 10, 10] float32" in words(at.one("p", "whereabouts").text)
    assert api.ask("GET", f"/compare/heatmap.png?a={fox}&b={whole}&at=h.1.attn.pattern").status_code == 200
    other = recorded(api, FOX + " and so on")
    parameters = page(api, f"/compare?a={fox}&b={other}")
    assert headline(parameters).startswith("Only parameters could be compared")
    assert parameters.all("a", href=f"/compare?a={fox}&b={other}&how=positions")


# --- the tensor that is looked at ---


def test_the_card_has_the_cited_lines_and_what_lies_upstream(api: Api, fox: str) -> None:
    scores = cells(api, fox, "h.1.attn.scores")
    tensors = {"h.1.attn.scores": scores * 1.5, "h.1.attn.scores_raw": cells(api, fox, "h.1.attn.scores_raw")}
    shown = page(api, compared_file(api, fox, tensors))
    assert headline(shown).endswith(", layer 1") and "rsqrt" in headline(shown)
    focus = shown.one("section", id="focus")
    assert words(focus.one("h2").text) == "Scaled attention scores"
    assert number_of(shown, "relative") == pytest.approx(0.5)
    cited = focus.one("article", "label-openai")
    assert "lines 93–94" in words(cited.text) and "rsqrt" in cited.one("div", "excerpt").text
    (before,) = focus.one("div", "upstream").one("ul").all("li")
    assert words(before.text).startswith("✓ bit for bit Raw attention scores")
    assert focus.all("a", href=f"/traces/{fox}/h.1.attn.scores")
    alone = page(api, compared_file(api, fox, {"h.1.attn.scores": scores * 1.5}))
    assert "○ not compared" in alone.one("div", "upstream").text


def test_the_picture_opens_at_the_head_that_differs_most(api: Api, fox: str) -> None:
    pattern = cells(api, fox, "h.0.attn.pattern").copy()
    pattern[0, 2, 5, 3] += 0.25
    address = compared_file(api, fox, {"h.0.attn.pattern": pattern})
    shown = page(api, address)
    current = [a for a in shown.one("section", id="focus").all("a") if "aria-current" in a.attributes]
    assert [link.attributes["id"] for link in current] == ["head-2"]
    image = shown.one("img", id="heatmap-image")
    assert "Largest value 0.25" in image.attributes["alt"] and "query 5" in image.attributes["alt"]
    other = page(api, shown.one("a", id="head-0").attributes["href"])
    assert other.one("a", id="head-0").attributes["aria-current"] == "true"
    drawn, _ = decoded(api.ask("GET", image.attributes["src"]).content)
    assert drawn.shape == (int(image.attributes["height"]), int(image.attributes["width"]))
    high, wide = drawn.shape[0] // 9, drawn.shape[1] // 9
    middles = drawn[high // 2 :: high, wide // 2 :: wide]
    assert [tuple(place) for place in np.argwhere(middles == middles.max())] == [(5, 3)]
    slice_url = shown.one("figure", "heatmap").attributes["data-slice"]
    found = api.json(f"{slice_url}&index=0,2,5,2:4")
    assert found["values"] == [0.0, pytest.approx(0.25, abs=1e-7)]


def test_cells_that_are_no_number_on_one_side_are_drawn_as_such(api: Api, fox: str) -> None:
    out = cells(api, fox, "h.0.ln_1.out").copy()
    out[0, 4, 7] = np.nan
    shown = page(api, compared_file(api, fox, {"h.0.ln_1.out": out}))
    assert headline(shown) == "They first differ at norm(x, 'ln_1'), layer 0"
    assert "1 cell is finite on one side only" in shown.one("section", id="focus").text
    assert "NaN" in shown.one("ul", "swatches").text


def test_htmx_gets_the_card_alone_and_everybody_else_the_page(api: Api, fox: str, cat: str) -> None:
    address = f"/compare?a={fox}&b={cat}&at=h.0.attn.v"
    part = api.ask("GET", address, headers=HTMX)
    assert part.headers["vary"].startswith("HX-Request, HX-History-Restore-Request")
    shown = tree(part.text)
    assert not shown.all("main") and shown.one("section", id="focus").one("h2").text == "Values"
    assert len(page(api, address, headers={**HTMX, "HX-History-Restore-Request": "true"}).all("main")) == 1
    assert len(page(api, address, headers={**HTMX, "HX-Target": "columns"}).all("main")) == 1


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("b=" + "0" * 32, 404, "There is no trace"),
        ("b=file:" + "0" * 32, 404, "was handed in here"),
        ("b={cat}&at=h.9.attn.q", 404, "is not among the tensors that were compared"),
        ("b={cat}&at=%3Cscript%3E", 404, "is not among the tensors that were compared"),
        ("b={cat}&at=h.0.attn.q&head=9", 404, "has no head 9"),
        ("b={cat}&at=h.0.attn.q&head=x", 422, "head must be a whole number"),
        ("b={cat}&how=somehow", 422, "'somehow' is no way to compare."),
        ("b={cat}&how=names", 422, "Two traces have the same names."),
        ("b={cat}&step=x", 422, "step must be a whole number"),
    ],
)
def test_what_cannot_be_compared_is_a_page_that_says_so(
    api: Api, fox: str, cat: str, query: str, status: int, says: str
) -> None:
    assert says in page(api, f"/compare?a={fox}&{query.format(cat=cat)}", status).one("main").text


def test_there_is_no_picture_of_what_was_not_compared(api: Api, fox: str) -> None:
    address = compared_file(api, fox, {"h.0.ln_1.out": np.zeros((1, 3, 3), dtype=np.float32)})
    assert api.ask("GET", address.replace("/compare?", "/compare/heatmap.png?")).status_code == 404
    looked = page(api, f"{address}&at=h.0.ln_1.out")
    assert not looked.all("figure", "heatmap") and "○ not compared" in looked.one("section", id="focus").text


# --- files ---


def test_what_a_file_lacks_names_wrongly_or_lays_out_otherwise_is_said(api: Api, fox: str) -> None:
    q = cells(api, fox, "h.0.attn.q")
    tensors = {
        "blocks.0.attn.hook_q": q.transpose(0, 2, 1, 3),
        "blocks.1.atn.hook_q": q,
        "h.1.ln_1.out": np.zeros((1, 3, 3), dtype=np.float32),
        INJECTION: q,
    }
    shown = page(api, compared_file(api, fox, tensors))
    assert headline(shown) == "What fits agrees, and 1 tensor could not be compared"
    listed = rows(shown)
    assert listed["blocks.0.attn.hook_q"].startswith("✓ bit for bit Queries")
    assert "h.1.ln_1.out" in words(shown.one("section", **{"aria-labelledby": "unfit-heading"}).text)
    unknown = shown.one("section", **{"aria-labelledby": "unknown-heading"})
    assert INJECTION in unknown.text and "blocks.1.attn.hook_q" in unknown.text
    lonely = shown.one("section", **{"aria-labelledby": "only-a"})
    assert "logits" in lonely.text and "h.1.attn.q" in lonely.text


def test_a_file_s_name_is_text(api: Api, fox: str) -> None:
    address = compared_file(api, fox, {"embed.h": cells(api, fox, "embed.h")}, "<img src=x onerror=y>.npz")
    answer = api.ask("GET", address)
    assert "<img src=x" not in answer.text
    assert "<img src=x onerror=y>.npz" in tree(answer.text).one("h2", id="side-b").text
    form = api.ask("GET", f"/compare?a={fox}&b=").text
    assert "<img src=x" not in form and "onerror=y&gt;.npz" in form


def test_a_file_counts_in_the_place_of_trace_b(api: Api, fox: str, cat: str) -> None:
    answer = hand_in(api, fox, save({"embed.h": cells(api, fox, "embed.h")}), b=cat, tolerance="1e-6")
    assert answer.status_code == 303
    query = parse_qs(urlsplit(answer.headers["location"]).query)
    assert query["b"][0].startswith("file:") and query["tolerance"] == ["1e-6"]


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [(b"no tensors at all", 422, "port.safetensors"), (b"\0" * ((LIMIT_MIB << 20) + 100_000), 413, "MiB allowed")],
    ids=["unreadable", "too large"],
)
def test_a_refused_file_comes_back_to_the_form_with_the_reason(
    api: Api, fox: str, cat: str, content: bytes, status: int, says: str
) -> None:
    answer = hand_in(api, fox, content, b=cat, tolerance="1e-3")
    assert answer.status_code == status
    shown = tree(answer.text)
    assert says in shown.one("p", "wrong", id="wrong-file").text
    assert shown.one("input", id="tolerance").attributes["value"] == "1e-3"
    for side, wanted in (("a", fox), ("b", cat)):
        chosen = [o for o in shown.one("select", id=side).all("option") if "selected" in o.attributes]
        assert [option.attributes["value"] for option in chosen] == [wanted]


# --- ways here ---


def test_traces_and_tensors_lead_to_a_comparison(api: Api, fox: str) -> None:
    for address in (f"/traces/{fox}", f"/traces/{fox}/h.0.attn.q"):
        assert page(api, address).one("main").all("a", href=f"/compare?a={fox}")
    assert page(api, "/").one("nav", "places").all("a", href="/compare")


def test_without_traces_the_form_says_what_to_do(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running(tmp_path_factory.mktemp("empty")) as api:
        shown = page(api, "/compare")
        assert "There is no trace yet." in shown.text and not shown.all("form", "compare-form")
