"""The API of edits: what they did to the next token's distribution."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.api import Here, TraceId, problems
from app.schemas_effect import EffectOut, effect_out, ids_of

router = APIRouter()


@router.get("/api/traces/{id}/effect", tags=["traces"], responses=problems(404, 410, 422))
def effect_of_edits(
    here: Here,
    id: TraceId,
    top: Annotated[int, Query(ge=1, le=100, description="how many of the most likely tokens of each run")] = 5,
) -> EffectOut:
    """What a trace's edits did, against the same run without them; 404 where that one is not stored any more."""
    trace = here.store.open(id)
    found = here.effect(trace, top)
    ids = ids_of(found)
    return effect_out(trace, found, dict(zip(ids, here.models.tokens(trace.recipe.model.name, ids), strict=True)))
