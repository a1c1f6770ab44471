"""Direct logit attribution, against NumPy written here and against runs without a head."""

import dataclasses
import json
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from api_client import FOX, Api, running
from conftest import PROMPT_IDS, TINY, prompt_of, recorded, tiny_model_of
from html_tree import Node, tree, words
from numpy.typing import NDArray

from app.cli import main
from provenance.attribution import Attribution, Term, attribute
from provenance.edits import parse_edit
from provenance.errors import InvalidInput, OutOfRange, UnknownModel
from provenance.gpt2.model import GPT2
from provenance.gpt2.training.evaluate import load
from provenance.lens import Position, position_of
from provenance.names import Address
from provenance.prompt import Tokenizer
from provenance.recorder import Replayer, plan, record
from provenance.store import TraceStore
from provenance.trace import Trace

Array = NDArray[np.float64]
UNTIED = dataclasses.replace(TINY, tied=False)
LAST_PROMPT = len(PROMPT_IDS) - 1


def attributed(
    model: GPT2, trace: Trace, number: int, token: int | None = None, against: int | None = None
) -> Attribution:
    replayer = Replayer()
    at = position_of(trace, number=number)
    return attribute(model, trace, at, token, lambda address: replayer.tensor(model, trace, address), against)


def wide(tensor: torch.Tensor) -> Array:
    return tensor.double().numpy()


def read(model: GPT2, trace: Trace, place: str, number: int) -> Array:
    """One position's row of a tensor."""
    at, address = position_of(trace, number=number), Address.parse(place)
    return wide(Replayer().tensor(model, trace, Address(address.site, address.layer, at.step))[0, at.index])


def value(found: Attribution, layer: int | None, kind: str, head: int | None = None) -> float:
    (term,) = [t for t in found.terms if (t.layer, t.kind, t.head) == (layer, kind, head)]
    return term.value


