"""The search page: tensors by any of their names, each with the reason of the match."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.frame import Frame, frame
from app.pages.links import tensor_url
from app.pages.scope import Scope
from app.pages.what import AxisChip, axis_chips
from provenance.errors import ProvenanceError
from provenance.lookup import find, search
from provenance.names import Address
from provenance.trace import Trace

_MOST = 40


@dataclass(frozen=True, slots=True)
class Found:
    """A tensor that was found, and why."""

    url: str
    name: str
    title: str
    group: str
    axes: tuple[AxisChip, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class SearchPage:
    """What a query found, best first; `more` counts the results that are left out."""

    frame: Frame
    query: str
    results: tuple[Found, ...]
    more: int
    near: tuple[Found, ...]


def search_page(
    explorer: Explorer, query: str, trace: Trace | None = None, layer: int = 0, step: int = 0
) -> SearchPage:
    """The results of a query, linked into a trace where one is given."""
    scope = Scope.of(explorer, trace, layer, step)
    catalogue = scope.catalogue
    named = _named(scope, query)
    results = tuple(_found(scope, match.row.site, match.reason, named) for match in search(catalogue, query))
    near = () if results or not query.strip() else catalogue.near(query)
    return SearchPage(
        frame=frame(scope, f"Search: {query}" if query else "Search", query=query),
        query=query,
        results=results[:_MOST],
        more=max(0, len(results) - _MOST),
        near=tuple(_found(scope, site, "a near match", None) for site in near),
    )


def _named(scope: Scope, query: str) -> Address | None:
    """The tensor that a query names with its layer, where the trace has it."""
    if scope.trace is None:
        return None
    try:
        address = find(scope.catalogue, query.strip())[1]
        if address is not None:
            scope.trace.check(step=address.step, layer=address.layer)
            return address if scope.catalogue.row(address.site).steps.cover(address.step) else None
    except ProvenanceError:
        pass
    return None


def _found(scope: Scope, site: str, reason: str, named: Address | None) -> Found:
    row = scope.catalogue.row(site)
    url = scope.url(row)
    if scope.trace is not None and named is not None and named.site == site:
        url = tensor_url(scope.trace.id, named)
    axes = axis_chips(scope, row, decode=scope.step > 0)
    return Found(url, row.name, row.title, " › ".join(row.group), axes, reason)
