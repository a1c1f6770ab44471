"""The API: everything the pages show, as JSON and NumPy files; documented by OpenAPI."""

import io
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import APIRouter, Depends, Path, Query, Request, Response, status
from pydantic import BaseModel

from app.explorer import Explorer
from app.families import find_in_families
from app.jobs import State
from app.schemas import (
    SearchOut,
    SiteDetail,
    TraceOut,
    TraceRequest,
    result_of,
    site_of,
    trace_of,
    trace_of_job,
    trace_of_listed,
)
from app.schemas_tensor import SummaryOut, summary_of
from app.settings import version
from provenance.catalogues import OUTLINES, outline_named
from provenance.errors import InvalidAddress, InvalidPrompt
from provenance.lookup import find, search
from provenance.models import constants_of
from provenance.names import Address
from provenance.trace import Trace
from provenance.vectors import Vectors

_STEP = Query(description="0 is the prefill; n the n-th decode step", ge=0, le=1_000_000)
_NPY = "application/octet-stream"


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's description of the errors that a route answers with."""
    described = {
        400: "The request's body cannot be read.",
        404: "There is no such thing; `near` lists close names.",
        410: "The stored trace cannot be read any more.",
        413: "It is larger than this server takes.",
        401: "This server takes changes only with its token.",
        403: "This server does not allow it, or another web site sent it.",
        422: "What was asked cannot be done, and why.",
        429: "You have had your share for now; Retry-After says in how many seconds there is more.",
        503: "It cannot be had at this moment.",
    }
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {code: {"description": described[code], "content": content} for code in codes}


router = APIRouter()


def explorer_of(request: Request) -> Explorer:
    """The application's explorer."""
    explorer: Explorer = request.app.state.explorer
    return explorer


Here = Annotated[Explorer, Depends(explorer_of)]
TraceId = Annotated[str, Path(description="the trace's id, or its first 6 digits or more", max_length=64)]
Name = Annotated[str, Path(description="a site, or any other name of a tensor", max_length=300)]
Family = Annotated[
    str, Query(description="a model family's name; the first one that fits where none is named", max_length=40)
]
Place = Annotated[str, Path(description="for example h.3.attn.pattern", max_length=300)]


class Health(BaseModel):
    """Whether the server answers."""

    status: str
    version: str


@router.get("/healthz", tags=["server"])
async def healthz() -> Health:
    """Whether the server answers."""
    # On the event loop: it answers even when every worker thread waits for a tensor.
    return Health(status="ok", version=version())


@router.get("/api/sites", tags=["catalogue"], responses=problems(404))
def sites(here: Here, family: Family = "") -> list[SiteDetail]:
    """Every tensor that the models of a family have, in order of computation, with its evidence."""
    outline = outline_named(family)
    return [site_of(outline.catalogue, row, outline.example) for row in outline.catalogue]


# `path`, since expressions and TensorFlow's names hold slashes; so citations are routed before.
@router.get("/api/sites/{site:path}", tags=["catalogue"], responses=problems(404, 422))
def site(here: Here, site: Name, family: Family = "") -> SiteDetail:
    """One tensor: what it is, what it is computed from, and which pinned lines say so, where code is cited."""
    row, outline = find_in_families(site, family)
    return site_of(outline.catalogue, row, outline.example)


@router.get("/api/search", tags=["catalogue"], responses=problems(404, 422))
def find_sites(here: Here, q: Annotated[str, Query(max_length=300)] = "", family: Family = "") -> SearchOut:
    """Tensors by name, title, expression, or their names in other code bases, of all families or of one."""
    outlines = [outline_named(family)] if family else OUTLINES.values()
    found = [(match, outline.catalogue.family) for outline in outlines for match in search(outline.catalogue, q)]
    found.sort(key=lambda each: -each[0].score)
    return SearchOut(query=q, results=[result_of(match, own) for match, own in found])


