"""The pages of the whole application, as a browser without JavaScript receives them."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from app.explorer import EXAMPLE, Explorer
from app.main import create_app
from app.render import TEMPLATES
from app.settings import load_settings
from provenance.citation import Pin
from provenance.errors import SourceUnavailable
from provenance.names import Address

INJECTION = '"><script>alert(1)</script>'
VOID = {"meta", "link", "input", "br", "img", "hr"}


@dataclass
class Element:
    """One element of a page: its tag, attributes, and the text inside it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Html(HTMLParser):
    """A parsed page. Fails where elements are not closed in order."""

    source: str
    elements: list[Element] = field(default_factory=list)
    _open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.source)
        assert not self._open, f"not closed: {[element.tag for element in self._open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """Elements of a tag; `class_` is one of the classes."""
        classes = attributes.pop("class_", None)
        return [
            element
            for element in self.elements
            if element.tag == tag
            and (classes is None or classes in element.attributes.get("class", "").split())
            and all(element.attributes.get(name) == value for name, value in attributes.items())
        ]

    def one(self, tag: str, **attributes: str) -> Element:
        found = self.all(tag, **attributes)
        assert len(found) == 1, f"{len(found)} × {tag} {attributes}"
        return found[0]

    def value(self, id: str) -> float:
        """The exact number behind the statistic of that id."""
        at = next(i for i, element in enumerate(self.elements) if element.attributes.get("id") == f"stat-{id}")
        return float(self.elements[at + 1].attributes["value"])


class Client:
    """The application in this process, asked over HTTP without a network."""

    def __init__(self, app: FastAPI, runner: asyncio.Runner) -> None:
        self.app = app
        self._runner = runner

    def get(self, address: str, **options: Any) -> httpx.Response:
        return self._runner.run(self._ask("GET", address, options))

    def post(self, address: str, **options: Any) -> httpx.Response:
        return self._runner.run(self._ask("POST", address, options))

    async def _ask(self, method: str, address: str, options: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        options.setdefault("follow_redirects", True)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, address, **options)


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory: Path = tmp_path_factory.mktemp("pages")
    settings = load_settings(
        data_directory=directory / "data",
        cache_directory=directory / "cache",
        model="tiny-untrained",
        example=False,
        network=False,
    )
    app = create_app(settings)
    running = app.router.lifespan_context(app)
    with asyncio.Runner() as runner:
        runner.run(running.__aenter__())
        yield Client(app, runner)
        runner.run(running.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def explorer(client: Client) -> Explorer:
    explorer: Explorer = client.app.state.explorer
    return explorer


@pytest.fixture(scope="module")
def trace(client: Client, explorer: Explorer) -> str:
    """The address of a trace: the example's prompt with three decode steps."""
    return "/traces/" + explorer.record(explorer.plan(EXAMPLE, steps=3)).id


@pytest.fixture(scope="module")
def hostile(client: Client, explorer: Explorer) -> str:
    """The address of a trace whose prompt tries to leave its place in the page."""
    return "/traces/" + explorer.record(explorer.plan(INJECTION, steps=1)).id


def page(client: Client, address: str, status: int = 200) -> Html:
    answer = client.get(address)
    assert answer.status_code == status, answer.text[:2000]
    assert answer.headers["content-type"].startswith("text/html")
    return Html(answer.text)


# --- the page of a tensor without a trace: the reference page's facts ---


def test_the_reference_tensor_has_its_name_shape_and_place(client: Client) -> None:
    shown = page(client, "/sites/h.ln_1.out")
    assert shown.one("h1").text == "Normalized attention input"
    assert words(shown.one("p", class_="expression").text) == "tensor norm(x, 'ln_1')"
    assert [words(shape.text) for shape in shown.all("span", class_="shape")] == [
        "[B batch, T, 768 d]",
        "[B batch, 1, 768 d]",
    ]
    crumbs = shown.one("nav", class_="crumbs")
    assert words(crumbs.text) == "Transformer block Attention LayerNorm 1"
    assert [words(math.text) for math in shown.all("math")] == ["x←x′⊙g+b", "norm(x)=x−us+ϵ⊙g+b"]


