"""Pictures on the pages of the running application: URLs, sizes, slices, and what stands beside them."""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from api_client import FOX, Api, running
from checkpoint_files import config_of, state_of, write
from conftest import tiny_model_of
from numpy.typing import NDArray
from test_pictures_heatmap import decoded

from app.routes_pictures import MOST_CELLS
from provenance.gpt2.catalogue import CATALOGUE
from provenance.gpt2.config import Config
from provenance.names import is_layered
from provenance.pictures.colours import HATCH, MASKED

LONG = Config(n_layer=2, n_head=4, n_embd=32, n_ctx=512, n_vocab=50257, n_inner=128, epsilon=1e-5)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    directory = tmp_path_factory.mktemp("pictures")
    model = tiny_model_of(LONG, name="long")
    path = write(directory / "models" / "long", config_of(LONG), state_of(model))
    with running(directory, model_directories=(path,)) as api:
        yield api


@pytest.fixture(scope="module")
def trace(api: Api) -> str:
    """The path of a trace: nine tokens, two decode steps."""
    return api.record(prompt=FOX, steps=2).removeprefix("/api")


@pytest.fixture(scope="module")
def long(api: Api) -> str:
    """The path of a trace of 300 tokens."""
    return api.record(prompt=" hello" * 300, model="long").removeprefix("/api")


def html(api: Api, address: str, status: int = 200) -> str:
    answer = api.ask("GET", address, follow_redirects=True)
    assert answer.status_code == status, answer.text[:2000]
    return answer.text


def values(api: Api, trace: str, address: str, step: int = 0) -> NDArray[Any]:
    return api.values(f"/api{trace}/tensors/{address}.npy?step={step}")


# --- the part of a tensor ---


@pytest.mark.parametrize(
    ("address", "index"),
    [
        ("h.1.attn.pattern", "0,3,0:9,0:9"),
        ("h.1.attn.pattern", "0,3,8,:"),
        ("h.0.ln_1.out", "0,2:5,7:30"),
        ("h.0.attn.present", "0,1,2,:,3"),
        ("presents", "0,:,1,0,0:2,0:3"),
        ("h.0.ln_1.g", "4:9"),
        ("h.0.attn.mask.m", ":,:"),
        ("tokens", "0,:"),
        ("logits", "0,8,50000"),
    ],
)
def test_a_slice_is_numpys(api: Api, trace: str, address: str, index: str) -> None:
    expected = values(api, trace, address)[
        tuple(
            slice(*(int(end) if end else None for end in piece.split(":"))) if ":" in piece else int(piece)
            for piece in index.split(",")
        )
    ]
    found = api.json(f"/api{trace}/tensors/{address}/slice?index={index}")
    assert found["shape"] == list(expected.shape)
    assert np.array_equal(np.array(found["values"], dtype=expected.dtype), expected.ravel())
    assert [axis["size"] for axis in found["axes"]] == list(expected.shape)


def test_a_slice_says_what_its_axes_count_and_which_tokens_stand_there(api: Api, trace: str) -> None:
    found = api.json(f"/api{trace}/tensors/h.0.attn.scores_masked/slice?index=0,1,0:2,0:3&step=0")
    assert [(axis["symbol"], axis["name"], axis["first"]) for axis in found["axes"]] == [
        ("T", "query", 0),
        ("S", "key", 0),
    ]
    assert found["axes"][1]["tokens"] == ["The", " quick", " brown"]
    assert found["masked"] == [False, True, True, False, False, True]
    decode = api.json(f"/api{trace}/tensors/h.0.attn.pattern/slice?index=0,1,0,7:10&step=1")
    assert decode["axes"][0]["tokens"][:2] == [" lazy", " dog"]


@pytest.mark.parametrize(
    ("index", "status", "says"),
    [
        ("0,3,0:9", 422, "has 4 axes, the index 3"),
        ("0,3,0:9,x", 422, "'x' is no index"),
        ("0,3,0:9,-1", 422, "'-1' is no index"),
        ("0,4,0:9,0:9", 404, "Axis 1 of h.0.attn.pattern has no index 4"),
        ("0,3,0:9,0:10", 404, "Axis 3 of h.0.attn.pattern has no range 0:10"),
        ("0,3,5:2,0:9", 404, "no range 5:2"),
        ("", 422, "has 4 axes, the index 0"),
    ],
)
def test_a_part_that_does_not_exist_is_refused_with_what_does(
    api: Api, trace: str, index: str, status: int, says: str
) -> None:
    assert says in api.problem("GET", f"/api{trace}/tensors/h.0.attn.pattern/slice?index={index}", status)["detail"]


