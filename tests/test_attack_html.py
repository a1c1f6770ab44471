"""An injection corpus through every field that is echoed: no element, attribute or header comes out of it."""

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from api_client import Api, running
from checkpoint_files import config_of, state_of, write
from conftest import TINY, tiny_model_of
from html_tree import Node, tree
from safetensors.numpy import save

from app.logs import TextLines
from provenance.prompt import Tokenizer

pytestmark = pytest.mark.slow

MARK = "xssprobe"
"""Every element and attribute of the corpus carries it; the sum in it is only done by a template."""
CORPUS = (
    f"<script {MARK}>{MARK}()</script>",
    f"</title></textarea></select></script><img {MARK} src=x onerror={MARK}()>",
    f'" {MARK}=1 autofocus onfocus={MARK}() x="',
    f"' {MARK}=1 onmouseover={MARK}() x='",
    f"><svg {MARK} onload={MARK}()><a xlink:href=javascript:{MARK}()>",
    f"</text></svg><math {MARK}><mtext></mtext></math>",
    f"<!--><b {MARK}>--><![CDATA[<i {MARK}>]]>",
    f"javascript:{MARK}()//",
    f"data:text/html,<b {MARK}>",
    "{{7*11000337}}{% raw %}${7*11000337}#{7*11000337}",
    f"a\r\nX-{MARK}: 1\r\n\r\n<b {MARK}>",
    f"\u2028<b {MARK}>\u2029\u0085\u202e",
    f"&lt;b {MARK}&gt;&#60;b {MARK}&#62;&quot;{MARK}=1",
    f"＜b {MARK}＞\u00ad<\0b {MARK}>",
    f"[a](javascript:{MARK}()) \\href{{javascript:{MARK}()}}{{a}} `<b {MARK}>`",
)
SUM = "77002359"
QUICK = (0, 2, 3, 7, 9)
SAMPLES = [
    number if number in QUICK else pytest.param(number, marks=pytest.mark.slow) for number in range(len(CORPUS))
]
_URLS = ("href", "src", "action", "formaction", "xlink:href", "srcset", "hx-get", "hx-post", "poster", "data")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    directory = tmp_path_factory.mktemp("attack")
    model = tiny_model_of()
    folders = [directory / name for name in (f"<b {MARK}>\"'{{{{7*11000337}}}}", f"' onfocus={MARK}() \u2028")]
    for folder in folders:
        write(folder, config_of(TINY), state_of(model))
    (broken := directory / f'"><b {MARK}>').mkdir()
    (broken / "config.json").write_text(json.dumps({**config_of(TINY), "activation_function": f"<b {MARK}>"}))
    with running(
        directory,
        model_directories=(*folders, broken),
        client_traces_waiting=0,
        client_traces_per_hour=0,
        queue_length=64,
    ) as api:
        yield api


def clean(answer: httpx.Response, *statuses: int) -> Node | None:
    """An answer in which the corpus is text at most; the page's tree where it is one."""
    assert answer.status_code < 500, answer.text[:2000]
    assert not statuses or answer.status_code in statuses, (answer.status_code, answer.text[:1000])
    for name, value in answer.headers.items():
        assert MARK not in name
        assert not re.search(r"[\r\n\0]", value)
    assert SUM not in answer.text
    kind = answer.headers.get("content-type", "")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    if not kind.startswith("text/html"):
        assert not answer.content or kind.startswith(
            ("application/", "image/png", "text/csv", "text/plain", "text/event-stream")
        ), kind
        return None
    page = tree(answer.text)
    for node in page.elements:
        assert re.fullmatch(r"[a-z][a-z0-9-]*", node.tag) and MARK not in node.tag
        assert node.tag not in ("iframe", "object", "embed", "base", "foreignobject", "animate", "set"), node.tag
        assert not (node.tag in ("script", "style") and node.text.strip()), node.text
        assert "<!--" not in node.tag
        for name, value in node.attributes.items():
            assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9:-]*", name), (node.tag, name)
            assert MARK not in name and not name.startswith("on") and name not in ("style", "srcdoc"), name
            if name in _URLS:
                lead = re.sub(r"[\s\0-\x1f]", "", value).lower()
                assert not lead.startswith(("javascript:", "vbscript:", "data:text", "//")), (node.tag, name, value)
    return page


