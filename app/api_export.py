"""The API that hands out tensors as files: many as safetensors or npz, one as CSV, each as a stream.

Routed before the summary of a tensor, whose address would swallow the endings.
"""

from collections.abc import Iterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from app.api import Here, Place, TraceId, locate, problems
from app.explorer import Explorer
from provenance.errors import InvalidInput
from provenance.export import chosen, csv_pieces, npz_pieces, plan_of, safetensors_pieces, split_names
from provenance.models import constants_of
from provenance.names import Address
from provenance.trace import Trace

router = APIRouter(tags=["tensors"])

_BYTES = "application/octet-stream"
_NPZ = "application/zip"
_CSV = "text/csv"

Tensors = Annotated[
    list[str] | None,
    Query(
        description="names apart by commas, or given several times; all tensors where none is named. Any name "
        "that a tensor has will do; `@2` at its end names the step. A layer or step left open means all of them",
    ),
]
Parameters = Annotated[bool, Query(description="whether all tensors are to include the learned parameters")]


def _file(media_type: str) -> dict[int | str, dict[str, object]]:
    return {200: {"content": {media_type: {}}, "description": "The file"}, **problems(404, 410, 422)}


@router.get("/api/traces/{id}/export.safetensors", response_class=StreamingResponse, responses=_file(_BYTES))
def export_safetensors(
    here: Here, id: TraceId, tensors: Tensors = None, parameters: Parameters = False
) -> StreamingResponse:
    """Tensors of a trace as one safetensors file, by address."""
    trace, addresses = _chosen(here, id, tensors, parameters)

    read = partial(here.tensor, trace)
    plan = plan_of(here.catalogue(trace), constants_of(trace.recipe.model), trace, addresses, read)
    return _stream(safetensors_pieces(plan, read, trace), _BYTES, f"{trace.id[:12]}.safetensors")


@router.get("/api/traces/{id}/export.npz", response_class=StreamingResponse, responses=_file(_NPZ))
def export_npz(here: Here, id: TraceId, tensors: Tensors = None, parameters: Parameters = False) -> StreamingResponse:
    """Tensors of a trace as one NumPy archive, by address; bfloat16 as float32."""
    trace, addresses = _chosen(here, id, tensors, parameters)
    here.tensor(trace, addresses[-1])  # where the model is gone, that is said before the answer begins
    pieces = npz_pieces(addresses, partial(here.tensor, trace))
    return _stream(pieces, _NPZ, f"{trace.id[:12]}.npz")


@router.get("/api/traces/{id}/tensors/{address:path}.csv", response_class=StreamingResponse, responses=_file(_CSV))
def values_as_csv(
    here: Here, id: TraceId, address: Place, step: Annotated[int | None, Query(ge=0, le=1_000_000)] = None
) -> StreamingResponse:
    """All values of a tensor as CSV: an index for every axis, then the value, exactly."""
    trace, at = locate(here, id, address, step)
    catalogue = here.catalogue(trace)
    pieces = csv_pieces(catalogue, catalogue.row(at.site), here.tensor(trace, at))
    return _stream(pieces, _CSV, f"{trace.id[:12]}.{at}.csv".replace("@", ".step"))


def _chosen(
    here: Explorer, id: str, tensors: list[str] | None, parameters: bool
) -> tuple[Trace, tuple[Address, ...]]:
    trace = here.store.open(id)
    names = [name for text in tensors or () for name in split_names(text)]
    if tensors and not names and any(tensors):
        raise InvalidInput("`tensors` names no tensor.", hint="Leave it out for all, or name some.")
    return trace, chosen(here.catalogue(trace), trace, names, parameters=parameters)


def _stream(pieces: Iterator[bytes], media_type: str, name: str) -> StreamingResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(pieces, media_type=media_type, headers=headers)
