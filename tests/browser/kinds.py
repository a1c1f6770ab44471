"""Every kind of page, and what everybody needs of it: axe-core finds nothing, and a phone scrolls one way."""

import json
from collections.abc import Mapping
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from .conftest import LAPTOP, PHONE, Open, Site

PAGES: Mapping[str, str] = {
    "home": "/",
    "sites": "/sites",
    "group": "/groups/transformer-block/attention/layernorm-1",
    "group in a trace": "/groups/transformer-block/attention?trace={id}&layer=1&step=2",
    "site": "/sites/h.attn.k",
    "site of a parameter": "/sites/wte",
    "trace": "{trace}",
    "trace at a step": "{trace}?step=2",
    "tensor: token ids": "{trace}/tokens",
    "tensor: a vector": "{trace}/h.1.ln_1.g",
    "tensor: a stream": "{trace}/h.1.ln_1.out",
    "tensor: scores": "{trace}/h.5.attn.scores?head=3",
    "tensor: a pattern": "{trace}/h.0.attn.pattern?head=7",
    "tensor: a mask": "{trace}/h.0.attn.mask.m",
    "tensor: a cache": "{trace}/h.1.attn.k_all?step=2",
    "tensor: reduced": "{trace}/logits",
    "tensor: proven": "{proven}/h.1.attn.scores",
    "change a tensor": "{trace}/edit?at=h.1.attn.pattern@2",
    "norms": "{trace}/norms/h.resid_post",
    "verdict: nobody asked": "{trace}/verdict",
    "verdict": "{proven}/verdict",
    "lens": "{trace}/lens",
    "lens at a cell": "{trace}/lens?position=4&stage=h.2.resid_post",
    "attribution": "{trace}/attribution",
    "attribution: a lead, in a decode step": "{trace}/attribution?position=10&token=11&against=12",
    "traces": "/traces",
    "traces: nothing fits": "/traces?q=zzz",
    "delete": "{trace}/delete",
    "compare: form": "/compare?a={id}",
    "compare": "/compare?a={id}&b={other}",
    "compare: at a tensor": "/compare?a={id}&b={other}&at=h.1.attn.pattern&show=differing",
    "compare: nothing fits": "/compare?a={id}&b={tiny}&how=steps",
    "sources": "/sources",
    "source: openai": "/sources/openai/gpt-2/src/model.py",
    "source: transformers": "/sources/huggingface/transformers/src/transformers/models/gpt2/modeling_gpt2.py",
    "drift": "/sources/drift",
    "map": "/map",
    "map in a trace": "/map?trace={id}",
    "map: block": "/map/transformer-block?trace={id}&layer=1",
    "map: attention": "/map/transformer-block/attention?site=h.attn.scores",
    "map: LayerNorm": "/map/transformer-block/attention/layernorm-1?trace={id}",
    "models": "/models",
    "model": "/models/eight-heads",
    "model: not here": "/models/gpt2",
    "lessons": "/lessons",
    "lesson: scaled dot-product": "/lessons/scaled-dot-product",
    "lesson: multi-head": "/lessons/multi-head",
    "lesson: positions": "/lessons/positions",
    "lesson: the block": "/lessons/block",
    "lesson: the decoder": "/lessons/decoder",
    "lesson: the decoder in another state": "/lessons/decoder?heads=4&norm=pre&text=To+be%2C+or+not+to+be",
    "lesson: questions and answers": "/lessons/teacher",
    "search": "/search?q=softmax",
    "search: nothing": "/search?q=sofmax(w)",
    "search: empty": "/search",
    "cite": "/cite/sites/h.attn.scores",
    "cite: one": "/cite/sites/h.attn.scores/1?trace={id}",
    "cite: trace": "/cite{trace}",
    "family: sites": "/sites?family=textbook",
    "family: group": "/groups/transformer-block/attention?family=textbook",
    "family: site": "/sites/h.attn.weight?family=textbook",
    "family: map": "/map?family=textbook",
    "family: map of a block": "/map/transformer-block?family=textbook",
    "family: model": "/models/textbook-pre-causal",
    "family: search": "/search?q=weights",
    "family: cite": "/cite/sites/h.attn.weight?family=textbook",
    "vectors: trace": "{vectors}",
    "vectors: input": "{vectors}/x?batch=2",
    "vectors: a table": "{vectors}/pe",
    "vectors: weights": "{vectors}/h.1.attn.weight?batch=2&head=5",
    "vectors: masked": "{causal}/h.1.attn.score_masked?batch=1&head=3",
    "vectors: a parameter": "{vectors}/h.0.attn.in_proj.w",
    "vectors: a norm": "{vectors}/h.1.post.norm2.out",
    "vectors: verdict": "{vectors}/verdict",
    "vectors: nobody asked": "{causal}/verdict",
    "vectors: change a tensor": "{vectors}/edit?at=h.1.attn.weight",
    "vectors: norms": "{vectors}/norms/h.resid_post",
    "vectors: map": "/map/transformer-block?trace={vid}&layer=1",
    "vectors: group": "/groups/transformer-block/attention?trace={vid}&layer=1",
    "vectors: cite": "/cite{vectors}",
    "vectors: compare": "/compare?a={vid}&b={cid}",
    "vectors: delete": "{vectors}/delete",
    "error: 404": "/nowhere",
    "error: near": "/sites/h.atn.scores",
    "error: 422": "{trace}/h.0.ln_1.out?r0=x",
    "error: no lens": "{vectors}/lens",
}
SECOND = ("lesson", "family", "vectors")
"""How kinds begin that belong to the lessons and the second family: they are looked at in a file of their own."""