def test_an_answer_has_a_bounded_number_of_cells(api: Api, trace: str) -> None:
    assert len(api.json(f"/api{trace}/tensors/logits/slice?index=0,0,0:{MOST_CELLS}")["values"]) == MOST_CELLS
    problem = api.problem("GET", f"/api{trace}/tensors/logits/slice?index=0,0,0:{MOST_CELLS + 1}", 422)
    assert f"at most {MOST_CELLS}" in problem["detail"]


def test_the_slice_is_documented(api: Api) -> None:
    paths = api.json("/api/openapi.json")["paths"]
    assert "/api/traces/{id}/tensors/{address}/slice" in paths
    assert not any("heatmap" in path for path in paths)


# --- the picture ---


def test_each_cell_of_the_picture_is_its_value(api: Api, trace: str) -> None:
    address = f"{trace}/h.0.attn.scores_masked"
    shown = html(api, f"{address}?head=2")
    low, high = (
        float(v) for v in re.findall(r'<p class="ends"><data value="([^"]+)".*<data value="([^"]+)"', shown)[0]
    )
    numbers, _ = decoded(api.ask("GET", f"{address}/heatmap.png?head=2").content)
    cell = numbers.shape[0] // 9
    array = values(api, trace, "h.0.attn.scores_masked")[0, 2]
    for row, col in product(range(9), range(9)):
        found = numbers[row * cell : row * cell + cell, col * cell : col * cell + cell]
        if col > row:
            assert set(np.unique(found).tolist()) == {MASKED, HATCH}
        else:
            expected = round(float(np.clip((array[row, col] - low) / (high - low), 0, 1)) * 248)
            assert (found == expected).all()


def test_rows_and_columns_can_be_any_two_axes(api: Api, trace: str) -> None:
    array = values(api, trace, "h.1.attn.present")[0]  # k/v, head, token, channel
    shown = html(api, f"{trace}/h.1.attn.present?rows=hd&cols=H&part=1&token=4")
    assert 'data-pieces="0,1,C,4,R"' in shown
    assert 'data-names="channel,head"' in shown
    largest = re.search(r"Largest value (\S+) at channel (\d+), head (\d+)", shown)
    assert largest is not None
    assert np.float32(largest[1]) == array[1, :, 4, :].max() == array[1, int(largest[3]), 4, int(largest[2])]
    numbers, _ = decoded(
        api.ask("GET", f"{trace}/h.1.attn.present/heatmap.png?rows=hd&cols=H&part=1&token=4").content
    )
    assert numbers.shape[0] % 8 == numbers.shape[1] % 4 == 0


