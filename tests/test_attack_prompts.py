"""Prompts, bodies and forms that nobody sends by accident: answered, never failed, and what is stored stays."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from api_client import Api, running
from html_tree import tree

from app.cli import main

pytestmark = pytest.mark.slow

PLANES = range(17)
ODD = {
    "control": "".join(map(chr, range(32))),
    "c1 control": "".join(map(chr, range(0x7F, 0x93))),
    "bidi": "a\u202eb\u202dc\u2066d\u2067e\u2068f\u2069g\u202a\u202b\u202c\u200e\u200f\u061c",
    "zero width": "a\u200bb\u200cc\u200dd\u2060e\ufefff\u00ad",
    "combining": "e" + "\u0301\u0323\u20dd" * 9,
    "separators": "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh",
    "variation and tags": "☃\ufe0f\U000e0041\U000e007f\U000e0100",
    "family": "👩‍👩‍👧‍👦🏳️‍🌈",
    "noncharacters": "\ufffe\uffff\U0001fffe\U0010ffff\ufdd0",
    "private": "\ue000\uf8ff\U000f0000\U00100000",
    "NUL": "a\0b",
    "only NUL": "\0",
    "spaces": "\u00a0\u1680\u2003\u3000 \t\n",
    "line ends": "a\r\nb\rc\n",
}
NO_PROMPT: dict[str, tuple[bytes, tuple[int, ...]]] = {
    "lone high surrogate": (rb'{"prompt": "a\ud800b"}', (422,)),
    "lone low surrogate": (rb'{"prompt": "\udfff"}', (422,)),
    "surrogates the wrong way round": (rb'{"prompt": "\udc00\ud83d"}', (422,)),
    "surrogate in the model's name": (rb'{"prompt": "a", "model": "\ud800"}', (404, 422)),
    "surrogate in the dtype": (rb'{"prompt": "a", "dtype": "\ud800"}', (422,)),
    "surrogate in an edit": (rb'{"prompt": "a", "edits": ["\ud800=\udc00"]}', (422,)),
    "surrogate in an edited tensor's name": (rb'{"prompt": "a", "edits": ["h.0.\ud800=0"]}', (404, 422)),
    "surrogate as a key": (rb'{"prompt": "a", "\ud800": 1}', (422,)),
    "NUL in a key": (rb'{"prompt": "a", "\u0000": 1}', (422,)),
    "invalid UTF-8": (b'{"prompt": "\xff\xfe"}', (400, 422)),
    "overlong UTF-8": (b'{"prompt": "\xc0\x80"}', (400, 422)),
    "UTF-8 of a surrogate": (b'{"prompt": "\xed\xa0\x80"}', (400, 422)),
    "one megabyte of one letter": (b'{"prompt": "' + b"a" * (1 << 20) + b'"}', (413, 422)),
    "one megabyte of one character": (b'{"prompt": "' + "é".encode() * (1 << 19) + b'"}', (413, 422)),
    "a hundred thousand ids": (b'{"ids": [' + b"1," * 100_000 + b"1]}", (413, 422)),
    "deep lists": (b'{"ids": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", (400, 422)),
    "deep objects": (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, (400, 422)),
    "not closed": (b'{"prompt": "a"', (422,)),
    "empty": (b"", (422,)),
    "null": (b"null", (422,)),
    "a list": (b"[]", (422,)),
    "a text": (b'"prompt"', (422,)),
    "5,000 digits": (b'{"prompt": "a", "seed": ' + b"9" * 5000 + b"}", (400, 422)),
    "an exponent beyond floats": (b'{"prompt": "a", "temperature": 1e999}', (422,)),
    "NaN": (b'{"prompt": "a", "temperature": NaN}', (422,)),
    "minus infinity": (b'{"prompt": "a", "temperature": -Infinity}', (422,)),
    "a seed over 63 bits": (b'{"prompt": "a", "seed": 9223372036854775808}', (422,)),
    "a seed under 0": (b'{"prompt": "a", "seed": -1}', (422,)),
    "an id over 64 bits": (b'{"ids": [18446744073709551616]}', (422,)),
    "an id under 0": (b'{"ids": [-1]}', (422,)),
    "an id that is true": (b'{"ids": [true]}', (422,)),
    "an id that is a text": (b'{"ids": ["1"]}', (422,)),
    "an id with a fraction": (b'{"ids": [1.5]}', (422,)),
    "steps as a text": (b'{"prompt": "a", "steps": "3"}', (422,)),
    "too many steps": (b'{"prompt": "a", "steps": 1000000}', (422,)),
    "both": (b'{"prompt": "a", "ids": [1]}', (422,)),
    "neither": (b"{}", (422,)),
    "ten thousand edits": (b'{"prompt": "a", "edits": [' + b'"x=1",' * 10_000 + b'"x=1"]}', (422,)),
    "ten thousand keys": (
        b'{"prompt": "a"' + b"".join(b', "k%d": 1' % number for number in range(10_000)) + b"}",
        (422,),
    ),
    "UTF-16": ('{"prompt": "a"}'.encode("utf-16-be"), (202, 201, 400, 422)),
}
KINDS = (
    "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "multipart/form-data; boundary=",
    "multipart/form-data; boundary=\x7f", "application/xml", "application/json; charset=utf-7", "image/png", ";;;=",
    "application/json" * 200,
)  # fmt: skip


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    directory = tmp_path_factory.mktemp("attack")
    with running(directory, client_traces_waiting=0, client_traces_per_hour=0, queue_length=64) as api:
        yield api


@pytest.fixture(scope="module")
def stored(api: Api) -> tuple[str, Any, bytes]:
    """A trace that is there before everything else."""
    address = api.record(prompt="What is stored stays", steps=1)
    return address, api.json(address), api.ask("GET", f"{address}/tensors/h.1.mlp.h2.npy").raise_for_status().content


@pytest.fixture(autouse=True)
def _what_was_stored_stays(api: Api, stored: tuple[str, Any, bytes]) -> Iterator[None]:
    yield
    address, record, tensor = stored
    assert api.json(address) == record
    assert api.ask("GET", f"{address}/tensors/h.1.mlp.h2.npy").raise_for_status().content == tensor


def answered(answer: httpx.Response, *statuses: int) -> httpx.Response:
    """An answer that is none of a failure: a problem in JSON, or a page."""
    assert answer.status_code < 500, answer.text[:2000]
    assert not statuses or answer.status_code in statuses, (answer.status_code, answer.text[:2000])
    assert "Traceback" not in answer.text
    if answer.headers.get("content-type", "").startswith("text/html"):
        tree(answer.text)
    return answer


def recorded(api: Api, text: str) -> None:
    """A text goes in through the API and the form, gives one trace, and is shown by its pages."""
    answer = answered(api.ask("POST", "/api/traces", json={"prompt": text}), 201, 202, 422)
    if answer.status_code == 422:
        assert "context holds" in answer.json()["detail"]
        return
    address = answer.headers["Location"]
    assert api.wait(address)["state"] == "done"
    assert api.json(address)["prompt"] == text
    for page in (address.removeprefix("/api"), f"{address.removeprefix('/api')}/h.0.attn.pattern", "/traces"):
        answered(api.ask("GET", page), 200)
    typed = answered(api.ask("POST", "/record", data={"prompt": text, "steps": "0", "seed": "0"}), 303)
    # A form's line ends are two characters.
    if "\r\n" not in text:
        assert typed.headers["Location"] == address.removeprefix("/api")
    answered(api.ask("DELETE", address), 204)


@pytest.mark.parametrize("plane", PLANES)
def test_characters_of_every_plane_are_recorded_and_shown(api: Api, plane: int) -> None:
    draw = Random(plane)
    codes = [draw.randrange(plane << 16, (plane + 1) << 16) for _ in range(15)]
    recorded(api, "".join(chr(code) for code in codes if not 0xD800 <= code <= 0xDFFF))


@pytest.mark.parametrize("kind", ODD)
def test_odd_characters_are_recorded_and_shown(api: Api, kind: str) -> None:
    recorded(api, ODD[kind])


@pytest.mark.parametrize("kind", NO_PROMPT)
def test_a_body_that_is_no_prompt_is_refused(api: Api, kind: str) -> None:
    body, statuses = NO_PROMPT[kind]
    answer = api.ask("POST", "/api/traces", content=body, headers={"Content-Type": "application/json"})
    answered(answer, *statuses)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert len(answer.content) < 5000


def test_of_two_equal_keys_the_last_one_counts(api: Api) -> None:
    body = b'{"prompt": "first", "prompt": "second"}'
    answer = api.ask("POST", "/api/traces", content=body, headers={"Content-Type": "application/json"})
    assert answered(answer, 202).json()["prompt"] == "second"


@pytest.mark.parametrize("path", ["/api/traces", "/api/uploads", "/record", "/compare"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_content_type_is_refused(api: Api, path: str, kind: str) -> None:
    headers = {"Content-Type": kind} if kind else {}
    for body in (b'{"prompt": "a"}', b"\xff\0--\r\n\r\n", b""):
        answer = answered(api.ask("POST", path, content=body, headers=headers))
        assert answer.status_code >= 400 or (path, kind[:16]) == ("/api/traces", "application/json")


FORMS = (
    b"prompt=%ff%fe&steps=0", b"prompt=\xff\xfe", b"prompt=%", b"prompt=%zz&steps=%", b"prompt=%00",
    b"prompt=%ed%a0%80",
    b"&&&&====", b"prompt", b"steps=1e3&prompt=a", b"steps=-1&prompt=a", b"prompt=a&steps=" + b"9" * 5000,
    "prompt=a&steps=٣".encode(), "prompt=a&steps=²".encode(), b"prompt=a&temperature=nan",
    b"prompt=a&temperature=1e999",
    b"prompt=a&seed=9223372036854775808", b"prompt=a&seed=999999999999999999", b"prompt=a&ids=1,2,%00",
    b"prompt=a&ids=" + b"1," * 5000, b"ids=" + b"9" * 4000, b"prompt=" + b"a" * (1 << 20),
    b"prompt=a&model=%ed%a0%80",
    b"prompt=a&model=../../etc/passwd", b"prompt=a&dtype=%00", b"prompt=a&prompt=b", b"a=1&" * 2000,
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(FORMS)))
def test_a_form_that_no_browser_sends_is_answered_with_a_page(api: Api, number: int) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = answered(api.ask("POST", "/record", content=FORMS[number], headers=kind))
    assert answer.status_code in (303, 400, 413, 422)


PART = b'--x\r\nContent-Disposition: form-data; name="file"'
END = b"\r\n\r\na\r\n--x--\r\n"
MULTIPART = {
    "no end": PART + b'; filename="a.npz"\r\n\r\nPK',
    "no name": b"--x\r\nContent-Disposition: form-data" + END,
    "no header": b"--x" + END,
    "bytes in a name": PART + b'; filename="\xff\xfe\0.npz"' + END,
    "a path as a name": PART + b'; filename="../../../etc/passwd"' + END,
    "surrogates in a name": PART + b'; filename="\xed\xa0\x80"' + END,
    "a long name": PART + b'; filename="' + b"a" * 60_000 + b'"' + END,
    "a charset": b'--x\r\nContent-Disposition: form-data; name="_charset_"\r\n\r\nutf-7\r\n--x--\r\n',
    "unknown charset": PART + b"\r\nContent-Type: text/plain; charset=no-such" + END,
    "many fields": (PART + END[:-6]) * 2000 + b"--x--\r\n",
}


# The parser of forms leaves a part that does not end to the collector of garbage, which complains.
@pytest.mark.filterwarnings("ignore:Unclosed file", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("path", ["/api/uploads", "/compare", "/record"])
@pytest.mark.parametrize("kind", MULTIPART)
def test_a_broken_multipart_body_is_refused(api: Api, path: str, kind: str) -> None:
    for boundary in ("x", "x; charset=no-such", 'x"; charset="utf-16'):
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        answered(api.ask("POST", path, content=MULTIPART[kind], headers=headers), 400, 413, 422)


QUERIES = (
    "%00",
    "%ff",
    "%ed%a0%80",
    "٣",
    "²",
    "-1",
    "1e3",
    "9" * 400,
    "0x1",
    "1_000",
    " 1",
    "%0d%0aX: y",
    "'",
    "{{7*7}}",
)


@pytest.mark.parametrize("value", QUERIES)
def test_odd_parameters_of_pages_and_the_api_are_answered(
    api: Api, stored: tuple[str, Any, bytes], value: str
) -> None:
    page = stored[0].removeprefix("/api")
    written = value if "%" in value else quote(value)
    for path, names in (
        (page, ("step", "position")),
        (f"{page}/h.0.attn.pattern", ("step", "head", "row", "view", "scale", "rows", "columns", "at")),
        (f"{page}/lens", ("step", "position", "stage")),
        (f"{page}/attribution", ("step", "position", "token", "against")),
        (f"{page}/edit", ("at",)),
        ("/search", ("q", "trace", "layer", "step")),
        ("/traces", ("q", "model", "sort", "page")),
        ("/compare", ("a", "b", "tolerance", "how", "at", "show", "step")),
        ("/sources/drift", ("release",)),
        ("/map", ("trace", "layer", "step", "site")),
        (f"{stored[0]}/tensors/logits", ("step",)),
        (f"{stored[0]}/tensors/logits/slice", ("index", "step")),
        (f"{stored[0]}/next", ("step", "position", "top")),
        (f"{stored[0]}/export.npz", ("tensors", "parameters")),
        ("/api/search", ("q",)),
        ("/api/compare", ("a", "b", "tolerance", "how")),
    ):
        for name in names:
            answered(api.ask("GET", f"{path}?{name}={written}"))
        answered(api.ask("GET", f"{path}?" + "&".join(f"{name}={written}" for name in names * 2)))


@pytest.mark.parametrize(
    "value", ["%00", "%ff", "%ed%a0%80", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "a" * 5000, "(" * 400, "~", "%0d%0a"]
)
def test_odd_parts_of_addresses_are_answered(api: Api, stored: tuple[str, Any, bytes], value: str) -> None:
    page = stored[0].removeprefix("/api")
    for path in (
        f"/{value}", f"/sites/{value}", f"/groups/{value}", f"/map/{value}", f"/traces/{value}", f"{page}/{value}",
        f"{page}/{value}/heatmap.png", f"{page}/{value}/proof", f"/cite/sites/{value}",
        f"/cite/sites/h.ln_1.out/{value}",
        f"/cite/traces/{value}", f"/sources/{value}/{value}/{value}", f"/models/{value}", f"/static/{value}",
        f"/traces/{value}/delete", f"/traces/{value}/events", f"/traces/{value}/edit", f"{page}/norms/{value}",
        f"/api/sites/{value}", f"/api/sites/{value}/citations", f"/api/traces/{value}", f"/api/models/{value}",
        f"/api/uploads/{value}", f"{stored[0]}/tensors/{value}", f"{stored[0]}/tensors/{value}.npy",
        f"{stored[0]}/tensors/{value}.csv", f"{stored[0]}/tensors/{value}/slice?index=0",
    ):  # fmt: skip
        answer = answered(api.ask("GET", path))
        assert answer.status_code != 200 or value in ("~", "%0d%0a") or "logits" in path, path
    for path in (
        f"/traces/{value}/cancel",
        f"/traces/{value}/delete",
        f"/traces/{value}/verify",
        f"/traces/{value}/again",
    ):
        answered(api.ask("POST", path))
    for path in (f"/api/traces/{value}", f"/api/uploads/{value}"):
        answered(api.ask("DELETE", path))


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for key in [key for key in os.environ if key.startswith("TENSOR_PROVENANCE_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("TENSOR_PROVENANCE_DATA_DIRECTORY", str(tmp_path / "data"))
    monkeypatch.setenv("TENSOR_PROVENANCE_CACHE_DIRECTORY", str(tmp_path / "cache"))
    monkeypatch.setenv("TENSOR_PROVENANCE_MODEL", "tiny-untrained")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code and output of the command line, which ends without a traceback."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    out, err = capsys.readouterr()
    assert stopped.value.code in (0, 1, 2)
    assert "Traceback" not in out + err
    return int(stopped.value.code), out, err


@pytest.mark.parametrize("kind", ODD)
def test_the_command_line_records_odd_characters(shell: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    code, out, err = run(capsys, "record", ODD[kind], "--steps", "0", "--json")
    if code == 0:
        assert json.loads(out)["prompt"] == ODD[kind]
    else:
        assert "context holds" in err
    out += run(capsys, "traces", "list")[1] + run(capsys, "record", ODD[kind], "--steps", "0")[1]
    # Nothing that a terminal would obey, and nothing that turns the text around it.
    assert not any(letter in out for letter in "\x1b\x07\x08\u202e\u2066\u009b")


def test_the_command_line_refuses_what_is_no_prompt(shell: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("\udcff", "a\ud800", "a" * (1 << 20), ""):
        code, out, _ = run(capsys, "record", text, "--steps", "0")
        assert (code, out) == (2, "")
    for arguments in (
        ("record", "a", "--steps", "9" * 400), ("record", "a", "--model", "\0"), ("record", "--ids", "1,\0"),
        ("record", "a", "--model", "../../../etc/passwd"), ("show", "\udcff"), ("show", "(" * 500), ("show", "\0"),
        ("traces", "delete", "\0"), ("cite", "\udcff"), ("compare", "\0", "\udcff"), ("record", "a", "--set",
        "\udcff=1"),
    ):  # fmt: skip
        code, out, _ = run(capsys, *arguments)
        assert (code, out) == (2, ""), arguments
    assert list((shell / "data").rglob(".partial-*")) == []
