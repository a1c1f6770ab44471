"""The API of comparisons."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.api import Here, problems
from app.schemas_compare import ComparisonOut, comparison_out
from provenance.compare import How

router = APIRouter()

_SIDE = 80  # a trace's id, or `file:` and a file's


@router.get("/api/compare", tags=["comparisons"], responses=problems(404, 410, 422))
def compare(
    here: Here,
    a: Annotated[str, Query(max_length=_SIDE, description="a trace's id: the reference")],
    b: Annotated[str, Query(max_length=_SIDE, description="another trace's id, or `file:` and an uploaded file's")],
    tolerance: Annotated[
        float | None,
        Query(ge=0, allow_inf_nan=False, description="a share of the largest value; by default that of the dtypes"),
    ] = None,
    how: Annotated[How | None, Query(description="force a way; by default what can be compared decides")] = None,
) -> ComparisonOut:
    """Compare two traces, or a file with a trace, tensor by tensor in computation order.

    Names the first divergence, its cited lines, and what lies before it.
    """
    found = here.compare(a, b, tolerance, how)
    trace = here.store.open(a)
    return comparison_out(trace.id, b, found, here.catalogue(trace), trace.layers)
