"""The addresses of traces: recording one, the list, one trace, its lens, its progress, and deleting it.

Plain functions run in the thread pool; the stream of events alone runs on the event loop.
"""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool

from app.events import progress_events
from app.explorer import Explorer
from app.jobs import State
from app.pages import home, lens, progress, traces
from app.pages import record_form as form
from app.pages import trace as page_of
from app.pages.links import trace_url
from app.render import render, wants_fragment
from app.routes import Here, number_of, unsent
from provenance.errors import InvalidInput, NotFound, Unavailable, UnknownTrace
from provenance.lens import position_of
from provenance.vectors import Vectors

router = APIRouter(include_in_schema=False)

_FRAGMENT = "moment"


@router.post("/record")
def record(
    request: Request,
    here: Here,
    prompt: Annotated[str, Form()] = "",
    ids: Annotated[str, Form()] = "",
    steps: Annotated[str, Form()] = "0",
    model: Annotated[str, Form()] = "",
    dtype: Annotated[str, Form()] = "float32",
    temperature: Annotated[str, Form()] = "0",
    seed: Annotated[str, Form()] = "0",
    length: Annotated[str, Form()] = "",
    batch: Annotated[str, Form()] = "",
    input_seed: Annotated[str, Form()] = "",
) -> Response:
    """Record what a form holds, a prompt or seeded vectors; what cannot be run comes back as it was typed."""
    if length.strip() or batch.strip() or input_seed.strip() or (not prompt and form.reads_vectors(here, model)):
        return _record_vectors(request, here, form.VectorsForm(length, batch, input_seed, ids, model, dtype))
    typed = form.RecordForm(prompt, ids, steps, model, dtype, temperature, seed)
    try:
        recipe = here.plan(
            None if ids.strip() else prompt.replace("\r\n", "\n"),  # browsers end a line in two characters
            ids=form.ids_of(ids) if ids.strip() else None,
            steps=form.whole_number(steps, "The number of decode steps"),
            model=model or None,
            dtype=dtype,
            seed=form.whole_number(seed, "The seed"),
            temperature=form.temperature_of(temperature),
        )
        job = here.submit(recipe)
    except (InvalidInput, NotFound, Unavailable) as problem:
        page = home.home_page(here, form.refused(typed, problem))
        return unsent(problem, render(request, "home.html", page))
    return RedirectResponse(trace_url(job.id), 303)


def _record_vectors(request: Request, here: Explorer, typed: form.VectorsForm) -> Response:
    try:
        numbers = form.ids_of(typed.ids) if typed.ids.strip() else None
        length = form.length_of(typed.length) if numbers is None else None
        vectors = Vectors(length, form.batch_of(typed.batch), form.input_seed_of(typed.input_seed))
        job = here.submit(here.plan(None, ids=numbers, model=typed.model or None, dtype=typed.dtype, vectors=vectors))
    except (InvalidInput, NotFound, Unavailable) as problem:
        page = home.home_page(here, vectors=form.refused_vectors(here, typed, problem))
        return unsent(problem, render(request, "home.html", page))
    return RedirectResponse(trace_url(job.id), 303)


@router.get("/traces")
def show_traces(
    request: Request, here: Here, q: str = "", input: str = "", model: str = "", sort: str = "", page: str = ""
) -> Response:
    """All traces, or those that a search finds."""
    order = "oldest" if sort == "oldest" else "newest"
    read = input if input in traces.INPUTS else ""
    wanted = traces.Filter(q[:300], read, model[:200], order, number_of("page", page) or 0)
    return render(request, "traces.html", traces.traces_page(here, wanted), block="found", keep=True)


@router.get("/traces/{id}")
def show_trace(request: Request, here: Here, id: str, step: str = "", position: str = "") -> Response:
    """A trace at one of its positions, or the progress of its recording."""
    job = here.job(id)
    if job is not None and job.state is not State.DONE and id not in here.store:
        return render(request, "progress.html", progress.progress_page(here, job), block="progress")
    trace = here.store.open(id)
    if wants_fragment(request) and request.headers.get("HX-Target") != _FRAGMENT:
        return Response(status_code=200, headers={"HX-Refresh": "true", "Vary": "HX-Request"})
    if trace.id != id:
        return RedirectResponse(trace_url(trace.id), 307)
    at = position_of(trace, number_of("step", step), number_of("position", position))
    return render(request, "trace.html", page_of.trace_page(here, trace, at), block=_FRAGMENT, keep=True)


@router.get("/traces/{id}/lens")
def show_lens(request: Request, here: Here, id: str, step: str = "", position: str = "", stage: str = "") -> Response:
    """The logit lens around a position; `stage` names the cell to look at."""
    trace = here.store.open(id)
    at = position_of(trace, number_of("step", step), number_of("position", position))
    return render(request, "lens.html", lens.lens_page(here, trace, at, stage), block="lens", keep=True)


@router.get("/traces/{id}/events")
async def stream_events(request: Request, here: Here, id: str) -> Response:
    """The progress of a recording as server-sent events, until it ends."""
    if await asyncio.to_thread(here.job, id) is None:
        await run_in_threadpool(here.store.full_id, id)
    return StreamingResponse(
        progress_events(lambda: here.job(id), lambda: no_longer(request)),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def no_longer(request: Request) -> bool:
    """Whether nobody waits for the rest of an answer that has no end, or the server stops."""
    return getattr(request.app.state, "stopping", False) or await request.is_disconnected()


@router.post("/traces/{id}/cancel")
def cancel(here: Here, id: str) -> Response:
    """Stop a recording that waits or runs."""
    if here.jobs.cancel(id) is None and id not in here.store:
        raise UnknownTrace(f"There is no recording {id[:40]!r} here.", hint="The list of traces shows what runs.")
    return RedirectResponse(trace_url(id), 303)


@router.get("/traces/{id}/delete")
def ask_to_delete(request: Request, here: Here, id: str) -> Response:
    """Ask whether a trace shall be deleted."""
    return render(request, "delete.html", traces.delete_page(here, id))


@router.post("/traces/{id}/delete")
def delete_trace(here: Here, id: str) -> Response:
    """Delete a trace."""
    here.store.delete(id)
    return RedirectResponse("/traces", 303)
