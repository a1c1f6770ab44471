"""Pins, spans and citations: what they print, and what they refuse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provenance.citation import Anchor, Blob, Citation, Package, Pin, Span, cite
from provenance.errors import InvalidInput
from provenance.gpt2.pins import OPENAI, TRANSFORMERS

SELECTORS = st.from_regex(r"[a-z_][a-z_.\[\]']{0,8}(#[1-9])?", fullmatch=True).filter(
    lambda text: ".." not in text and not text.endswith(".")
)
FUNCTIONS = st.from_regex(r"[A-Za-z_]{1,6}(\.[A-Za-z_]{1,6})?", fullmatch=True)


@st.composite
def anchors(draw: st.DrawFn) -> Anchor:
    start = draw(st.none() | SELECTORS)
    return Anchor(draw(FUNCTIONS), start, None if start is None else draw(st.none() | SELECTORS))


@given(anchors())
def test_an_anchor_that_is_printed_is_parsed_back(anchor: Anchor) -> None:
    assert Anchor.parse(str(anchor)) == anchor


def test_a_citation_with_a_gap_gives_its_lines_gap_and_permalink() -> None:
    citation = cite(
        TRANSFORMERS,
        ("GPT2Block.__init__:self.ln_1", 252),
        ("GPT2Block.forward:residual..hidden_states", 272, 273),
    )
    assert (citation.first, citation.last, citation.lines) == (252, 273, "252–273")
    assert citation.gaps == ((253, 271),)
    assert citation.permalink == (
        "https://github.com/huggingface/transformers/blob/71c6f699ac9b3f8fc42a6a3e9dc59034c349a678/"
        "src/transformers/models/gpt2/modeling_gpt2.py#L252-L273"
    )
    assert 252 in citation
    assert 253 not in citation
    assert 272 in citation


def test_a_single_line_is_written_as_one() -> None:
    citation = cite(OPENAI, ("mlp:h", 118))
    assert (citation.lines, str(citation.spans[0]), citation.gaps) == ("118", "118", ())
    assert citation.permalink.endswith("/src/model.py#L118")
    assert OPENAI.key == "openai/gpt-2/src/model.py"


def test_lines_behind_the_shared_ones_are_not_shared() -> None:
    assert cite(TRANSFORMERS, ("f", 446)).shared
    assert not cite(TRANSFORMERS, ("f", 446, 447)).shared
    assert cite(OPENAI, ("f", 174)).shared


def test_adjacent_spans_leave_no_gap() -> None:
    assert cite(OPENAI, ("f", 5), ("g", 6, 7)).gaps == ()


@pytest.mark.parametrize("spans", [(), ((3, 2),), ((5, 6), (2, 3)), ((0, 1),)])
def test_spans_out_of_order_are_refused(spans: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InvalidInput, match="not in order"):
        Citation(OPENAI, tuple(Span(first, last, Anchor("f")) for first, last in spans))


@pytest.mark.parametrize("revision", ["9b63575ef427", "9b63575ef42771a015060c964af2c3da4cf7c8ag", "main"])
def test_a_pin_needs_a_full_revision(revision: str) -> None:
    with pytest.raises(InvalidInput, match="40-digit revision"):
        Pin("a", "b/c", revision, "d.py", (Blob("0" * 40),), None, "MIT")


@pytest.mark.parametrize(("blobs", "shared"), [(1, 5), (2, None)])
def test_several_blobs_and_shared_lines_go_together(blobs: int, shared: int | None) -> None:
    with pytest.raises(InvalidInput, match="go together"):
        Pin("a", "b/c", "0" * 40, "d.py", tuple(Blob(f"{i}" * 40) for i in range(blobs)), shared, "MIT")


def test_a_blob_is_named_after_the_release_that_carries_it() -> None:
    assert Blob("0" * 40, (Package("torch", "1.0", "t.py"),)).release == "torch 1.0"
    assert Blob("0" * 40).release == "blob 000000000000"
