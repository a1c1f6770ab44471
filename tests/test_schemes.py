"""Naming schemes: what each calls a tensor, what a name means, and how foreign layouts fit ours."""

import pytest
import torch
from conftest import TINY, tapped_run, tiny_model_of
from hypothesis import given, settings
from hypothesis import strategies as st

from provenance.catalogue import Alias, Intermediate, Kind
from provenance.gpt2.catalogue import CATALOGUE
from provenance.names import Address, is_layered
from provenance.naming import ALIASES, HOOK, KEY, MODULE, SCOPE
from provenance.order import computation_order
from provenance.schemes import (
    Fitted,
    Resolved,
    Scheme,
    Unresolved,
    alias_of,
    fitted,
    laid_out,
    name_of,
    resolve,
    shape_of,
)
from provenance.variants import catalogue_of

TIED = catalogue_of(CATALOGUE, TINY.variants)
ALIASED = [(row, alias) for row in CATALOGUE for alias in row.aliases]
LAYERS = 11
EVERY = [(row, Address(row.site, 7 if is_layered(row.site) else None, step)) for row in CATALOGUE for step in (0, 12)]


def resolved(name: str) -> Resolved:
    found = resolve(CATALOGUE, name)
    assert isinstance(found, Resolved), found
    return found


def unresolved(name: str) -> Unresolved:
    found = resolve(CATALOGUE, name)
    assert isinstance(found, Unresolved), found
    return found


def fits(tensor: torch.Tensor, row: Intermediate, alias: Alias | None, expected: tuple[int, ...]) -> Fitted:
    found = fitted(tensor, row, alias, expected)
    assert isinstance(found, Fitted), found
    return found


# --- names ---


@pytest.mark.parametrize(
    ("address", "scheme", "name"),
    [
        ("h.3.attn.pattern@2", Scheme.SITE, "h.3.attn.pattern@2"),
        ("h.3.attn.pattern@2", Scheme.TRANSFORMERLENS, "blocks.3.attn.hook_pattern@2"),
        ("h.3.attn.pattern", Scheme.TRANSFORMERLENS, "blocks.3.attn.hook_pattern"),
        ("h.3.attn.pattern", Scheme.OPENAI, None),
        ("h.3.attn.c_attn.w", Scheme.OPENAI, "model/h3/attn/c_attn/w"),
        ("h.3.attn.c_attn.w", Scheme.TRANSFORMERS, "transformer.h.3.attn.c_attn.weight"),
        ("h.3.attn.out", Scheme.OPENAI, "model/h3/attn/c_proj"),
        ("h.3.attn.out@1", Scheme.TRANSFORMERS, "transformer.h.3.attn.c_proj@1"),
        ("logits", Scheme.TRANSFORMERS, "lm_head"),
        ("wte", Scheme.TRANSFORMERS, "transformer.wte.weight"),
    ],
)
def test_a_tensor_has_its_name_in_each_scheme(address: str, scheme: Scheme, name: str | None) -> None:
    at = Address.parse(address)
    assert name_of(CATALOGUE.row(at.site), at, scheme) == name


def test_every_kind_of_alias_belongs_to_one_scheme() -> None:
    kinds = [kind for scheme in Scheme for kind in ALIASES[scheme]]
    assert sorted(kinds) == sorted({SCOPE, MODULE, KEY, HOOK})
    assert {alias.scheme for _, alias in ALIASED} == set(kinds)


@pytest.mark.parametrize("scheme", Scheme)
def test_no_two_tensors_of_a_model_share_a_name_in_a_scheme(scheme: Scheme) -> None:
    owners: dict[str, Address] = {}
    for step in (0, 1, 11):
        for address in computation_order(CATALOGUE, LAYERS, step):
            name = name_of(CATALOGUE.row(address.site), address, scheme)
            if name is not None:
                assert owners.setdefault(name, address) == address
    assert len(owners) > 100


@pytest.mark.parametrize("scheme", Scheme)
def test_every_name_that_a_scheme_gives_means_the_same_tensor_again(scheme: Scheme) -> None:
    for row, address in EVERY:
        if name := name_of(row, address, scheme):
            found = resolved(name)
            assert (found.row, found.address) == (row, address)
            assert found.alias == alias_of(row, scheme)


