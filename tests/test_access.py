"""The token of a server, and a server that only shows what it has."""

import hashlib
import re
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path

import pytest
from api_client import Api, running
from html_tree import tree
from pydantic import SecretStr

from app.access import COOKIE, SESSION_SECONDS, Access
from app.routes_operation import own_path
from app.settings import Settings, load_settings
from provenance.errors import InvalidInput, LimitReached, SignInNeeded

TOKEN = "correct horse battery"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
WRONG = {"Authorization": "Bearer wrong horse battery"}


class Clock:
    """A time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def cookie(session: str) -> dict[bytes, bytes]:
    return {b"cookie": f"{COOKIE}={session}".encode()}


# --- sessions ---


def test_a_session_is_good_for_a_week() -> None:
    clock = Clock()
    access = Access(TOKEN, clock)
    session = access.sign_in(TOKEN.encode(), "a")
    assert access.signed_in(cookie(session))
    clock.now += SESSION_SECONDS - 1
    assert access.signed_in(cookie(session))
    clock.now += 1
    assert not access.signed_in(cookie(session))


def test_a_session_cannot_be_made_or_prolonged_without_the_token() -> None:
    access = Access(TOKEN)
    session = access.sign_in(TOKEN.encode(), "a")
    ends, _, proof = session.partition(".")
    forged = [f"{int(ends) + 1}.{proof}", f"{ends}.{proof[:-1]}", f"{ends}.", ends, "", ".", f"{ends}.{'0' * 64}"]
    assert not any(access.signed_in(cookie(text)) for text in forged)
    assert not access.signed_in({})
    assert not Access("another token of this length").signed_in(cookie(session))
    assert not Access(None).signed_in(cookie(session))


def test_a_session_does_not_hold_the_token_or_its_plain_hash() -> None:
    session = Access(TOKEN).sign_in(TOKEN.encode(), "a")
    assert re.fullmatch(r"\d+\.[0-9a-f]{64}", session)
    assert hashlib.sha256(TOKEN.encode()).hexdigest() not in session


def test_wrong_tokens_are_counted_for_each_client() -> None:
    clock = Clock()
    access = Access(TOKEN, monotonic=clock)
    for _ in range(10):
        with pytest.raises(SignInNeeded):
            access.sign_in(b"wrong", "a")
    with pytest.raises(LimitReached) as told:
        access.sign_in(TOKEN.encode(), "a")
    assert told.value.retry_after_seconds == 900
    assert access.sign_in(TOKEN.encode(), "b")
    clock.now += 900
    assert access.sign_in(TOKEN.encode(), "a")


def test_so_are_those_in_headers() -> None:
    access = Access(TOKEN, monotonic=Clock())
    for _ in range(10):
        with pytest.raises(SignInNeeded):
            access.check({b"authorization": b"Bearer x"}, "a")
    with pytest.raises(LimitReached):
        access.check({b"authorization": b"Bearer " + TOKEN.encode()}, "a")


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "ü" * 40])
def test_only_the_whole_token_is_the_token(token: str) -> None:
    with pytest.raises(SignInNeeded):
        Access(TOKEN).sign_in(token.encode(), "a")


def test_a_short_token_is_refused_and_no_token_is_ever_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOR_PROVENANCE_TOKEN", "tell nobody")
    with pytest.raises(InvalidInput) as told:
        load_settings()
    assert "tell nobody" not in str(told.value)
    assert "it has fewer than 12 characters" in str(told.value)
    monkeypatch.setenv("TENSOR_PROVENANCE_TOKEN", TOKEN)
    settings = load_settings()
    assert settings.token == SecretStr(TOKEN)
    assert TOKEN not in f"{settings} {settings!r} {settings.model_dump_json()}"


# --- over HTTP ---


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("access"), token=SecretStr(TOKEN)) as api:
        api.explorer.record(api.explorer.plan("kept"))
        yield api


def id_of(api: Api) -> str:
    (listed,) = api.explorer.store.list()
    return listed.id


CHANGES = [
    ("POST", "/api/traces"), ("DELETE", "/api/traces/{id}"), ("POST", "/api/traces/{id}/cancel"),
    ("POST", "/api/traces/{id}/verdict"), ("POST", "/api/uploads"), ("DELETE", "/api/uploads/{id}"),
    ("POST", "/record"), ("POST", "/traces/{id}/delete"), ("POST", "/traces/{id}/edit"),
    ("POST", "/traces/{id}/again"), ("POST", "/traces/{id}/original"), ("POST", "/traces/{id}/verify"),
    ("POST", "/traces/{id}/cancel"), ("POST", "/compare"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), CHANGES)
@pytest.mark.parametrize("headers", [{}, WRONG, {"Authorization": "Basic eDp5"}, {"Cookie": f"{COOKIE}=1.a"}])
def test_nothing_is_changed_without_the_token(api: Api, method: str, path: str, headers: dict[str, str]) -> None:
    api.app.state.access._failures._times.clear()  # this test is not about their number
    answer = api.ask(method, path.replace("{id}", id_of(api)), headers=headers)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert id_of(api)


def test_a_form_that_is_sent_without_it_leads_to_signing_in_and_back(api: Api) -> None:
    for referer, back in (
        ("http://127.0.0.1/traces?q=a#x", "/traces?q=a"),
        ("http://evil//x", "/"),
        ("http://[", "/"),
    ):
        answer = api.ask("POST", "/record", data={"prompt": "a"}, headers={"Referer": referer})
        assert answer.status_code == 401
        form = tree(answer.text).one("form", method="post", action="/login")
        assert form.one("input", name="next").attributes["value"] == back


def test_everything_is_shown_without_it(api: Api) -> None:
    id = id_of(api)
    for address in ("/", f"/traces/{id}", f"/api/traces/{id}", f"/traces/{id}/delete", "/api/sites"):
        assert api.ask("GET", address).status_code == 200


def test_a_program_records_and_deletes_with_the_token_in_a_header(api: Api) -> None:
    api.app.state.access._failures._times.clear()
    made = api.ask("POST", "/api/traces", json={"prompt": "new"}, headers=BEARER)
    assert made.status_code == 202
    assert api.wait(made.headers["Location"])["state"] == "done"
    assert api.ask("DELETE", made.headers["Location"], headers=BEARER).status_code == 204


def test_a_person_signs_in_records_and_signs_out(api: Api) -> None:
    api.app.state.access._failures._times.clear()
    page = tree(api.ask("GET", "/login?next=/traces").text)
    form = page.one("form", method="post", action="/login")
    assert form.one("input", name="token").attributes["type"] == "password"
    wrong = api.ask("POST", "/login", data={"token": "wrong", "next": "/traces"})
    assert wrong.status_code == 401
    assert "This is not the token of this server." in wrong.text
    assert "Set-Cookie" not in wrong.headers
    right = api.ask("POST", "/login", data={"token": TOKEN, "next": "/traces"})
    assert (right.status_code, right.headers["Location"]) == (303, "/traces")
    (morsel,) = SimpleCookie(right.headers["Set-Cookie"]).values()
    assert (morsel["httponly"], morsel["samesite"], morsel["path"], morsel["secure"]) == (True, "strict", "/", "")
    assert TOKEN not in right.headers["Set-Cookie"]
    session = {"Cookie": f"{COOKIE}={morsel.value}"}
    assert "You are signed in" in api.ask("GET", "/login", headers=session).text
    recorded = api.ask("POST", "/record", data={"prompt": "by form"}, headers=session)
    assert recorded.status_code == 303
    address = "/api" + recorded.headers["Location"]
    api.wait(address)
    assert api.ask("POST", recorded.headers["Location"] + "/delete", headers=session).status_code == 303
    out = api.ask("POST", "/logout", headers=session)
    assert 'tensor-provenance-session=""' in out.headers["Set-Cookie"]
    assert "Max-Age=0" in out.headers["Set-Cookie"]


def test_over_tls_the_cookie_is_for_tls_only(tmp_path: Path) -> None:
    with running(tmp_path, token=SecretStr(TOKEN), trusted_proxies=("127.0.0.1",)) as api:
        answer = api.ask("POST", "/login", data={"token": TOKEN}, headers={"X-Forwarded-Proto": "https"})
        assert "Secure" in answer.headers["Set-Cookie"]


def test_too_many_wrong_tokens_have_to_wait(tmp_path: Path) -> None:
    with running(tmp_path, token=SecretStr(TOKEN)) as api:
        answers = [api.ask("POST", "/login", data={"token": f"guess {n}"}) for n in range(11)]
        assert [answer.status_code for answer in answers] == [401] * 10 + [429]
        assert 890 < int(answers[10].headers["Retry-After"]) <= 900
        assert api.ask("DELETE", "/api/traces/abcdef", headers=BEARER).status_code == 429


def test_a_token_for_deleting_leaves_recording_to_everybody(tmp_path: Path) -> None:
    with running(tmp_path, token=SecretStr(TOKEN), token_for="deleting") as api:
        address = api.record(prompt="by anybody")
        page = address.removeprefix("/api")
        for method, path in (("DELETE", address), ("POST", f"{page}/delete"), ("POST", f"{page}/cancel")):
            assert api.ask(method, path).status_code == 401
        assert api.ask("DELETE", address, headers=BEARER).status_code == 204


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("/traces?q=a", "/traces?q=a"),
        ("//evil.example", "/"),
        ("https://evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("evil", "/"),
        ("/a\r\nSet-Cookie: x=y", "/"),
        ("", "/"),
        ("//[", "/"),
    ],
)
def test_signing_in_leads_nowhere_else(address: str, path: str) -> None:
    assert own_path(address) == path


# --- read only ---


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    directory = tmp_path_factory.mktemp("read-only")
    with running(directory) as api:
        api.record(prompt="kept", steps=1)
        api.record(prompt="kept", steps=1, edits=["h.0.ln_2.out=0"])
    with running(directory, read_only=True, example=True) as api:
        yield api


@pytest.mark.parametrize(("method", "path"), [*CHANGES, ("POST", "/login"), ("GET", "/traces/{id}/delete")])
def test_a_server_that_only_shows_refuses_every_change(shown: Api, method: str, path: str) -> None:
    id = shown.json("/api/traces")[0]["id"]
    answer = shown.ask(method, path.replace("{id}", id), headers=BEARER)
    assert answer.status_code == 403
    assert "only shows the traces that it has" in answer.text
    assert len(shown.json("/api/traces")) == 2


def test_it_shows_no_form_that_it_would_refuse(shown: Api) -> None:
    ids = [trace["id"] for trace in shown.json("/api/traces")]
    pages = ["/", "/traces", "/compare", "/sites/logits", "/models"]
    pages += [f"/traces/{id}{rest}" for id in ids for rest in ("", "/verdict", "/h.0.ln_2.out", "/lens")]
    for address in pages:
        answer = shown.ask("GET", address)
        assert answer.status_code == 200, address
        page = tree(answer.text)
        assert not [form for form in page.all("form") if form.attributes.get("method") == "post"], address
        links = {link.attributes.get("href", "") for link in page.all("a")}
        assert not [link for link in links if link.endswith(("#record", "/delete", "/login"))], address


def test_it_compares_what_it_has(shown: Api) -> None:
    a, b = (trace["id"] for trace in shown.json("/api/traces"))
    form = tree(shown.ask("GET", "/compare").text).one("form", "compare-form")
    assert form.attributes["action"] == "/compare"
    assert not form.all("input", type="file")
    assert shown.ask("GET", f"/compare?a={a}&b={b}").status_code == 200


def test_it_does_not_even_record_the_example(tmp_path: Path) -> None:
    with running(tmp_path, read_only=True, example=True) as api:
        api.explorer.record_example()
        assert api.json("/api/traces") == []


def test_the_token_is_no_option_of_the_command_line() -> None:
    assert Settings.model_fields["token"].default is None
    from typer.main import get_command

    from app.cli import commands

    serve = get_command(commands).commands["serve"]  # type: ignore[attr-defined]
    assert {option for each in serve.params for option in each.opts} >= {"--host", "--read-only"}
    assert not [each for each in serve.params if "token" in str(each.name)]