_OVERFLOW = """() => {
    const wide = document.documentElement.scrollWidth;
    if (wide <= innerWidth) return [];
    const outside = [...document.querySelectorAll("main *")].filter(
        (e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.parentElement.closest(".scroll, svg, pre"));
    return [`${wide} pixels`, ...outside.slice(0, 5).map((e) => e.outerHTML.slice(0, 120))];
}"""
_SMALL_TEXT = """() => [...document.querySelectorAll("svg.map text")]
    .map((t) => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a).filter((size) => size < 12)"""
_OPEN = """() => {
    document.querySelectorAll("details").forEach((each) => { each.open = true; });
    return new Promise((done) => setTimeout(done, 50));
}"""
_SETTLED = "() => !document.querySelector('details.htmx-request')"
_TWICE = """() => {
    const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
    return ids.filter((id, n) => ids.indexOf(id) !== n);
}"""
_COLOURS = {"resultTypes": ["violations"], "runOnly": ["color-contrast"]}


def violations(tab: Page, within: str | None = None, options: dict[str, Any] | None = None) -> list[Any]:
    """What axe-core finds: each rule that is broken, with the element."""
    found = Axe().run(tab, within, *([options] if options else [])).response["violations"]
    return [(v["id"], node["target"]) for v in found for node in v["nodes"]]


def check(tab: Page) -> None:
    """Light as it comes and dark with all opened, by every rule; light colours of what was opened; on a phone."""
    wrong: dict[str, Any] = {"light": violations(tab)}
    tab.set_viewport_size(PHONE)
    wrong["phone"] = [*tab.evaluate(_OVERFLOW), *tab.evaluate(_SMALL_TEXT)]
    tab.set_viewport_size(LAPTOP)
    tab.evaluate(_OPEN)
    tab.wait_for_function(_SETTLED)
    wrong["ids that stand twice"] = tab.evaluate(_TWICE)
    if tab.locator("main details").count():
        wrong["light, opened"] = violations(tab, "main details", _COLOURS)
    tab.emulate_media(color_scheme="dark")
    wrong["dark, opened"] = violations(tab)
    tab.set_viewport_size(PHONE)
    wrong["phone, opened"] = [*tab.evaluate(_OVERFLOW), *tab.evaluate(_SMALL_TEXT)]
    assert not any(wrong.values()), json.dumps({when: found for when, found in wrong.items() if found}, indent=1)


def look(open_tab: Open, site: Site, kind: str) -> None:
    """Open a page of that kind, and check it."""
    tab = open_tab(deliberate=(404, 422) if kind.startswith("error") else ())
    id = site.trace.removeprefix("/traces/")
    bare = {
        name: path.removeprefix("/traces/")
        for name, path in {"other": site.other, "tiny": site.tiny, "vid": site.vectors, "cid": site.causal}.items()
    }
    whole = {"trace": site.trace, "proven": site.proven, "vectors": site.vectors, "causal": site.causal}
    tab.goto(PAGES[kind].format(id=id, **bare, **whole))
    tab.wait_for_load_state("networkidle")
    assert tab.locator("h1").count() == 1
    check(tab)