def test_every_other_name_of_a_tensor_means_it_with_its_layer_and_layout() -> None:
    for row, alias in ALIASED:
        found = resolved(f"{alias.pattern.replace('{layer}', '7')}@3")
        assert (found.row, found.alias) == (row, alias)
        assert found.address == Address(row.site, 7 if is_layered(row.site) else None, 3)


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("transformer.h.2.mlp.c_fc.weight", "h.2.mlp.c_fc.w"),
        ("h.2.mlp.c_fc.weight", "h.2.mlp.c_fc.w"),
        ("wpe.weight", "wpe"),
        ("results['logits']", "logits"),
        ('results["logits"]@4', "logits@4"),
        ("h.0.attn.q@0", "h.0.attn.q"),
        ("transformer.h.1.attn", "h.1.attn.out"),
        ("blocks.007.ln1.hook_normalized", "h.7.ln_1.normalized"),
    ],
)
def test_names_are_read_as_people_have_them(name: str, address: str) -> None:
    assert str(resolved(name).address) == address


@pytest.mark.parametrize("name", ["h.attn.scores", "h.attn.scores@1", "norm(x, 'ln_1')"])
def test_a_site_of_the_block_without_its_layer_is_said_and_not_guessed(name: str) -> None:
    found = unresolved(name)
    assert "layer" in found.reason
    assert not found.ambiguous
    (example,) = found.near
    assert resolved(example).address.layer == 0


def test_a_pattern_whose_layer_is_open_is_said_too() -> None:
    found = unresolved("blocks.{layer}.attn.hook_q@2")
    assert found.near == ("blocks.0.attn.hook_q@2",)


def test_an_expression_that_several_rows_have_is_ambiguous() -> None:
    found = unresolved("x")
    assert found.ambiguous
    assert len(found.near) > 2
    assert set(found.near) <= CATALOGUE.rows.keys()


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("blocks.3.attn.hook_patern@2", "blocks.3.attn.hook_pattern@2"),
        ("h.2.attn.score", "h.2.attn.scores"),
        ("transformer.h.4.mlp.c_fc.wieght", "transformer.h.4.mlp.c_fc.weight"),
        ("model/h10/attn/c_atn", "model/h10/attn/c_attn"),
    ],
)
def test_a_misspelt_name_has_its_near_match_with_the_same_layer_and_step(name: str, near: str) -> None:
    found = unresolved(name)
    assert near in found.near
    assert not found.ambiguous


@pytest.mark.parametrize("name", ["", "@", "@1", "x" * 100_000, "9" * 5000, "\x00\n", "h.99999999.attn.q", "{layer}"])
def test_a_name_that_is_none_is_unresolved_and_no_error(name: str) -> None:
    assert unresolved(name).name == name


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_resolves_or_does_not_without_an_error(text: str) -> None:
    found = resolve(CATALOGUE, text)
    assert found.name == text


# --- layouts ---


def test_a_hook_by_token_has_its_heads_behind_the_tokens() -> None:
    row = CATALOGUE.row("h.attn.q")
    alias = alias_of(row, Scheme.TRANSFORMERLENS)
    q = torch.arange(2 * 5 * 3.0).reshape(1, 2, 5, 3)
    theirs = laid_out(q, row, alias)
    assert theirs.shape == (1, 5, 2, 3)
    assert theirs[0, 4, 1, 2] == q[0, 1, 4, 2]


def test_a_hook_that_hides_has_minus_infinity_at_masked_cells_only() -> None:
    row = CATALOGUE.row("h.attn.scores_masked")
    alias = alias_of(row, Scheme.TRANSFORMERLENS)
    scores = torch.tensor([[[[1.0, -1e10], [2.0, 3.0]]]])
    visible = torch.tensor([[True, False], [True, True]])
    assert laid_out(scores, row, alias, visible).tolist() == [[[[1.0, -torch.inf], [2.0, 3.0]]]]
    assert laid_out(scores, row, None, visible) is scores


def test_a_checkpoints_projection_lacks_the_leading_one_and_openais_has_it() -> None:
    row = CATALOGUE.row("h.mlp.c_fc.w")
    w = torch.randn(1, 4, 6)
    assert laid_out(w, row, alias_of(row, Scheme.TRANSFORMERS)).shape == (4, 6)
    assert laid_out(w, row, alias_of(row, Scheme.OPENAI)).shape == (1, 4, 6)
    assert torch.equal(fits(w[0], row, alias_of(row, Scheme.TRANSFORMERS), (1, 4, 6)).tensor, w)
    assert torch.equal(fits(w[0], row, alias_of(row, Scheme.OPENAI), (1, 4, 6)).tensor, w)


def test_every_layout_is_undone_by_fitting_on_a_run_of_the_model() -> None:
    run = tapped_run(tiny_model_of(TINY), steps=1)
    seen = set()
    for name, ours in run.tensors.items():
        address = Address.parse(name)
        row = TIED.row(address.site)
        for scheme in Scheme:
            alias = alias_of(row, scheme)
            theirs = laid_out(ours, row, alias)
            back = fits(theirs, row, alias, tuple(ours.shape))
            assert back.how == ""
            assert torch.equal(back.tensor, ours)
            assert tuple(theirs.shape) == shape_of(ours.shape, row, alias)
            seen.add((scheme, theirs.shape == ours.shape))
    assert (Scheme.TRANSFORMERLENS, False) in seen
    assert (Scheme.TRANSFORMERS, False) in seen


