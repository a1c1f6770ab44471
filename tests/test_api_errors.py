"""The API and what cannot be: each bad request is told in a sentence, and none is answered with 500."""

import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest
from api_client import FOX, Api, running
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from app.schemas import TraceRequest
from provenance.errors import Unavailable

pytestmark = pytest.mark.slow

JSON = {"content-type": "application/json"}
ODD = (
    "",
    "%20",
    "%00",
    "%0A",
    "..",
    "%2E%2E%2F%2E%2E%2Fetc%2Fpasswd",
    "é" * 3,
    "🦊",
    "%FF%FE",
    "%ED%A0%80",
    "x" * 5000,
    "(" * 200,
    "-1",
    "1e999",
    "<script>",
    "h.0.ln_1.out@99999999999999999999",
    "h.00.ln_1.out",
    "{layer}",
    "'",
    "%",
)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("errors"), steps_limit=5, prompt_limit_bytes=1000) as api:
        yield api


@pytest.fixture(scope="module")
def trace(api: Api) -> str:
    """The address of the fox with one decode step."""
    return api.record(prompt=FOX, steps=1)


@pytest.fixture
def corrupt(api: Api, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a trace one of whose files was spoilt; it is removed at the end."""
    address = api.record(prompt="It will be spoilt")
    folder = api.explorer.store.directory / address.rsplit("/", 1)[1]
    request.param(folder)
    yield address
    assert api.ask("DELETE", address).status_code == 204


# --- recording ---


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"prompt": ""}, "The prompt is empty."),
        ({"ids": []}, "The prompt is empty."),
        ({}, "Give either a prompt, or ids, or a length."),
        ({"prompt": "a", "ids": [1]}, "Give either a prompt, or ids, or a length."),
        ({"prompt": "a " * 70}, "The prompt has 71 tokens; with 0 decode steps that makes 71, "),
        ({"prompt": "a " * 61, "steps": 5}, "with 5 decode steps that makes 67, and this model's context holds 64."),
        ({"prompt": "a" * 1001}, "The prompt is longer than the 1000 bytes allowed here."),
        ({"prompt": "é" * 501}, "The prompt is longer than the 1000 bytes allowed here."),
        ({"prompt": "a", "steps": 6}, "6 decode steps are more than the 5 allowed here."),
        ({"prompt": "a", "steps": -1}, "steps: Input should be greater than or equal to 0."),
        ({"prompt": "a", "steps": 1.5}, "steps: Input should be a valid integer"),
        ({"prompt": "a", "dtype": "float16"}, "Choose float32 or bfloat16; in float16 the mask"),
        ({"prompt": "a", "dtype": "int8"}, "This model does not compute in 'int8'."),
        ({"prompt": "a", "temperature": -0.1}, "temperature: Input should be greater than or equal to 0."),
        ({"prompt": "a", "seed": 2**63}, "seed: Input should be less than"),
        ({"prompt": "a", "colour": "red"}, "colour: Extra inputs are not permitted."),
        ({"ids": [50257]}, "There is no token 50257: the vocabulary has 50257 tokens."),
        ({"ids": [-1]}, "There is no token -1"),
        ({"ids": [10**30]}, "the vocabulary has 50257 tokens."),
        ({"ids": ["a"]}, "ids.0: Input should be a valid integer"),
        ([1], "The request's body: Input should be a valid"),
    ],
    ids=lambda value: json.dumps(value)[:40] if not isinstance(value, str) else "",
)
def test_what_cannot_be_recorded_is_refused_with_the_reason(api: Api, wanted: object, said: str) -> None:
    detail = api.problem("POST", "/api/traces", 422, json=wanted)["detail"]
    assert said in detail
    assert len(detail) < 300


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b'{"prompt": ', 422, "The request's body is not JSON (character 11: Expecting value)."),
        (b"prompt=a", 422, "The request's body is not JSON (character 0: Expecting value)."),
        (b"", 422, "The request's body: Field required."),
        (b'{"prompt": "a", "temperature": NaN}', 422, "temperature: Input should be a finite number."),
        (b'{"prompt": "a", "temperature": 1e999}', 422, "temperature: Input should be"),
        (b'{"prompt": "\\ud800"}', 422, "half of a surrogate pair (U+D800)"),
        (b"[" * 100_000, 400, "The request's body cannot be read."),
        (b'{"steps": ' + b"9" * 5000 + b"}", 400, "The request's body cannot be read."),
        (b'{"prompt": "\xff"}', 400, "The request's body cannot be read."),
    ],
    ids=range(9),
)
def test_a_body_that_is_no_request_is_refused(api: Api, body: bytes, status: int, said: str) -> None:
    assert said in api.problem("POST", "/api/traces", status, content=body, headers=JSON)["detail"]


def test_an_unknown_model_is_refused_with_those_that_are_here(api: Api) -> None:
    problem = api.problem("POST", "/api/traces", 404, json={"prompt": "a", "model": "gpt9"})
    here = "demo, gpt2-untrained, tiny-untrained, textbook, textbook-pre-causal"
    assert problem["detail"] == f"There is no model named 'gpt9' here. Here are: {here}."


def test_a_full_queue_asks_to_come_back(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(recipe: object, client: str) -> None:
        raise Unavailable("16 recordings are waiting already.", hint="Try again in a little while.")

    monkeypatch.setattr(api.explorer.jobs, "submit", full)
    problem = api.problem("POST", "/api/traces", 503, json={"prompt": "Nobody has time for this"})
    assert problem["detail"] == "16 recordings are waiting already. Try again in a little while."


def test_a_method_that_an_address_lacks_is_refused_with_those_it_has(api: Api) -> None:
    assert api.problem("PUT", "/api/traces", 405)["detail"] == "This address does not take that method."
    assert set(api.ask("PUT", "/healthz").headers["Allow"].split(", ")) == {"GET"}


# --- names, traces, places ---


def test_an_ambiguous_name_lists_its_candidates_with_their_lines(api: Api) -> None:
    problem = api.problem("GET", "/api/sites/x", 422)
    assert "'x' names" in problem["detail"]
    sites = [candidate.split("  ")[0] for candidate in problem["candidates"]]
    assert {"h.ln_1.out", "h.ln_2.out"} <= set(sites)
    assert all(re.search(r"\(line \d+ in \w+", candidate) for candidate in problem["candidates"])


def test_an_unknown_site_has_near_matches(api: Api) -> None:
    problem = api.problem("GET", "/api/sites/h.ln1.out", 404)
    assert problem["near"][0] == "h.ln_1.out"
    assert problem["detail"].startswith("There is no tensor named 'h.ln1.out'. Did you mean h.ln_1.out")


@pytest.mark.parametrize("id", ["0" * 32, "abcdef", "abc", "latest", "F" * 32, "%00", ".partial-x"])
@pytest.mark.parametrize("rest", ["", "/verdict", "/citation", "/tensors/wte", "/tensors/wte.npy"])
def test_an_unknown_trace_is_refused(api: Api, id: str, rest: str) -> None:
    assert api.problem("GET", f"/api/traces/{id}{rest}", 404)["detail"].startswith("There is no trace '")


@pytest.mark.parametrize("ending", ["", ".npy"])
@pytest.mark.parametrize(
    ("place", "status", "said"),
    [
        ("h.0.ln_1.out{}?step=2", 404, "has no step 2. It has steps 0 (prefill) to 1."),
        ("h.0.ln_1.out@2{}", 404, "has no step 2."),
        ("h.2.ln_1.out{}", 404, "has no layer 2. Its model has layers 0 to 1."),
        ("h.0.attn.pk{}", 404, "it exists in decode steps only. Ask for step 1."),
        ("h.ln_1.out{}", 422, "'h.ln_1.out' exists once in every layer."),
        ("h.0.ln_1.out@1{}?step=0", 422, "names step 1, and the query asks for step 0."),
        ("h.0.ln_1.out@0{}?step=1", 422, "names step 0, and the query asks for step 1."),
        ("h.0.ln_1.out{}?step=-1", 422, "step: Input should be greater than or equal to 0."),
        ("h.0.ln_1.out{}?step=one", 422, "step: Input should be a valid integer"),
        ("nothing{}", 404, "There is no tensor named 'nothing'."),
        ("x{}", 422, "'x' names"),
    ],
)
def test_a_tensor_that_the_trace_lacks_is_refused(
    api: Api, trace: str, ending: str, place: str, status: int, said: str
) -> None:
    assert said in api.problem("GET", f"{trace}/tensors/{place.format(ending)}", status)["detail"]


# --- traces that went bad on the disk ---


def _shorten(folder: Path) -> None:
    file = folder / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def _flip(folder: Path) -> None:
    file = folder / "tensors.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def _lose(folder: Path) -> None:
    (folder / "tensors.safetensors").unlink()


def _scribble(folder: Path) -> None:
    (folder / "trace.json").write_bytes(b"\xff{not JSON")


def _empty(folder: Path) -> None:
    (folder / "trace.json").write_text("{}")


SPOILERS = [_shorten, _flip, _lose, _scribble, _empty]


@pytest.mark.parametrize("corrupt", SPOILERS, indirect=True, ids=lambda spoiler: spoiler.__name__)
def test_a_corrupt_trace_is_told_and_takes_nothing_with_it(api: Api, trace: str, corrupt: str) -> None:
    for rest in ("", "/verdict", "/citation", "/tensors/wte", "/tensors/h.0.resid_post.npy"):
        problem = api.problem("GET", corrupt + rest, 410)
        assert corrupt.rsplit("/", 1)[1] in problem["detail"]
    api.problem("POST", f"{corrupt}/verdict", 410)
    listed = {f"/api/traces/{out['id']}": out["state"] for out in api.json("/api/traces")}
    assert listed[trace] == "done"
    assert corrupt in listed
    for page in ("", "/wte", "/h.0.ln_1.out?step=1"):
        answer = api.ask("GET", corrupt.removeprefix("/api") + page)
        assert (answer.status_code, "Traceback" in answer.text) == (410, False)
        assert answer.headers["content-type"].startswith("text/html")
    assert api.ask("GET", "/").status_code == 200
    assert api.ask("GET", f"{trace}/tensors/wte").status_code == 200


@pytest.mark.parametrize("corrupt", SPOILERS, indirect=True, ids=lambda spoiler: spoiler.__name__)
def test_recording_again_mends_a_corrupt_trace(api: Api, corrupt: str) -> None:
    assert api.record(prompt="It will be spoilt") == corrupt
    assert api.json(f"{corrupt}/tensors/h.0.resid_post")["shape"][0] == 1


# --- the whole surface ---


def api_routes(routes: list[BaseRoute]) -> Iterator[APIRoute]:
    """Every route, of routers in routers too."""
    for route in routes:
        inner = getattr(route, "original_router", None) or getattr(route, "routes", None)
        if isinstance(route, APIRoute):
            yield route
        elif inner is not None:
            yield from api_routes(getattr(inner, "routes", inner))


def test_the_openapi_document_names_every_route_and_its_problems(api: Api) -> None:
    document = api.json("/api/openapi.json")
    assert document["openapi"].startswith("3.1")
    documented = {(m.upper(), path) for path, methods in document["paths"].items() for m in methods}
    routes = [route for route in api_routes(api.app.routes) if route.include_in_schema]
    assert {(method, route.path_format) for route in routes for method in route.methods or ()} == documented
    assert ("GET", "/api/traces/{id}/tensors/{address}.npy") in documented
    assert len(documented) >= 13
    text = json.dumps(document)
    references = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert "Problem" in references
    assert references <= set(document["components"]["schemas"])
    assert "ValidationError" not in text
    for method, path in documented:
        for status, answer in document["paths"][path][method.lower()]["responses"].items():
            if int(status) >= 400:
                assert list(answer["content"]) == ["application/problem+json"], path
    request = document["components"]["schemas"]["TraceRequest"]
    assert set(request["properties"]) == set(TraceRequest.model_fields)


def test_no_address_is_answered_with_a_500(api: Api, trace: str) -> None:
    id = trace.rsplit("/", 1)[1]
    paths = {route.path_format for route in api_routes(api.app.routes) if "GET" in (route.methods or ())}
    assert {"/api/sites/{site}", "/traces/{id}/{address}", "/sources/{owner}/{repository}/{path}"} <= paths
    asked = 0
    for path in sorted(paths):
        names = re.findall(r"\{(\w+)\}", path)
        choices: list[tuple[str, ...]] = [(id, *ODD) if name == "id" else ODD for name in names]
        for values in product(*choices) if len(names) < 2 else _some(choices):
            address = path.format(**{n: quote(v, safe="%/@'(){}") for n, v in zip(names, values, strict=True)})
            for query in ("", "?step=%00&q=%FF&trace=%00&layer=🦊&head=-1&release=../.."):
                answer = api.ask("GET", address + query)
                assert answer.status_code < 500, (address[:200], query, answer.text[:500])
                asked += 1
    assert asked > 200


def _some(choices: list[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Each odd value in each place, the others being alike or the first."""
    for odd in ODD:
        yield tuple(odd for _ in choices)
        for place in range(len(choices)):
            yield tuple(odd if n == place else each[0] or "wte" for n, each in enumerate(choices))
