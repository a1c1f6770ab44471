"""Changed runs on the pages: the form, the trace that it leads to, and where a change is said."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from api_client import FOX, Api, running
from html_tree import Node, tree
from html_tree import words as evened
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import provenance.recording
from provenance.errors import UnknownModel

EDIT = "h.1.attn.pattern[head=1]=0"
STEPS = 2


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("edits")) as api:
        yield api


@pytest.fixture(scope="module")
def plain(api: Api) -> str:
    """The page of the fox."""
    return api.record(prompt=FOX, steps=STEPS).removeprefix("/api")


@pytest.fixture(scope="module")
def changed(api: Api, plain: str) -> str:
    """The page of the fox without head 1 of layer 1."""
    return api.record(prompt=FOX, steps=STEPS, edits=[EDIT]).removeprefix("/api")


def words(node: Node) -> str:
    """All text of an element, its white space evened out."""
    return evened(node.text)


def page(api: Api, address: str, status: int = 200) -> Node:
    answer = api.ask("GET", address)
    assert answer.status_code == status, answer.text[:1500]
    return tree(answer.text)


def by_id(shown: Node, id: str) -> Node:
    return next(element for element in shown.elements if element.attributes.get("id") == id)


def post(api: Api, trace: str, **form: Any) -> Any:
    return api.ask("POST", f"{trace}/edit", data={"what": "set", "value": "0", "when": "every", **form})


def followed(api: Api, answer: Any) -> Any:
    """The trace that a form led to, as the API gives it once it is recorded."""
    assert answer.status_code == 303, answer.text[:800]
    return api.wait(f"/api{answer.headers['location']}")


def wrong(answer: Any, field: str) -> str:
    """What a refused form says, which must stand at a field."""
    assert answer.status_code == 422, answer.text[:800]
    shown = tree(answer.text)
    said = shown.one("p", "wrong")
    assert said.attributes["id"] == f"wrong-{field or 'edit'}"
    if field:
        (marked,) = [e for e in shown.elements if "aria-invalid" in e.attributes]
        assert marked.attributes["aria-describedby"] == f"wrong-{field}"
    return words(said)


# --- the form ---


def test_the_form_offers_the_axes_with_more_than_one_index_and_the_head_that_is_looked_at(
    api: Api, plain: str
) -> None:
    form = page(api, f"{plain}/h.1.attn.pattern?head=2").one("form", "edit-form")
    fields = {label.attributes["for"]: words(label) for label in form.all("label") if "for" in label.attributes}
    assert [fields[f"pick-{n}"] for n in range(3)] == [
        "head 0 to 3", "token positions 0 to 8", "key positions 0 to 8",
    ]  # fmt: skip
    assert [field.attributes["value"] for field in form.all("input", name="pick")] == ["2", "", ""]
    step = page(api, f"{plain}/h.1.attn.pattern?step=2").one("form", "edit-form")
    assert [words(label) for label in step.all("label") if "for" in label.attributes][:2] == [
        "head 0 to 3", "key positions 0 to 10",
    ]  # fmt: skip
    assert [field.attributes["value"] for field in step.all("input", name="pick")] == ["", ""]


@pytest.mark.parametrize(("address", "offered"), [("tokens", 0), ("h.0.attn.mask.m", 0), ("wte", 1), ("ln_f.g", 1)])
def test_what_holds_no_floats_has_no_form_and_a_parameter_has_one(
    api: Api, plain: str, address: str, offered: int
) -> None:
    assert len(page(api, f"{plain}/{address}").all("form", "edit-form")) == offered


def test_two_axes_that_count_the_same_are_told_apart_by_their_symbols(api: Api, plain: str) -> None:
    form = page(api, f"{plain}/h.0.attn.c_attn.w").one("form", "edit-form")
    names = [words(label).split()[0] for label in form.all("label") if "pick" in label.attributes.get("for", "")]
    assert names == ["d", "3d"]
    answer = post(api, plain, at="h.0.attn.c_attn.w", pick=["", "3"], what="scale", value="2")
    assert followed(api, answer)["edits"] == ["h.0.attn.c_attn.w[3d=3] *= 2"]
    form = page(api, f"{plain}/h.0.attn.c_proj.w").one("form", "edit-form")  # d by d: changed as a whole
    assert not form.all("input", name="pick")


@pytest.mark.parametrize(
    ("form", "edit"),
    [
        ({"at": "h.1.attn.pattern", "pick": ["1", "", ""]}, "h.1.attn.pattern[head=1] = 0"),
        ({"at": "h.1.attn.pattern@2", "pick": ["", "0:3, 4"], "when": "step"}, "h.1.attn.pattern@2[key=0:3,4] = 0"),
        ({"at": "h.0.mlp.h", "pick": ["", "7"], "what": "scale", "value": "-.5"}, "h.0.mlp.h[channel=7] *= -0.5"),
        ({"at": "h.0.attn.out", "pick": [], "when": "step"}, "h.0.attn.out@0 = 0"),
        ({"at": "ln_f.b", "value": " 1e-3 "}, "ln_f.b = 0.001"),
    ],
)
def test_the_form_leads_to_a_trace_with_the_edit_that_it_asks_for(
    api: Api, plain: str, form: dict[str, Any], edit: str
) -> None:
    out = followed(api, post(api, plain, **form))
    assert (out["state"], out["edits"], out["unedited"]) == ("done", [edit], plain.removeprefix("/traces/"))


def test_an_edit_of_a_changed_trace_comes_after_those_that_it_has(api: Api, plain: str, changed: str) -> None:
    out = followed(api, post(api, changed, at="h.0.mlp.h", pick=["", "7"], value="1"))
    assert out["edits"] == ["h.1.attn.pattern[head=1] = 0", "h.0.mlp.h[channel=7] = 1"]
    assert out["unedited"] == plain.removeprefix("/traces/")


def test_a_patch_puts_in_the_cells_of_another_trace(api: Api, plain: str) -> None:
    other = api.record(prompt="Quite another prompt, and longer than the first one", steps=STEPS).removeprefix("/api")
    id = other.removeprefix("/traces/")
    form = page(api, f"{plain}/h.0.resid_post").one("form", "edit-form")
    assert id in [option.attributes["value"] for option in form.all("option")]
    at = {"at": "h.0.resid_post", "when": "step", "what": "patch", "source": id}
    out = followed(api, post(api, plain, pick=["3", ""], **at))
    assert out["edits"] == [f"h.0.resid_post@0[token=3] = trace:{id}"]
    theirs = api.values(f"/api{other}/tensors/h.0.resid_post.npy")[0, 3]
    assert (api.values(f"/api/traces/{out['id']}/tensors/h.0.resid_post.npy")[0, 3] == theirs).all()
    assert "does not fit" in wrong(post(api, plain, pick=["", ""], **at), "source")


@pytest.mark.parametrize(
    ("form", "field", "says"),
    [
        ({"pick": ["9", "", ""]}, "pick-0", "no head 9 here"),
        ({"pick": ["", "2:2", ""]}, "pick-1", "range 2:2 is empty"),
        ({"pick": ["", "", "11"]}, "pick-2", "no key 11 here"),
        ({"pick": ["1], token=[3", "", ""]}, "pick-0", "is no index"),
        ({"pick": ["1, token=3", "", ""]}, "pick-0", "is no index"),
        ({"value": "many"}, "value", "'many' is no finite number"),
        ({"value": "nan"}, "value", "no finite number"),
        ({"value": ""}, "value", "no finite number"),
        ({"what": "patch"}, "source", "No trace is chosen"),
        ({"what": "patch", "source": "abcdef"}, "source", "no trace 'abcdef'"),
    ],
)
def test_a_form_that_cannot_be_done_comes_back_as_typed_with_the_reason_at_its_field(
    api: Api, plain: str, form: dict[str, Any], field: str, says: str
) -> None:
    api.record(prompt="So that there is another trace")
    answer = post(api, plain, at="h.1.attn.pattern", **form)
    assert says in wrong(answer, field)
    back = tree(answer.text).one("form", "edit-form")
    assert back.one("input", name="what", value=form.get("what", "set")).attributes.get("checked") is not None
    assert by_id(back, "edit-value").attributes["value"] == form.get("value", "0")
    assert [f.attributes["value"] for f in back.all("input", name="pick")] == form.get("pick", ["", "", ""])


def test_what_was_typed_is_text_when_it_comes_back(api: Api, plain: str) -> None:
    injection = '"><script>alert(1)</script>'
    answer = post(api, plain, at="h.1.attn.pattern", pick=[injection, "", ""], value=injection)
    back = tree(answer.text)
    assert next(f.attributes["value"] for f in back.all("input", name="pick")) == injection
    assert not [script for script in back.all("script") if "alert" in script.text]


@pytest.mark.parametrize(
    ("at", "status"), [("", 404), ("x", 404), ("h.1.attn.pattern@9", 404), ("h.9.attn.pattern", 404), ("tokens", 422)]
)
def test_a_tensor_that_is_not_there_or_cannot_be_changed_has_no_form(
    api: Api, plain: str, at: str, status: int
) -> None:
    for answer in (api.ask("GET", f"{plain}/edit", params={"at": at}), post(api, plain, at=at)):
        assert answer.status_code in (status, 422), answer.text[:400]
        assert not tree(answer.text).all("form", "edit-form")


def test_the_form_stands_on_a_page_of_its_own_too(api: Api, plain: str) -> None:
    shown = page(api, f"{plain}/edit?at=h.1.attn.pattern@2")
    assert words(shown.one("h1")) == "Change Attention pattern"
    assert shown.one("input", name="at").attributes["value"] == "h.1.attn.pattern@2"


def test_more_changes_than_a_run_can_have_are_refused(api: Api, plain: str) -> None:
    full = api.record(prompt="Full of changes", edits=["h.0.attn.out *= 1.5"] * 32).removeprefix("/api")
    assert "33 edits are more than the 32" in wrong(post(api, full, at="h.0.attn.out"), "")


@pytest.mark.slow
@given(st.lists(st.text(max_size=20), max_size=4), st.text(max_size=12), st.text(max_size=30), st.text(max_size=12))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_form_is_answered_with_a_fault(
    api: Api, plain: str, picks: list[str], value: str, at: str, what: str
) -> None:
    for place in (at, "h.1.attn.pattern@1"):
        answer = post(api, plain, at=place, pick=picks, value=value, what=what, source=value)
        assert answer.status_code in (303, 400, 404, 422), answer.text[:800]


# --- the changed trace ---


def test_the_page_of_a_changed_trace_names_its_edits_and_its_original(api: Api, plain: str, changed: str) -> None:
    said = page(api, changed).one("div", "edited")
    assert words(said).startswith("✎ Changed on purpose: h.1.attn.pattern[head=1] = 0")
    assert [link.attributes["href"] for link in said.all("a")] == [
        f"{changed}/h.1.attn.pattern?head=1",
        plain,
        f"/compare?a={plain.removeprefix('/traces/')}&b={changed.removeprefix('/traces/')}",
    ]
    assert not page(api, plain).all("div", "edited")
    assert not [e for e in page(api, plain).elements if e.attributes.get("id") == "effect"]


def test_the_page_shows_what_the_api_says_the_changes_did(api: Api, changed: str) -> None:
    effect = api.json(f"/api{changed}/effect")
    shown = by_id(page(api, changed), "effect")
    kls = [float(e.attributes["value"]) for e in shown.all("data", "kl")]
    assert kls == [shift["kl_nats"] for shift in effect["shifts"]]
    assert kls[0] > 0
    cells = [e.attributes["value"] for e in shown.one("table", "touched").all("data")]
    touched = effect["touched"]
    assert [int(n) for n in cells[:2]] == [sum(t["chosen"] for t in touched), sum(t["changed"] for t in touched)]
    assert float(cells[2]) == max(t["largest_change"] for t in touched)
    rows = shown.all("table", "moved")[0].all("tr")[1:]
    moved = sorted(effect["shifts"][0]["moved"], key=lambda m: (m["after"]["rank"], m["token"]["id"]))
    assert [row.one("th").text.strip() for row in rows] == [m["token"]["text"].strip() for m in moved]
    for row, token in zip(rows, moved, strict=True):
        numbers = [float(e.attributes["value"]) for e in row.all("data")]
        assert numbers == [
            token["before"]["probability"], token["after"]["probability"], token["before"]["rank"],
            token["after"]["rank"],
        ]  # fmt: skip
        way = "rose" if numbers[1] > numbers[0] else "fell" if numbers[1] < numbers[0] else "as before"
        assert way in words(row)
    assert len(shown.one("figure", "along").all("g")) == len(effect["kl_along"])


def test_a_change_without_effect_says_so_and_why(api: Api) -> None:
    trace = api.record(prompt=FOX, edits=["h.1.attn.out *= 1"]).removeprefix("/api")
    shown = by_id(page(api, trace), "effect")
    assert "no effect The chosen cells had these values before" in words(shown)
    assert not shown.all("figure")


def test_where_the_original_is_gone_it_can_be_recorded_again(api: Api) -> None:
    trace = api.record(prompt="An original that goes", edits=["h.1.attn.out = 0"]).removeprefix("/api")
    original = api.json(f"/api{trace}")["unedited"]
    assert api.ask("DELETE", f"/api/traces/{original}").status_code == 204
    api.explorer._effects.clear()
    assert original[:12] in api.problem("GET", f"/api{trace}/effect", 404)["detail"]
    shown = page(api, trace)
    assert words(by_id(shown, "effect")).startswith("What the changes did △ untrained The run without the changes is")
    answer = api.ask("POST", f"{trace}/original")
    assert answer.headers["location"] == f"/traces/{original}"
    assert api.wait(f"/api/traces/{original}")["state"] == "done"
    assert api.json(f"/api{trace}/effect")["shifts"][0]["kl_nats"] > 0


def test_without_its_model_the_page_of_a_changed_trace_still_stands(
    api: Api, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any) -> Any:
        raise UnknownModel("The model is gone.", hint="Bring it back.")

    api.explorer._effects.clear()
    monkeypatch.setattr(api.explorer.models, "of", gone)
    assert "The model is gone. Bring it back." in words(by_id(page(api, changed), "effect"))


# --- elsewhere ---


def test_the_original_lists_its_changed_runs(api: Api, plain: str, changed: str) -> None:
    links = [a for a in page(api, plain).one("ul", "changed-runs").all("a") if a.attributes["href"] == changed]
    assert [words(link) for link in links] == ["h.1.attn.pattern[head=1] = 0"]
    assert not page(api, changed).all("ul", "changed-runs")


@pytest.mark.parametrize("address", ["/traces", "/"])
def test_lists_mark_a_changed_trace(api: Api, plain: str, changed: str, address: str) -> None:
    api.record(prompt="Newest and unchanged")
    api.record(prompt="Newest of all", edits=["h.1.attn.out = 2"])
    rows = [words(row) for row in page(api, address).one("table").all("tr")[1:]]
    mine = [row for row in rows if row.startswith("Newest of all")]
    assert ["✎ changed h.1.attn.out = 2" in row for row in mine] == [True, False]
    assert not any("✎" in row for row in rows if row.startswith("Newest and unchanged"))


def test_the_home_page_starts_in_a_run_that_nobody_changed(api: Api, plain: str, changed: str) -> None:
    start = by_id(page(api, "/"), "start")
    assert api.json(f"/api{start.one('p').one('a').attributes['href']}")["edits"] == []
    assert api.json("/api/traces")[0]["edits"] or api.json("/api/traces")[1]["edits"]


def test_tensors_of_a_changed_run_say_so_and_the_changed_one_says_how(api: Api, changed: str) -> None:
    itself = words(page(api, f"{changed}/h.1.attn.pattern").one("div", "edited"))
    assert "This tensor was changed on purpose: h.1.attn.pattern[head=1] = 0." in itself
    other = words(page(api, f"{changed}/h.0.ln_1.out").one("div", "edited"))
    assert other.startswith("✎ Changed on purpose: h.1.attn.pattern[head=1] = 0")
    assert "This tensor" not in other


@pytest.mark.parametrize("address", ["/map?trace={id}", "/traces/{id}/verdict", "/cite/traces/{id}"])
def test_every_page_inside_a_changed_trace_is_marked_in_its_head(api: Api, changed: str, address: str) -> None:
    id = changed.removeprefix("/traces/")
    assert f"Trace {id[:8]} ✎, changed" in words(page(api, address.format(id=id)).one("nav", "places"))


def test_the_lens_says_where_the_output_itself_was_changed(api: Api, changed: str) -> None:
    assert "output itself was changed" not in words(page(api, f"{changed}/lens"))
    for edit in ("ln_f.out *= 2", "wte[entry=5] = 0.1"):
        other = api.record(prompt="A changed output", edits=[edit]).removeprefix("/api")
        assert "output itself was changed" in words(page(api, f"{other}/lens")), edit


def test_citations_name_the_edits(api: Api, plain: str, changed: str) -> None:
    cited = api.json(f"/api{changed}/citation")
    assert cited["edits"] == ["h.1.attn.pattern[head=1] = 0"]
    for format in ("markdown", "bibtex", "cff"):
        said = re.sub(r"[\\{}]", "", " ".join(cited[format].split()))
        assert "hanged while it ran, in this order: " in said
        assert "h.1.attn.pattern[head=1] = 0" in said.replace("`", "")
    assert api.json(f"/api{plain}/citation")["edits"] == []
    assert "hanged" not in api.json(f"/api{plain}/citation")["markdown"]


def test_a_failed_recording_keeps_its_edits_when_it_is_made_again(
    api: Api, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(provenance.recording, "record", lambda *_: 1 / 0)
        answer = post(api, plain, at="h.0.attn.out", value="77")
        assert api.wait(f"/api{answer.headers['location']}")["state"] == "failed"
    shown = page(api, answer.headers["location"])
    assert "✎ changed h.0.attn.out = 77" in words(shown)
    (form,) = [f for f in shown.all("form", method="post") if f.attributes["action"].endswith("/again")]
    again = api.ask("POST", form.attributes["action"])
    assert again.headers["location"] == answer.headers["location"]
    assert api.wait(f"/api{again.headers['location']}")["edits"] == ["h.0.attn.out = 77"]
