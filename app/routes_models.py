"""The addresses of the pages of models."""

from fastapi import APIRouter, Request, Response

from app.pages.models import model_page, models_page
from app.render import render
from app.routes import Here

router = APIRouter(include_in_schema=False)


@router.get("/models")
def show_models(request: Request, here: Here) -> Response:
    """Which models there are, and how to get those that are not here."""
    return render(request, "models.html", models_page(here))


@router.get("/models/{name}")
def show_model(request: Request, here: Here, name: str) -> Response:
    """One model: its weights, config and keys."""
    return render(request, "model.html", model_page(here, name))