def test_the_reference_tensor_has_five_entries_of_evidence(client: Client) -> None:
    shown = page(client, "/sites/h.ln_1.out")
    entries = [words(entry.text) for entry in shown.all("article", class_="evidence")]
    expected = [
        ("Pre-attention LayerNorm", "openai · openai/gpt-2 / src/model.py", "9b63575ef427", "28–38"),
        ("Pre-attention LayerNorm", "transformers · huggingface/transformers / ", "71c6f699ac9b", "252–273"),
        ("Fused Q, K, V projection", "linear-operation · openai/gpt-2 / src/model.py", "9b63575ef427", "50–56"),
        ("Fused Q, K, V projection", "openai · openai/gpt-2 / src/model.py", "9b63575ef427", "101–104"),
        ("Fused Q, K, V projection", "transformers · huggingface/transformers / ", "71c6f699ac9b", "185–191"),
    ]
    assert len(entries) == len(expected)
    for entry, (operation, source, revision, lines) in zip(entries, expected, strict=True):
        assert entry.startswith(f"Contextual evidence from {operation}")
        assert source in entry
        assert re.search(rf"Pinned revision {revision} ?↗? · lines {lines}\b", entry)


def test_permalinks_carry_the_full_revision_and_the_lines(client: Client) -> None:
    links = [a.attributes["href"] for a in page(client, "/sites/h.ln_1.out").all("a", rel="external")]
    assert links[0] == (
        "https://github.com/openai/gpt-2/blob/9b63575ef42771a015060c964af2c3da4cf7c8ab/src/model.py#L28-L38"
    )
    assert links[1].endswith(
        "/blob/71c6f699ac9b3f8fc42a6a3e9dc59034c349a678/src/transformers/models/gpt2/modeling_gpt2.py#L252-L273"
    )


def test_an_excerpt_numbers_its_lines_and_says_what_it_leaves_out(client: Client) -> None:
    shown = page(client, "/sites/h.ln_1.out")
    codes = shown.all("div", class_="excerpt")
    assert re.findall(r"^\s*(\d+)", codes[0].text, re.M) == [str(n) for n in range(28, 39)]
    assert "… lines 253–271 omitted …" in codes[1].text
    left_out = shown.all("pre", class_="left-out")[0]
    assert re.findall(r"^(\d{3})", left_out.text, re.M) == [str(n) for n in range(253, 272)]
    runs = [pre for pre in shown.all("pre", class_="run") if pre is not left_out]
    assert [re.findall(r"^(\d{3})", pre.text, re.M) for pre in runs[1:3]] == [["252"], ["272", "273"]]


def test_badges_say_in_words_what_was_proven(client: Client) -> None:
    badges = [words(badge.text) for badge in page(client, "/sites/h.ln_1.out").all("span", class_="badge")]
    assert badges == [
        "✓ verified",
        "≡ same in every candidate",
        "✓ verified",
        "✓ verified",
        "≡ same in every candidate",
    ]