def pages_of(trace: str) -> tuple[str, ...]:
    """The pages of a trace, and those that list it."""
    return (
        trace, f"{trace}/h.0.attn.pattern", f"{trace}/h.0.attn.pattern?view=values", f"{trace}/logits",
        f"{trace}/tokens",
        f"{trace}/h.0.attn.scores_masked?row=0", f"{trace}/h.1.resid_post", f"{trace}/lens",
        f"{trace}/attribution", f"{trace}/edit?at=h.0.attn.pattern", f"{trace}/delete", f"{trace}/verdict",
        f"/cite{trace}", f"/cite/sites/logits?trace={trace[8:]}", f"/search?q=attn&trace={trace[8:]}",
        f"/map?trace={trace[8:]}", f"/compare?a={trace[8:]}&b={trace[8:]}", f"/compare?a={trace[8:]}",
        "/traces", "/", f"/api{trace}", f"/api{trace}/citation", f"/api{trace}/next", f"/api{trace}/tensors/logits",
        f"/api{trace}/export.npz?tensors=logits", f"{trace}/h.0.attn.pattern/heatmap.png",
    )  # fmt: skip


PARTS = ("", "/h.0.attn.pattern", "/lens", "/edit?at=h.0.attn.pattern")
"""Pages that htmx asks for a part of, and that show tokens there."""


def packed(limit: int = 60) -> list[str]:
    """The corpus as few prompts, each within the model's context."""
    tokenizer = Tokenizer.load()
    prompts = [""]
    for payload in CORPUS:
        longer = prompts[-1] + payload.replace("\r\n", "\n")
        if len(tokenizer.encode(longer).ids) <= limit:
            prompts[-1] = longer
        else:
            prompts.append(payload.replace("\r\n", "\n"))
    return prompts


@pytest.mark.parametrize("payload", packed(), ids=lambda text: f"{len(text)} characters")
def test_a_prompt_is_text_on_every_page(api: Api, payload: str) -> None:
    address = api.record(prompt=payload)
    assert api.json(address)["prompt"] == payload
    trace = address.removeprefix("/api")
    for path in pages_of(trace):
        clean(api.ask("GET", path), 200)
    for path in PARTS:
        clean(api.ask("GET", trace + path, headers={"HX-Request": "true"}), 200)
    shown = clean(api.ask("GET", trace), 200)
    assert shown is not None
    if payload.isascii() and payload.isprintable():
        assert "".join(payload.split()) in "".join(shown.text.split())
    api.ask("DELETE", address)


@pytest.mark.parametrize("number", SAMPLES)
def test_a_form_that_comes_back_holds_text(api: Api, number: int) -> None:
    payload = CORPUS[number]
    for field in ("ids", "steps", "model", "dtype", "temperature", "seed"):
        sent = {"prompt": payload, "steps": "0", field: payload}
        clean(api.ask("POST", "/record", data=sent), 422)
    for field in ("a", "b", "tolerance", "how"):
        clean(api.ask("POST", "/compare", data={"a": "x", "b": "y", field: payload}), 422, 303)
    clean(api.ask("POST", "/login", data={"token": payload, "next": payload, "to": payload, "back": payload}))


@pytest.mark.parametrize("number", SAMPLES)
def test_what_an_address_holds_is_text(api: Api, number: int) -> None:
    written = quote(CORPUS[number], safe="")
    for path in (
        "/{}", "/sites/{}", "/groups/{}", "/map/{}", "/traces/{}", "/traces/{}/h.0.attn.pattern", "/traces/{}/lens",
        "/models/{}", "/sources/{}/b/c", "/sources/openai/gpt-2/{}", "/cite/sites/{}", "/cite/traces/{}",
        "/static/{}",
        "/traces/{}/delete", "/search?q={}", "/search?q=a&trace={}", "/traces?q={}", "/traces?model={}",
        "/traces?sort={}", "/traces?input={}",
        "/traces?page={}", "/compare?a={}", "/compare?a={}&b={}", "/compare?tolerance={}", "/compare?how={}&a=x&b=y",
        "/sources/drift?release={}", "/groups/model?trace={}", "/groups/model?layer={}", "/map?site={}",
        "/map?step={}",
        "/login?next={}", "/login?to={}", "/login?back={}",
        "/api/sites/{}", "/api/search?q={}", "/api/traces/{}", "/api/models/{}", "/api/compare?a={}&b={}",
        "/api/uploads/{}",
    ):  # fmt: skip
        asked = path.replace("{}", written)
        page = clean(api.ask("GET", asked))
        clean(api.ask("GET", asked, headers={"HX-Request": "true", "HX-Target": MARK}))
        if page is not None:
            assert page.all("main")
    for path in ("/traces/{}/cancel", "/traces/{}/delete", "/traces/{}/verify", "/traces/{}/again"):
        clean(api.ask("POST", path.replace("{}", written)))


@pytest.fixture(scope="module")
def trace(api: Api) -> str:
    return api.record(prompt="Hello world", steps=1).removeprefix("/api")


