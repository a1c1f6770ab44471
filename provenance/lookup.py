"""Finding a tensor by whatever name a person has for it: site, address, expression or alias."""

import ast
import difflib
import re
from dataclasses import dataclass, field

from provenance.catalogue import Alias, Catalogue, Intermediate
from provenance.errors import AmbiguousName, InvalidAddress, UnknownSite
from provenance.names import Address
from provenance.syntax import parse_expression


@dataclass(frozen=True, slots=True)
class Match:
    """A row that a search found, and why; the layer where the query names it."""

    row: Intermediate
    reason: str
    score: int = field(compare=False)
    layer: int | None = None


def normal_expression(text: str) -> str:
    """A Python expression in one spelling of quotes and blanks; other text only stripped."""
    try:
        return ast.unparse(parse_expression(text.strip()))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return text.strip()


def named(catalogue: Catalogue, expression: str) -> tuple[Intermediate, ...]:
    """Rows that the cited file holds under that expression, in order of computation."""
    wanted = normal_expression(expression)
    return tuple(
        row
        for row in catalogue
        if wanted in {normal_expression(row.name)} | {normal_expression(p.expression) for p in row.points}
    )


def find(catalogue: Catalogue, name: str) -> tuple[Intermediate, Address | None]:
    """Look a tensor up by site, address, expression or alias; an address where the name fixes one.

    Raises AmbiguousName with the candidates' lines, or UnknownSite with near matches.
    """
    if name in catalogue.rows:
        return catalogue.rows[name], None
    try:
        address = Address.parse(name)
    except InvalidAddress:
        address = None
    if address is not None and address.site in catalogue.rows:
        return catalogue.rows[address.site], address
    rows = named(catalogue, name)
    if len(rows) == 1:
        return rows[0], None
    if rows:
        raise AmbiguousName(name, tuple(_candidate(row, name) for row in rows))
    for row in catalogue:
        for alias in row.aliases:
            if (layer := _alias_layer(alias, name)) is not None:
                return row, Address(row.site, layer) if layer >= 0 else None
    raise UnknownSite(name, catalogue.near(name))


def search(catalogue: Catalogue, query: str) -> tuple[Match, ...]:
    """Rows that fit a query, best first, each with the reason of the match."""
    matches = [match for row in catalogue if (match := _match(row, query.strip())) is not None]
    return tuple(sorted(matches, key=lambda match: -match.score))


def near(catalogue: Catalogue, query: str) -> tuple[Match, ...]:
    """Rows with a name close to a query that nothing fits, best first."""
    wanted = re.sub(r"\d+", "N", query.strip().lower())
    known: dict[str, Match] = {}
    for row in catalogue:
        for alias in row.aliases:
            name = alias.pattern.replace("{layer}", "N")
            known.setdefault(name.lower(), Match(row, f"is called {name} in {alias.scheme}", 0))
        known.setdefault(row.name.lower(), Match(row, "is the expression of this name", 0))
    close = [known[name] for name in difflib.get_close_matches(wanted, known, n=5, cutoff=0.6)]
    close += [Match(catalogue.row(site), "has a title or site like it", 0) for site in catalogue.near(query)]
    return tuple({match.row.site: match for match in reversed(close)}.values())[::-1]


def _candidate(row: Intermediate, expression: str) -> str:
    wanted = normal_expression(expression)
    points = [point for point in row.points if normal_expression(point.expression) == wanted]
    lines = ", ".join(
        f"line {point.line} in {point.function}" + (f" from line {point.caller}" if point.caller else "")
        for point in points or row.points[:1]
    )
    return f"{row.site}  {row.title} ({lines})" if lines else f"{row.site}  {row.title}"


def _alias_layer(alias: Alias, name: str) -> int | None:
    """The layer with which an alias spells the name; -1 where it leaves the layer open."""
    if name == alias.pattern:
        return -1
    head, mark, tail = alias.pattern.partition("{layer}")
    middle = name[len(head) : len(name) - len(tail)]
    if mark and name == head + middle + tail and middle.isascii() and middle.isdigit() and len(middle) < 6:
        return int(middle)
    return None


def _match(row: Intermediate, query: str) -> Match | None:
    folded = query.lower()
    expression = normal_expression(query)
    if not folded:
        return None
    for alias in row.aliases:
        if (layer := _alias_layer(alias, query)) is not None:
            reason = f"is called {alias.pattern.replace('{layer}', 'N')} in {alias.scheme}"
            return Match(row, reason, 95, layer if layer >= 0 else None)
    if folded == row.site or _site_of(query) == row.site:
        return Match(row, "is its address", 100)
    if normal_expression(row.name) == expression:
        return Match(row, "is its expression", 90)
    for point in row.points:
        if normal_expression(point.expression) == expression:
            return Match(row, f"is bound at line {point.line}", 80)
    for text, what, score in (
        (row.title, "title", 60),
        (row.site, "site", 50),
        (row.name, "expression", 45),
        (row.description, "description", 20),
    ):
        if folded in text.lower():
            return Match(row, f"in its {what}", score + (10 if text.lower().startswith(folded) else 0))
    for alias in row.aliases:
        for layer in (None, *dict.fromkeys(re.findall(r"\d{1,5}", folded))):
            spelled = alias.pattern if layer is None else alias.pattern.replace("{layer}", str(int(layer)))
            if folded in spelled.lower():
                pattern = alias.pattern.replace("{layer}", "N")
                named = layer is not None and "{layer}" in alias.pattern
                reason = f"in its name in {alias.scheme}: {pattern}"
                return Match(row, reason, 40, int(layer) if named and layer is not None else None)
    words = folded.split()
    everything = f"{row.title} {row.site} {row.name} {row.description} {' '.join(row.group)}".lower()
    if len(words) > 1 and all(word in everything for word in words):
        return Match(row, "has all these words", 10)
    return None


def _site_of(text: str) -> str | None:
    try:
        return Address.parse(text).site
    except InvalidAddress:
        return None