@pytest.fixture(scope="module", params=["tied", "untied"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[GPT2, Trace]:
    model = tiny_model_of(TINY if request.param == "tied" else UNTIED, seed=6, name=request.param)
    return model, recorded(model, TraceStore(tmp_path_factory.mktemp("attribution")))


# --- the sum ---


@pytest.mark.parametrize("number", [0, LAST_PROMPT, LAST_PROMPT + 2])
@pytest.mark.parametrize("token", [None, 13])
def test_the_terms_sum_to_the_recorded_logit(made: tuple[GPT2, Trace], number: int, token: int | None) -> None:
    model, trace = made
    found = attributed(model, trace, number, token)
    logits = read(model, trace, "logits", number)
    assert found.token == (int(logits.argmax()) if token is None else token)
    assert found.recorded == logits[found.token]
    assert found.holds
    assert abs(found.remainder) < 5e-6 < found.tolerance
    assert found.total == pytest.approx(found.offset + sum(term.value for term in found.terms), abs=1e-12)


def test_there_is_a_term_for_every_head_mlp_bias_and_embedding(made: tuple[GPT2, Trace]) -> None:
    found = attributed(*made, LAST_PROMPT)
    per_layer = [*(("attention heads", head) for head in range(TINY.n_head)), ("attention bias", None), ("MLP", None)]
    assert [(term.layer, term.kind, term.head) for term in found.terms] == [
        (None, "token embedding", None), (None, "position embedding", None),
        *((layer, *each) for layer in range(TINY.n_layer) for each in per_layer),
    ]  # fmt: skip
    assert sum(found.by_kind.values()) + found.offset == pytest.approx(found.total, abs=1e-12)
    assert sum(found.by_layer.values()) + found.offset == pytest.approx(found.total, abs=1e-12)
    assert found.by_layer[1] == pytest.approx(sum(t.value for t in found.terms if t.layer == 1), abs=1e-12)


def test_the_terms_of_a_trace_in_half_precision_sum_up_too(tmp_path: Path) -> None:
    model = tiny_model_of(dtype="bfloat16", name="half")
    found = attributed(model, recorded(model, TraceStore(tmp_path)), LAST_PROMPT)
    assert found.holds
    assert 1e-4 < abs(found.remainder) < found.tolerance


def test_a_stream_that_is_not_the_sum_of_its_writes_is_told_with_its_place(
    tiny_model: GPT2, tiny_trace: Trace
) -> None:
    replayer = Replayer()

    def tensor(address: Address) -> torch.Tensor:
        found = replayer.tensor(tiny_model, tiny_trace, address).clone()
        if address == Address("h.mlp.h2", 1):
            found[0, LAST_PROMPT, 7] += 1.0
        return found

    changed = attribute(tiny_model, tiny_trace, position_of(tiny_trace), 13, tensor)
    term = np.eye(TINY.n_embd)[7]
    added = by_hand(tiny_model, tiny_trace, LAST_PROMPT, term, 13)
    assert abs(added) > 100 * changed.tolerance
    assert not changed.holds
    assert changed.remainder == pytest.approx(-added, abs=5e-6)
    assert [round(stage.unexplained, 5) for stage in changed.stages] == [0, 0, round(-added, 5), 0]


@pytest.mark.slow
def test_in_the_demo_model_the_heads_of_layer_1_write_what_is_repeated(tmp_path: Path) -> None:
    model = load()
    ids = (
        Tokenizer.load().encode("The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the").ids
    )
    trace = recorded(model, TraceStore(tmp_path), ids=ids, steps=2)
    for number in (len(ids) - 1, len(ids)):  # “ lazy” in the prefill, “ dog” in a decode step
        found = attributed(model, trace, number)
        assert found.holds and abs(found.remainder) < 1e-4
        heads = dict.fromkeys(range(model.layers), 0.0)
        for term in found.terms:
            if term.head is not None and term.layer is not None:
                heads[term.layer] += term.value
        assert heads[1] > 5 > 2 * max(heads[layer] for layer in heads if layer != 1)


def test_what_an_edit_puts_into_the_stream_is_a_term_of_its_own(tmp_path: Path) -> None:
    model = tiny_model_of(seed=6)
    edit = parse_edit(model.catalogue, model.layers, 0, "h.1.attn.out=0", str)
    recipe = plan(model, prompt_of(), steps=0, threads=1, edits=[edit])
    chosen, tensors = record(model, recipe)
    trace = TraceStore(tmp_path).save(recipe, prompt_of(chosen).tokens, tensors)
    found = attributed(model, trace, LAST_PROMPT, 13)
    (put,) = [term for term in found.terms if term.writer == "edit"]
    attention = sum(term.value for term in found.terms if term.write == "h.1.attn.out")
    assert abs(attention) > 100 * found.tolerance
    assert (put.layer, put.place) == (1, "h.1.resid_post")
    assert put.value == pytest.approx(-attention, abs=2e-6)
    assert found.holds


# --- single terms ---


def by_hand(model: GPT2, trace: Trace, number: int, term: Array, token: int) -> float:
    """A term through the last LayerNorm with the trace's scale, written anew, as the issue has it."""
    scale = 1 / np.sqrt(read(model, trace, "ln_f.s", number)[0] + TINY.epsilon)
    output = wide(model.weights["wte" if "lm_head.w" not in model.weights else "lm_head.w"])
    normed = (term - term.mean()) * scale * wide(model.weights["ln_f.g"])
    return float(normed @ output[token])


@pytest.mark.parametrize("number", [LAST_PROMPT, LAST_PROMPT + 1])
def test_a_heads_term_is_numpys_from_raw_weights(made: tuple[GPT2, Trace], number: int) -> None:
    model, trace = made
    found = attributed(model, trace, number, 13)
    width = TINY.head_dim
    for layer, head in ((0, 0), (1, 2), (2, 1)):
        rows = wide(model.weights[f"h.{layer}.attn.c_proj.w"])[0, head * width : (head + 1) * width]
        at = position_of(trace, number=number)
        context = Replayer().tensor(model, trace, Address("h.attn.context", layer, at.step))[0, head, at.index]
        expected = by_hand(model, trace, number, wide(context) @ rows, 13)
        assert value(found, layer, "attention heads", head) == pytest.approx(expected, abs=1e-10)


def test_heads_and_bias_are_the_attentions_output_and_the_rest_is_read_as_recorded(
    made: tuple[GPT2, Trace],
) -> None:
    model, trace = made
    found = attributed(model, trace, LAST_PROMPT, 13)
    for layer in range(TINY.n_layer):
        parts = sum(t.value for t in found.terms if t.write == f"h.{layer}.attn.out")
        whole = by_hand(model, trace, LAST_PROMPT, read(model, trace, f"h.{layer}.attn.out", LAST_PROMPT), 13)
        assert parts == pytest.approx(whole, abs=2e-6)
        mlp = by_hand(model, trace, LAST_PROMPT, read(model, trace, f"h.{layer}.mlp.h2", LAST_PROMPT), 13)
        assert value(found, layer, "MLP") == pytest.approx(mlp, abs=1e-10)
    row = read(model, trace, "embed.tokens", LAST_PROMPT)
    assert np.array_equal(row, wide(model.weights["wte"])[PROMPT_IDS[-1]])
    assert value(found, None, "token embedding") == pytest.approx(
        by_hand(model, trace, LAST_PROMPT, row, 13), abs=1e-10
    )


def test_without_a_head_and_with_the_scale_frozen_the_logit_lacks_exactly_its_term(made: tuple[GPT2, Trace]) -> None:
    model, trace = made
    found = attributed(model, trace, LAST_PROMPT, 13)
    last = TINY.n_layer - 1  # nothing but its own block's MLP reads it, which is kept as it was
    width, head = TINY.head_dim, 1
    merged = read(model, trace, f"h.{last}.attn.merged", LAST_PROMPT)
    merged[head * width : (head + 1) * width] = 0
    projected = wide(model.weights[f"h.{last}.attn.c_proj.w"])[0]
    before = read(model, trace, f"h.{last - 1}.resid_post", LAST_PROMPT)
    stream = before + merged @ projected + wide(model.weights[f"h.{last}.attn.c_proj.b"])
    stream += read(model, trace, f"h.{last}.mlp.h2", LAST_PROMPT)
    output = wide(model.weights["lm_head.w" if "lm_head.w" in model.weights else "wte"])[13]
    without = by_hand(model, trace, LAST_PROMPT, stream, 13) + wide(model.weights["ln_f.b"]) @ output
    assert found.recorded - without == pytest.approx(value(found, last, "attention heads", head), abs=2e-6)


def test_the_sum_up_to_a_stage_is_its_stream_with_the_final_scale(made: tuple[GPT2, Trace]) -> None:
    model, trace = made
    found = attributed(model, trace, LAST_PROMPT, 13)
    assert [stage.place for stage in found.stages] == list(model.residuals)
    for stage in found.stages:
        stream = read(model, trace, stage.place, LAST_PROMPT)
        assert stage.value == pytest.approx(by_hand(model, trace, LAST_PROMPT, stream, 13) + found.offset, abs=1e-10)
        assert abs(stage.unexplained) < 1e-6
    assert found.stages[-1].value == pytest.approx(found.recorded, abs=found.tolerance)


# --- a lead ---


def test_a_lead_is_the_difference_of_two_attributions(made: tuple[GPT2, Trace]) -> None:
    model, trace = made
    lead = attributed(model, trace, LAST_PROMPT, 13, against=40)
    one, other = (attributed(model, trace, LAST_PROMPT, token) for token in (13, 40))
    assert lead.recorded == one.recorded - other.recorded
    assert [term.value for term in lead.terms] == pytest.approx(
        [a.value - b.value for a, b in zip(one.terms, other.terms, strict=True)], abs=1e-12
    )
    assert lead.offset == pytest.approx(one.offset - other.offset, abs=1e-12)
    assert lead.holds and lead.tokens == (13, 40)


def test_the_largest_terms_come_first() -> None:
    terms = tuple(Term("MLP", "h.0.mlp.h2", "h.0.mlp.h2", 0, value) for value in (0.5, -3.0, 2.0))
    found = Attribution(Position(0, 0, 0), 0, None, terms, 0.0, (), -0.5, 1e-9, "ln_f.s", "ln_f.b")
    assert [term.value for term in found.largest(2)] == [-3.0, 2.0]
    assert (found.total, found.remainder, found.holds) == (-0.5, 0.0, True)


# --- what cannot be asked for ---


@pytest.mark.parametrize(
    ("token", "against", "kind", "says"),
    [
        (TINY.n_vocab, None, OutOfRange, "The vocabulary has no token 97. Its ids are 0 to 96."),
        (1, -1, OutOfRange, "no token -1"),
        (5, 5, InvalidInput, "Token 5 has no lead over itself"),
    ],
)
def test_tokens_that_cannot_be_attributed_are_refused(
    tiny_model: GPT2, tiny_trace: Trace, token: int, against: int | None, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=re.escape(says)):
        attributed(tiny_model, tiny_trace, 0, token, against)


def test_a_model_that_gives_nan_has_no_attribution(tmp_path: Path) -> None:
    model = tiny_model_of(seed=5, name="broken")
    model.weights = {**model.weights, "ln_f.g": torch.full_like(model.weights["ln_f.g"], math.nan)}
    trace = recorded(model, TraceStore(tmp_path), steps=0)
    with pytest.raises(InvalidInput, match="97 of the 97 logits are not a number"):
        attributed(model, trace, 0, 3)


# --- the API and the page ---


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("attribution")) as api:
        yield api


@pytest.fixture(scope="module")
def trace(api: Api) -> str:
    """The path of a trace: nine tokens, two decode steps."""
    return api.record(prompt=FOX, steps=2).removeprefix("/api")


def page(api: Api, address: str, status: int = 200) -> Node:
    answer = api.ask("GET", address)
    assert answer.status_code == status, answer.text[:1500]
    assert not re.search(r"<(style|script)[ >](?!src)|\sstyle=|\son[a-z]+=", answer.text.split("<main")[1])
    return tree(answer.text)


def test_the_api_gives_every_term_and_the_check(api: Api, trace: str) -> None:
    found = api.json(f"/api{trace}/attribution?position=10")
    logits = api.values(f"/api{trace}/tensors/logits.npy?step=2")[0, 0].astype(np.float64)
    assert (found["position"], found["step"], found["against"]) == (10, 2, None)
    assert found["token"]["id"] == int(logits.argmax())
    assert found["recorded"] == logits.max()
    assert found["holds"] is True and abs(found["remainder"]) <= found["tolerance"]
    assert math.fsum([found["offset"], *(term["value"] for term in found["terms"])]) == found["total"]
    heads = [term for term in found["terms"] if term["kind"] == "attention heads"]
    assert {term["address"] for term in heads} == {"h.0.attn.context@2", "h.1.attn.context@2"}
    assert (found["scale_address"], found["offset_address"]) == ("ln_f.s@2", "ln_f.b@2")
    assert [stage["stage"] for stage in found["stages"]] == ["embed.h@2", "h.0.resid_post@2", "h.1.resid_post@2"]
    lead = api.json(f"/api{trace}/attribution?position=10&token=5&against=6")
    assert lead["recorded"] == logits[5] - logits[6]
    assert [lead["token"]["id"], lead["against"]["id"]] == [5, 6]


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("position=11", 404, "has not run a position 11"),
        ("token=50257", 404, "The vocabulary has no token 50257"),
        ("token=3&against=3", 422, "no lead over itself"),
        ("token=fox", 422, "token"),
    ],
)
def test_what_cannot_be_attributed_is_refused_with_why(
    api: Api, trace: str, query: str, status: int, says: str
) -> None:
    assert says in api.problem("GET", f"/api{trace}/attribution?{query}", status)["detail"]
    assert says in words(page(api, f"{trace}/attribution?{query}", status).text)


