"""Which pages an export has: all that belong to its trace, in the order of their worth, up to a limit."""

from collections.abc import Iterator
from dataclasses import dataclass

from app.explorer import Explorer
from app.export.addresses import canonical, file_of
from app.pages.drift import drift_page
from app.pages.links import (
    attribution_url,
    cite_trace_url,
    cite_url,
    group_url,
    lens_url,
    map_url,
    site_url,
    sites_url,
    tensor_url,
    trace_url,
    verdict_url,
)
from app.pages.source import sources_page
from app.pages.tokens import position_url
from app.pages.view import Asked
from provenance.axes import Counts
from provenance.catalogue import Group
from provenance.catalogues import outline_of
from provenance.errors import InvalidInput
from provenance.export import shape_of
from provenance.model import Model
from provenance.models import constants_of
from provenance.names import Address
from provenance.order import computation_order
from provenance.trace import Trace

_CUT = "tensors"
"""The one kind of which a part is worth having; any other is there in full or not at all."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Pages that the limit kept out."""

    kind: str
    pages: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The pages of an export: its file for every address, and what the limit kept out."""

    files: dict[str, str]
    left_out: tuple[LeftOut, ...]


def plan_of(here: Explorer, trace: Trace, most_pages: int) -> Plan:
    """The plan of an export. Call it when all summaries are at hand. Raises InvalidInput."""
    files: dict[str, str] = {}
    left_out: list[LeftOut] = []
    for kind, urls in _kinds(here, trace):
        targets = [canonical(trace, "/", url) for url in urls]
        found = list(dict.fromkeys(target.url for target in targets if target and target.url not in files))
        room = most_pages - len(files)
        taken = found if len(found) <= room else found[:room] if kind == _CUT else []
        files |= {url: file_of(trace, url) for url in taken}
        if len(taken) < len(found):
            left_out.append(LeftOut(kind, len(found) - len(taken)))
        if kind == "overview" and not taken:
            raise InvalidInput(
                f"An export of this trace has at least {len(found)} pages, and {most_pages} are allowed.",
                hint=f"Allow more, such as --most-pages {max(1000, 2 * len(found))}.",
            )
    return Plan(files, tuple(left_out))


def addresses(here: Explorer, trace: Trace) -> Iterator[Address]:
    """Every tensor of the trace, step after step."""
    for step in range(trace.last_step + 1):
        yield from computation_order(here.catalogue(trace), trace.layers, step)


def _kinds(here: Explorer, trace: Trace) -> Iterator[tuple[str, list[str]]]:
    id, catalogue = trace.id, here.catalogue(trace)
    tensors = list(addresses(here, trace))
    groups = [group for top in catalogue.tree for group in top.walk()]
    yield "overview", list(_overview(here, trace))
    yield _CUT, [tensor_url(id, at) for at in tensors]
    yield "groups", list(_seen_from_everywhere(trace, groups))
    yield "architecture", list(_architecture(trace))
    yield "citations", list(_citations(here, trace))
    yield "cells of the lens", list(_lens_cells(here, trace))
    yield "heads", list(_along(here, trace, tensors, Counts.HEAD))
    yield "batch entries", list(_along(here, trace, tensors, Counts.BATCH))


def _overview(here: Explorer, trace: Trace) -> Iterator[str]:
    outline = outline_of(trace.recipe.model)
    all_sites = sites_url(outline.catalogue.family)
    yield from ("/", trace_url(trace.id), verdict_url(trace.id), cite_trace_url(trace.id), all_sites, "/sources")
    for number in range(_positions(trace)) if outline.predicts else ():
        yield position_url(trace, number)
        yield lens_url(trace.id, number)
        yield attribution_url(trace.id, number)
    if not outline.cited:
        return
    yield from (pin.url for pin in sources_page(here).pins)
    yield "/sources/drift"
    yield from (release.url for release in drift_page(here, "").releases)


def _seen_from_everywhere(trace: Trace, groups: list[Group]) -> Iterator[str]:
    for step in range(trace.last_step + 1):
        for layer in range(trace.layers or 1):
            yield map_url(None, trace.id, layer, step)
            for group in groups:
                yield group_url(group, trace.id, layer, step)
                yield map_url(group, trace.id, layer, step)


def _architecture(trace: Trace) -> Iterator[str]:
    # Pages without a trace show the family's catalogue, which may have more than this model's.
    catalogue = outline_of(trace.recipe.model).catalogue
    yield map_url(None, family=catalogue.family)
    for top in catalogue.tree:
        for group in top.walk():
            yield group_url(group, family=catalogue.family)
            yield map_url(group, family=catalogue.family)
    yield from (site_url(row.site, catalogue.family) for row in catalogue)


def _citations(here: Explorer, trace: Trace) -> Iterator[str]:
    if not outline_of(trace.recipe.model).cited:
        return
    catalogue = here.catalogue(trace)
    for row in catalogue:
        yield cite_url(row.site, None, trace.id)
        for number in range(1, len(catalogue.context(row.site)) + 1):
            yield cite_url(row.site, number, trace.id)


def _lens_cells(here: Explorer, trace: Trace) -> Iterator[str]:
    if not outline_of(trace.recipe.model).predicts:
        return
    model: Model = here.models.of(trace.recipe)
    for number in range(_positions(trace)):
        for stage in model.residuals:
            yield lens_url(trace.id, number, stage)


def _along(here: Explorer, trace: Trace, tensors: list[Address], counts: Counts) -> Iterator[str]:
    """The pages of tensors that have one such axis, at each of its further indices."""
    catalogue, constants = here.catalogue(trace), constants_of(trace.recipe.model)
    for at in tensors:
        symbols = catalogue.row(at.site).shape
        found = [place for place, symbol in enumerate(symbols) if catalogue.axes[symbol].counts is counts]
        if len(found) == 1:
            size = shape_of(catalogue, constants, trace, at)[found[0]]
            yield from (Asked(at={counts.value: n}).url(trace.id, at) for n in range(1, size))


def _positions(trace: Trace) -> int:
    """How many positions the trace has run."""
    return len(trace.recipe.tokens) + trace.last_step
