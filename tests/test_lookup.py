"""A tensor is found by its site, address, expression or another library's name, and a search says why."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provenance.errors import AmbiguousName, UnknownSite
from provenance.gpt2.catalogue import CATALOGUE
from provenance.lookup import find, named, normal_expression, search
from provenance.names import Address, is_layered
from provenance.naming import KEY, MODULE, SCOPE

ALIASES = [(row, alias) for row in CATALOGUE for alias in row.aliases]


def found(name: str) -> tuple[str, str | None]:
    row, address = find(CATALOGUE, name)
    return row.site, None if address is None else str(address)


def test_every_site_and_every_address_is_found() -> None:
    for row in CATALOGUE:
        layer = 7 if is_layered(row.site) else None
        address = Address(row.site, layer, 2)
        assert found(row.site) == (row.site, None)
        assert found(str(address)) == (row.site, str(address))


@pytest.mark.parametrize(
    ("name", "site"),
    [
        ("norm(x, 'ln_1')", "h.ln_1.out"),
        ('norm( x,"ln_1" )', "h.ln_1.out"),
        ("  norm(x,'ln_2')\n", "h.ln_2.out"),
        ("norm(h, 'ln_f')", "ln_f.out"),
        ("conv1d(x, 'c_fc', n_state)", "h.mlp.c_fc.c"),
        ("tf.gather(wte,X)", "embed.tokens"),
        ("positions_for(X, past_length)", "positions"),
        ('results["present"]', "presents"),
        ("ex / tf.reduce_sum(ex, axis = axis, keepdims = True)", "h.attn.pattern"),
        ("ex", "h.attn.softmax.ex"),
        ("pk", "h.attn.pk"),
        ("h2", "h.mlp.h2"),
        ("x+a", "h.resid_mid"),
        ("X", "tokens"),
    ],
)
def test_an_expression_is_found_in_any_spelling(name: str, site: str) -> None:
    assert found(name) == (site, None)


def test_an_expression_of_several_sites_lists_each_with_its_lines() -> None:
    with pytest.raises(AmbiguousName) as refused:
        find(CATALOGUE, "k")
    assert refused.value.candidates == (
        "h.attn.k  Keys (line 103 in attn)",
        "h.attn.k_all  All keys (line 107 in attn)",
    )
    assert str(refused.value) == (
        "'k' names 2 different tensors:\n"
        "  h.attn.k  Keys (line 103 in attn)\n"
        "  h.attn.k_all  All keys (line 107 in attn)"
    )
    with pytest.raises(AmbiguousName) as refused:
        find(CATALOGUE, "x")
    listed = "\n".join(refused.value.candidates)
    assert "h.ln_1.normalized  LayerNorm 1, before gain and bias (line 36 in norm from line 126)" in listed
    assert "h.ln_1.out  Normalized attention input (line 37 in norm from line 126" in listed
    assert "h.attn.softmax.x  Scores below the maximum (line 21 in softmax)" in listed
    assert "h.resid_mid  Residual stream after attention (line 127 in block)" in listed
    assert "h.resid_post  Residual stream after the block (line 129 in block)" in listed


def test_every_candidate_of_an_ambiguous_name_can_be_found_by_its_site() -> None:
    for name in {row.name for row in CATALOGUE}:
        rows = named(CATALOGUE, name)
        if len(rows) > 1 and name not in CATALOGUE.rows:
            with pytest.raises(AmbiguousName) as refused:
                find(CATALOGUE, name)
            assert [candidate.split()[0] for candidate in refused.value.candidates] == [row.site for row in rows]
            assert all("line " in candidate for candidate in refused.value.candidates)


@pytest.mark.parametrize(
    ("name", "site", "address"),
    [
        ("transformer.h.3.attn.c_attn.weight", "h.attn.c_attn.w", "h.3.attn.c_attn.w"),
        ("h.3.attn.c_attn.weight", "h.attn.c_attn.w", "h.3.attn.c_attn.w"),
        ("h.11.ln_2.bias", "h.ln_2.b", "h.11.ln_2.b"),
        ("transformer.h.0.mlp.act", "h.mlp.h", "h.0.mlp.h"),
        ("transformer.h.5", "h.resid_post", "h.5.resid_post"),
        ("transformer.h.5.attn", "h.attn.out", "h.5.attn.out"),
        ("model/h3/attn/c_attn", "h.attn.c_attn.c", "h.3.attn.c_attn.c"),
        ("model/h3/attn/c_attn/w", "h.attn.c_attn.w", "h.3.attn.c_attn.w"),
        ("model/ln_f/g", "ln_f.g", None),
        ("wte.weight", "wte", None),
        ("transformer.wte", "embed.tokens", None),
        ("lm_head", "logits", None),
        ("transformer.h.{layer}.mlp.c_fc", "h.mlp.c_fc.c", None),
    ],
)
def test_the_names_of_other_libraries_give_the_site_and_the_address_where_they_have_a_layer(
    name: str, site: str, address: str | None
) -> None:
    assert found(name) == (site, address)


def test_every_alias_of_every_site_is_found_and_no_two_sites_share_one() -> None:
    patterns = [alias.pattern for _, alias in ALIASES]
    assert len(set(patterns)) == len(patterns)
    assert {alias.scheme for _, alias in ALIASES} >= {KEY, MODULE, SCOPE}
    for row, alias in ALIASES:
        assert is_layered(row.site) == ("{layer}" in alias.pattern)
        name = alias.pattern.replace("{layer}", "10")
        expected = (row.site, str(Address(row.site, 10)) if is_layered(row.site) else None)
        assert found(name) == expected, name


@pytest.mark.parametrize(
    "name",
    ["transformer.h.x.attn", "transformer.h..attn", "transformer.h.-1.attn", "transformer.h.٣.attn", "model/h"],
)
def test_an_alias_needs_a_number_in_the_place_of_the_layer(name: str) -> None:
    with pytest.raises(UnknownSite):
        find(CATALOGUE, name)


@pytest.mark.parametrize(
    ("typo", "near"),
    [
        ("h.attn.scors", "h.attn.scores"),
        ("attn.scores", "h.attn.scores"),
        ("h.3.attn.patern", "h.attn.pattern"),
        ("h.attn.scores@2", "h.attn.scores"),
        ("logit", "logits"),
        ("Attention patern", "h.attn.pattern"),
        ("resid_post", "h.resid_post"),
    ],
)
def test_a_typo_gets_near_matches(typo: str, near: str) -> None:
    with pytest.raises(UnknownSite) as refused:
        find(CATALOGUE, typo)
    assert near in refused.value.near
    assert f"There is no tensor named {typo!r}. Did you mean " in str(refused.value)


NASTY = [
    "",
    " ",
    "(" * 300,
    "-" * 3000 + "1",
    "a." * 3000 + "b",
    "\x00",
    "lambda: 0",
    "x" * 10_000,
    "'",
    "\\d",
    "1 is 1",
]


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
@pytest.mark.slow
def test_no_text_breaks_looking_up_or_searching(text: str) -> None:
    assert isinstance(normal_expression(text), str)
    search(CATALOGUE, text)
    with pytest.raises(UnknownSite):
        find(CATALOGUE, text)


@given(st.text(max_size=30))
def test_any_text_can_be_searched(text: str) -> None:
    scores = [match.score for match in search(CATALOGUE, text)]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("query", "site", "reason"),
    [
        ("h.3.attn.scores@2", "h.attn.scores", "is its address"),
        ("h.attn.scores", "h.attn.scores", "is its address"),
        ("norm(x,\"ln_1\")", "h.ln_1.out", "is its expression"),
        ("softmax(w)", "h.attn.pattern", "is its expression"),
        ("logits", "logits", "is its address"),
        ("transformer.h.3.attn.c_attn", "h.attn.c_attn.c", "is called transformer.h.N.attn.c_attn in "
                                                           "transformers' module"),
        ("model/h3/mlp/c_fc/w", "h.mlp.c_fc.w", "is called model/hN/mlp/c_fc/w in OpenAI's variable scope"),
        ("queries", "h.attn.q", "in its title"),
        ("softmax makes", "logits", "in its description"),
        ("  Attention Pattern ", "h.attn.pattern", "in its title"),
    ],
)  # fmt: skip
def test_the_best_match_says_why_it_was_found(query: str, site: str, reason: str) -> None:
    best = search(CATALOGUE, query)[0]
    assert (best.row.site, best.reason) == (site, reason)


def test_a_variable_is_found_at_every_line_that_binds_it() -> None:
    reasons = {match.row.site: match.reason for match in search(CATALOGUE, "w")}
    assert reasons["h.attn.scores_raw"] == "is bound at line 93"
    assert reasons["h.attn.scores"] == "is bound at line 94"
    assert reasons["h.attn.c_attn.w"] == "is its expression"


def test_words_are_found_in_any_order() -> None:
    assert {"h.mlp.c_proj.b"} <= {match.row.site for match in search(CATALOGUE, "bias mlp projection")}
    assert search(CATALOGUE, "bias zebra") == ()


def test_nothing_is_found_for_nothing() -> None:
    assert search(CATALOGUE, "") == search(CATALOGUE, "   ") == ()


def test_a_search_finds_each_row_once() -> None:
    for query in ("h", "attention", "x", "w", "transformer"):
        sites = [match.row.site for match in search(CATALOGUE, query)]
        assert sites
        assert not [site for site, group in itertools.groupby(sorted(sites)) if len(list(group)) > 1]
