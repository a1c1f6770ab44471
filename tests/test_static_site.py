"""The static site of a trace: every link and picture leads to a file, and pages say what the live ones say."""

import json
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from api_client import Api, running
from html_tree import Node, tree, words

from app.cli import main
from app.export.addresses import canonical, file_of, relative, spell
from app.export.plan import plan_of
from app.export.rewrite import DEAD_SENTENCES, SCRIPTS, Rewriter
from app.export.site import MARKER, Exported, check_target, export_site
from app.export.tree import read, write
from app.render import STATIC, TEMPLATES
from provenance.errors import InvalidInput
from provenance.trace import Trace

OTHER = "Nobody else shall read this prompt"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("app")) as started:
        yield started


@pytest.fixture(scope="module")
def trace(api: Api) -> Trace:
    api.record(prompt=OTHER)
    address = api.record(prompt="Hello & goodbye", steps=1)
    return api.explorer.store.open(address.removeprefix("/api/traces/"))


# --- addresses ---


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("/", "index.html"),
        ("/traces/{id}", "trace.html"),
        ("/traces/{id}?position=0", "trace.position-0.html"),
        ("/traces/{id}?step=0", "trace.html"),
        ("/traces/{id}/lens?stage=h.1.resid_post&position=0", "trace/lens.position-0.stage-h.1.resid_post.html"),
        ("/traces/{id}/h.1.attn.pattern?step=1&head=2", "trace/h.1.attn.pattern.step-1.head-2.html"),
        ("/traces/{id}/h.1.attn.pattern?head=0", "trace/h.1.attn.pattern.html"),
        ("/traces/{id}/h.1.attn.pattern/heatmap.png?size=small&head=0",
         "trace/h.1.attn.pattern/heatmap.head-0.size-small.png"),
        ("/map/model?layer=1&trace={id}&site=logits", "map/model.trace.layer-1.html"),
        ("/map", "map.html"),
        ("/cite/sites/logits/2", "cite/sites/logits/2.trace.html"),
        ("/cite/traces/{id}", "cite/trace.html"),
        ("/sources/openai/gpt-2/src/model.py#L94", "sources/openai/gpt-2/src/model.py.html"),
        ("/static/style.css", "static/style.css"),
        ("/static/style.css?v=0123456789", "static/style.css"),
        ("/api/traces/{id}/tensors/logits.npy?step=1", "values/logits.step-1.npy"),
        ("/x/B·T?rows=B%C2%B7T", "x/B+c2b7+T.rows-B+c2b7+T.html"),
    ],
)  # fmt: skip
def test_an_address_has_one_file(trace: Trace, url: str, file: str) -> None:
    target = canonical(trace, "/", url.format(id=trace.id))
    assert target is not None
    assert file_of(trace, target.url) == file


def test_links_are_relative_and_other_hosts_stay(trace: Trace) -> None:
    assert canonical(trace, "/", "https://github.com/openai/gpt-2") is None
    beside = canonical(trace, f"/traces/{trace.id}/lens", "?position=0&stage=embed.h")
    assert beside is not None and beside.url == f"/traces/{trace.id}/lens?position=0&stage=embed.h"
    assert spell("/x", {"head": "1", "step": "2", "b": "", "a": "c d"}) == "/x?step=2&head=1&a=c+d&b="
    assert relative("trace/a.html", "static/style.css") == "../static/style.css"
    assert relative("index.html", "sources/m.py.html", "L9") == "sources/m.py.html#L9"
    assert relative("trace/a.html", "trace/a.html", "x") == "a.html#x"


def test_no_two_pages_of_a_plan_share_a_file(api: Api, trace: Trace) -> None:
    plan = plan_of(api.explorer, trace, 10**6)
    assert len({file.lower() for file in plan.files.values()}) == len(plan.files) > 900
    assert plan.left_out == ()


def test_a_limit_leaves_out_whole_kinds_but_cuts_tensors(api: Api, trace: Trace) -> None:
    whole = plan_of(api.explorer, trace, 10**6)
    less = plan_of(api.explorer, trace, len(whole.files) - 1)
    assert [each.kind for each in less.left_out] == ["heads"]
    assert len(less.files) + less.left_out[0].pages == len(whole.files)
    few = plan_of(api.explorer, trace, 60)
    assert len(few.files) == 60
    assert few.left_out[0].kind == "tensors"
    assert list(few.files) == list(whole.files)[:60]
    with pytest.raises(InvalidInput, match="at least"):
        plan_of(api.explorer, trace, 3)


# --- pages ---


def rewritten(trace: Trace, body: str, *urls: str) -> str:
    files = {url: file_of(trace, url) for url in ("/here", *urls)}
    return Rewriter(trace, files, "A note.").page("/here", body)


def test_what_is_not_touched_stays_byte_for_byte() -> None:
    source = (
        '<!doctype html>\n<p title="&#x27;" class=a hidden>x &amp; y &#39; &lt; <!-- c --><br/>'
        '<svg viewBox="0 0 1 1">'
        "<path d='M0 0'/></svg></p>\n"
    )
    assert write(read(source)) == source
    with pytest.raises(ValueError, match="open"):
        read("<p><b></p>")
    with pytest.raises(ValueError, match="closed"):
        read("<div><p></p>")