def test_without_a_source_the_citation_stays_and_says_what_to_do(
    client: Client, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(pin: Pin) -> None:
        raise SourceUnavailable(f"{pin.path} is not at hand.", hint="Fetch it.")

    monkeypatch.setattr(explorer.sources, "content", gone)
    shown = page(client, "/sites/h.ln_1.out?not=kept")  # bytes that were there stay there, so its page is kept
    assert len(shown.all("article", class_="evidence")) == 5
    assert not shown.all("pre")
    first = words(shown.all("article", class_="evidence")[0].text)
    assert "lines 28–38" in first
    assert "✕ not available here" in first
    assert "src/model.py is not at hand. Fetch it." in first
    assert "✕ not available here" in words(page(client, "/sources").one("main").text)
    file = page(client, "/sources/openai/gpt-2/src/model.py")
    assert not file.all("pre")
    assert "Fused Q, K, V projection" in file.one("main").text


# --- the page of a tensor in a trace ---


@pytest.mark.parametrize(
    ("step", "symbolic", "concrete"),
    [(0, "[B batch, T, 32 d]", "[1, 9, 32]"), (1, "[B batch, 1, 32 d]", "[1, 1, 32]")],
)
def test_shapes_change_from_prefill_to_decode(
    client: Client, trace: str, step: int, symbolic: str, concrete: str
) -> None:
    shown = page(client, f"{trace}/h.0.ln_1.out?step={step}")
    assert [words(shape.text) for shape in shown.all("span", class_="shape")] == [
        symbolic,
        f"{concrete} float32 cpu",
    ]


def test_statistics_are_numpys(client: Client, explorer: Explorer, trace: str) -> None:
    address = Address("h.mlp.h", 1, 2)
    values = explorer.tensor(explorer.store.open(trace.removeprefix("/traces/")), address).numpy().astype(np.float64)
    shown = page(client, f"{trace}/h.1.mlp.h?step=2")
    assert shown.value("minimum") == values.min()
    assert shown.value("maximum") == values.max()
    assert shown.value("mean") == pytest.approx(values.mean(), rel=1e-12)
    assert shown.value("std") == pytest.approx(values.std(), rel=1e-12)
    assert shown.value("l2") == pytest.approx(np.linalg.norm(values.ravel()), rel=1e-12)
    assert shown.value("q0.25") == pytest.approx(np.quantile(values, 0.25), rel=1e-12)
    assert shown.value("count_total") == values.size == 128
    assert shown.value("count_nan") == 0


def test_masked_cells_are_counted_and_shown_as_masked(client: Client, trace: str) -> None:
    shown = page(client, f"{trace}/h.0.attn.scores_masked?head=2")
    assert shown.value("count_masked") == 4 * 9 * 8 / 2
    assert shown.value("minimum") > -1e3
    assert len(shown.all("td", class_="cell-masked")) == 9 * 8 / 2
    assert "“Visible cells” hides are masked" in shown.one("main").text


def test_a_head_can_be_picked(client: Client, explorer: Explorer, trace: str) -> None:
    values = explorer.tensor(explorer.store.open(trace.removeprefix("/traces/")), Address("h.attn.pattern", 1))
    for head in (0, 3):
        shown = page(client, f"{trace}/h.1.attn.pattern?head={head}")
        cells = [float(cell.attributes["title"]) for cell in shown.all("td", class_="cell-value")]
        expected = values[0, head][np.tril_indices(9)].tolist()
        assert cells == pytest.approx(expected, rel=1e-6)
        assert [a.text for a in shown.all("a", **{"aria-current": "true"})][-1] == str(head)


def test_rows_of_tokens_carry_the_tokens(client: Client, trace: str) -> None:
    shown = page(client, f"{trace}/h.0.ln_1.out")
    tokens = [th.text for th in shown.all("th", scope="row")]
    assert [token.split(" ", 1)[1] for token in tokens[:3]] == ["The", " quick", " brown"]
    assert len(tokens) == 9


def test_strips_lead_to_other_layers_and_to_the_steps_that_exist(client: Client, trace: str) -> None:
    shown = page(client, f"{trace}/h.1.attn.k_all?step=2")
    at = {a.attributes["id"]: a for a in shown.all("a") if "id" in a.attributes}
    assert at["layer-0"].attributes["href"] == f"{trace}/h.0.attn.k_all?step=2"
    assert "step-0" not in at  # the grown keys exist in decode steps only
    assert at["step-3"].attributes["href"] == f"{trace}/h.1.attn.k_all?step=3"
    assert "aria-current" in at["step-2"].attributes
    assert "aria-current" in at["layer-1"].attributes


def test_the_order_of_computation_goes_on_into_the_next_layer(client: Client, trace: str) -> None:
    shown = page(client, f"{trace}/h.0.resid_post")
    assert shown.one("a", id="next").attributes["href"] == f"{trace}/h.1.ln_1.g"
    assert "layer 1" in shown.one("a", id="next").text
    assert not page(client, f"{trace}/logits").all("a", id="next")


def test_inputs_and_readers_are_links_into_the_trace(client: Client, trace: str) -> None:
    links = {a.attributes["href"] for a in page(client, f"{trace}/h.1.ln_1.u?step=1").all("a")}
    assert f"{trace}/h.0.resid_post?step=1" in links
    assert f"{trace}/h.1.ln_1.normalized?step=1" in links


def test_the_replay_is_proven_on_the_page(client: Client, trace: str) -> None:
    assert "✓ bit for bit" in words(page(client, f"{trace}/h.0.ln_1.out").one("p", class_="proof").text)
    assert "✓ kept" in words(page(client, f"{trace}/h.0.resid_post").one("p", class_="proof").text)
    assert "same weights" in page(client, f"{trace}/h.0.ln_1.g").one("p", class_="proof").text


def test_untrained_weights_are_named_wherever_values_are_shown(client: Client, trace: str) -> None:
    for address in (trace, f"{trace}/h.0.ln_1.out", f"{trace}/logits", "/"):
        assert "untrained" in [words(b.text).strip("△ ") for b in page(client, address).all("span", class_="badge")]


def test_a_trace_whose_model_is_gone_still_says_what_its_tensors_are(
    client: Client, explorer: Explorer, trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explorer.models.checkpoints, "sources", tuple)
    monkeypatch.setattr(explorer.models, "_slots", type(explorer.models._slots)())
    shown = page(client, f"{trace}/h.0.attn.q")
    said = words(shown.one("section", id="values").text)
    assert "cannot be loaded any more. There is no model named 'tiny-untrained' here." in said
    assert len(shown.all("article", class_="evidence")) == 5
    assert "✓ kept" in page(client, f"{trace}/h.0.resid_post").one("p", class_="proof").text


# --- addresses ---


def test_a_site_without_its_layer_leads_to_layer_0(client: Client, trace: str) -> None:
    answer = client.get(f"{trace}/h.ln_1.out?step=1", follow_redirects=False)
    assert answer.status_code == 307
    assert answer.headers["location"] == f"{trace}/h.0.ln_1.out?step=1"


def test_an_expression_leads_to_its_tensor(client: Client, trace: str) -> None:
    assert client.get(f"{trace}/norm(x, 'ln_1')").url.path == f"{trace}/h.0.ln_1.out"
    assert client.get("/sites/transformer.h.1.ln_2").url.path == "/sites/h.ln_2.out"


def test_an_address_may_carry_the_step_but_not_two(client: Client, trace: str) -> None:
    assert "[1, 1, 32]" in page(client, f"{trace}/h.0.ln_1.out@1").one("main").text
    assert "names step 1, the query step 2" in page(client, f"{trace}/h.0.ln_1.out@1?step=2", 422).one("main").text


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("{trace}/h.9.ln_1.out", "It has layers 0 to 1|layers 0 to 1"),
        ("{trace}/h.0.ln_1.out?step=4", "steps 0 .prefill. to 3"),
        ("{trace}/h.0.attn.pattern?head=4", "heads 0 to 3"),
        ("{trace}/h.0.ln_1.out?head=0", "has no heads"),
        ("{trace}/h.0.attn.k_all", "decode steps only"),
        ("/traces/0123456789abcdef0123456789abcdef", "There is no trace"),
        ("/traces/0123456789abcdef0123456789abcdef/h.0.ln_1.out", "There is no trace"),
        ("/groups/attention?trace=0123456789abcdef", "There is no trace"),
        ("/sources/openai/gpt-2/src/encoder.py", "No tensor cites a file"),
        ("/nothing", "There is no page"),
    ],
)
def test_what_does_not_exist_is_a_page_that_says_what_does(
    client: Client, trace: str, address: str, says: str
) -> None:
    shown = page(client, address.format(trace=trace), 404)
    assert re.search(says, words(shown.one("main").text))


