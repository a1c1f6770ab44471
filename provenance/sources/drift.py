"""Drift: where cited lines stand in another content of the same file, and whether their text is the same.

An anchor counts statements (`x#2`), so in another content it may resolve and yet hit another
statement. So anchors are not asked there: the statements of a function are paired with those of its
other version, and the pairing says where the cited ones went.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from provenance.citation import Anchor, Citation, Span
from provenance.errors import AnchorMoved
from provenance.sources.anchors import Statement, check, resolve, statements
from provenance.sources.pairing import Unit, pair, unindented
from provenance.syntax import parse_module


class Drift(StrEnum):
    """What became of cited lines in another content."""

    SAME = "same"
    MOVED = "moved"
    CHANGED = "changed"
    VANISHED = "vanished"


@dataclass(frozen=True, slots=True)
class Change:
    """A span of a citation, and its counterpart in another content.

    `new_anchor` resolves to the new lines; it is None, and the lines are 0, where the span
    vanished. `note` says what a person should know beside the state.
    """

    citation: Citation
    span: Span
    state: Drift
    old_text: str
    new_text: str = ""
    new_first: int = 0
    new_last: int = 0
    new_anchor: Anchor | None = None
    note: str = ""

    @property
    def new_span(self) -> Span | None:
        """The counterpart as a span; None where it vanished."""
        return None if self.new_anchor is None else Span(self.new_first, self.new_last, self.new_anchor)


def resolve_all(citations: Iterable[Citation], pinned: bytes, source: bytes) -> tuple[Change, ...]:
    """What became of every span of the citations, from the pinned content to another one.

    Raises AnchorMoved where a span does not stand in `pinned`, or where `source` is no Python.
    """
    try:
        parse_module(source)
    except (SyntaxError, ValueError) as error:
        raise AnchorMoved(f"The other content cannot be read as Python: {error}.") from error
    return tuple(_change(citation, span, pinned, source) for citation in citations for span in citation.spans)


def lines_of(source: bytes, first: int, last: int) -> str:
    """The text of lines `first` to `last`."""
    return "\n".join(_lines(source)[first - 1 : last])


def _change(citation: Citation, span: Span, pinned: bytes, source: bytes) -> Change:
    check(pinned, span)
    text = lines_of(pinned, span.first, span.last)
    try:
        anchor = _counterpart(pinned, source, span.anchor)
    except AnchorMoved as reason:
        note = f"{reason.message}{_elsewhere(source, text)}"
        return Change(citation, span, Drift.VANISHED, text, note=note)
    first, last = resolve(source, anchor)
    new_text = lines_of(source, first, last)
    if new_text != text:
        state = Drift.CHANGED
    else:
        state = Drift.SAME if (first, last) == (span.first, span.last) else Drift.MOVED
    note = _trap(source, span.anchor, anchor)
    if state is Drift.CHANGED and new_text.split() == text.split():
        note = f"Only blanks differ. {note}".strip()
    return Change(citation, span, state, text, new_text, first, last, anchor, note)


def _counterpart(pinned: bytes, source: bytes, anchor: Anchor) -> Anchor:
    """The anchor of the same statements in the other content. Raises AnchorMoved."""
    if anchor.start is None:
        resolve(source, anchor)
        return anchor
    start = _selector(pinned, source, anchor.function, anchor.start)
    end = None if anchor.end is None else _selector(pinned, source, anchor.function, anchor.end)
    found = Anchor(anchor.function, start, end)
    resolve(source, found)
    return found


def _selector(pinned: bytes, source: bytes, function: str, selector: str) -> str:
    """What selects a statement's counterpart: the same name where it still has that."""
    old, new = statements(pinned, function), statements(source, function)
    index = next(i for i, statement in enumerate(old) if selector in _selectors(statement))
    paired = _paired(pinned, source, function).get(index)
    if paired is None:
        raise AnchorMoved(f"{function!r} has no counterpart of its statement {selector!r} (line {old[index].first}).")
    known = new[paired].selectors
    if not known:
        raise AnchorMoved(f"Nothing selects the counterpart of {selector!r} at line {new[paired].first}.")
    name = selector.partition("#")[0]
    return next((one for one in known if one.partition("#")[0] == name), known[0])


def _selectors(statement: Statement) -> Iterable[str]:
    """The selectors, with `name#1` for `name`."""
    yield from statement.selectors
    yield from (f"{one}#1" for one in statement.selectors if "#" not in one)


@lru_cache(maxsize=128)
def _paired(pinned: bytes, source: bytes, function: str) -> dict[int, int]:
    return pair(_units(pinned, function), _units(source, function))


def _units(source: bytes, function: str) -> list[Unit]:
    return [
        Unit(
            unindented(lines_of(source, statement.first, statement.last)),
            frozenset(one.partition("#")[0] for one in statement.selectors),
        )
        for statement in statements(source, function)
    ]


@lru_cache(maxsize=8)
def _lines(source: bytes) -> tuple[str, ...]:
    return tuple(source.decode("utf-8").split("\n"))


def _trap(source: bytes, pinned: Anchor, found: Anchor) -> str:
    """A warning where the pinned anchor, taken as it is, would hit other lines."""
    if pinned == found:
        return ""
    try:
        first, last = resolve(source, pinned)
    except AnchorMoved:
        return ""
    return f"The pinned anchor {str(pinned)!r} would hit other lines there: {Span(first, last, pinned)}."


def _elsewhere(source: bytes, text: str) -> str:
    """Where a vanished text stands after all, if in one place: its function may have another name."""
    lines, wanted = _lines(source), text.split("\n")
    size = len(wanted)
    places = [n for n in range(len(lines) - size + 1) if list(lines[n : n + size]) == wanted]
    if len(places) != 1:
        return ""
    first, last = places[0] + 1, places[0] + size
    return f" The same text stands at {f'line {first}' if size == 1 else f'lines {first}–{last}'}."
