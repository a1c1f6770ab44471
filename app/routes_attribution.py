"""The address of direct logit attribution."""

from fastapi import APIRouter, Request, Response

from app.pages.attribution import attribution_page
from app.render import render
from app.routes import Here, number_of
from provenance.lens import position_of

router = APIRouter(include_in_schema=False)


@router.get("/traces/{id}/attribution")
def show_attribution(
    request: Request, here: Here, id: str, step: str = "", position: str = "", token: str = "", against: str = ""
) -> Response:
    """What wrote a token's logit at a position, or its lead over another token's."""
    trace = here.store.open(id)
    at = position_of(trace, number_of("step", step), number_of("position", position))
    page = attribution_page(here, trace, at, number_of("token", token), number_of("against", against))
    return render(request, "attribution.html", page)
