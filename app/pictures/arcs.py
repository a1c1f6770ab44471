"""Attention over the prompt's text: arcs from one query to the keys, and the strongest keys as a list."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.pages.numbers import Number, rounded
from app.pictures.parts import visible
from provenance.pictures.cells import Array, Mask, exact

MOST_TOKENS = 200
"""The most tokens that are drawn; longer texts are drawn in parts."""
MOST_ARCS = 24
TOP = 5
_CHARACTER, _LINE, _GAP, _BOX, _ROOM = 8.4, 660.0, 6.0, 24.0, 34.0
_WEAKEST = 0.01


@dataclass(frozen=True, slots=True)
class Word:
    """A token in the text: its box, and the root of the query's weight on it. `url` picks it as the query."""

    x: float
    y: float
    width: float
    text: str
    weight: float
    chosen: bool
    url: str
    says: str


@dataclass(frozen=True, slots=True)
class Arc:
    """A line from the query to a key, as an SVG path."""

    path: str
    width: float
    opacity: float
    says: str


@dataclass(frozen=True, slots=True)
class ArcPicture:
    """The text with its arcs. `outside` is the weight on keys that are not drawn, where there are any."""

    width: float
    height: float
    box: float
    words: tuple[Word, ...]
    arcs: tuple[Arc, ...]
    first: int
    last: int
    size: int
    outside: Number | None
    alternative: str


@dataclass(frozen=True, slots=True)
class Attended:
    """A key among the strongest ones of a query."""

    rank: int
    index: int
    token: str
    value: Number
    share: float
    url: str
    chosen: bool


def is_distribution(row: Array, hidden: Mask | None) -> bool:
    """Whether a query's cells are weights: none negative, together 1."""
    cells = row.astype(np.float64)
    shown = cells if hidden is None else cells[~hidden]
    return bool(shown.size and np.isfinite(shown).all() and (shown >= 0).all() and abs(shown.sum() - 1) < 1e-2)


def strongest(
    row: Array, hidden: Mask | None, tokens: Sequence[str], url: Callable[[int], str], chosen: int, most: int = TOP
) -> tuple[Attended, ...]:
    """The keys with the largest cells of one query, the largest first; masked ones never."""
    usable = np.isfinite(row) if hidden is None else np.isfinite(row) & ~hidden
    order = np.argsort(np.where(usable, -row.astype(np.float64), np.inf), kind="stable")
    order = order[: min(most, int(usable.sum()))]
    largest = max((abs(float(row[key])) for key in order), default=0.0) or 1.0
    return tuple(
        Attended(
            rank,
            int(key),
            tokens[key] if key < len(tokens) else "",
            Number(rounded(float(row[key])), exact(row[key])),
            round(max(0.0, float(row[key])) / largest, 4),
            url(int(key)),
            int(key) == chosen,
        )
        for rank, key in enumerate(order, start=1)
    )


def arc_picture(
    weights: Array, hidden: Mask | None, tokens: Sequence[str], query: int, url: Callable[[int], str]
) -> ArcPicture:
    """The weights (keys) of the query that stands at key `query`, drawn over the tokens.

    `url` is the page on which the token at a key is the query, empty where it is none.
    """
    values = np.where(hidden, 0.0, weights.astype(np.float64)) if hidden is not None else weights.astype(np.float64)
    size = len(values)
    first = query // MOST_TOKENS * MOST_TOKENS
    last = min(size, first + MOST_TOKENS) - 1
    words = _words(values, tokens, query, url, first, last)
    at = {first + n: word for n, word in enumerate(words)}
    order = [int(key) for key in np.argsort(-values, kind="stable")[:MOST_ARCS] if values[key] > 0]
    keys = order[:TOP] + [key for key in order[TOP:] if values[key] >= _WEAKEST]
    arcs = tuple(
        Arc(
            _arc(at[query], at[key]),
            round(0.8 + 5 * float(values[key]) ** 0.5, 2),
            round(0.2 + 0.7 * float(values[key]) ** 0.5, 3),
            f"{tokens[query]!r} attends to {tokens[key]!r}: {rounded(float(values[key]))}",
        )
        for key in keys
        if key in at
    )
    drawn = float(values[first : last + 1].sum())
    outside = None if last + 1 - first == size else Number(rounded(max(0.0, float(values.sum()) - drawn)), "")
    return ArcPicture(
        width=_LINE,
        height=words[-1].y + _BOX + 4,
        box=_BOX,
        words=tuple(words),
        arcs=arcs,
        first=first,
        last=last,
        size=size,
        outside=outside,
        alternative=_alternative(values, tokens, query, keys),
    )


def _words(
    values: Array, tokens: Sequence[str], query: int, url: Callable[[int], str], first: int, last: int
) -> list[Word]:
    words: list[Word] = []
    x, y = 0.0, _ROOM
    for key in range(first, last + 1):
        text = visible(tokens[key], 24)
        width = round(len(text) * _CHARACTER + 8, 1)
        if x and x + width > _LINE:
            x, y = 0.0, y + _BOX + _ROOM
        weight = float(values[key])
        says = f"{key} “{tokens[key]}”: weight {rounded(weight)}"
        words.append(
            Word(round(x, 1), y, width, text, round(max(0.0, weight) ** 0.5, 3), key == query, url(key), says)
        )
        x += width + _GAP
    return words


def _arc(query: Word, key: Word) -> str:
    """From the top of the query's box to the top of the key's; a loop where both are the same."""
    start, end = query.x + query.width / 2, key.x + key.width / 2
    if query is key:
        return f"M{start - 6:g} {query.y:g}c-4 -18 16 -18 12 0"
    if query.y == key.y:
        height = min(_ROOM - 4, 10 + abs(end - start) / 12)
        return f"M{start:g} {query.y:g}C{start:g} {query.y - height:g} {end:g} {key.y - height:g} {end:g} {key.y:g}"
    bottom = key.y + _BOX
    middle = (query.y + bottom) / 2
    return f"M{start:g} {query.y:g}C{start:g} {middle:g} {end:g} {middle:g} {end:g} {bottom:g}"


def _alternative(values: Array, tokens: Sequence[str], query: int, keys: list[int]) -> str:
    named = [f"{rounded(float(values[key]))} to token {key} “{tokens[key]}”" for key in keys[:3]]
    return f"Token {query} “{tokens[query]}” attends most with weight {', '.join(named)}."
