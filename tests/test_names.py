"""Addresses print and parse as exact inverses, and refuse what is no address."""

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provenance.errors import InvalidAddress
from provenance.gpt2.catalogue import CATALOGUE
from provenance.names import Address, is_layered, is_site

NUMBERS = st.integers(0, 999_999)
SEGMENT = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
SITES = st.one_of(
    st.sampled_from([row.site for row in CATALOGUE]),
    st.lists(SEGMENT, min_size=1, max_size=4).map(".".join),
)


@st.composite
def addresses(draw: st.DrawFn) -> Address:
    site = draw(SITES)
    return Address(site, draw(NUMBERS) if is_layered(site) else None, draw(st.just(0) | NUMBERS))


@given(addresses())
def test_what_is_printed_is_parsed_back(address: Address) -> None:
    assert Address.parse(str(address)) == address
    assert Address.parse(f"{address.place}@{address.step}") == address
    assert str(Address.parse(str(address))) == str(address)


@given(st.text(alphabet="h.ab19@_-0 \n", max_size=16))
def test_what_is_parsed_prints_as_it_was_written(text: str) -> None:
    try:
        address = Address.parse(text)
    except InvalidAddress:
        return
    assert str(address) == text.removesuffix("@0")


@given(st.text(max_size=20))
def test_no_text_raises_anything_else(text: str) -> None:
    with contextlib.suppress(InvalidAddress):
        assert isinstance(Address.parse(text), Address)


@given(addresses(), addresses())
def test_html_ids_differ_where_addresses_differ(one: Address, other: Address) -> None:
    assert (one.html_id == other.html_id) == (one == other)
    assert re.fullmatch(r"[a-z][a-z0-9_-]*", one.html_id)


def test_the_parts_of_an_address() -> None:
    address = Address.parse("h.3.attn.scores@2")
    assert (address.site, address.layer, address.step) == ("h.attn.scores", 3, 2)
    assert address.place == "h.3.attn.scores"
    assert address.html_id == "h-3-attn-scores-at-2"
    assert str(Address.parse("ln_f.out@0")) == "ln_f.out"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is not an address. An address looks like 'h.3.attn.scores@2'."),
        ("h.attn.scores", "'h.attn.scores' exists once in every layer. Name the layer: 'h.0.attn.scores'."),
        ("h.attn.scores@1", "'h.attn.scores' exists once in every layer. Name the layer: 'h.0.attn.scores'."),
        ("h.-1.attn.out", "'h.-1.attn.out' is not an address."),
        ("h.01.attn.out", "is not an address"),
        ("h.1000000.attn.out", "is not an address"),
        ("h.1.attn.out@01", "is not an address"),
        ("h.1.attn.out@", "is not an address"),
        ("h.1.attn.out\n", "is not an address"),
        ("h.1.Attn.out", "is not an address"),
        ("h.1..out", "is not an address"),
        ("h.1", "is not an address"),
        ("h.٣.attn.out", "is not an address"),
    ],
)
def test_a_text_that_is_no_address_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(InvalidAddress) as refused:
        Address.parse(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("site", "layer", "step", "said"),
    [
        ("logits", 0, 0, "'logits' has no layers. Leave the layer out."),
        ("h.attn.q", None, 0, "exists once in every layer"),
        ("h.attn.q", -1, 0, "counted from 0"),
        ("logits", None, -1, "counted from 0"),
        ("a/b", None, 0, "'a/b' is not the name of a site."),
        ("logits", None, 1_000_000, "at most 999999"),
        ("h.attn.q", 1_000_000, 0, "at most 999999"),
    ],
)
def test_an_address_that_would_not_parse_cannot_be_made(site: str, layer: int | None, step: int, said: str) -> None:
    with pytest.raises(InvalidAddress) as refused:
        Address(site, layer, step)
    assert said in str(refused.value)


def test_every_site_of_the_catalogue_has_the_form_of_one() -> None:
    assert all(is_site(row.site) for row in CATALOGUE)
