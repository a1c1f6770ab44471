"""Static files: addresses that change with the content, answers that may be kept for ever, and few bytes in all."""

import gzip
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from api_client import FOX, Api, running

from app.render import STATIC, STATIC_FILES, TEMPLATES
from app.static_files import HTMX, StaticFiles, matches, takes_gzip

NAMES = sorted(STATIC_FILES.files)
FOR_EVER = "public, max-age=31536000, immutable"
KIB = 1024


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("app"), model="demo") as started:
        yield started


def test_every_file_of_the_folder_is_there_and_htmx() -> None:
    folder = {path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file()}
    assert folder | {HTMX} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_address_with_a_fingerprint_may_be_kept_for_ever(api: Api, name: str) -> None:
    answer = api.ask("GET", STATIC_FILES.url(name))
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == FOR_EVER
    assert answer.content == STATIC_FILES.files[name].content
    if name != HTMX:
        assert answer.content == (STATIC / name).read_bytes()
    kinds = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    assert answer.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])


@pytest.mark.parametrize("query", ["", "?v=", "?v=0123456789abcdef0123"])
def test_without_the_right_fingerprint_browsers_ask_again(api: Api, query: str) -> None:
    first = api.ask("GET", f"/static/style.css{query}")
    assert first.headers["cache-control"] == "no-cache"
    again = api.ask("GET", f"/static/style.css{query}", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]


def test_compressed_and_plain_files_differ_in_their_etag(api: Api) -> None:
    short = api.ask("GET", "/static/style.css")
    plain = api.ask("GET", "/static/style.css", headers={"Accept-Encoding": "identity"})
    assert short.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
    assert short.content == plain.content
    assert short.headers["etag"] != plain.headers["etag"]
    assert short.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert int(short.headers["content-length"]) < int(plain.headers["content-length"]) / 3


def test_head_and_other_methods(api: Api) -> None:
    head, whole = (api.ask(method, "/static/app.js") for method in ("HEAD", "GET"))
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]
    assert api.ask("POST", "/static/app.js").status_code == 405


@pytest.mark.parametrize("name", ["nothing.css", "", "../pyproject.toml", "%2e%2e/pyproject.toml", "vendor"])
def test_nothing_else_is_served(api: Api, name: str) -> None:
    assert api.ask("GET", f"/static/{name}").status_code == 404


def test_the_address_changes_with_the_content(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("p { color: red }")
    first = StaticFiles(tmp_path).url("a.css")
    assert StaticFiles(tmp_path).url("a.css") == first
    (tmp_path / "a.css").write_text("p { color: blue }")
    assert StaticFiles(tmp_path).url("a.css") != first
    with pytest.raises(KeyError):
        StaticFiles(tmp_path).url("b.css")


@pytest.mark.parametrize("template", sorted(path.name for path in TEMPLATES.glob("*.html")))
def test_templates_name_static_files_by_their_fingerprint(template: str) -> None:
    text = (TEMPLATES / template).read_text()
    assert "/static/" not in text, "write {{ static('name') }}"
    named = re.findall(r"static\(\s*['\"]([^'\"]+)['\"]\s*\)", text)
    assert len(named) == text.count("static(")
    assert set(named) <= set(NAMES)


@pytest.mark.parametrize(
    ("accepted", "takes"),
    [
        ("gzip", True), ("deflate, gzip;q=0.5, br", True), ("GZIP", True), ("*", True), ("gzip;q=0.001", True),
        ("", False), ("br", False), ("identity", False), ("x-gzip", False), ("gzip;q=0", False),
        ("gzip; q=0.000", False),
    ],
)  # fmt: skip
def test_what_accept_encoding_allows(accepted: str, takes: bool) -> None:
    assert takes_gzip(accepted) is takes


@pytest.mark.parametrize(
    ("asked", "is_known"),
    [('"a"', True), ('W/"a"', True), ('"b", "a"', True), ("*", True), ("", False), ('"ab"', False), ("a", False)],
)
def test_what_if_none_match_names(asked: str, is_known: bool) -> None:
    assert matches(asked, '"a"') is is_known


# --- how much a first visit costs ---


class Needs(HTMLParser):
    """What a browser fetches for a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.files: set[str] = set()
        self.pictures: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "img":
            self.pictures.add(given["src"] or "")
        elif tag == "script" and given.get("src"):
            self.files.add(given["src"] or "")
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon"):
            self.files.add(given["href"] or "")


def sent(api: Api, url: str) -> int:
    """Bytes of an answer's body as they are sent to a browser."""
    answer = api.ask("GET", url, headers={"Accept-Encoding": "gzip, deflate, br"})
    assert answer.status_code == 200, url
    return int(answer.headers["content-length"])


def first_visit(api: Api, url: str) -> tuple[int, int]:
    """Bytes of a page with its styles and scripts, and with its pictures too."""
    needs = Needs(api.ask("GET", url).text)
    assert len(needs.files) >= 8
    without = sent(api, url) + sum(sent(api, each) for each in needs.files)
    return without, without + sum(sent(api, each) for each in needs.pictures if not each.startswith("data:"))


@pytest.mark.slow
def test_a_first_visit_is_small(api: Api) -> None:
    id = api.record(prompt=FOX, steps=3).removeprefix("/api/traces/")
    own = f"/traces/{id}"
    tensors = [f"{own}/{name}" for name in ("h.0.attn.pattern", "h.1.resid_post", "h.1.mlp.h", "logits")]
    for url in ("/", "/sites", "/map", own, *tensors):
        without, whole = first_visit(api, url)
        assert without <= 60 * KIB, url
        assert whole <= 200 * KIB, url


def test_scripts_and_styles_are_compressed_as_well_as_gzip_can() -> None:
    for name, file in STATIC_FILES.files.items():
        assert gzip.decompress(file.compressed) == file.content, name
        assert len(file.compressed) <= len(gzip.compress(file.content, 6)), name