def test_the_form_offers_every_axis_and_asks_the_same_page(api: Api, trace: str) -> None:
    shown = html(api, f"{trace}/h.1.attn.present?step=1")
    assert f'<form class="controls" action="{trace}/h.1.attn.present" method="get">' in shown
    assert '<input type="hidden" name="step" value="1">' in shown
    assert '<input type="number" name="part" value="0" min="0" max="1">' in shown
    assert '<input type="number" name="head" value="0" min="0" max="3">' in shown
    assert '<option value="hd" selected>hd, channel</option>' in shown


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("head=4", 404, "has no head 4. It has heads 0 to 3."),
        ("query=9", 404, "has no query 9. It has queries 0 to 8."),
        ("key=9", 404, "has no key 9"),
        ("batch=1", 404, "has no batch 1. It has batch 0 only."),
        ("part=0", 404, "has no parts"),
        ("r0=9", 404, "has no query 9"),
        ("rows=Z", 422, "has no axis &#39;Z&#39;. Its axes are B, H, T, S."),
        ("rows=T&cols=T", 422, "cannot be the same axis"),
        ("reduce=median", 422, "cannot be joined by &#39;median&#39;"),
        ("zoom=-1", 422, "zoom must be a whole number"),
        ("head=1e9", 422, "head must be a whole number"),
        ("c0=99999999999999999999", 422, "c0 must be a whole number"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_what_can(
    api: Api, trace: str, query: str, status: int, says: str
) -> None:
    for address in (f"{trace}/h.0.attn.pattern", f"{trace}/h.0.attn.pattern/heatmap.png"):
        text = html(api, f"{address}?{query}", status)
        assert says in re.sub(r"\s+", " ", re.sub("<[^>]+>", "", text))


@pytest.mark.slow
def test_every_tensor_has_its_picture_and_a_text_alternative(api: Api, trace: str) -> None:
    for row in CATALOGUE:
        if row.variant:
            continue
        place = row.site.replace("h.", "h.1.", 1) if is_layered(row.site) else row.site
        step = 1 if "decode" in row.steps.value else 0
        shown = html(api, f"{trace}/{place}?step={step}")
        if row.site == "tokens":
            assert 'class="heatmap' not in shown
            continue
        src, said = re.findall(r'id="heatmap-image" src="([^"]+)" width="\d+" height="\d+" alt="([^"]+)"', shown)[0]
        assert re.match(r"Heatmap of .*Largest value \S+", said), (row.site, said)
        numbers, palette = decoded(api.ask("GET", src.replace("&amp;", "&")).raise_for_status().content)
        assert numbers.max() < len(palette)


def test_tokens_are_chips_with_bytes_and_ids(api: Api, trace: str) -> None:
    shown = html(api, f"{trace}/tokens")
    chips = re.findall(r'<li title="bytes ([0-9a-f ]+)">.*?<code>(\d+)</code></li>', shown)
    assert len(chips) == 9
    assert chips[3] == ("20 66 6f 78", "21831")


@pytest.mark.slow
def test_pages_and_pictures_stay_small_whatever_the_length(api: Api, long: str) -> None:
    for place in (
        "h.1.attn.pattern",
        "h.1.attn.scores_raw?head=2&query=100",
        "h.0.ln_1.out",
        "tokens",
        "logits",
        "h.0.mlp.h",
    ):
        assert len(html(api, f"{long}/{place}").encode()) < 200_000, place
    answer = api.ask("GET", f"{long}/h.1.attn.pattern/heatmap.png")
    numbers, _ = decoded(answer.content)
    assert max(numbers.shape) <= 768
    assert len(answer.content) < 100_000


def test_a_reduced_picture_says_how_and_leads_closer(api: Api, long: str) -> None:
    shown = html(api, f"{long}/h.1.attn.pattern")
    assert "Each drawn cell stands for 2 queries by 2 keys: the one furthest from zero among them." in shown
    assert "quantile of the cells as they are drawn here" in shown
    assert "the mean of them" in html(api, f"{long}/h.1.attn.pattern?reduce=mean")
    closer = re.findall(r'id="zoom-in" href="([^"]+)"', shown)[0]
    near = html(api, closer.replace("&amp;", "&"))
    assert "Shown: query 0–191 of 300, key 0–191 of 300." in near
    onward = re.findall(r'id="row-on" href="([^"]+)"', near)[0]
    assert "Shown: query 108–299 of 300" in html(api, onward.replace("&amp;", "&"))


# --- attention ---


def test_the_keys_attended_most_are_numpys(api: Api, trace: str) -> None:
    array = values(api, trace, "h.1.attn.pattern")[0, 3]
    for query in (8, 4):
        shown = html(api, f"{trace}/h.1.attn.pattern?head=3" + (f"&query={query}" if query != 8 else ""))
        table = shown.split('<table class="attended">')[1].split("</table>")[0]
        found = re.findall(r'<a href="[^"]+">(\d+)</a>.*?<data value="([^"]+)"', table)
        order = np.argsort(-array[query, : query + 1], kind="stable")[:5]
        assert [int(key) for key, _ in found] == order.tolist()
        assert [np.float32(value) for _, value in found] == array[query, order].tolist()


def test_all_heads_are_links_with_a_picture_each(api: Api, trace: str) -> None:
    shown = html(api, f"{trace}/h.1.attn.pattern?head=2")
    grid = shown.split('<section class="heads"')[1].split("</section>")[0]
    assert re.findall(r'id="thumb-(\d+)" href="([^"]+)"', grid)[:2] == [
        ("0", f"{trace}/h.1.attn.pattern"),
        ("1", f"{trace}/h.1.attn.pattern?head=1"),
    ]
    pictures = re.findall(r'<img class="pixels" src="([^"]+)" alt="([^"]+)"', grid)
    assert len(pictures) == 4
    assert "Head 2, the one shown: largest at key" in pictures[2][1]
    sizes = {decoded(api.ask("GET", src.replace("&amp;", "&")).content)[0].shape for src, _ in pictures}
    assert sizes == {(90, 90)}


def test_arcs_are_drawn_for_the_chosen_query_and_tokens_choose_it(api: Api, trace: str) -> None:
    shown = html(api, f"{trace}/h.0.attn.pattern?head=1&query=2")
    arcs = shown.split('<figure class="arcs">')[1].split("</figure>")[0]
    assert arcs.count('class="arc"') == 3
    assert f'href="{trace}/h.0.attn.pattern?head=1&amp;query=5" class="word"' in arcs
    assert "Token 2 “ brown” attends most with weight" in arcs
    assert '<figure class="arcs">' not in html(api, f"{trace}/h.0.attn.scores")


def test_in_a_decode_step_the_new_token_attends_to_past_ones(api: Api, trace: str) -> None:
    shown = html(api, f"{trace}/h.0.attn.pattern?step=2")
    arcs = shown.split('<figure class="arcs">')[1].split("</figure>")[0]
    assert arcs.count('class="word') == 11
    assert arcs.count("<a ") == 1  # only the step's own token can be the query


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(("place", "scale"), [("scores_raw", 1.0), ("scores", 8**-0.5)])
def test_a_score_is_the_sum_of_its_products(api: Api, trace: str, place: str, scale: float, step: int) -> None:
    key, query = 4, 0 if step else 6
    q = values(api, trace, "h.1.attn.q", step)[0, 2, query].astype(np.float64)
    k = values(api, trace, "h.1.attn.k_all" if step else "h.1.attn.k", step)[0, 2, key].astype(np.float64)
    shown = html(api, f"{trace}/h.1.attn.{place}?head=2&query={query}&key={key}&step={step}")
    equation = shown.split('id="sum"')[1].split("</p>")[0]
    numbers = [float(number) for number in re.findall(r'<data value="([^"]+)"', equation)]
    products = q * k
    assert numbers[0] == pytest.approx(products[products > 0].sum(), rel=1e-9)
    assert numbers[1] == pytest.approx(products[products < 0].sum(), rel=1e-9)
    assert numbers[2] == pytest.approx(products.sum(), rel=1e-9)
    cell = values(api, trace, f"h.1.attn.{place}", step)[0, 2, query, key]
    assert np.float32(numbers[-1]) == cell
    assert cell == pytest.approx(products.sum() * scale, rel=1e-3)
    assert shown.count('class="plus" x=') + shown.count('class="minus" x=') == 8
    assert "8 products: the positive ones sum to" in shown


def test_tensors_without_queries_and_keys_have_no_attention(api: Api, trace: str) -> None:
    for place in ("h.0.ln_1.out", "h.0.attn.q", "h.0.attn.mask.m"):
        shown = html(api, f"{trace}/{place}")
        assert '<section class="attends"' not in shown
        assert '<section class="sum"' not in shown


# --- profiles, and moving on ---


def test_profiles_say_the_largest_token_and_list_the_largest_channels(api: Api, trace: str) -> None:
    array = values(api, trace, "h.0.mlp.h")[0].astype(np.float64)
    rms = np.sqrt((array**2).mean(1))
    shown = html(api, f"{trace}/h.0.mlp.h")
    said = re.findall(r"RMS by token, 9 in all: largest \S+ at token (\d+)", shown)
    assert int(said[0]) == int(rms.argmax())
    leaders = shown.split('<section class="leaders"')[1].split("</section>")[0]
    expected = np.sqrt((array**2).mean(0)).argsort()[::-1][:8]
    assert [int(n) for n in re.findall(r">(\d+)</a>", leaders)] == expected.tolist()


def test_another_layer_keeps_the_view_and_another_step_the_head(api: Api, trace: str) -> None:
    shown = html(api, f"{trace}/h.0.attn.pattern?head=2&query=3")
    assert f'id="layer-1" href="{trace}/h.1.attn.pattern?head=2&amp;query=3"' in shown
    assert f'id="step-1" href="{trace}/h.0.attn.pattern?step=1&amp;head=2"' in shown


def test_pictures_bring_no_style_or_script_of_their_own(api: Api, trace: str) -> None:
    for place in ("h.0.attn.pattern", "h.0.attn.scores_raw", "h.0.ln_1.out", "tokens"):
        section = html(api, f"{trace}/{place}").split('<section id="values"')[1]
        assert not re.search(r"<(style|script)|\sstyle=|\son[a-z]+=", section)
    assert len(api.ask("GET", "/static/pictures.js").content) <= 5120
