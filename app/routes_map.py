"""The addresses of the maps, and of the strips that show a site over the layers."""

from fastapi import APIRouter, Request, Response

from app.pages.maps import map_page
from app.pages.norms import norms_page
from app.render import render
from app.routes import Here, number_of

router = APIRouter(include_in_schema=False)


@router.get("/map")
@router.get("/map/{slug:path}")
def show_map(
    request: Request,
    here: Here,
    slug: str = "",
    trace: str = "",
    layer: str = "",
    step: str = "",
    site: str = "",
    family: str = "",
) -> Response:
    """The computation as a drawing: the whole model, or one of its groups."""
    opened = here.store.open(trace) if trace else None
    at_layer, at_step = number_of("layer", layer) or 0, number_of("step", step) or 0
    page = map_page(here, slug, opened, at_layer, at_step, site, family)
    return render(request, "map.html", page, block="columns", keep=True)


@router.get("/traces/{id}/norms/{site}")
def show_norms(request: Request, here: Here, id: str, site: str, step: str = "", layer: str = "") -> Response:
    """A site's size in every layer of a trace."""
    trace = here.store.open(id)
    page = norms_page(here, trace, site, number_of("step", step) or 0, number_of("layer", layer))
    return render(request, "norms.html", page, block="norms", keep=True)
