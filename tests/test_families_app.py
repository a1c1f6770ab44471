"""A second model family in the app: seeded vectors in the place of a text, no predictions, no cited code."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import numpy as np
import pytest
from api_client import FOX, Api, running
from html_tree import Node, tree, words

from app.explorer import Explorer
from app.jobs import Job, State
from app.pages.home import home_page
from app.pages.progress import progress_page
from provenance.catalogues import OUTLINES, Reads
from provenance.storage import Listed
from provenance.trace import Record, Trace

OURS = "textbook"
MODEL = "textbook-pre-causal-l2"
LENGTH, BATCH = 6, 3
NOTHING = "The model of this trace predicts nothing: it ends with its residual stream and has no logits."


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("families")) as started:
        yield started


def recorded(api: Api, **wanted: Any) -> str:
    """The path of a trace, `/traces/…`, recorded by the form."""
    answer = posted(api, **wanted)
    assert answer.status_code == 303, answer.text
    path = answer.headers["location"]
    assert api.wait(f"/api{path}")["state"] == "done"
    return str(path)


def posted(api: Api, **wanted: Any) -> httpx.Response:
    return api.ask("POST", "/record", data=wanted)


@pytest.fixture(scope="module")
def path(api: Api) -> str:
    return recorded(api, model=MODEL, length=LENGTH, batch=BATCH, input_seed=0)


@pytest.fixture(scope="module")
def trace(api: Api, path: str) -> Trace:
    return api.explorer.store.open(path.removeprefix("/traces/"))


def page(api: Api, address: str) -> Node:
    answer = api.ask("GET", address)
    assert answer.status_code == 200, answer.text
    return tree(answer.text)


def hrefs(node: Node) -> list[str]:
    return [link.attributes["href"] for link in node.all("a") if "href" in link.attributes]


# --- the outline of a family decides ---


def test_families_differ_in_what_they_read_and_predict() -> None:
    first, second = OUTLINES.values()
    assert (first.reads, first.predicts, first.cited) == (Reads.TOKENS, True, True)
    assert (second.reads, second.predicts, second.cited) == (Reads.VECTORS, False, False)
    for outline in (first, second):
        assert set(outline.start) <= set(outline.catalogue.rows)


# --- the API ---


def test_the_api_records_the_default_example(api: Api) -> None:
    address = api.record(model=f"{OURS}-l1", length=20)
    found = api.json(address)
    assert (found["family"], found["batch"], found["input_seed"], found["steps"]) == (OURS, 8, 0, 0)
    assert [token["text"] for token in found["tokens"]] == [f"#{n}" for n in range(20)]
    assert (found["prompt"], found["generated"]) == (None, [])
    assert api.values(f"{address}/tensors/x.npy").shape == (8, 20, 64)


def test_sites_are_those_of_the_family_that_is_asked_for(api: Api) -> None:
    for family, outline in OUTLINES.items():
        found = api.json(f"/api/sites?family={family}")
        assert [out["site"] for out in found] == list(outline.catalogue.rows)
        assert {out["family"] for out in found} == {family}
    assert api.json("/api/sites") == api.json(f"/api/sites?family={next(iter(OUTLINES))}")
    detail = api.problem("GET", "/api/sites?family=gpt9", 404)["detail"]
    assert detail == "There is no model family 'gpt9'. There are: gpt2, textbook."


def test_a_site_of_one_family_alone_is_found_without_naming_it(api: Api) -> None:
    found = api.json("/api/sites/h.attn.weight")
    assert (found["family"], found["evidence"], found["points"]) == (OURS, [], [])
    assert api.json("/api/sites/h.attn.q")["family"] == "gpt2"
    assert api.json(f"/api/sites/h.attn.q?family={OURS}")["title"] == "Queries"
    assert api.json(f"/api/sites/h.attn.weight/citations?family={OURS}") == []
    assert "h.attn.pattern" not in api.problem("GET", f"/api/sites/h.attn.pattern?family={OURS}", 404)["near"]


def test_a_search_finds_both_families_and_says_of_which(api: Api) -> None:
    found = api.json("/api/search?q=residual stream")["results"]
    assert {result["family"] for result in found} == set(OUTLINES)
    alone = api.json(f"/api/search?q=residual stream&family={OURS}")["results"]
    assert alone == [result for result in found if result["family"] == OURS]


@pytest.mark.parametrize("what", ["next", "lens", "attribution"])
def test_what_rests_on_logits_is_refused_in_a_sentence(api: Api, path: str, what: str) -> None:
    assert api.problem("GET", f"/api{path}/{what}", 422)["detail"].startswith(NOTHING)


@pytest.mark.parametrize("what", ["lens", "lens?stage=h.0.resid_post", "attribution", "attribution?position=2"])
def test_their_pages_say_the_same(api: Api, path: str, what: str) -> None:
    answer = api.ask("GET", f"{path}/{what}")
    assert answer.status_code == 422
    assert tree(answer.text).one("p", "message").text == NOTHING


def test_a_file_holds_every_tensor_with_the_batch(api: Api, path: str) -> None:
    answer = api.ask("GET", f"/api{path}/export.safetensors?tensors=h.1.attn.weight,x")
    assert answer.status_code == 200
    assert b'"shape":[%d,8,%d,%d]' % (BATCH, LENGTH, LENGTH) in answer.content.replace(b" ", b"")


# --- the first page and its two forms ---


def test_the_first_page_has_a_form_for_each_kind_of_input(api: Api) -> None:
    shown = page(api, "/")
    prompt, vectors = (shown.one("section", id=id) for id in ("record", "record-vectors"))
    offered = [option.attributes["value"] for option in prompt.one("select", id="model").all("option")]
    assert "tiny-untrained" in offered and OURS not in offered
    listed = [option.attributes["value"] for option in vectors.one("datalist").all("option")]
    assert OURS in listed and "tiny-untrained" not in listed
    values = {name: vectors.one("input", id=name).attributes["value"] for name in ("length", "batch", "input-seed")}
    assert values == {"length": "20", "batch": "8", "input-seed": "0"}
    assert not vectors.all("textarea") and not vectors.all("input", name="steps")


def test_where_to_start_follows_the_family_of_the_trace(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        assert home_page(api.explorer).starts[0].url == "/sites/h.ln_1.out"
        path = recorded(api, model=f"{OURS}-l1", length=3, batch=1)
        shown = page(api, "/")
        start = shown.one("section", id="start")
        assert f"{path}/h.0.attn.weight" in hrefs(start)
        assert not [href for href in hrefs(start) if "lens" in href]
        assert "/sites?family=textbook" in hrefs(start)
        text = recorded(api, prompt=FOX, steps="0")
        assert f"{text}/lens" in hrefs(page(api, "/").one("section", id="start"))


@pytest.mark.parametrize(
    ("typed", "field", "says"),
    [
        ({"length": "600"}, "length", "There is no vector #512"),
        ({"length": "0"}, "length", "must be at least 1"),
        ({"length": "9" * 17}, "length", "must be at most 1000000"),
        ({"batch": "65"}, "batch", "must be at most 64, not 65."),
        ({"batch": "many"}, "batch", "not 'many'"),
        ({"input_seed": "-1"}, "input-seed", "not '-1'"),
        ({"model": "textbook-h3"}, "vectors-model", "'textbook-h3'"),
        ({"model": "tiny-untrained"}, "vectors-model", "reads the tokens of a text"),
        ({"ids": "#2 #512"}, "vectors-ids", "There is no vector #512"),
        ({"ids": "2 x"}, "vectors-ids", "not 'x'"),
        ({"dtype": "float16"}, "vectors-dtype", "'float16'"),
    ],
)
def test_what_is_wrong_with_seeded_vectors_stands_at_its_field(
    api: Api, typed: dict[str, str], field: str, says: str
) -> None:
    wanted = {"model": MODEL, "length": "4", "batch": "2", "input_seed": "0", **typed}
    answer = posted(api, **wanted)
    assert answer.status_code == 422
    form = tree(answer.text).one("section", id="record-vectors")
    assert says in form.one("p", id=f"wrong-{field}").text
    marked = [node for node in form.elements if node.attributes.get("aria-invalid")]
    assert [node.attributes["id"] for node in marked] == [field]
    if field != "vectors-dtype":
        name = marked[0].attributes["name"]
        assert marked[0].attributes["value"] == wanted[name]


def test_the_order_of_the_vectors_can_be_given(api: Api) -> None:
    straight = recorded(api, model=MODEL, length=3, batch=2)
    turned = recorded(api, model=MODEL, ids="#2 #0 #1", batch=2)
    a, b = (api.values(f"/api{path}/tensors/x.npy") for path in (straight, turned))
    assert np.array_equal(b, a[:, [2, 0, 1]])
    assert page(api, turned).one("h1").text == "3 vectors #2 #0 #1 from seed 0, batch 2"


def test_a_text_for_a_model_that_reads_vectors_is_refused_at_the_prompt(api: Api) -> None:
    answer = posted(api, model=MODEL, prompt="Hello")
    assert answer.status_code == 422
    assert "takes no text" in tree(answer.text).one("p", id="wrong-prompt").text


def test_a_failed_recording_can_be_asked_for_again(api: Api, trace: Trace) -> None:
    job = Job(trace.recipe.id, trace.recipe, State.FAILED, error="The disk is full.")
    again = dict(progress_page(api.explorer, job).again)
    assert recorded(api, **again) == f"/traces/{trace.id}"


# --- the pages of a trace ---


def test_the_page_of_a_trace_names_the_vectors_and_offers_no_prediction(api: Api, path: str) -> None:
    shown = page(api, path)
    assert shown.one("h1").text == "6 vectors #0 … #5 from seed 0, batch 3"
    chips = shown.one("p", "chips")
    assert words(chips.text).replace(" ", "") == "#0#1#2#3#4#5"
    assert not hrefs(chips)
    main = shown.one("main")
    assert not [href for href in hrefs(main) if "/lens" in href or "/attribution" in href or "position=" in href]
    assert not [node for node in main.elements if node.attributes.get("id") in ("prediction", "lens", "steps")]
    facts = [fact.text for fact in main.one("dl", "facts").elements]
    assert facts[facts.index("Batch") + 1] == "3" and facts[facts.index("Seed of the vectors") + 1] == "0"
    assert "Temperature" not in facts
    assert f"{path}/h.0.attn.weight" in hrefs(main)


def test_pictures_show_the_batch_entry_that_is_chosen(api: Api, path: str) -> None:
    address = f"{path}/h.1.attn.weight"
    shown = page(api, f"{address}?batch=2&head=3")
    strips = {strip.attributes["aria-label"]: strip for strip in shown.all("div", "strip")}
    assert [link.text for link in strips["batch"].all("a")] == ["0", "1", "2"]
    assert strips["batch"].one("a", **{"aria-current": "true"}).text == "2"
    assert hrefs(strips["batch"])[1] == f"{address}?batch=1&head=3"
    assert "step" not in strips
    exact = api.values(f"/api{path}/tensors/h.1.attn.weight.npy")
    cells = shown.one("table", "values").one("tbody").all("tr")[4].all("td")
    np.testing.assert_allclose([float(c.attributes["title"]) for c in cells[:5]], exact[2, 3, 4, :5], rtol=1e-6)
    pictures = [api.ask("GET", f"{address}/heatmap.png?batch={n}&head=3").content for n in range(BATCH)]
    assert len(set(pictures)) == BATCH


def test_the_batch_entry_stays_from_one_tensor_to_the_next(api: Api, path: str) -> None:
    shown = page(api, f"{path}/h.0.attn.q?batch=1&head=5")
    following = shown.one("a", id="next").attributes["href"]
    assert parse_qs(urlsplit(following).query) == {"batch": ["1"], "head": ["5"]}
    to_input = page(api, f"{path}/h.0.attn.in_proj.w").one("a", id="previous").attributes["href"]
    assert "batch" not in to_input


def test_an_entry_outside_the_batch_is_refused(api: Api, path: str) -> None:
    answer = api.ask("GET", f"{path}/x?batch=3")
    assert answer.status_code == 404
    assert "x has no batch 3." in tree(answer.text).one("p", "message").text


def test_who_says_so_are_the_equations(api: Api, path: str) -> None:
    before = page(api, f"{path}/h.0.attn.context").one("section", id="sources")
    assert not before.all("article") and not before.all("p", "legend")
    assert "no published code is cited" in before.one("p", "own").text
    assert "by its equation" in words(before.one("form", "verify").text)
    assert not [href for href in hrefs(before) if href.startswith("/cite/sites")]
    assert f"/cite{path}" in hrefs(before)
    api.ask("POST", f"/api{path}/verdict")
    verdict = api.wait(f"/api{path}/verdict")
    assert verdict["holds"] and verdict["report"]["bytes"] == []
    after = page(api, f"{path}/h.0.attn.context").one("section", id="sources")
    (badge,) = after.one("p", "signs").all("span", "badge")
    assert badge.text.startswith("✓ equal ")
    assert "equation in NumPy" in after.one("p", "figures").text
    whole = page(api, f"{path}/verdict")
    assert not whole.all("section", **{"aria-labelledby": "bytes"})
    assert "equation in NumPy" in whole.one("section", **{"aria-labelledby": "parities"}).text


def test_a_trace_is_cited_by_what_determines_it(api: Api, path: str) -> None:
    bibtex = page(api, f"/cite{path}").one("pre", id="cite-trace-bibtex").text
    assert "Input: vectors 0, 1, 2, 3, 4, 5. 6 vectors, batch 3, drawn from seed 0;" in bibtex
    assert "greedy" not in bibtex
    out = api.json(f"/api{path}/citation")
    assert (out["batch"], out["input_seed"], out["prompt"]) == (BATCH, 0, None)
    out = api.json(f"{api.record(prompt=FOX)}/citation")
    assert (out["batch"], out["input_seed"], out["prompt"]) == (None, None, FOX)


def test_a_tensor_without_cited_code_has_nothing_to_cite_but_its_trace(api: Api, path: str) -> None:
    alone = page(api, f"/cite/sites/h.attn.weight?family={OURS}")
    assert not alone.all("div", "reference")
    assert "No published code is cited for this tensor" in alone.one("main").text
    traced = page(api, f"/cite/sites/h.attn.weight?trace={path.removeprefix('/traces/')}")
    assert len(traced.all("div", "reference")) == 1
    assert api.ask("GET", "/cite/sites/h.attn.weight/1").status_code == 404


def test_the_list_of_traces_is_narrowed_to_what_was_read(api: Api, path: str) -> None:
    text = api.record(prompt="tokens and no vectors").removeprefix("/api")
    stored = [found for found in api.explorer.store.list() if found.record]
    everything = {f"/traces/{found.id}": found.record.recipe for found in stored if found.record}

    def found(query: str) -> set[str]:
        rows = page(api, f"/traces?{query}").one("table", "traces").one("tbody").all("tr")
        return {row.one("th").one("a").attributes["href"] for row in rows}

    assert len(everything) <= 50
    assert found("input=vectors") == {url for url, recipe in everything.items() if recipe.drawn}
    assert found("input=tokens") == {url for url, recipe in everything.items() if not recipe.drawn}
    assert found("input=") == found("input=nothing+known") == everything.keys()
    assert found(f"input=vectors&model={MODEL}&q=batch+{BATCH}") == {path}
    assert text in found("input=tokens&q=no+vectors")
    form = page(api, "/traces?input=vectors").one("form", "filter")
    assert form.one("select", id="input").one("option", selected="").text == "seeded vectors"
    assert "No trace fits" in page(api, "/traces?input=vectors&q=no+vectors").one("main").text


def test_the_models_to_choose_stand_below_their_families(api: Api, path: str) -> None:
    api.record(prompt=FOX)
    groups = page(api, "/traces").one("select", id="model").all("optgroup")
    assert [group.attributes["label"] for group in groups] == ["GPT-2", "Textbook transformer"]
    known = [{option.text for option in group.all("option")} for group in groups]
    assert "tiny-untrained" in known[0] and MODEL in known[1] and not known[0] & known[1]


def test_a_filter_stays_from_one_page_of_the_list_to_the_next(api: Api) -> None:
    explorer = api.explorer
    listed = [Listed(f"{n:032x}", record) for n, record in enumerate([_record(explorer)] * 51)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explorer.store, "list", lambda: tuple(listed))
        shown = page(api, "/traces?input=vectors&q=seed")
        assert hrefs(shown.one("p", "reel-moves")) == ["/traces?q=seed&input=vectors&page=1"]


def _record(explorer: Explorer) -> Record:
    return next(found.record for found in explorer.store.list() if found.record and found.record.recipe.drawn)


def test_runs_of_vectors_do_not_crowd_the_first_page(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        lessons = [api.record(model="textbook-l1", length=n, batch=1).removeprefix("/api") for n in (2, 3)]
        section = page(api, "/").one("section", id="traces")
        assert hrefs(section) == [*reversed(lessons), "/traces"]
        own = api.record(prompt=FOX).removeprefix("/api")
        lessons += [api.record(model="textbook-l1", length=n, batch=1) for n in range(4, 10)]
        section = page(api, "/").one("section", id="traces")
        assert hrefs(section) == [own, "/traces", "/traces?input=vectors"]
        assert words(section.one("p", "note").text).startswith("Not in this list: 8 traces of seeded vectors,")
        assert "All 9 traces" in section.text


def test_lists_and_choices_name_the_vectors(api: Api, path: str) -> None:
    rows = page(api, "/traces?q=batch+3").one("table", "traces").one("tbody").all("tr")
    assert "6 vectors #0 … #5 from seed 0, batch 3" in [row.one("th").text for row in rows]
    form = page(api, f"/compare?a={path.removeprefix('/traces/')}")
    chosen = form.one("select", id="a").one("option", selected="")
    assert chosen.text.startswith(f"6 vectors #0 … #5 from seed 0, batch 3 · {MODEL} · ")


def test_two_runs_on_vectors_are_compared(api: Api, path: str) -> None:
    other = recorded(api, model=MODEL, ids="0 1 2 3 4 9", batch=BATCH)
    a, b = (each.removeprefix("/traces/") for each in (path, other))
    shown = page(api, f"/compare?a={a}&b={b}")
    assert words(shown.one("h1").text) == "They first differ at x"
    sides = words(shown.one("div", "sides").text)
    assert sides.count("6 in each of 3 batch entries") == 2 and "decode step" not in sides
    # What is causal sees no later position: the first five rows are the same bits.
    out = [api.values(f"/api{each}/tensors/h.1.resid_post.npy") for each in (path, other)]
    assert np.array_equal(out[0][:, :5], out[1][:, :5]) and not np.array_equal(out[0][:, 5], out[1][:, 5])


def test_one_batch_entry_can_be_changed(api: Api, path: str) -> None:
    form = page(api, f"{path}/edit?at=h.0.attn.weight").one("form", "edit-form")
    labels = [words(label.text) for label in form.all("label") if label.attributes.get("for", "").startswith("pick")]
    assert labels[0] == "batch 0 to 2"
    answer = api.ask(
        "POST", f"{path}/edit",
        data={"at": "h.0.attn.weight", "pick": ["1", "", "", ""], "what": "set", "value": "0"},
    )  # fmt: skip
    assert answer.status_code == 303, answer.text
    changed = answer.headers["location"]
    assert api.wait(f"/api{changed}")["state"] == "done"
    values = api.values(f"/api{changed}/tensors/h.0.attn.weight.npy")
    assert not values[1].any() and values[0].any() and values[2].any()
    shown = page(api, changed).one("main")
    assert "h.0.attn.weight[batch=1] = 0" in shown.one("div", "edited").text
    assert "KL" not in shown.text
    assert api.problem("GET", f"/api{changed}/effect", 422)["detail"].startswith(NOTHING)


@pytest.mark.slow
def test_no_link_of_a_trace_leads_nowhere(api: Api, path: str) -> None:
    asked: set[str] = set()
    for start in (path, f"{path}/h.1.attn.weight?batch=1", f"{path}/x", f"{path}/verdict", f"/cite{path}"):
        for href in hrefs(page(api, start)):
            if href.startswith("/") and href not in asked:
                asked.add(href)
                assert api.ask("GET", href).status_code in (200, 307), (start, href)
    assert len(asked) > 100


# --- pages without a trace ---


@pytest.mark.parametrize(
    "address",
    ["/sites", "/groups/transformer-block", "/groups/transformer-block/attention", "/map", "/map/transformer-block",
     "/sites/h.attn.weight", "/sites/h.attn.q"],
)  # fmt: skip
def test_a_page_of_a_family_says_so_and_keeps_it(api: Api, address: str) -> None:
    shown = page(api, f"{address}?family={OURS}")
    known = shown.one("p", "families")
    assert known.one("strong").text == OUTLINES[OURS].title
    (other,) = hrefs(known)
    assert "family=" not in other and api.ask("GET", other).status_code == 200
    assert f"All tensors of {OUTLINES[OURS].title}" in shown.one("nav", "tree").text
    ours = [href for href in hrefs(shown) if href.startswith(("/sites", "/groups", "/map"))]
    lost = [href for href in ours if href != other and "family=textbook" not in href and "trace=" not in href]
    assert lost == [] and len(ours) > 10
    first = page(api, other).one("p", "families")
    assert first.one("strong").text == "GPT-2"
    assert all(href.endswith(f"family={OURS}") for href in hrefs(first))


def test_a_name_that_only_the_second_family_has_leads_to_it(api: Api) -> None:
    for address in ("/sites/h.attn.weight", "/sites/h.pre.norm1.out"):
        answer = api.ask("GET", address)
        assert (answer.status_code, answer.headers["location"]) == (307, f"{address}?family={OURS}")
    assert api.ask("GET", "/sites/h.attn.weight?family=gpt2").status_code == 404
    assert api.ask("GET", "/sites?family=gpt9").status_code == 404


def test_near_names_are_those_of_the_family_that_is_asked_for(api: Api) -> None:
    answer = api.ask("GET", f"/sites/h.atn.weight?family={OURS}")
    assert answer.status_code == 404
    assert f"/sites/h.attn.weight?family={OURS}" in hrefs(tree(answer.text).one("main"))


def test_a_search_page_says_of_which_family_each_result_is(api: Api, path: str) -> None:
    found = page(api, "/search?q=residual+stream").one("ol", "results").all("li")
    families = {words(item.one("span", "place").text).split(" › ")[0] for item in found}
    assert families == {outline.title for outline in OUTLINES.values()}
    inside = page(api, f"/search?q=attention&trace={path.removeprefix('/traces/')}").one("ol", "results")
    assert all(href.startswith(path) for href in hrefs(inside))
    assert "Textbook" not in inside.text


def test_a_site_says_in_which_models_it_exists_and_links_those_traces_alone(api: Api) -> None:
    post = recorded(api, model=f"{OURS}-l1", length=2, batch=1)
    pre = recorded(api, model=f"{OURS}-pre-l1", length=2, batch=1)
    shown = page(api, f"/sites/h.pre.norm1.out?family={OURS}")
    assert "every step, in models with pre-norm only" in words(shown.one("section", id="what").text)
    values = hrefs(shown.one("section", id="values"))
    assert f"{pre}/h.0.pre.norm1.out" in values and not [href for href in values if href.startswith(post)]


def test_the_map_of_a_family_is_that_of_its_example_unless_another_variant_is_asked_for(api: Api) -> None:
    usual = page(api, f"/map/transformer-block/attention/layernorm-1?family={OURS}")
    drawn = " ".join(node.attributes["aria-label"] for node in usual.one("svg", "map").all("a", "node"))
    assert "post-norm" in drawn and "pre-norm" not in drawn
    assert "Drawn as in textbook" in usual.one("div", "map-words").text
    other = page(api, f"/map/transformer-block/attention/layernorm-1?family={OURS}&site=h.pre.norm1.mean")
    lit = other.one("svg", "map").one("a", "lit")
    assert lit.attributes["href"] == f"/sites/h.pre.norm1.mean?family={OURS}"


def test_models_stand_by_family_with_what_they_read(api: Api) -> None:
    section = page(api, "/models").one("section", **{"aria-labelledby": f"family-{OURS}"})
    assert "reads vectors drawn from a seed" in section.one("h2").text
    assert OURS in [words(link.text) for each in section.all("h3") for link in each.all("a")]
    one = page(api, "/models/textbook-pre-causal-d32-h4").one("main")
    assert "Textbook transformer, which reads vectors drawn from a seed" in words(one.text)
    out = api.json("/api/models/textbook-pre-causal-d32-h4")
    assert (out["family"], out["config"]["n_embd"], out["config"]["n_head"]) == (OURS, 32, 4)
    assert api.ask("GET", "/models/textbook-h3").status_code == 404
