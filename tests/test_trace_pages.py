"""The pages of traces: tokens, predictions, the lens, the film, the list, and the form's token ids."""

import math
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from api_client import FOX, Api, running
from html_tree import Node, tree, words
from numpy.typing import NDArray

from provenance.errors import UnknownModel
from provenance.gpt2.model import GPT2
from provenance.lens import position_of

INJECTION = '"><script>alert(1)</script>'
TOKENS = 9
STEPS = 3


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("traces")) as api:
        yield api


def recorded(api: Api, prompt: str, steps: int = 0, **wanted: object) -> str:
    """The address of the page of a trace."""
    return api.record(prompt=prompt, steps=steps, **wanted).removeprefix("/api")


@pytest.fixture(scope="module")
def trace(api: Api) -> str:
    return recorded(api, FOX, STEPS)


def page(api: Api, address: str, status: int = 200, **headers: str) -> Node:
    answer = api.ask("GET", address, headers={name.replace("_", "-"): value for name, value in headers.items()})
    assert answer.status_code == status, answer.text[:1500]
    return tree(answer.text)


def softmax(api: Api, trace: str, step: int, index: int) -> NDArray[np.float64]:
    logits = api.values(f"/api{trace}/tensors/logits.npy?step={step}")[0, index].astype(np.float64)
    odds: NDArray[np.float64] = np.exp(logits - logits.max())
    return odds / odds.sum()


# --- tokens ---


def test_every_token_is_a_chip_with_its_id_and_bytes(api: Api, trace: str) -> None:
    shown = page(api, trace)
    chips = [e for e in shown.elements if "data-says" in e.attributes]
    assert [chip.text for chip in chips[:3]] == ["The", " quick", " brown"]
    assert chips[3].attributes["data-says"] == "position 3 · id 21831 · bytes 20 66 6f 78 · prompt"
    assert chips[3].attributes["href"] == "?position=3"
    assert len(chips) == TOKENS + STEPS + 1
    assert "href" not in chips[-1].attributes  # the last choice was not run
    assert chips[TOKENS].attributes["data-says"].endswith("chosen at the end of the prefill")
    row = shown.one("table", "token-table").all("tr")[4]
    assert [cell.text for cell in row.inside if isinstance(cell, Node)] == [
        "3",
        " fox",
        "21831",
        "20 66 6f 78",
        "prompt",
    ]


def test_a_chip_chooses_a_position(api: Api, trace: str) -> None:
    shown = page(api, f"{trace}?position=5")
    current = [a for a in shown.all("a", class_="token") if "aria-current" in a.attributes]
    assert [a.attributes["id"] for a in current] == ["token-5"]
    heading = words(shown.one("h2", id="prediction-heading").text)
    assert heading.startswith("What comes next after position 5, prefill")
    assert "The prompt goes on with the" in words(shown.one("section", id="prediction").text)


def test_spaces_are_marked_and_stay_spaces(api: Api, trace: str) -> None:
    shown = page(api, trace)
    assert {e.text for e in shown.all("span", class_="sp")} == {" "}
    assert shown.one("a", id="token-1").text == " quick"
    assert "is a space" in shown.one("section", **{"aria-labelledby": "tokens-heading"}).text


def test_half_an_emoji_is_its_bytes_and_the_text_before_it_is_whole_again(api: Api) -> None:
    address = recorded(api, "a🦊b")
    shown = page(api, address)
    assert [a.text for a in shown.all("a", class_="token")][:3] == ["a", "\\xf0\\x9f", "\\xa6"]
    assert "no whole character" in shown.one("section", **{"aria-labelledby": "tokens-heading"}).text
    assert words(shown.one("section", id="prediction").one("p", "sofar").text).startswith("a🦊b")


def test_token_text_is_escaped(api: Api) -> None:
    address = recorded(api, INJECTION, 1)
    for at in (address, f"{address}/lens", "/traces", "/", f"{address}/delete", f"/traces?q={INJECTION}"):
        assert "<script>alert" not in api.ask("GET", at).text


@pytest.mark.slow
def test_of_many_tokens_those_around_the_position_are_shown(api: Api) -> None:
    address = recorded(api, "a b c d " * 15)
    shown = page(api, address)
    assert len(shown.all("a", class_="token")) == len(api.json(f"/api{address}")["tokens"])
    assert not shown.all("a", class_="more-tokens")


# --- predictions ---