def test_the_page_shows_the_sum_its_terms_and_leads_to_their_tensors(api: Api, trace: str) -> None:
    found = api.json(f"/api{trace}/attribution?position=9")
    shown = page(api, f"{trace}/attribution?position=9")
    assert words(shown.one("h1").text).startswith(f"What wrote {found['token']['text'].strip()} at position 9")
    said = words(shown.one("p", class_="proof").text)
    assert f"sum to {found['total']:.4f}; the recorded logit is {found['recorded']:.4f}" in said
    grid = shown.one("table", class_="grid")
    links = [a.attributes for a in grid.all("a")]
    heads = [term for term in found["terms"] if term["layer"] is not None]
    assert len(links) == len(heads)
    assert {f"{term['value']!r}" for term in heads} == {link["title"].rpartition(": ")[2] for link in links}
    assert f"{trace}/h.1.attn.context?step=1&head=3" in [link["href"] for link in links]
    for link in dict.fromkeys(
        a.attributes["href"] for a in shown.one("main").all("a") if "h.1." in a.attributes["href"]
    ):
        assert api.ask("GET", link).status_code == 200, link


def test_the_lines_in_order_add_up_to_the_logit(api: Api, trace: str) -> None:
    found = api.json(f"/api{trace}/attribution?position=3")
    shown = page(api, f"{trace}/attribution?position=3")
    rows = shown.one("section", id="order").one("tbody").all("tr")
    numbers = [[float(each.attributes["value"]) for each in row.all("data")] for row in rows]
    assert len(rows) == 1 + 2 + 2 * 2
    assert numbers[0] == [found["offset"], found["offset"]]
    assert numbers[-1][1] == pytest.approx(found["total"], abs=1e-12)
    assert all(b[1] == pytest.approx(a[1] + b[0], abs=1e-12) for a, b in pairwise(numbers))
    for row, (adds, _) in zip(rows, numbers, strict=True):
        bar = next(each for each in row.all("rect") if each.attributes["class"] != "track").attributes
        zero = float(row.one("line").attributes["x1"])
        assert (bar["class"], float(bar["x"]) >= zero - 0.01) == (("plus", True) if adds >= 0 else ("minus", False))
        assert float(bar["x"]) >= 0 and float(bar["x"]) + float(bar["width"]) <= 201


