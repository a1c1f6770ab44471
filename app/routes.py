"""The addresses of the pages. Plain functions: they run in the thread pool, never on the event loop."""

import re
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from app.explorer import Explorer
from app.families import find_in_families
from app.jobs import State
from app.pages import find, groups, home, source, tensor
from app.pages.links import family_query, site_url, trace_url
from app.pages.view import Asked
from app.render import render
from provenance.catalogue import Catalogue, Intermediate
from provenance.errors import Busy, InvalidAddress, InvalidInput, LimitReached, ProvenanceError, Unavailable
from provenance.lookup import find as look_up
from provenance.names import Address, is_layered
from provenance.trace import Trace

router = APIRouter(include_in_schema=False)

_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")


def explorer_of(request: Request) -> Explorer:
    """The application's explorer."""
    explorer: Explorer = request.app.state.explorer
    return explorer


Here = Annotated[Explorer, Depends(explorer_of)]


@router.get("/")
def show_home(request: Request, here: Here) -> Response:
    """What this is, the record form, the traces, the hierarchy."""
    return render(request, "home.html", home.home_page(here), keep=True)


@router.get("/sites")
def show_sites(request: Request, here: Here, family: str = "") -> Response:
    """The hierarchy of a model family with every tensor."""
    return render(request, "sites.html", groups.sites_page(here, family), keep=True)


@router.get("/sites/{site}")
def show_site(request: Request, here: Here, site: str, family: str = "") -> Response:
    """A tensor without a trace, of the family that is named, else of the first that has it."""
    row, outline = find_in_families(site, family, _locate)
    own = outline.catalogue.family
    if row.site != site or (not family and family_query(own)):
        return RedirectResponse(site_url(row.site, own), 307)
    return render(request, "site.html", tensor.site_page(here, row, own), block="columns", keep=True)


@router.get("/groups/{slug:path}")
def show_group(
    request: Request, here: Here, slug: str, trace: str = "", layer: str = "", step: str = "", family: str = ""
) -> Response:
    """A group of tensors of a family, or at a layer and step of a trace."""
    opened = here.store.open(trace) if trace else None
    at_layer, at_step = number_of("layer", layer) or 0, number_of("step", step) or 0
    page = groups.group_page(here, slug, opened, at_layer, at_step, family)
    return render(request, "group.html", page, block="columns", keep=True)


@router.get("/search")
def show_search(
    request: Request, here: Here, q: str = "", trace: str = "", layer: str = "", step: str = "", family: str = ""
) -> Response:
    """Tensors by any of their names, in all families where neither a trace nor one of them is named."""
    opened, at_layer, at_step = None, 0, 0
    try:
        opened = here.store.open(trace) if trace else None
        at_layer, at_step = number_of("layer", layer) or 0, number_of("step", step) or 0
        if opened is not None:
            opened.check(step=at_step, layer=at_layer)
    except ProvenanceError:
        # A search never fails for a trace that is gone; it leads to the architecture then.
        opened, at_layer, at_step = None, 0, 0
    page = find.search_page(here, q[:300], opened, at_layer, at_step, family)
    return render(request, "search.html", page, block="results")


@router.get("/traces/{id}/{address}")
def show_tensor(request: Request, here: Here, id: str, address: str, step: str | None = None) -> Response:
    """One tensor of a trace."""
    job = here.job(id)
    if job is not None and job.state is not State.DONE and id not in here.store:
        return RedirectResponse(trace_url(id), 307)
    trace = here.store.open(id)
    found, canonical = _address(here.catalogue(trace), trace, address, number_of("step", step))
    asked = Asked.of(request.query_params)
    if not canonical:
        return RedirectResponse(asked.url(trace.id, found), 307)
    page = tensor.tensor_page(here, trace, found, asked)
    return render(request, "tensor.html", page, block="columns", keep=True)


@router.get("/sources")
def show_sources(request: Request, here: Here) -> Response:
    """The cited files."""
    return render(request, "sources.html", source.sources_page(here), keep=True)


@router.get("/sources/{owner}/{repository}/{path:path}")
def show_source(request: Request, here: Here, owner: str, repository: str, path: str) -> Response:
    """A cited file with what cites its lines."""
    page = source.source_page(here, f"{owner}/{repository}/{path}")
    return render(request, "source.html", page, keep=True)


def unsent(problem: ProvenanceError, page: Response) -> Response:
    """The page of a form that could not be sent on, with the status of what is wrong."""
    page.status_code = 503 if isinstance(problem, Unavailable) else 422
    if isinstance(problem, Busy):
        page.status_code = 429 if isinstance(problem, LimitReached) else 503
        page.headers["Retry-After"] = str(problem.retry_after_seconds)
    return page


def number_of(name: str, text: str | None) -> int | None:
    """A whole number of the query; None where it is not given. Raises InvalidInput."""
    if text is None or text == "":
        return None
    if not _NUMBER.fullmatch(text):
        raise InvalidInput(f"{name} must be a whole number from 0 on, not {text[:40]!r}.")
    return int(text)


def _locate(catalogue: Catalogue, name: str) -> tuple[Intermediate, Address | None]:
    """A row by any of its names; an address of an unknown site has near matches of the site."""
    try:
        address = Address.parse(name)
    except InvalidAddress:
        return look_up(catalogue, name)
    return catalogue.row(address.site), address


def _address(catalogue: Catalogue, trace: Trace, text: str, step: int | None) -> tuple[Address, bool]:
    """The tensor that an address of a page names, and whether it names it in full.

    A name that leaves the layer open means layer 0. Raises InvalidInput where `@N` and the query's
    step differ, UnknownSite, AmbiguousName.
    """
    row, named = _locate(catalogue, text)
    if named is not None and "@" in text and step is not None and step != named.step:
        raise InvalidInput(f"The address names step {named.step}, the query step {step}.", hint="Give the step once.")
    if named is None:
        layer = 0 if is_layered(row.site) else None
        first = next((n for n in range(trace.last_step + 1) if row.steps.cover(n)), 0)
        return Address(row.site, layer, first if step is None else step), text == row.site and layer is None
    found = Address(named.site, named.layer, named.step if step is None else step)
    return found, found.place == text or str(named) == text