@pytest.mark.parametrize(("position", "step", "index"), [(0, 0, 0), (5, 0, 5), (8, 0, 8), (10, 2, 0)])
def test_probabilities_are_numpys(api: Api, trace: str, position: int, step: int, index: int) -> None:
    odds = softmax(api, trace, step, index)
    found = api.json(f"/api{trace}/next?position={position}&top=5")
    assert (found["step"], found["position"], found["vocabulary"]) == (step, position, odds.size)
    assert [each["token"]["id"] for each in found["top"]] == np.argsort(-odds, kind="stable")[:5].tolist()
    assert [each["probability"] for each in found["top"]] == pytest.approx(np.sort(odds)[::-1][:5].tolist(), rel=1e-9)
    entropy = -(odds * np.log(odds)).sum()
    assert found["entropy_nats"] == pytest.approx(entropy, rel=1e-9)
    assert found["entropy_bits"] == pytest.approx(entropy / math.log(2), rel=1e-9)
    tokens = api.json(f"/api{trace}")
    follows = [*tokens["tokens"], *tokens["generated"]][position + 1]["id"]
    assert found["actual"]["token"]["id"] == follows
    assert found["actual"]["rank"] == 1 + int((odds > odds[follows]).sum())
    assert found["actual"]["probability"] == pytest.approx(odds[follows], rel=1e-9)
    assert found["actual_from"] == ("prompt" if position < TOKENS - 1 else "chosen")


def test_the_table_shows_the_apis_numbers_and_marks_what_follows(api: Api, trace: str) -> None:
    section = page(api, f"{trace}?position=5").one("section", id="prediction")
    found = api.json(f"/api{trace}/next?position=5")
    shares = [float(e.attributes["value"]) for cell in section.all("td", "share") for e in cell.all("data")]
    expected = [each["probability"] for each in found["top"]]
    assert found["actual"]["rank"] > 10
    assert shares == [*expected, found["actual"]["probability"]]
    marked = section.all("tr", "follows")
    assert len(marked) == 1 and "✓ comes next" in words(marked[0].text)


def test_a_step_is_its_last_position(api: Api, trace: str) -> None:
    assert api.json(f"/api{trace}/next?step=2") == api.json(f"/api{trace}/next?position={TOKENS + 1}")
    assert api.json(f"/api{trace}/next") == api.json(f"/api{trace}/next?position={TOKENS - 1}&step=0")


@pytest.mark.parametrize("query", ["position=12", "step=4", "step=1&position=0", "step=9&position=2"])
def test_what_was_not_run_is_not_found(api: Api, trace: str, query: str) -> None:
    for address in (trace, f"{trace}/lens"):
        page(api, f"{address}?{query}", 404)
    for kind in ("next", "lens"):
        api.problem("GET", f"/api{trace}/{kind}?{query}", 404)


@pytest.mark.parametrize("query", ["position=x", "position=-1", "step=1.5"])
def test_a_position_that_is_no_number_is_refused(api: Api, trace: str, query: str) -> None:
    for address in (trace, f"{trace}/lens"):
        assert "must be a whole number" in page(api, f"{address}?{query}", 422).one("main").text
    api.problem("GET", f"/api{trace}/next?{query}", 422)