@pytest.mark.parametrize("number", SAMPLES)
def test_what_is_asked_of_a_trace_is_text(api: Api, trace: str, number: int) -> None:
    payload, written = CORPUS[number], quote(CORPUS[number], safe="")
    for path in (
        "{t}/{}", "{t}/h.0.attn.pattern?head={}", "{t}/h.0.attn.pattern?view={}", "{t}/h.0.attn.pattern?step={}",
        "{t}/h.0.attn.pattern?scale={}&rows={}&columns={}&row={}&at={}", "{t}/h.0.attn.pattern/proof?said={}&head={}",
        "{t}/lens?stage={}", "{t}/lens?position={}", "{t}/attribution?token={}", "{t}/edit?at={}", "{t}/norms/{}",
        "{t}/verdict?said={}", "{t}/{}/heatmap.png", "/api{t}/tensors/{}", "/api{t}/tensors/logits/slice?index={}",
        "/api{t}/export.npz?tensors={}", "/api{t}/tensors/{}.csv", "/api{t}/tensors/{}.npy",
        "/compare?a={i}&b={i}&at={}&show={}", "/compare?a={i}&b=file:{}",
    ):  # fmt: skip
        asked = path.replace("{t}", trace).replace("{i}", trace[8:]).replace("{}", written)
        clean(api.ask("GET", asked))
    for field in ("pick", "when", "what", "value", "source"):
        clean(api.ask("POST", f"{trace}/edit", data={"at": "h.0.attn.pattern", "value": "x", field: payload}), 422)
    clean(api.ask("POST", f"{trace}/edit", data={"at": payload}))
    clean(api.ask("POST", "/api/traces", json={"prompt": "Hello world", "edits": [payload]}), 422, 404)
    clean(api.ask("POST", f"{trace}/verify", data={"address": payload, "head": payload}), 303)


@pytest.mark.parametrize("number", SAMPLES)
def test_names_of_files_and_of_their_tensors_are_text(api: Api, trace: str, number: int) -> None:
    payload = CORPUS[number].replace("\0", "")
    values = np.zeros((1, 2, 32), dtype=np.float32)
    archive = io.BytesIO()
    np.savez(archive, **{payload.replace("/", "∕"): values})
    for content in (archive.getvalue(), save({payload: values, "h.0.ln_1.out": values}), b"no file of tensors"):
        answer = api.ask("POST", "/api/uploads", files={"file": (payload, content)})
        clean(answer, 201, 422)
        clean(api.ask("POST", "/compare", data={"a": trace[8:]}, files={"file": (payload, content)}), 303, 422)
        if answer.status_code == 201:
            id = answer.json()["id"]
            for path in (f"/compare?a={trace[8:]}&b=file:{id}", f"/compare?a={trace[8:]}", f"/api/uploads/{id}"):
                clean(api.ask("GET", path), 200)
            clean(api.ask("GET", f"/compare?a={trace[8:]}&b=file:{id}&at={quote(payload, safe='')}"))
            clean(api.ask("GET", f"/api/compare?a={trace[8:]}&b=file:{id}"), 200)
            clean(api.ask("DELETE", f"/api/uploads/{id}"), 204)


def test_names_of_models_are_text(api: Api) -> None:
    models = api.json("/api/models")
    named = [model["name"] for model in models if MARK in model["name"]]
    assert len(named) == 3
    for path in ("/", "/models", "/api/models"):
        clean(api.ask("GET", path), 200)
    for name in named:
        clean(api.ask("GET", f"/models/{quote(name, safe='')}"))
        clean(api.ask("GET", f"/api/models/{quote(name, safe='')}"))
        answer = api.ask("POST", "/api/traces", json={"ids": [1, 2], "model": name})
        clean(answer, 202, 422)
        if answer.status_code == 202:
            address = answer.headers["Location"]
            assert api.wait(address)["state"] == "done"
            for path in pages_of(address.removeprefix("/api")):
                clean(api.ask("GET", path))
            clean(api.ask("GET", f"/traces?model={quote(name, safe='')}"), 200)


@pytest.mark.parametrize("number", SAMPLES)
def test_a_line_of_the_log_stays_one_line(number: int) -> None:
    said: dict[str, Any] = {"path": CORPUS[number], "method": CORPUS[number]}
    record = logging.LogRecord("app", logging.INFO, "", 1, "said %s", (CORPUS[number],), None)
    record.fields = said
    line = TextLines().format(record)
    assert len(line.splitlines()) == 1
    assert line.isprintable()


@pytest.mark.parametrize(
    ("shape", "number"),
    [("<p>{}</p>", n) for n in (0, 1, 4, 5, 10, 11)] + [('<input value="{}">', 2), ("<input value='{}'>", 3)]
    + [('<a href="{}">a</a>', 7), ('<a href="{}">a</a>', 8)],
)  # fmt: skip
def test_the_corpus_is_seen_where_it_comes_out(shape: str, number: int) -> None:
    """What the other tests look for is there where nothing is escaped."""
    answer = httpx.Response(
        200, html=shape.replace("{}", CORPUS[number]), headers={"X-Content-Type-Options": "nosniff"}
    )
    with pytest.raises(AssertionError):
        clean(answer)
