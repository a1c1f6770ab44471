"""The addresses of edits: the form of a change, the run that it asks for, and the run without changes again."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from app.explorer import Explorer
from app.pages.edit_form import EVERY as IN_EVERY_STEP
from app.pages.edit_form import PATCH, SCALE, SET, STEP, Refused, Typed, edit_form, edit_page, edit_text
from app.pages.links import trace_url
from app.render import render
from app.routes import Here, unsent
from provenance.errors import InvalidInput, NotFound, Unavailable
from provenance.names import Address
from provenance.recorder import check_address
from provenance.trace import Trace

router = APIRouter(include_in_schema=False)


@router.get("/traces/{id}/edit")
def show_form(request: Request, here: Here, id: str, at: str = "") -> Response:
    """The form of a tensor's change."""
    trace, address = _located(here, id, at)
    return _page(request, here, trace, address, None)


@router.post("/traces/{id}/edit")
def edit(
    request: Request,
    here: Here,
    id: str,
    at: Annotated[str, Form()] = "",
    pick: Annotated[list[str] | None, Form()] = None,
    when: Annotated[str, Form()] = IN_EVERY_STEP,
    what: Annotated[str, Form()] = SET,
    value: Annotated[str, Form()] = "",
    source: Annotated[str, Form()] = "",
) -> Response:
    """Run the trace again with one more change; a change that cannot be made comes back as it was typed."""
    trace, address = _located(here, id, at)
    typed = Typed(
        picks=tuple(pick or ()),
        when=STEP if when == STEP else IN_EVERY_STEP,
        what=what if what in (SCALE, PATCH) else SET,
        value=value,
        source=source,
    )
    try:
        text = edit_text(here, trace, address, typed)
        job = here.submit(here.plan_edited(trace, text))
    except Refused as refused:
        return _page(request, here, trace, address, typed, refused.field, str(refused))
    except (InvalidInput, NotFound, Unavailable) as problem:
        field = "source" if typed.what == PATCH and not isinstance(problem, Unavailable) else ""
        return unsent(problem, _page(request, here, trace, address, typed, field, str(problem)))
    return RedirectResponse(trace_url(job.id), 303)


@router.post("/traces/{id}/again")
def record_again(here: Here, id: str) -> Response:
    """Record once more what failed or was cancelled, with its edits."""
    job = here.job(id)
    if job is None:
        return RedirectResponse(trace_url(here.store.full_id(id)), 303)
    return RedirectResponse(trace_url(here.submit(job.recipe).id), 303)


@router.post("/traces/{id}/original")
def record_original(here: Here, id: str) -> Response:
    """Record the run without the changes again, where it is not stored any more."""
    trace = here.store.open(id)
    job = here.submit(trace.recipe.unedited)
    return RedirectResponse(trace_url(job.id), 303)


def _located(here: Explorer, id: str, at: str) -> tuple[Trace, Address]:
    """The trace, and the tensor to change. Raises NotFound, and InvalidAddress for what is no address."""
    trace = here.store.open(id)
    address = Address.parse(at)
    check_address(here.catalogue(trace), trace, address)
    return trace, address


def _page(
    request: Request,
    here: Explorer,
    trace: Trace,
    address: Address,
    typed: Typed | None,
    field: str = "",
    message: str = "",
    status: int = 422,
) -> Response:
    form = edit_form(here, trace, address, typed=typed)
    if form is None:
        raise InvalidInput(
            f"{address} cannot be changed.", hint="It holds whole numbers or truth values, or its model is not here."
        )
    page = edit_page(here, trace, address, replace(form, wrong=field, message=message))
    return render(request, "edit.html", page, status=status if message else 200)