def test_another_token_can_be_looked_at_and_compared_with(api: Api, trace: str) -> None:
    top = api.json(f"/api{trace}/next?position=4")["top"]
    first, second = (candidate["token"] for candidate in top[:2])
    shown = page(api, f"{trace}/attribution?position=4")
    links = [a.attributes["href"] for a in shown.one("section", id="tokens").all("a")]
    assert f"{trace}/attribution?position=4&token={second['id']}" in links
    lead = f"{trace}/attribution?position=4&token={first['id']}&against={second['id']}"
    assert lead in links
    compared = page(api, lead)
    assert "rather than" in compared.one("h1").text
    assert [row.one("th").text.strip() for row in compared.one("section", id="tokens").one("tbody").all("tr")
            if "shown" in row.text] == [second["text"].strip()]  # fmt: skip
    assert page(api, f"{trace}/attribution?position=4&token={first['id']}&against=").one("section", id="grid")


def test_the_trace_and_the_lens_lead_to_it(api: Api, trace: str) -> None:
    for address in (f"{trace}?position=5", f"{trace}/lens?position=5"):
        assert f"{trace}/attribution?position=5" in [a.attributes.get("href") for a in page(api, address).all("a")]


def test_text_is_escaped_on_the_page(api: Api) -> None:
    trace = api.record(prompt='"><script>alert(1)</script> & <b>').removeprefix("/api")
    answer = api.ask("GET", f"{trace}/attribution")
    assert "<script>alert" not in answer.text and "<b>" not in answer.text
    assert "&lt;b" in answer.text


def test_a_model_that_is_gone_is_said_on_the_page(api: Api, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(recipe: object) -> None:
        raise UnknownModel("There is no model 'x' here.", hint="Bring it back.")

    monkeypatch.setattr(api.explorer.models, "of", gone)
    said = words(page(api, f"{trace}/attribution?position=1").one("main").text)
    assert "Nothing can be attributed here. There is no model 'x' here. Bring it back." in said


def test_the_command_prints_terms_and_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DATA", "CACHE"):
        monkeypatch.setenv(f"TENSOR_PROVENANCE_{name}_DIRECTORY", str(tmp_path / name))

    def run(*arguments: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        return stopped.value.code, capsys.readouterr().out

    assert run("record", "--ids", "5,6,7", "--model", "tiny-untrained")[0] == 0
    code, text = run("attribute", "latest", "--token", "5")
    assert code == 0 and "✓ sum" in text and "layer 0, head 0" in text
    found = json.loads(run("attribute", "latest", "--position", "1", "--token", "5", "--against", "6", "--json")[1])
    assert (found["position"], found["token"]["id"], found["against"]["id"], found["holds"]) == (1, 5, 6, True)
    assert run("attribute", "latest", "--token", "5", "--against", "5")[0] == 2
