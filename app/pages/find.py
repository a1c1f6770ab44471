"""The search page: tensors by any of their names, each with the reason of the match."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.frame import Frame, frame
from app.pages.links import tensor_url, with_query
from app.pages.numbers import plural
from app.pages.scope import Scope
from app.pages.what import AxisChip, axis_chips
from provenance.catalogue import Catalogue
from provenance.catalogues import OUTLINES
from provenance.errors import ProvenanceError
from provenance.lookup import Match, find, near, search
from provenance.names import Address, is_layered
from provenance.trace import Trace

_MOST = 40


@dataclass(frozen=True, slots=True)
class Found:
    """A tensor that was found, and why; `place` is its layer where the query names one.

    `family` is its model family's title where the search looks through several.
    """

    url: str
    name: str
    title: str
    group: str
    axes: tuple[AxisChip, ...]
    reason: str
    place: str
    family: str


@dataclass(frozen=True, slots=True)
class Example:
    """A query that finds something, and what kind of name it is."""

    kind: str
    query: str
    url: str


@dataclass(frozen=True, slots=True)
class SearchPage:
    """What a query found, best first; `more` counts the results that are left out.

    `says` is the outcome in a few words, for those who do not see it.
    """

    frame: Frame
    query: str
    says: str
    results: tuple[Found, ...]
    more: int
    near: tuple[Found, ...]
    examples: tuple[Example, ...]


def search_page(
    explorer: Explorer, query: str, trace: Trace | None = None, layer: int = 0, step: int = 0, family: str = ""
) -> SearchPage:
    """The results of a query, linked into a trace where one is given.

    Without a trace all families are looked through, unless one is named. Raises UnknownFamily.
    """
    here = Scope.of(explorer, trace, layer, step, family)
    scopes = [here] if trace or family else [Scope.of(explorer, family=name) for name in OUTLINES]
    matches = [(scope, match) for scope in scopes for match in search(scope.catalogue, query)]
    matches.sort(key=lambda each: -each[1].score)
    results = tuple(_found(scope, match, _named(scope, query), len(scopes)) for scope, match in matches[:_MOST])
    close: list[Found] = []
    if not results and query.strip():
        nearby = [(scope, match) for scope in scopes for match in near(scope.catalogue, query)]
        close = [_found(scope, match, None, len(scopes)) for scope, match in nearby]
    return SearchPage(
        frame=frame(here, f"Search: {query}" if query else "Search", query=query),
        query=query,
        says=_says(len(matches), len(close)) if query.strip() else "",
        results=results,
        more=max(0, len(matches) - _MOST),
        near=tuple(close),
        examples=() if results else _examples(here.catalogue),
    )


def _says(results: int, close: int) -> str:
    if results:
        return f"{plural(results, 'tensor')} found."
    return f"Nothing found, {plural(close, 'near match', 'near matches')}."


def _named(scope: Scope, query: str) -> Address | None:
    """The tensor that a query names with its layer, where the trace has it."""
    try:
        return _within(scope, find(scope.catalogue, query.strip())[1])
    except ProvenanceError:
        return None


def _within(scope: Scope, address: Address | None) -> Address | None:
    """The address where the trace has it."""
    if scope.trace is None or address is None:
        return None
    try:
        scope.trace.check(step=address.step, layer=address.layer)
    except ProvenanceError:
        return None
    return address if scope.catalogue.row(address.site).steps.cover(address.step) else None


def _found(scope: Scope, match: Match, named: Address | None, families: int) -> Found:
    row = match.row
    at = None
    if match.layer is not None and is_layered(row.site):
        # A name in other code bases fixes the layer, and leaves the step to where the reader stands.
        step = scope.step if row.steps.cover(scope.step) else 1
        at = _within(scope, Address(row.site, match.layer, step))
    elif named is not None and named.site == row.site:
        at = named
    return Found(
        url=tensor_url(scope.trace.id, at) if scope.trace and at else scope.url(row),
        name=row.name,
        title=row.title,
        group=" › ".join(row.group),
        axes=axis_chips(scope, row, decode=scope.step > 0),
        reason=match.reason,
        place=f"layer {at.layer}" if at and at.layer not in (None, scope.layer) else "",
        family=scope.outline.title if families > 1 else "",
    )


def _examples(catalogue: Catalogue) -> tuple[Example, ...]:
    """One query of each kind: the last title, site and expression, and one alias of each scheme."""
    row = [row for row in catalogue if is_layered(row.site)][-1]
    queries = {"a title": row.title, "a site": row.site, "the cited code's expression": row.name}
    for each in catalogue:
        for alias in each.aliases:
            if "{layer}" in alias.pattern:
                queries.setdefault(alias.scheme, alias.pattern.replace("{layer}", "0"))
    return tuple(Example(kind, query, with_query("/search", q=query)) for kind, query in queries.items())
