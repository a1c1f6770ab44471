"""The API of models: which there are, and what is known of each one's weights."""

from typing import Annotated

from fastapi import APIRouter, Path

from app.api import Here, problems
from app.schemas_models import ModelDetail, ModelOut

router = APIRouter(tags=["models"])


@router.get("/api/models")
def models(here: Here) -> list[ModelOut]:
    """Every model that can be named, those whose weights are not here included."""
    loaded = here.engine.loaded()
    return [ModelOut.of(source, loaded) for source in here.models.sources()]


@router.get("/api/models/{name}", responses=problems(404))
def model(here: Here, name: Annotated[str, Path(max_length=200)]) -> ModelDetail:
    """One model: its config, files, hashes, and what became of its checkpoint's keys."""
    return ModelDetail.inspected(here.models.inspect(name), here.engine.loaded())