SIZES = st.integers(1, 5)


@settings(deadline=None)
@given(st.sampled_from([pair for pair in ALIASED if not pair[1].hides]), st.data())
@pytest.mark.slow
def test_fitting_undoes_laying_out_for_every_name_and_size(
    pair: tuple[Intermediate, Alias], data: st.DataObject
) -> None:
    row, alias = pair
    sizes = {symbol: 1 if symbol in ("1", "B") else data.draw(SIZES, label=symbol) for symbol in row.shape}
    shape = tuple(sizes[symbol] for symbol in row.shape)
    ours = torch.arange(torch.Size(shape).numel()).reshape(shape)
    theirs = laid_out(ours, row, alias)
    leading = data.draw(st.integers(0, 2), label="extra ones")
    bare = theirs.reshape((1,) * leading + tuple(theirs.shape))
    without = theirs.squeeze(0) if theirs.dim() and theirs.shape[0] == 1 else theirs
    for given_one in (theirs, bare, without):
        assert torch.equal(fits(given_one, row, alias, shape).tensor, ours)


PATTERN = CATALOGUE.row("h.attn.pattern")
Q = CATALOGUE.row("h.attn.q")
HOOK_Q = alias_of(Q, Scheme.TRANSFORMERLENS)


@pytest.mark.parametrize("shape", [(12, 9, 9), (1, 12, 9, 9), (1, 1, 12, 9, 9)])
def test_heads_fit_with_and_without_the_batch(shape: tuple[int, ...]) -> None:
    values = torch.randn(shape)
    found = fits(values, PATTERN, None, (1, 12, 9, 9))
    assert torch.equal(found.tensor, values.reshape(1, 12, 9, 9))
    assert (found.how == "") == (shape == (1, 12, 9, 9))


def test_one_head_alone_fits_a_model_of_one_head() -> None:
    values = torch.randn(9, 9)
    assert torch.equal(fits(values, PATTERN, None, (1, 1, 9, 9)).tensor[0, 0], values)


def test_one_head_alone_does_not_stand_for_twelve() -> None:
    refused = fitted(torch.randn(9, 9), PATTERN, None, (1, 12, 9, 9))
    assert isinstance(refused, str)
    assert "lacks the axis H, of 12" in refused
    assert "[1 B, 12 H, 9 T, 9 S]" in refused


def test_where_tokens_and_heads_are_equally_many_the_name_decides() -> None:
    theirs = torch.randn(1, 4, 4, 3)
    found = fits(theirs, Q, HOOK_Q, (1, 4, 4, 3))
    assert torch.equal(found.tensor, theirs.transpose(1, 2))
    assert found.how == ""
    assert torch.equal(fits(theirs, Q, None, (1, 4, 4, 3)).tensor, theirs)


def test_our_own_layout_under_a_name_that_implies_another_is_taken_and_said() -> None:
    ours = torch.randn(1, 2, 5, 3)
    found = fits(ours, Q, HOOK_Q, (1, 2, 5, 3))
    assert torch.equal(found.tensor, ours)
    assert "our layout" in found.how
    assert "[1, 5, 2, 3]" in found.how


@pytest.mark.parametrize("shape", [(6, 4), (1, 6, 4), (24,), (2, 12), (), (1, 4, 6, 1), (0,)])
def test_what_could_only_fit_by_a_guess_is_refused_with_both_shapes(shape: tuple[int, ...]) -> None:
    row = CATALOGUE.row("h.mlp.c_fc.w")
    refused = fitted(torch.zeros(shape), row, alias_of(row, Scheme.TRANSFORMERS), (1, 4, 6))
    assert isinstance(refused, str)
    assert str(list(shape)) in refused
    assert "[4, 6]" in refused


def test_parameters_are_those_with_a_checkpoints_key() -> None:
    keyed = {row.site for row, alias in ALIASED if alias.scheme == KEY}
    assert keyed == {row.site for row in CATALOGUE if row.kind is Kind.PARAMETER}


def test_near_matches_are_names_that_resolve() -> None:
    near = [close for row, alias in ALIASED for close in _near(alias.pattern.replace("{layer}", "1") + "_")]
    assert len(near) > len(ALIASED)
    assert all(isinstance(resolve(CATALOGUE, close), Resolved) for close in near)


def _near(name: str) -> tuple[str, ...]:
    found = resolve(CATALOGUE, name)
    return found.near if isinstance(found, Unresolved) else ()