@pytest.mark.parametrize("query", ["step=x", "step=-1", "step=1.5", "head=٣", "step=99999999"])
def test_a_step_or_head_that_is_no_number_is_refused(client: Client, trace: str, query: str) -> None:
    assert "must be a whole number" in page(client, f"{trace}/h.0.attn.pattern?{query}", 422).one("main").text


def test_an_unknown_site_has_near_matches_as_links(client: Client, trace: str) -> None:
    links = {a.attributes["href"] for a in page(client, "/sites/h.atn.scores", 404).all("a", class_="tensor")}
    assert "/sites/h.attn.scores" in links
    links = {a.attributes["href"] for a in page(client, f"{trace}/h.1.atn.scores", 404).all("a", class_="tensor")}
    assert f"{trace}/h.1.attn.scores" in links


def test_a_recording_can_be_opened_by_the_beginning_of_its_id(client: Client, trace: str) -> None:
    assert client.get(trace[: len("/traces/") + 8]).url.path == trace


# --- recording ---


def test_the_form_records_and_leads_to_the_trace(client: Client, explorer: Explorer) -> None:
    answer = client.post("/record", data={"prompt": "two\r\nlines", "steps": "1"}, follow_redirects=False)
    assert answer.status_code == 303
    id = answer.headers["location"].removeprefix("/traces/")
    assert explorer.plan("two\nlines", steps=1).id == id


