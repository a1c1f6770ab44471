"""Tokens as the pages show them: chips to choose a position by, and rows with ids and bytes."""

from dataclasses import dataclass

from app.pages.links import trace_url, with_query
from app.pages.scope import step_name
from provenance.catalogues import outline_of
from provenance.lens import Position, position_of, sequence
from provenance.prompt import Token
from provenance.trace import Trace

_MOST_CHIPS = 256
_MOST_ROWS = 128


@dataclass(frozen=True, slots=True)
class TokenView:
    """A token: its text, id and bytes. `says` is all of it in words, where it stands included."""

    position: int
    text: str
    id: int
    bytes: str
    origin: str
    chosen: bool
    says: str
    query: str
    current: bool


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a trace around a position. `query` of a token that was not run is empty, and of all where
    the model predicts nothing.

    `before` and `after` count the tokens left out at both ends, and lead there; `table` has fewer
    rows still, and `table_left_out` counts those.
    """

    chips: tuple[TokenView, ...]
    before: int
    before_query: str
    after: int
    after_query: str
    table: tuple[TokenView, ...]
    table_left_out: int
    total: int
    has_spaces: bool
    has_bytes: bool


def tokens_of(trace: Trace, at: Position) -> Tokens:
    """The tokens of a trace, those around a position where there are many."""
    everything = sequence(trace)
    first = max(0, min(at.number - _MOST_CHIPS // 2, len(everything) - _MOST_CHIPS))
    last = min(first + _MOST_CHIPS, len(everything))
    chips = tuple(_view(trace, n, everything[n], n == at.number) for n in range(first, last))
    row = max(first, min(at.number - _MOST_ROWS // 2, last - _MOST_ROWS))
    table = chips[row - first : row - first + _MOST_ROWS]
    return Tokens(
        chips=chips,
        before=first,
        before_query=f"?position={max(0, first - _MOST_CHIPS // 2)}",
        after=len(everything) - last,
        after_query=f"?position={min(last + _MOST_CHIPS // 2, len(everything) - 2)}",
        table=table,
        table_left_out=len(everything) - len(table),
        total=len(everything),
        has_spaces=any(" " in chip.text for chip in chips),
        has_bytes=any(not _is_text(everything[chip.position]) for chip in chips),
    )


def position_url(trace: Trace, number: int) -> str:
    """The trace's page at a position."""
    return with_query(trace_url(trace.id), position=number)


def step_url(trace: Trace, step: int) -> str:
    """The trace's page at the last position of a step."""
    return with_query(trace_url(trace.id), step=step)


def text_before(trace: Trace, at: Position, most: int = 64) -> tuple[str, bool]:
    """The end of the text up to and with a position, and whether something before it is left out."""
    tokens = sequence(trace)[: at.number + 1]
    first = at.number
    size = len(tokens[first].text)
    while first and (size := size + len(tokens[first - 1].text)) <= most:
        first -= 1
    return Token(0, b"".join(token.bytes for token in tokens[first:])).text, first > 0


def hexadecimal(token: Token) -> str:
    """A token's bytes in hexadecimal; a token that the tokenizer lacks has none."""
    return token.bytes.hex(" ") or "none"


def _view(trace: Trace, number: int, token: Token, current: bool) -> TokenView:
    predicts = outline_of(trace.recipe.model).predicts
    prompt = len(trace.recipe.tokens)
    run = number < prompt + trace.last_step
    chosen = number >= prompt
    origin = "prompt" if not chosen else f"chosen at the end of {_named(trace, number - 1)}"
    if trace.recipe.drawn is not None:
        origin = f"seed {trace.recipe.drawn.seed}"
    return TokenView(
        position=number,
        text=token.text,
        id=token.id,
        bytes=hexadecimal(token),
        origin=origin if run else f"{origin}, not run",
        chosen=chosen,
        says=f"position {number} · id {token.id} · bytes {hexadecimal(token)} · {origin}",
        query=f"?position={number}" if run and predicts else "",
        current=current and predicts,
    )


def _named(trace: Trace, number: int) -> str:
    step = position_of(trace, number=number).step
    return f"step {step}" if step else f"the {step_name(step)}"


def _is_text(token: Token) -> bool:
    try:
        token.bytes.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
