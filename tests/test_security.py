"""Other web sites are kept out: headers, host names, origins; and no path of a request reaches a file."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_client import Api, running

from app.security import HEADERS, Hosts, host_name, same_origin

PROMPT = {"prompt": "a b c", "steps": 1}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("security")) as api:
        api.record(**PROMPT)
        yield api


def trace_of(api: Api) -> str:
    id: str = api.json("/api/traces")[0]["id"]
    return id


# --- headers ---


@pytest.mark.parametrize(
    ("method", "address", "status"),
    [
        ("GET", "/", 200),
        ("HEAD", "/", 200),
        ("GET", "/static/style.css", 200),
        ("GET", "/static/none.css", 404),
        ("GET", "/api/sites", 200),
        ("GET", "/healthz", 200),
        ("GET", "/traces/none", 404),
        ("PUT", "/healthz", 405),
        ("GET", "/sites/logits/", 307),
        ("POST", "/api/traces", 422),
    ],
)
def test_every_answer_has_the_security_headers(api: Api, method: str, address: str, status: int) -> None:
    answer = api.ask(method, address)
    assert answer.status_code == status
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS


@pytest.mark.parametrize(("header", "status"), [({"Host": "evil.example"}, 421), ({"Origin": "null"}, 403)])
def test_what_is_refused_at_the_door_has_them_too(api: Api, header: dict[str, str], status: int) -> None:
    answer = api.ask("POST", "/record", headers=header, data=PROMPT)
    assert answer.status_code == status
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS


def test_a_page_that_is_kept_and_one_that_is_not_modified_have_them(api: Api) -> None:
    first = api.ask("GET", "/sites")
    again = api.ask("GET", "/sites", headers={"If-None-Match": first.headers["ETag"]})
    assert again.status_code == 304
    assert {name: again.headers[name] for name in HEADERS} == HEADERS


def test_a_failure_is_answered_with_them_and_without_its_cause(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("a secret of the machine")

    monkeypatch.setattr(api.explorer.store, "list", fail)
    for address, kind in (("/api/traces", "application/problem+json"), ("/traces", "text/")):
        answer = api.ask("GET", address)
        assert answer.status_code == 500
        assert answer.headers["content-type"].startswith(kind)
        assert "secret" not in answer.text
        assert answer.headers["X-Request-ID"] in answer.text
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS


def test_the_policy_allows_nothing_inline_and_no_other_origin() -> None:
    policy = dict(part.strip().partition(" ")[::2] for part in HEADERS["Content-Security-Policy"].split(";"))
    assert policy == {
        "default-src": "'self'",
        "img-src": "'self' data:",
        "object-src": "'none'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
        "form-action": "'self'",
    }


def test_pages_ask_for_nothing_that_the_policy_forbids(api: Api) -> None:
    id = trace_of(api)
    for address in ("/", "/map", "/traces", f"/traces/{id}", f"/traces/{id}/h.0.attn.pattern", "/models", "/compare"):
        page = api.ask("GET", address).text
        assert not re.search(r"<script(?![^>]*\bsrc=)[^>]*>|<style\b|\sstyle=|\son[a-z]+=|javascript:", page), address
        # htmx would write a style element of its own, and run code in attributes.
        assert '"includeIndicatorStyles": false' in page
        assert '"allowEval": false' in page


# --- hosts ---


@pytest.mark.parametrize(
    ("allowed", "listening", "host", "allows"),
    [
        ((), "127.0.0.1", "127.0.0.1:8000", True),
        ((), "127.0.0.1", "localhost", True),
        ((), "127.0.0.1", "LOCALHOST.:80", True),
        ((), "127.0.0.1", "[::1]:8000", True),
        ((), "192.168.1.5", "192.168.1.5:8000", True),
        ((), "127.0.0.1", "192.168.1.5", False),
        ((), "0.0.0.0", "192.168.1.5:8000", True),
        ((), "::", "[fe80::1]", True),
        ((), "0.0.0.0", "evil.example", False),
        ((), "127.0.0.1", "localhost.evil.example", False),
        ((), "127.0.0.1", "", False),
        (("a.example",), "0.0.0.0", "A.example:443", True),
        (("a.example",), "0.0.0.0", "b.a.example", False),
        (("a.example",), "0.0.0.0", "192.168.1.5", False),
        (("a.example",), "0.0.0.0", "localhost", True),
        (("*.a.example",), "0.0.0.0", "b.a.example", True),
        (("*.a.example",), "0.0.0.0", "evila.example", False),
        (("*",), "127.0.0.1", "anything", True),
    ],
)
def test_a_server_is_asked_under_its_own_names_only(
    allowed: tuple[str, ...], listening: str, host: str, allows: bool
) -> None:
    assert Hosts(allowed, listening).allow(host) is allows


@pytest.mark.parametrize("host", ["a@127.0.0.1", "127.0.0.1/x", "127.0.0.1:x", "[::1]:99999", "a b", "[::1", "x?"])
def test_a_malformed_host_is_none(host: str) -> None:
    assert host_name(host) is None


def test_another_name_is_refused_with_what_to_do(api: Api) -> None:
    problem = api.problem("GET", "/api/sites", 421, headers={"Host": "rebound.example"})
    assert problem["detail"] == (
        "This server is not asked under the name 'rebound.example'. "
        "Whoever runs it can allow that name with the setting allowed_hosts."
    )
    assert api.ask("GET", "/healthz", headers={"Host": "10.1.2.3"}).status_code == 200


# --- origins ---


@pytest.mark.parametrize(
    ("headers", "same"),
    [
        ({}, True),
        ({b"sec-fetch-site": b"same-origin"}, True),
        ({b"sec-fetch-site": b"none"}, True),
        ({b"sec-fetch-site": b"same-site"}, False),
        ({b"sec-fetch-site": b"cross-site"}, False),
        ({b"sec-fetch-site": b"cross-site", b"origin": b"http://a.example"}, False),
        ({b"origin": b"http://a.example"}, True),
        ({b"origin": b"https://a.example"}, False),
        ({b"origin": b"http://a.example:8080"}, False),
        ({b"origin": b"http://b.example"}, False),
        ({b"origin": b"null"}, False),
        ({b"origin": b""}, False),
        ({b"origin": b"http://a.example.evil"}, False),
        ({b"origin": b"http://a.example:99999"}, False),
    ],
)
def test_a_request_is_from_this_server_s_pages_or_no_browser(headers: dict[bytes, bytes], same: bool) -> None:
    assert same_origin({b"host": b"a.example:80", **headers}) is same


def test_behind_a_proxy_with_tls_the_origin_is_compared_without_its_scheme() -> None:
    assert same_origin({b"host": b"a.example", b"origin": b"https://a.example"})
    assert same_origin({b"host": b"a.example:8443", b"origin": b"https://a.example:8443"})
    assert not same_origin({b"host": b"a.example", b"origin": b"https://a.example:8443"})


STATE_CHANGING = [
    ("POST", "/record"), ("POST", "/api/traces"), ("POST", "/traces/{id}/delete"), ("DELETE", "/api/traces/{id}"),
    ("POST", "/traces/{id}/cancel"), ("POST", "/api/traces/{id}/cancel"), ("POST", "/traces/{id}/edit"),
    ("POST", "/traces/{id}/again"), ("POST", "/traces/{id}/original"), ("POST", "/traces/{id}/verify"),
    ("POST", "/api/traces/{id}/verdict"), ("POST", "/compare"), ("POST", "/api/uploads"),
    ("DELETE", "/api/uploads/{id}"), ("POST", "/login"), ("POST", "/logout"),
]  # fmt: skip


def test_the_list_of_what_changes_something_is_whole(api: Api) -> None:
    found = set()
    for methods, path in routes_of(api):
        found |= {(method, path) for method in methods - {"GET", "HEAD", "OPTIONS"}}
    assert found == set(STATE_CHANGING)


def routes_of(api: Api) -> list[tuple[set[str], str]]:
    """Methods and paths of everything that the application routes."""
    routes = every_route(api.app.routes)
    return [(set(route.methods), route.path) for route in routes if getattr(route, "methods", None)]


def every_route(routes: list[Any]) -> Iterator[Any]:
    for route in routes:
        inner = getattr(getattr(route, "original_router", None), "routes", None)
        yield from every_route(inner) if inner is not None else [route]


@pytest.mark.parametrize(("method", "path"), STATE_CHANGING)
def test_nothing_is_changed_for_a_page_of_another_site(api: Api, method: str, path: str) -> None:
    id = trace_of(api)
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        answer = api.ask(method, path.replace("{id}", id), headers=headers)
        assert answer.status_code == 403
        assert "another web site" in answer.text
    assert trace_of(api) == id


def test_own_pages_and_command_lines_may_record(api: Api) -> None:
    for headers in ({}, {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}):
        assert api.ask("POST", "/record", data=PROMPT, headers=headers).status_code == 303


# --- paths ---

TRAVERSALS = [
    "../../../../etc/passwd",
    "..%2f..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "..%5c..%5c..%5cetc%5cpasswd",
    "....//....//....//etc/passwd",
    "..%c0%af..%c0%afetc%c0%afpasswd",
    "%252e%252e%252f%252e%252e%252fetc%252fpasswd",
    "%2fetc%2fpasswd",
    "/etc/passwd",
    "file:///etc/passwd",
    "..%00/etc/passwd",
    "style.css%00.png",
    ".",
    "..",
    "%2e%2e",
    "trace.json",
    "{id}/trace.json",
    "{id}/../{id}/tensors.safetensors",
    "{id}%2ftrace.json",
    "..%2f..%2fcanary",
    "../../canary",
]
"""Ways to ask for a file beside those that are meant."""


@pytest.mark.slow
def test_no_path_of_a_request_reaches_the_file_system(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        id = api.record(**PROMPT).rpartition("/")[2]
        for place in (tmp_path, tmp_path / "data", tmp_path / "data" / "traces", tmp_path / "data" / "traces" / id):
            (place / "canary").write_text("the canary sings")
        record = (tmp_path / "data" / "traces" / id / "trace.json").read_text()
        asked = 0
        for methods, path in [*routes_of(api), ({"GET"}, "/static/{name}"), ({"GET"}, "/{name}")]:
            if path.endswith("/events") or "{" not in path:
                continue
            for text in TRAVERSALS:
                address = re.sub(r"\{[^}]+\}", lambda _, text=text: text.replace("{id}", id), path)  # type: ignore[misc]
                for method in methods & {"GET", "DELETE"}:
                    answer = api.ask(method, address)
                    asked += 1
                    assert answer.status_code < 500, address
                    assert "root:" not in answer.text, address
                    assert "the canary sings" not in answer.text, address
                    assert record not in answer.text, address
        assert asked > 500
        assert api.ask("GET", f"/api/traces/{id}").status_code == 200
        left = {place.name for place in (tmp_path / "data" / "traces" / id).iterdir()}
        assert {"canary", "trace.json", "tensors.safetensors"} <= left


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trace", "a", "b"])
def test_nor_does_one_in_a_query(api: Api, name: str) -> None:
    for text in TRAVERSALS:
        for path in ("/search", "/compare", "/groups/block", "/cite/sites/logits", "/api/compare"):
            answer = api.ask("GET", path, params={name: text, "q": "x", "b": text})
            assert answer.status_code < 500
            assert "root:" not in answer.text
