"""What pages say so that a question is answered where it is asked: one head's numbers, other code's variables."""

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pytest
from api_client import FOX, Api, running
from html_tree import Node, tree, words

from provenance.families import FAMILIES
from provenance.gpt2.catalogue import CATALOGUE
from provenance.gpt2.points_transformers import HOLDS, holders


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("answers")) as found:
        yield found


@pytest.fixture(scope="module")
def trace(api: Api) -> str:
    return api.record(prompt=FOX, steps=2).removeprefix("/api")


def shown(api: Api, address: str) -> Node:
    return tree(api.ask("GET", address).raise_for_status().text)


def test_the_numbers_of_the_chosen_head_alone_leave_masked_cells_out(api: Api, trace: str) -> None:
    part = shown(api, f"{trace}/h.1.attn.pattern?head=2").one("dl", "part")
    assert part.attributes["aria-label"] == "head 2 alone"
    pattern = api.values(f"/api{trace}/tensors/h.1.attn.pattern.npy")[0, 2]
    visible = pattern[np.tril_indices(9)].astype(float)
    for name, wanted in (
        ("minimum", visible.min()), ("maximum", visible.max()), ("mean", visible.mean()), ("std", visible.std()),
        ("l2", (visible**2).sum() ** 0.5),
    ):  # fmt: skip
        number = part.one("dd", id=f"part-{name}").one("data")
        assert float(number.attributes["value"]) == pytest.approx(wanted, rel=1e-12)


def test_numbers_of_a_part_stand_only_where_there_is_more_than_is_shown(api: Api, trace: str) -> None:
    assert not shown(api, f"{trace}/h.1.ln_1.out").all("dl", "part")
    assert not shown(api, f"{trace}/h.1.ln_1.g").all("dl", "part")
    both = shown(api, f"{trace}/h.1.attn.present").one("dl", "part")
    assert both.attributes["aria-label"] == "k/v 0, head 0 alone"


def test_each_variable_of_transformers_is_listed_at_the_tensors_that_it_holds() -> None:
    listed = holders()
    assert sum(map(len, listed.values())) == len(HOLDS) + 1 + 2, (
        "one holds two sites, two another one in decode steps"
    )
    assert set(listed) <= set(CATALOGUE.rows)
    places = {(point.function, point.line, point.expression) for point, _ in chain(*listed.values())}
    assert places == set(HOLDS)
    assert [str(point) for point, _ in listed["h.attn.pattern"]] == [
        "attn_weights (eager_attention_forward, line 63)",
        "attn_weights (eager_attention_forward, line 66)",
        "attn_weights (eager_attention_forward, line 67)",
        "attn_weights (GPT2Attention.forward, line 211)",
        "_ (GPT2Block.forward, line 274)",
    ]
    assert {note for _, note in listed["h.attn.k_all"]} == {"in decode steps"}
    residual = "residual (GPT2Block.forward, line 272)"
    assert all(residual in [str(point) for point, _ in listed[site]] for site in ("embed.h", "h.resid_post"))


def test_the_page_of_a_tensor_says_what_transformers_calls_it(api: Api, trace: str) -> None:
    (elsewhere,) = FAMILIES["gpt2"].elsewhere
    assert elsewhere.release == "transformers 5.15.0"
    for address in ("/sites/h.attn.scores", f"{trace}/h.0.attn.scores"):
        names = words(shown(api, address).one("section", id="what").one("details").text)
        assert "In transformers 5.15.0, by attn_weights (eager_attention_forward, line 58) modeling_gpt2.py" in names
    context = words(shown(api, "/sites/h.attn.context").one("section", id="what").text)
    assert "attn_output (eager_attention_forward, line 70) modeling_gpt2.py; heads behind positions" in context
    assert "In transformers" not in shown(api, "/sites/h.ln_1.u").one("section", id="what").text


def test_a_name_of_other_code_keeps_the_step_in_which_the_reader_stands(api: Api, trace: str) -> None:
    id = trace.removeprefix("/traces/")
    found = shown(api, f"/search?q=blocks.1.attn.hook_pattern&trace={id}&layer=0&step=2").one("ol", "results")
    assert found.one("a").attributes["href"] == f"{trace}/h.1.attn.pattern?step=2"


def test_waiting_for_a_proof_without_scripts_leads_back_to_the_same_head(api: Api, trace: str) -> None:
    answer = api.ask("GET", f"{trace}/h.1.attn.scores@2/proof?head=3&said=running")
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        f"{trace}/h.1.attn.scores?step=2&head=3#sources",
    )