@pytest.mark.parametrize(
    ("typed", "field", "says"),
    [
        ({"prompt": ""}, "prompt", "The prompt is empty."),
        ({"prompt": "word " * 70}, "prompt", "this model's context holds 64"),
        ({"steps": "many"}, "steps", "must be a whole number"),
        ({"steps": "65"}, "steps", "65 decode steps"),
        ({"seed": "-1"}, "seed", "must be a whole number"),
        ({"temperature": "nan"}, "temperature", "a number from 0 to 100"),
        ({"model": "gpt5"}, "model", "There is no model named 'gpt5'"),
        ({"dtype": "float16"}, "dtype", "float16"),
    ],
)
def test_a_form_that_cannot_be_run_comes_back_as_it_was_typed(
    client: Client, typed: dict[str, str], field: str, says: str
) -> None:
    form = {"prompt": f"\n{INJECTION}", "steps": "2", "model": "tiny-untrained", "seed": "7", **typed}
    answer = client.post("/record", data=form)
    assert answer.status_code == 422
    shown = Html(answer.text)
    assert says in shown.one("p", id=f"wrong-{field}").text
    marked = next(element for element in shown.elements if "aria-invalid" in element.attributes)
    assert (marked.attributes["id"], marked.attributes["aria-describedby"]) == (field, f"wrong-{field}")
    # A browser drops the first line end inside a textarea, so one more stands there.
    assert shown.one("textarea").text.strip("\n") == form["prompt"].strip("\n")
    assert shown.one("textarea").text.startswith("\n" + form["prompt"][:1])
    assert shown.one("input", name="steps").attributes["value"] == form["steps"]
    assert shown.one("input", name="seed").attributes["value"] == form["seed"]