def test_a_model_that_gives_nan_has_pages_that_say_so(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    model = api.explorer.models.get("tiny-untrained")
    assert isinstance(model, GPT2)
    poisoned = {**model.weights, "ln_f.b": torch.full_like(model.weights["ln_f.b"], math.nan)}
    address = recorded(api, "not a number at all", 1)
    monkeypatch.setattr(model, "weights", poisoned)
    shown = page(api, address)
    assert (
        "logits are not a number (NaN), so there are no probabilities" in shown.one("section", id="prediction").text
    )
    assert not shown.all("td", class_="share")
    assert "not a number" in page(api, f"{address}/lens").one("table", class_="lens").text
    found = api.json(f"/api{address}/next")
    assert (found["top"], found["actual"], found["entropy_nats"]) == ([], None, None)
    assert "NaN" in found["problem"]
    assert api.json(f"/api{address}/lens")["positions"][0]["final"] is None


def test_a_trace_whose_model_is_gone_keeps_its_tokens(api: Api, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = recorded(api, "the model will be gone", 1)
    recipe = api.explorer.store.open(other.removeprefix("/traces/")).recipe

    def gone(_: object) -> None:
        raise UnknownModel(f"There is no model named {recipe.model.name!r} here.", hint="Put it back.")

    monkeypatch.setattr(api.explorer.models, "of", gone)
    monkeypatch.setattr(api.explorer.engine.replayer, "_cache", OrderedDict())
    shown = page(api, other)
    assert "There is no model named" in shown.one("section", id="prediction").text
    assert len(shown.all("a", class_="token")) == 6
    assert "There is no model named" in page(api, f"{other}/lens").one("div", id="lens").text


# --- the lens ---


def test_the_lens_has_a_line_for_each_stage_and_a_column_for_each_position(api: Api, trace: str) -> None:
    table = page(api, f"{trace}/lens").one("table", class_="lens")
    found = api.json(f"/api{trace}/lens")
    assert [each["stage"] for each in found["stages"]] == ["embed.h", "h.0.resid_post", "h.1.resid_post"]
    assert [each["position"] for each in found["positions"]] == list(range(TOKENS + STEPS))
    rows = table.all("tr")
    assert [row.one("th").text for row in rows[1:4]] == ["embedding", "after block 0", "after block 1"]
    cells = [cell for row in rows[1:4] for cell in row.all("td")]
    flat = [cell for stage in found["stages"] for cell in stage["cells"]]
    assert [cell.all("span", "token")[0].text for cell in cells] == [c["top"][0]["token"]["text"] for c in flat]
    assert [bool(cell.all("span", "agrees")) for cell in cells] == [c["agrees"] for c in flat]
    assert [float(cell.all("a")[0].attributes["title"].split(";")[0]) for cell in cells] == [
        c["top"][0]["probability"] for c in flat
    ]


def test_the_last_line_equals_the_recorded_logits(api: Api, trace: str) -> None:
    found = api.json(f"/api{trace}/lens")
    assert found["last_stage_equals_recorded"]
    assert found["largest_difference"] <= found["tolerance"]
    assert [each["final"]["id"] for each in found["positions"]] == [
        int(softmax(api, trace, each["step"], 0 if each["step"] else each["position"]).argmax())
        for each in found["positions"]
    ]
    assert "✓ equals the recorded logits" in words(page(api, f"{trace}/lens").one("p", class_="proof").text)


def test_a_cell_can_be_chosen_and_shows_its_tokens_exactly(api: Api, trace: str) -> None:
    shown = page(api, f"{trace}/lens?position=4&stage=h.0.resid_post")
    detail = shown.one("section", id="cell")
    assert words(detail.all("h2")[0].text) == "After block 0, position 4 jumps"
    found = api.json(f"/api{trace}/lens?position=4&top=5")["stages"][1]["cells"][4]
    assert [float(code.text) for code in detail.all("code")] == [each["probability"] for each in found["top"]]
    assert "no stage 'nowhere'" in page(api, f"{trace}/lens?stage=nowhere", 404).one("main").text


def test_the_trace_page_says_after_which_block_the_answer_is_there(api: Api, trace: str) -> None:
    stage = api.json(f"/api{trace}/lens?position=5")["positions"][5]["first_stage"]
    says = "by the embedding alone" if stage == "embed.h" else f"after block {stage.split('.')[1]}"
    assert f"It is predicted first {says}" in words(page(api, f"{trace}?position=5").one("section", id="lens").text)


# --- the film ---


def test_the_film_shows_each_step_with_what_was_chosen(api: Api, trace: str) -> None:
    shown = page(api, f"{trace}?step=2")
    shots = shown.one("ol", class_="film").all("li")
    generated = [token["text"] for token in api.json(f"/api{trace}")["generated"]]
    for step, shot in enumerate(shots):
        found = api.json(f"/api{trace}/next?step={step}&top=5")
        text = words(shot.text)
        assert text.startswith("Prefill" if not step else f"Step {step}")
        assert words(FOX + "".join(generated[:step])) in text
        assert float(shot.all("data")[0].attributes["value"]) == found["actual"]["probability"]
        assert len(shot.all("span", "alternative")) == 5
    assert len(shots) == STEPS + 1
    assert [a.attributes["href"] for a in shown.all("a", rel="prev")] == [f"{trace}?step=1"]
    assert [a.attributes["href"] for a in shown.all("a", rel="next")] == [f"{trace}?step=3"]
    assert "aria-current" in shown.one("a", id="step-2").attributes


def test_htmx_receives_the_part_that_changes(api: Api, trace: str) -> None:
    whole = api.ask("GET", f"{trace}?position=5").text
    part = api.ask("GET", f"{trace}?position=5", headers={"HX-Request": "true", "HX-Target": "moment"}).text
    title, content = part.split("</title>\n")
    assert "position 5" in title
    assert content.strip() in whole
    assert "<main" not in content
    lens = api.ask("GET", f"{trace}/lens?position=5", headers={"HX-Request": "true"}).text
    assert (
        "<main" not in lens and lens.split("</title>\n")[1].strip() in api.ask("GET", f"{trace}/lens?position=5").text
    )


# --- the list ---


def test_the_list_is_searched_and_sorted(api: Api, trace: str) -> None:
    first, second = recorded(api, "Needle one"), recorded(api, "needle two")

    def found(query: str) -> list[str]:
        rows = page(api, f"/traces?{query}").all("table", class_="traces")
        return [a.attributes["href"] for row in rows for a in row.all("a") if "delete" not in a.attributes["href"]]

    assert found("q=NEEDLE") == [second, first]
    assert found("q=needle&sort=oldest") == [first, second]
    assert found("q=needle++two") == [second]
    assert found(f"q={first.removeprefix('/traces/')[:10]}") == [first]
    assert found("q=needle&model=tiny-untrained") == [second, first]
    assert found("q=needle&model=other") == []
    assert trace in found("")
    assert "No trace fits" in page(api, "/traces?q=nowhere+to+be+found").one("main").text
    part = api.ask("GET", "/traces?q=needle", headers={"HX-Request": "true"}).text
    assert "<main" not in part and first in part


def test_a_trace_is_deleted_in_two_steps_without_a_script(api: Api) -> None:
    address = recorded(api, "delete me & mine")
    asked = page(api, f"{address}/delete")
    assert asked.one("blockquote").text == "delete me & mine"
    form = asked.one("form", method="post")
    assert api.ask("GET", address).status_code == 200
    answer = api.ask("POST", form.attributes["action"])
    assert (answer.status_code, answer.headers["location"]) == (303, "/traces")
    page(api, address, 404)
    page(api, f"{address}/delete", 404)


def test_a_trace_that_cannot_be_read_is_listed_with_the_reason_and_can_be_deleted(api: Api) -> None:
    address = recorded(api, "soon broken")
    directory: Path = api.explorer.store.directory / address.removeprefix("/traces/")
    (directory / "trace.json").write_text("{")
    section = page(api, "/traces?q=something+else").one("section", **{"aria-labelledby": "unreadable-heading"})
    assert "cannot be read" in section.text and "The record of trace" in section.text
    assert [a.attributes["href"] for a in section.all("a")] == [f"{address}/delete"]
    assert "The record of trace" in page(api, f"{address}/delete").one("main").text
    assert api.ask("POST", f"{address}/delete").status_code == 303
    assert "unreadable-heading" not in api.ask("GET", "/traces").text


# --- the form ---


def test_the_form_takes_token_ids_in_the_place_of_the_prompt(api: Api) -> None:
    answer = api.ask("POST", "/record", data={"prompt": "ignored", "ids": "15496, 995", "steps": "0"})
    id = answer.headers["location"].removeprefix("/traces/")
    assert id == api.explorer.plan("Hello world").id == api.explorer.plan(None, ids=[15496, 995]).id


@pytest.mark.parametrize(("ids", "says"), [("1 x", "not 'x'"), ("99999999", "no token 99999999"), ("-1", "not '-1'")])
def test_token_ids_that_are_none_come_back_with_the_reason(api: Api, ids: str, says: str) -> None:
    answer = api.ask("POST", "/record", data={"prompt": "kept", "ids": ids})
    assert answer.status_code == 422
    shown = tree(answer.text)
    assert says in shown.one("p", id="wrong-ids").text
    assert shown.one("input", id="ids").attributes["value"] == ids
    assert "open" in shown.one("section", id="record").one("details", class_="more").attributes


def test_home_leads_to_the_newest_traces_and_to_all(api: Api, trace: str) -> None:
    newest = [recorded(api, f"number {n}") for n in range(7)]
    links = [a.attributes["href"] for a in page(api, "/").one("section", id="traces").all("a")]
    assert links == [*reversed(newest[1:]), "/traces"]


def test_a_drawn_token_says_its_temperature(api: Api) -> None:
    address = recorded(api, "drawn by lot", 1, temperature=2.0, seed=5)
    section = words(page(api, address).one("section", id="prediction").text)
    assert "at temperature 2.0" in section
    assert "They are those at temperature 1" in section


def test_the_positions_of_the_lens_move_by_links(api: Api) -> None:
    address = recorded(api, "a b c d e f g h i j k l m n o p q r s t u v w x y z")
    shown = page(api, f"{address}/lens?position=12")
    assert len(shown.one("table", class_="lens").one("thead").all("a")) == 12
    moves = {a.attributes["rel"]: a.attributes["href"] for a in shown.all("a") if "rel" in a.attributes}
    assert set(moves) == {"prev", "next"}
    assert "prev" not in {a.attributes.get("rel") for a in page(api, f"{address}/lens?position=0").all("a")}
    assert position_of(api.explorer.store.open(address.removeprefix("/traces/"))).number == 25