def test_links_lead_to_files_and_lost_ones_become_text(trace: Trace) -> None:
    body = (
        '<p>See <a class="t" href="/sites#x" hx-get="/sites">all</a> or <a id="i" href="/traces">lists</a>.</p>'
        '<svg><a href="/search" aria-label="s"><text>q</text></a></svg>'
        '<p class="downloads"><a href="/api/x">JSON</a> · <a href="/sites">All</a> · <a href="/api/y">CSV</a></p>'
        '<p>Rest. <a href="/sites">S</a> · <a href="/api/x">API</a></p><p><a href="/compare?a=1">Compare</a></p>'
    )
    assert rewritten(trace, body, "/sites") == (
        '<p>See <a class="t" href="sites.html#x">all</a> or <span id="i">lists</span>.</p>'
        "<svg><g><text>q</text></g></svg>"
        '<p class="downloads"><a href="sites.html">All</a></p>'
        '<p>Rest. <a href="sites.html">S</a></p>'
    )


def test_forms_and_scripts_that_need_a_server_are_gone_and_said(trace: Trace) -> None:
    body = (
        '<head><script src="/static/theme.js"></script><script src="/static/pictures.js" type="module"></script>'
        '<meta name="htmx-config" content="{}"></head>'
        '<form class="verify" method="post" action="/v"><button>V</button></form>'
        '<form action="/w"><input name="q"></form><form method="dialog"><button>Close</button></form>'
        '<section id="record"><p>x</p></section><footer></footer>'
    )
    page = rewritten(trace, body)
    assert page.startswith('<head><script src="static/theme.js"></script></head><p class="note">')
    assert "Verifying a trace needs the app." in page
    assert page.count("<form") == 1 and "pictures.js" not in page and "record" not in page
    assert page.endswith('<footer>\n<p class="export">A note.</p></footer>')


def test_what_is_taken_out_stands_in_the_templates_and_styles() -> None:
    templates = "".join(path.read_text() for path in TEMPLATES.glob("*.html"))
    for text in (*DEAD_SENTENCES, 'id="record"', 'class="more choose"', 'id="change"', 'id="jobs"', 'id="tokens"',
                 'class="verify"', 'id="search-form"', 'class="delete"', 'class="keys"'):  # fmt: skip
        assert text in templates, text
    for script in SCRIPTS:
        assert f"static('{script.removeprefix('/static/')}')" in templates, script


# --- a whole site ---


@dataclass(frozen=True)
class Site:
    """An export on disk, its pages read once."""

    done: Exported
    api: Api
    trace: Trace

    @property
    def folder(self) -> Path:
        return self.done.directory

    @cached_property
    def pages(self) -> dict[str, Node]:
        files = sorted(self.folder.rglob("*.html"))
        return {path.relative_to(self.folder).as_posix(): tree(path.read_text()) for path in files}

    def page(self, file: str) -> Node:
        return self.pages[file]