def test_a_deleted_trace_is_gone(client: Client, explorer: Explorer) -> None:
    id = explorer.record(explorer.plan("to be deleted")).id
    answer = client.post(f"/traces/{id}/delete", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/traces")
    page(client, f"/traces/{id}", 404)


# --- search, groups, sources ---


def test_a_search_says_why_it_found_something(client: Client) -> None:
    shown = page(client, "/search?q=norm(x,%20%22ln_1%22)")
    assert shown.all("li")
    first = next(li for li in shown.all("li") if li.text.strip().startswith("Normalized attention input"))
    assert "is its expression" in first.text


def test_a_search_from_a_trace_leads_into_it_at_the_layer_named(client: Client, trace: str) -> None:
    id = trace.removeprefix("/traces/")
    shown = page(client, f"/search?q=transformer.h.1.ln_1&trace={id}&step=1")
    assert f"{trace}/h.1.ln_1.out?step=1" in {a.attributes["href"] for a in shown.all("a")}


def test_a_group_shows_the_shapes_of_a_layer_and_step(client: Client, trace: str) -> None:
    id = trace.removeprefix("/traces/")
    shown = page(client, f"/groups/transformer-block/attention/q-k-v?trace={id}&layer=1&step=2")
    rows = {words(tr.text) for tr in shown.all("tr")}
    assert any(row.startswith("Queries q [B batch, 4 head, 1, 8 head_dim] [1, 4, 1, 8]") for row in rows)
    assert "Transformer block 1" in [words(a.text) for a in shown.all("a")]


def test_a_source_page_marks_cited_lines_and_links_back(client: Client) -> None:
    shown = page(client, "/sources/openai/gpt-2/src/model.py")
    lines = [element for element in shown.elements if element.attributes.get("class") == "line"]
    assert [line.attributes["id"] for line in lines] == [f"L{n}" for n in range(1, 175)]
    cited = [words(part.text) for part in shown.all("div", class_="cited")]
    softmax = next(part for part in cited if part.startswith("Softmax"))
    assert "20def softmax(x, axis=-1):" in softmax
    assert "Attention pattern" in softmax
    # Line 24 is empty and belongs to nothing.
    assert not any(re.search(r"\b24\b", part) for part in cited)


# --- htmx, and what must not be in any page ---


def test_htmx_receives_a_part_of_the_same_page(client: Client, trace: str) -> None:
    whole = client.get(f"{trace}/h.0.ln_1.out")
    part = client.get(f"{trace}/h.0.ln_1.out", headers={"HX-Request": "true"})
    assert "<html" in whole.text
    assert "<html" not in part.text
    assert "HX-Request" in part.headers["vary"]
    assert "HX-Request" in whole.headers["vary"]
    title, content = part.text.split("</title>\n")
    assert title.startswith("<title>Normalized attention input, h.0.ln_1.out")
    assert content.strip() in whole.text


def test_going_back_receives_the_whole_page(client: Client, trace: str) -> None:
    headers = {"HX-Request": "true", "HX-History-Restore-Request": "true"}
    assert "<html" in client.get(f"{trace}/h.0.ln_1.out", headers=headers).text


def test_live_results_are_the_list_alone(client: Client) -> None:
    part = Html(client.get("/search?q=softmax", headers={"HX-Request": "true"}).text)
    assert len(part.all("ol")) == 1
    assert not part.all("main")


def every_kind(trace: str) -> list[str]:
    id = trace.removeprefix("/traces/")
    return [
        "/", "/sites", "/sites/h.ln_1.out", "/search", "/search?q=softmax", f"/search?q={INJECTION}",
        "/groups/transformer-block", f"/groups/transformer-block/mlp?trace={id}&layer=1&step=1", "/sources",
        "/sources/openai/gpt-2/src/model.py",
        "/sources/huggingface/transformers/src/transformers/models/gpt2/modeling_gpt2.py",
        trace, f"{trace}/h.0.ln_1.out", f"{trace}/h.0.attn.pattern?step=1&head=1", f"{trace}/tokens",
        f"{trace}/logits", f"/sites/{INJECTION}", f"{trace}/{INJECTION}", f"/traces/{INJECTION}",
        f"{trace}/h.0.ln_1.out?step={INJECTION}",
    ]  # fmt: skip


@pytest.mark.slow
def test_no_page_has_inline_style_script_or_handlers(client: Client, trace: str, hostile: str) -> None:
    for address in every_kind(trace) + every_kind(hostile):
        shown = Html(client.get(address).text)
        for element in shown.elements:
            names = element.attributes.keys()
            assert element.tag != "style", address
            assert not any(name == "style" or name.startswith("on") for name in names), (address, element)
            assert element.tag != "script" or element.attributes["src"].startswith("/static/"), address


def test_every_page_has_its_landmarks_one_heading_and_unique_ids(client: Client, trace: str) -> None:
    titles = set()
    for address in every_kind(trace):
        shown = Html(client.get(address).text)
        for tag in ("h1", "main"):
            assert len(shown.all(tag)) == 1, (address, tag)
        assert shown.one("header", class_="top")
        assert shown.one("footer", class_="bottom")
        assert shown.one("a", class_="skip").attributes["href"] == "#main"
        ids = [element.attributes["id"] for element in shown.elements if "id" in element.attributes]
        assert len(ids) == len(set(ids)), address
        levels = [int(element.tag[1]) for element in shown.elements if re.fullmatch("h[1-6]", element.tag)]
        assert all(b <= a + 1 for a, b in pairwise(levels)), (address, levels)
        titles.add(shown.all("title")[0].text)
    assert len(titles) > 12


def test_a_token_stays_in_its_place(client: Client, hostile: str) -> None:
    for address in ("/", hostile, f"{hostile}/h.0.ln_1.out", f"{hostile}/h.0.attn.pattern"):
        assert "<script>alert" not in client.get(address).text
    assert INJECTION in page(client, hostile).one("h1").text


def test_pages_stay_small(client: Client, explorer: Explorer, trace: str) -> None:
    full = "/traces/" + explorer.record(explorer.plan("a b c d e f g h " * 7, steps=4)).id
    for address in (full, f"{full}/h.0.attn.pattern", f"{full}/logits", trace):
        assert len(client.get(address).content) < 200_000


@pytest.mark.slow
def test_every_link_answers(client: Client, trace: str) -> None:
    """The first 250 addresses that a reader can reach from a trace and from the home page."""
    seen: dict[str, Html] = {}
    fragments: set[tuple[str, str]] = set()
    waiting = [trace, "/"]
    while waiting and len(seen) < 250:
        address = waiting.pop(0)
        if address in seen:
            continue
        answer = client.get(address)
        assert answer.status_code == 200, address
        html = answer.headers["content-type"].startswith("text/html")
        seen[address] = Html(answer.text if html else "")
        for element in seen[address].elements:
            link = element.attributes.get("href") or element.attributes.get("src")
            if link and not link.startswith("http"):
                target, fragment = urldefrag(urljoin(address, link))
                waiting.append(target)
                if fragment:
                    fragments.add((target, fragment))
    assert len(seen) == 250
    for address, fragment in fragments:
        if address in seen:
            shown = seen[address]
            assert any(element.attributes.get("id") == fragment for element in shown.elements), (address, fragment)


def test_no_template_turns_escaping_off() -> None:
    for template in TEMPLATES.glob("*.html"):
        assert "|safe" not in template.read_text().replace(" ", ""), template.name
        assert "autoescapefalse" not in template.read_text().replace(" ", ""), template.name
