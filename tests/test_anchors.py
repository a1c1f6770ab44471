"""Anchors resolve to the lines that the reference page cites, and to nothing by luck."""

from importlib import metadata
from pathlib import Path

import pytest

from provenance.citation import Anchor, Span
from provenance.errors import AnchorMoved
from provenance.gpt2.pins import OPENAI, TRANSFORMERS
from provenance.sources import check, resolve

SMALL = b"""\
import functools

@functools.cache
def outer(first, *,
          second=lambda: 0):
    total = {}
    def inner(total):
        total = 0
        return total
    for left, (right, *rest) in pairs:  # a comment
        # another comment, behind the header

        total['sum'] += left
        self.deep.value: int = right
    if (
        left
        and right
    ):
        emit.many(left); emit.many(right)
    elif lambda: 0:
        raise ValueError
    with open(
        'x',
    ) as handle:
        pass
    try:
        assert left
    except ValueError:
        fallback = 1
    finally:
        last = (
            2
        )
    match last:
        case 2:
            matched = 1
    if left: one = 1
    return total


class Thing:
    size = 3

    async def method(self):
        await self.call(1)


def twice(): return 1
def twice(): return 2
"""


def source_of(pin_index: int) -> bytes:
    package = (OPENAI, TRANSFORMERS)[pin_index].blobs[0].packages[0]
    return Path(str(metadata.distribution(package.distribution).locate_file(package.file))).read_bytes()


@pytest.mark.parametrize(
    ("pin_index", "anchor", "first", "last"),
    [
        (0, "norm", 28, 38),
        (0, "conv1d", 50, 56),
        (0, "attn:with..q", 101, 103),
        (0, "attn:with..present", 101, 104),
        (0, "attn.mask_attn_weights", 83, 89),
        (0, "attn.mask_attn_weights:b#2", 87, 87),
        (0, "attn.multihead_attn:w..w#2", 93, 94),
        (0, "attn:a", 109, 109),
        (0, "model:results['present']", 166, 166),
        (0, "model:presents.append", 165, 165),
        (0, "model:for", 163, 163),
        (0, "model:wpe", 152, 153),
        (0, "block:return", 130, 130),
        (1, "GPT2Block.__init__:self.ln_1", 252, 252),
        (1, "GPT2Block.forward:residual..hidden_states", 272, 273),
        (1, "GPT2Attention.forward:query_states#2..query_states#3", 185, 191),
        (1, "GPT2Attention.forward:if#7", 193, 195),
        (1, "GPT2MLP", 229, 243),
        (1, "GPT2MLP.forward", 238, 243),
    ],
)
def test_an_anchor_gives_the_lines_of_the_cited_file(pin_index: int, anchor: str, first: int, last: int) -> None:
    assert resolve(source_of(pin_index), Anchor.parse(anchor)) == (first, last)


@pytest.mark.parametrize(
    ("anchor", "lines"),
    [
        ("outer", (4, 38)),
        ("outer.inner", (7, 9)),
        ("outer:total", (6, 6)),
        ("outer:total['sum']", (13, 13)),
        ("outer:for", (10, 10)),
        ("outer:left", (10, 10)),
        ("outer:right", (10, 10)),
        ("outer:rest", (10, 10)),
        ("outer:self.deep.value", (14, 14)),
        ("outer:if", (15, 18)),
        ("outer:if#2", (20, 20)),
        ("outer:if#3", (37, 37)),
        ("outer:emit.many#2", (19, 19)),
        ("outer:raise", (21, 21)),
        ("outer:with", (22, 24)),
        ("outer:handle", (22, 24)),
        ("outer:assert", (27, 27)),
        ("outer:fallback", (29, 29)),
        ("outer:last", (31, 33)),
        ("outer:matched", (36, 36)),
        ("outer:return", (38, 38)),
        ("outer:for..with", (10, 24)),
        ("Thing", (41, 45)),
        ("Thing:size", (42, 42)),
        ("Thing.method:self.call", (45, 45)),
    ],
)
def test_each_kind_of_statement_can_be_named(anchor: str, lines: tuple[int, int]) -> None:
    assert resolve(SMALL, Anchor.parse(anchor)) == lines


@pytest.mark.parametrize(
    ("anchor", "words"),
    [
        ("absent", "is not defined"),
        ("outer.absent", "'absent'"),
        ("outer:absent", "has 0 such"),
        ("outer:emit.many#3", "has 2 such (lines: 19, 19)"),
        ("outer:return..total", "before its start"),
        ("outer.inner:first", "has 0 such"),
        ("twice", "defined 2 times"),
    ],
)
def test_what_is_not_there_is_refused_with_a_reason(anchor: str, words: str) -> None:
    with pytest.raises(AnchorMoved) as caught:
        resolve(SMALL, Anchor.parse(anchor))
    assert words in caught.value.message


def test_a_source_that_is_not_python_is_refused() -> None:
    with pytest.raises(AnchorMoved, match="cannot be read as Python"):
        resolve(b"def f(:\n", Anchor("f"))


def test_a_span_must_stand_at_exactly_its_lines() -> None:
    check(SMALL, Span(7, 9, Anchor("outer.inner")))
    with pytest.raises(AnchorMoved, match="stands at lines 7–9, not at 7–10"):
        check(SMALL, Span(7, 10, Anchor("outer.inner")))


def test_one_inserted_line_moves_every_anchor_behind_it() -> None:
    moved = SMALL.replace(b"import functools\n", b"import functools\nimport ast\n")
    assert resolve(moved, Anchor.parse("outer:for..with")) == (11, 25)