@pytest.fixture(scope="module")
def site(api: Api, trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Site:
    target = tmp_path_factory.mktemp("out") / "site"
    id = api.record(prompt="Hello & goodbye").removeprefix("/api/traces/")
    done = export_site(api.explorer.settings, id, target, values=True, base_url="https://example.org/a/")
    return Site(done, api, api.explorer.store.open(id))


def references(page: Node) -> Iterator[tuple[str, str]]:
    for node in page.elements:
        for name in ("href", "src", "action"):
            if name in node.attributes:
                yield node.tag, node.attributes[name]


@pytest.mark.slow
def test_every_link_and_picture_leads_to_a_file_of_the_export(site: Site) -> None:
    ids = {file: {node.attributes.get("id") for node in page.elements} for file, page in site.pages.items()}
    wrong, reached, external = [], {"index.html"}, set()
    for file, page in site.pages.items():
        for tag, reference in references(page):
            parts = urlsplit(reference)
            if parts.scheme or parts.netloc:
                external.add((parts.scheme, parts.netloc))
                continue
            target = posixpath.normpath(posixpath.join(posixpath.dirname(file), unquote(parts.path)))
            target = target if parts.path else file
            reached.add(target)
            inside = not parts.fragment or unquote(parts.fragment) in ids.get(target, ())
            if reference.startswith("/") or parts.query or not (site.folder / target).is_file() or not inside:
                wrong.append((file, tag, reference))
    assert wrong == []
    assert set(site.pages) <= reached, "every page can be reached"
    assert external <= {("https", "github.com"), ("https", "example.org")}
    assert all(path.stat().st_size for path in site.folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_nothing_of_an_export_needs_a_server(site: Site) -> None:
    for file, page in site.pages.items():
        assert [form.attributes.get("method") for form in page.all("form")] == ["dialog"], file
        assert {node.attributes["src"].split("/")[-1] for node in page.all("script")} <= {
            "theme.js", "app.js", "cite.js",
        }  # fmt: skip
        attributes = {name for node in page.elements for name in node.attributes}
        assert not [name for name in attributes if name.startswith("hx-") or name == "data-slice"], file
    for name in ("style.css", "app.js", "theme.js"):
        assert (site.folder / "static" / name).read_bytes() == (STATIC / name).read_bytes()


@pytest.mark.slow
def test_the_lessons_need_the_app_and_are_not_named(site: Site) -> None:
    for file, page in site.pages.items():
        assert "Lesson" not in page.text, file


@pytest.mark.slow
def test_no_other_trace_is_named_anywhere(site: Site) -> None:
    others = [listed.id for listed in site.api.explorer.store.list() if listed.id != site.trace.id]
    assert len(others) == 2
    texts = [path.read_text() for path in site.folder.rglob("*") if path.suffix in (".html", ".json")]
    assert not [text for text in texts if OTHER in text or any(other[:12] in text for other in others)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "file"),
    [("/h.0.attn.pattern", "trace/h.0.attn.pattern.html"), ("/h.1.ln_1.out", "trace/h.1.ln_1.out.html"),
     ("/logits", "trace/logits.html"), ("/h.1.attn.scores?head=1", "trace/h.1.attn.scores.head-1.html")],
)  # fmt: skip
def test_a_tensor_has_the_statistics_and_excerpts_of_the_live_page(site: Site, url: str, file: str) -> None:
    live = tree(site.api.ask("GET", f"/traces/{site.trace.id}{url}").raise_for_status().text)
    page = site.page(file)

    def said(part: Node) -> object:
        numbers = [(node.attributes["value"], node.text) for node in part.one("section", id="values").all("data")]
        code = [pre.text for pre in part.one("section", id="sources").all("pre")]
        formulas = [node.text for node in part.all("math")]
        return part.one("head").one("title").text, words(part.one("h1").text), numbers, code, formulas

    assert said(page) == said(live)
    assert len(page.one("section", id="sources").all("pre")) >= 2
    pictures = [node.attributes["src"] for node in page.all("img")]
    assert len(pictures) == len(live.all("img")) >= 1
    for picture, shown in zip(pictures, live.all("img"), strict=True):
        content = (site.folder / "trace" / picture).read_bytes()
        assert content == site.api.ask("GET", shown.attributes["src"]).content


@pytest.mark.slow
def test_values_are_there_where_they_are_asked_for(site: Site) -> None:
    link = site.page("trace/logits.html").one("section", id="values").one("p", "downloads").one("a")
    assert words(link.text) == "All values (.npy)"
    content = (site.folder / "trace" / link.attributes["href"]).read_bytes()
    assert content == site.api.ask("GET", f"/api/traces/{site.trace.id}/tensors/logits.npy").content


@pytest.mark.slow
def test_every_page_says_what_it_is(site: Site) -> None:
    for file, page in site.pages.items():
        note = words(page.one("footer").one("p", "export").text)
        assert note.startswith(
            f"This is a static export of the trace “Hello & goodbye” {site.trace.id[:12]}, made on"
        )
        canonical_links = [node.attributes["href"] for node in page.all("link", rel="canonical")]
        assert canonical_links == [f"https://example.org/a/{file}"]
    said = json.loads((site.folder / MARKER).read_text())
    assert (said["trace"], said["pages"], said["left_out"]) == (site.trace.id, site.done.pages, {})
    assert site.done.pages == len(site.pages)
    assert site.done.files == sum(path.is_file() for path in site.folder.rglob("*"))


# --- the folder ---


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    check_target(mine)
    (mine / "thesis.tex").write_text("x")
    with pytest.raises(InvalidInput, match="not empty"):
        check_target(mine)
    with pytest.raises(InvalidInput, match="is a file"):
        check_target(mine / "thesis.tex")
    (mine / MARKER).write_text("{}")
    check_target(mine)


@pytest.mark.slow
def test_an_earlier_export_is_replaced_and_a_failed_one_leaves_it(
    api: Api, trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = api.explorer.settings
    monkeypatch.setenv("TENSOR_PROVENANCE_DATA_DIRECTORY", str(settings.data_directory))
    monkeypatch.setenv("TENSOR_PROVENANCE_CACHE_DIRECTORY", str(settings.cache_directory))
    target = tmp_path / "out" / "site"

    def run(*options: str) -> int:
        with pytest.raises(SystemExit) as ended:
            main(("export", trace.id[:12], "--out", str(target), *options))
        return int(ended.value.code or 0)

    assert run("--most-pages", "40") == 0
    said = capsys.readouterr().out
    assert f"40 pages of trace {trace.id[:12]}" in said
    assert "Left out for want of room" in said and "heads" in said
    (target / "left-over.html").write_text("old")
    assert run("--most-pages", "1") == 2
    assert (target / "left-over.html").is_file()
    assert run("--most-pages", "30") == 0
    assert not (target / "left-over.html").exists()
    assert len(list(target.rglob("*.html"))) == 30
    assert [path.name for path in target.parent.iterdir()] == ["site"]
