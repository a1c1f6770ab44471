"""The API of direct logit attribution."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.api import Here, TraceId, problems
from app.schemas_attribution import AttributionOut, attribution_out
from provenance.lens import position_of

router = APIRouter()

_Number = Annotated[int | None, Query(ge=0, le=1_000_000)]


@router.get("/api/traces/{id}/attribution", tags=["predictions"], responses=problems(404, 410, 422))
def attribute_logit(
    here: Here,
    id: TraceId,
    step: Annotated[_Number, Query(description="a step; its last position is taken where none is named")] = None,
    position: Annotated[_Number, Query(description="a position of the whole sequence, counted from 0")] = None,
    token: Annotated[_Number, Query(description="a token's id; by default the most likely one there")] = None,
    against: Annotated[_Number, Query(description="another token's id: attribute the lead over it")] = None,
) -> AttributionOut:
    """What each head, MLP and embedding added to a logit, by default that of the most likely next token."""
    trace = here.store.open(id)
    found = here.attribution(trace, position_of(trace, step, position), token, against)
    return attribution_out(trace.id, found, here.models.tokens(trace.recipe.model.name, found.tokens))