@router.post(
    "/api/traces",
    tags=["traces"],
    status_code=status.HTTP_202_ACCEPTED,
    responses={201: {"model": TraceOut, "description": "The trace exists."}, **problems(400, 404, 422, 503)},
)
def create(here: Here, wanted: TraceRequest, response: Response) -> TraceOut:
    """Record a prompt. The same input gives the same id and is not run twice."""
    if sum(given is not None for given in (wanted.prompt, wanted.ids, wanted.length)) != 1:
        raise InvalidPrompt(
            "Give either a prompt, or ids, or a length.",
            hint="`prompt` is a text, `ids` a list of token ids, `length` a number of seeded vectors.",
        )
    recipe = here.plan(
        wanted.prompt,
        ids=wanted.ids,
        steps=wanted.steps,
        model=wanted.model,
        dtype=wanted.dtype,
        seed=wanted.seed,
        temperature=wanted.temperature,
        edits=wanted.edits,
        vectors=Vectors(wanted.length, wanted.batch, wanted.input_seed),
    )
    job = here.submit(recipe)
    response.headers["Location"] = f"/api/traces/{job.id}"
    if job.state is State.DONE:
        response.status_code = status.HTTP_201_CREATED
        return trace_of(here.store.open(job.id).record)
    return trace_of_job(job)


@router.get("/api/traces", tags=["traces"])
def traces(here: Here) -> list[TraceOut]:
    """Recordings that wait or run, then all stored traces, the newest first."""
    running = [trace_of_job(job) for job in here.jobs.waiting()]
    ids = {out.id for out in running}
    return running + [trace_of_listed(listed) for listed in here.store.list() if listed.id not in ids]


@router.get("/api/traces/{id}", tags=["traces"], responses=problems(404, 410))
def trace(here: Here, id: TraceId) -> TraceOut:
    """One trace, or what became of its recording."""
    job = here.job(id)
    # A recording that failed here may have been made elsewhere since, by the command line for one.
    if job is not None and job.state is not State.DONE and not (job.state is State.FAILED and id in here.store):
        return trace_of_job(job)
    return trace_of(here.store.open(id).record)


@router.delete(
    "/api/traces/{id}",
    tags=["traces"],
    status_code=status.HTTP_204_NO_CONTENT,
    responses=problems(404),
)
def delete(here: Here, id: TraceId) -> None:
    """Delete a stored trace, or take one that waits to be recorded out of the queue."""
    job = here.job(id)
    if job is not None and job.state is State.QUEUED and id not in here.store:
        here.jobs.cancel(id)
        return
    here.store.delete(id)


# The .npy route stands before the summary's, whose address would swallow the ending.
@router.get(
    "/api/traces/{id}/tensors/{address:path}.npy",
    tags=["tensors"],
    response_class=Response,
    responses={200: {"content": {_NPY: {}}, "description": "NumPy's format"}, **problems(404, 410, 422)},
)
def values(here: Here, id: TraceId, address: Place, step: Annotated[int | None, _STEP] = None) -> Response:
    """All values of a tensor as a NumPy file; bfloat16 is handed out as float32."""
    trace, at = locate(here, id, address, step)
    tensor = here.tensor(trace, at)
    stream = io.BytesIO()
    wide = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    np.save(stream, wide.contiguous().numpy())
    name = f"{trace.id[:12]}.{at}.npy".replace("@", ".step")
    return Response(
        stream.getvalue(),
        media_type=_NPY,
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "X-Tensor-Dtype": str(tensor.dtype).removeprefix("torch."),
        },
    )


@router.get("/api/traces/{id}/tensors/{address:path}", tags=["tensors"], responses=problems(404, 410, 422))
def summary(here: Here, id: TraceId, address: Place, step: Annotated[int | None, _STEP] = None) -> SummaryOut:
    """Shape, dtype and statistics of a tensor."""
    trace, at = locate(here, id, address, step)
    kept = str(at) in trace.tensors
    return summary_of(
        here.catalogue(trace),
        trace,
        at,
        constants_of(trace.recipe.model),
        here.summary(trace, at),
        None if kept else here.check(trace, at),
    )


def locate(here: Explorer, id: str, address: str, step: int | None) -> tuple[Trace, Address]:
    """A stored trace and an address in it; `step` may also stand in the address, as `@2`.

    Raises InvalidAddress where the two steps differ.
    """
    trace = here.store.open(id)
    row, at = find(here.catalogue(trace), address)
    if at is None:
        at = Address(row.site)
    if step is not None and at.step != step and "@" in address:
        raise InvalidAddress(f"{address!r} names step {at.step}, and the query asks for step {step}.")
    return trace, Address(at.site, at.layer, at.step if step is None else step)
