"""Properties that hold for whatever is drawn: names, parts, tokens, statistics and comparisons."""

import math
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
import torch
from api_client import Api, running
from html_tree import tree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provenance.catalogue import Intermediate
from provenance.errors import InvalidInput, NotFound
from provenance.gpt2.catalogue import CATALOGUE
from provenance.lookup import find
from provenance.names import Address, is_layered
from provenance.prompt import Tokenizer
from provenance.summary import summarize

pytestmark = pytest.mark.slow

IN_ONE_APP = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
FEW = settings(IN_ONE_APP, max_examples=8)

TENSORS = ("h.1.attn.pattern", "h.0.attn.scores_masked", "h.0.ln_1.out@1", "h.0.attn.present", "logits", "tokens")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("attack"), client_traces_waiting=0, client_traces_per_hour=0) as api:
        yield api


@pytest.fixture(scope="module")
def trace(api: Api) -> str:
    return api.record(prompt="The quick brown fox jumps", steps=2)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load()


# --- names ---

NAMES = st.sampled_from([row.name for row in CATALOGUE] + [str(row.site) for row in CATALOGUE] + ["x", "a", "w", "c"])
EXPRESSIONS = st.recursive(
    NAMES,
    lambda inner: st.one_of(
        st.builds("{}({})".format, inner, inner),
        st.builds("({} + {})".format, inner, inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("-{}".format, inner),
        st.builds("{}.{}@{}".format, inner, st.integers(0, 99), st.integers(-1, 10**7)),
    ),
    max_leaves=6,
)
DEEP = st.builds(
    lambda piece, times: piece * times,
    st.sampled_from(["(", "-", "not ", "a.", "[", "x+", "h.0."]),
    st.integers(1, 3000),
)


@given(st.one_of(EXPRESSIONS, DEEP, st.text(st.characters(codec=None), max_size=40)))
@settings(deadline=None, max_examples=60)
def test_a_name_means_one_tensor_or_is_refused(name: str) -> None:
    try:
        row, address = find(CATALOGUE, name)
    except (InvalidInput, NotFound):
        return
    assert CATALOGUE.row(row.site) is row
    assert address is None or (address.site == row.site and Address.parse(str(address)) == address)


@given(st.integers(0, 99), st.integers(0, 3), st.sampled_from([row for row in CATALOGUE if is_layered(row.site)]))
def test_an_address_that_names_a_layer_leads_back_to_it(layer: int, step: int, row: Intermediate) -> None:
    address = Address(row.site, layer, step)
    assert find(CATALOGUE, str(address)) == (row, address)


# --- parts ---


@st.composite
def parts(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[str, tuple[int | slice, ...]]:
    """An index as it is written, and what NumPy is given for it."""
    written: list[str] = []
    meant: list[int | slice] = []
    left = 4096
    for size in shape:
        if draw(st.booleans()):
            one = draw(st.integers(0, size - 1))
            written.append(str(one))
            meant.append(one)
            continue
        first = draw(st.integers(0, size))
        end = min(draw(st.integers(first, size)), first + left)
        left //= max(1, end - first)
        written.append(f"{'' if first == 0 else first}:{'' if end == size else end}")
        meant.append(slice(first, end))
    gap = draw(st.sampled_from(["", " "]))
    return f",{gap}".join(written), tuple(meant)


@given(st.data(), st.sampled_from(TENSORS))
@IN_ONE_APP
def test_a_part_holds_what_numpy_takes_out(api: Api, trace: str, data: st.DataObject, tensor: str) -> None:
    whole = api.values(f"{trace}/tensors/{tensor}.npy")
    written, meant = data.draw(parts(whole.shape))
    answer = api.ask("GET", f"{trace}/tensors/{tensor}/slice", params={"index": written})
    assert answer.status_code == 200, answer.text
    found, expected = answer.json(), whole[meant]
    assert found["shape"] == list(expected.shape)
    assert np.array_equal(np.array(found["values"], dtype=whole.dtype), expected.ravel())
    assert [axis["size"] for axis in found["axes"]] == list(expected.shape)


@given(st.text(st.sampled_from("0123456789:,- ٣²x.\0"), max_size=24), st.sampled_from(TENSORS))
@IN_ONE_APP
def test_any_other_index_is_refused(api: Api, trace: str, index: str, tensor: str) -> None:
    answer = api.ask("GET", f"{trace}/tensors/{tensor}/slice", params={"index": index})
    assert answer.status_code in (200, 404, 422)
    if answer.status_code == 200:
        whole = api.values(f"{trace}/tensors/{tensor}.npy")
        pieces = [
            slice(*(int(end) if end else None for end in piece.split(":"))) if ":" in piece else int(piece)
            for piece in index.replace(" ", "").split(",")
        ]
        assert answer.json()["shape"] == list(whole[tuple(pieces)].shape)


# --- tokens ---

LETTERS = st.one_of(
    st.characters(exclude_categories=["Cs"]), st.sampled_from("\0\n\r\t\u202e\u2066\u200b\u2028\ufeff\U000e0001 &<")
)


@given(st.binary(min_size=1, max_size=12))
@IN_ONE_APP
def test_any_bytes_can_be_written_as_ids_and_come_back(api: Api, tokenizer: Tokenizer, wanted: bytes) -> None:
    ids = [next(iter(_single(tokenizer)[byte])) for byte in wanted]
    prompt = tokenizer.decode_ids(ids)
    assert b"".join(token.bytes for token in prompt.tokens) == wanted
    try:
        assert prompt.text == wanted.decode()
    except UnicodeDecodeError:
        assert prompt.text is None
    out = api.ask("POST", "/api/traces", json={"ids": ids}).raise_for_status().json()
    assert bytes.fromhex("".join(token["hex"] for token in out["tokens"])) == wanted
    assert out["prompt"] == prompt.text
    api.wait(f"/api/traces/{out['id']}")
    api.ask("DELETE", f"/api/traces/{out['id']}")


@given(st.text(LETTERS, min_size=1, max_size=10))
@FEW
def test_any_text_is_encoded_recorded_and_shown(api: Api, tokenizer: Tokenizer, text: str) -> None:
    prompt = tokenizer.encode(text)
    assert tokenizer.decode_ids(prompt.ids) == prompt
    address = api.record(prompt=text)
    stored = api.json(address)
    assert stored["prompt"] == text
    assert bytes.fromhex("".join(token["hex"] for token in stored["tokens"])).decode() == text
    assert [token["text"] for token in stored["tokens"]] == [token.text for token in prompt.tokens]
    page = address.removeprefix("/api")
    for path in (page, f"{page}/h.0.attn.pattern", f"{page}/lens", "/traces", "/"):
        shown = tree(api.ask("GET", path).raise_for_status().text)
        assert shown.all("main"), path
    words = tree(api.ask("GET", page).text).text
    assert all(token.text.strip() in words for token in prompt.tokens)
    api.ask("DELETE", address)


def _single(tokenizer: Tokenizer) -> dict[int, list[int]]:
    """The ids that stand for one byte."""
    if not _SINGLE:
        for id in range(tokenizer.vocabulary_size):
            if len(bytes_of := tokenizer.token(id).bytes) == 1:
                _SINGLE.setdefault(bytes_of[0], []).append(id)
        assert sorted(_SINGLE) == list(range(256))
    return _SINGLE


_SINGLE: dict[int, list[int]] = {}

# --- statistics ---

CELLS = st.lists(
    st.floats(width=32, min_value=-(2.0**99), max_value=2.0**99)
    | st.sampled_from([math.nan, math.inf, -math.inf, 0.0]),
    min_size=1,
    max_size=60,
)


@given(CELLS, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50)
def test_the_order_of_cells_changes_no_statistic_but_by_rounding(cells: list[float], random: Random) -> None:
    shuffled = cells[:]
    random.shuffle(shuffled)
    one, other = summarize(torch.tensor(cells)), summarize(torch.tensor(shuffled))
    for exact in ("count_finite", "count_nan", "count_zero", "minimum", "maximum", "quantiles", "histogram"):
        assert getattr(one, exact) == getattr(other, exact)
    if one.mean is not None and one.maximum is not None and one.minimum is not None:
        widest = max(abs(one.maximum), abs(one.minimum))
        assert one.mean == pytest.approx(other.mean, rel=1e-9, abs=1e-12 * widest)
        assert one.minimum <= one.mean + 1e-12 * widest and one.mean - 1e-12 * widest <= one.maximum


@given(CELLS, st.lists(st.floats(width=32, allow_nan=True), max_size=20))
@settings(deadline=None, max_examples=50)
def test_masked_cells_are_counted_and_change_nothing_else(cells: list[float], hidden: list[float]) -> None:
    alone = summarize(torch.tensor(cells))
    masked = torch.tensor([False] * len(cells) + [True] * len(hidden))
    among = summarize(torch.tensor(cells + hidden), masked)
    assert (among.count_masked, among.count_total) == (len(hidden), len(cells) + len(hidden))
    for same in ("count_finite", "count_nan", "count_posinf", "count_neginf", "count_zero", "minimum", "maximum"):
        assert getattr(among, same) == getattr(alone, same)
    assert (among.quantiles, among.histogram) == (alone.quantiles, alone.histogram)


SOME_SITES = ("logits", "tokens", *[row.site for row in CATALOGUE if is_layered(row.site)][::3])


@pytest.mark.parametrize("row", SOME_SITES)
def test_the_api_counts_what_is_in_the_file(api: Api, trace: str, row: str) -> None:
    first = next(step for step in (0, 1) if CATALOGUE.row(row).steps.cover(step))
    place = str(Address(row, 0 if is_layered(row) else None, first))
    values = api.values(f"{trace}/tensors/{place}.npy").astype(np.float64)
    found = api.json(f"{trace}/tensors/{place}")
    assert found["shape"] == list(values.shape)
    assert (
        found["count_total"]
        == values.size
        == sum(found[f"count_{kind}"] for kind in ("finite", "nan", "posinf", "neginf", "masked"))
    )
    if not found["count_masked"] and values.size:
        assert (found["min"], found["max"]) == (values.min(), values.max())
        assert found["mean"] == pytest.approx(values.mean(), rel=1e-9, abs=1e-12)


# --- comparisons ---

IDS = st.lists(st.integers(0, 50256), min_size=1, max_size=5)


@given(IDS, IDS)
@FEW
def test_a_comparison_reads_the_same_from_both_sides(api: Api, left: list[int], right: list[int]) -> None:
    a, b = (api.record(ids=ids).rpartition("/")[2] for ids in (left, right))
    there, back = (
        api.ask("GET", "/api/compare", params={"a": one, "b": other}).raise_for_status().json()
        for one, other in ((a, b), (b, a))
    )
    assert there["agrees"] == back["agrees"]
    assert (there["only_a"], there["only_b"]) == (back["only_b"], back["only_a"])
    mirrored = {row["address"]: row for row in back["rows"]}
    assert len(mirrored) == len(there["rows"])
    for row in there["rows"]:
        other = mirrored[row["address"]]
        assert (row["compared"], row["largest"]) == (other["compared"], other["largest"])
        assert row["shapes"] == other["shapes"][::-1]
    if left == right:
        assert there["agrees"] and there["first_divergence"] is None
        assert {row["largest"] for row in there["rows"]} == {0.0}
    for id in {a, b}:
        api.ask("DELETE", f"/api/traces/{id}")
