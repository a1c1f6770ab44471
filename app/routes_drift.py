"""The address of the page of drift."""

from fastapi import APIRouter, Request, Response

from app.pages.drift import drift_page
from app.render import render
from app.routes import Here

router = APIRouter(include_in_schema=False)


@router.get("/sources/drift")
def show_drift(request: Request, here: Here, release: str = "") -> Response:
    """How the cited code stands in another release, side by side."""
    return render(request, "drift.html", drift_page(here, release))
