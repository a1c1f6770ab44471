"""The addresses of comparisons: the form, what came out, its picture, and handing in a file.

Comparing runs in the thread pool, never on the event loop; only a form's body is read there.
"""

from dataclasses import replace

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.types import Message

from app.comparing import FILE
from app.explorer import Explorer
from app.pages.compare import compare_page, looked_at
from app.pages.compare_form import CompareForm, check_choice, form_page, missing_field, refused, tolerance_of
from app.pages.compare_links import Wanted
from app.pages.compare_picture import Apart, apart, png_of
from app.pages.compare_sides import compared
from app.pages.view import Asked
from app.render import render
from app.routes import Here, explorer_of, number_of
from app.routes_pictures import SliceOut, slice_out
from app.uploads import too_large
from provenance.comparison import How
from provenance.difference import Status
from provenance.errors import InvalidInput, OutOfRange, ProvenanceError, TooLarge

router = APIRouter(include_in_schema=False)

_FOCUS = "focus"
_OVERHEAD_BYTES = 64 << 10
"""What a form takes beside the file: boundaries, headers, small fields."""


@router.get("/compare")
def show_comparison(request: Request, here: Here) -> Response:
    """The form; with two sides, what came out when they are compared."""
    wanted = _wanted(request)
    form = CompareForm(wanted.a, wanted.b, wanted.tolerance, wanted.how)
    if not (wanted.a and wanted.b):
        return render(request, "compare_form.html", form_page(here, form))
    try:
        relative = tolerance_of(wanted.tolerance)
    except InvalidInput as problem:
        return render(request, "compare_form.html", form_page(here, refused(form, problem, "tolerance")), status=422)
    found = compared(here, wanted.a, wanted.b, relative, how_of(wanted.how))
    page = compare_page(here, found, wanted, Asked.of(request.query_params))
    fragment = request.headers.get("HX-Target") == _FOCUS and page.focus is not None
    return render(request, "compare.html", page, block=_FOCUS if fragment else "")


@router.post("/compare")
async def compare(request: Request) -> Response:
    """Store the file, if one is handed in, and lead to the comparison; a form that is wrong comes back."""
    here = explorer_of(request)
    form, whole = await _form(request, here.uploads.limit_bytes)
    try:
        return await run_in_threadpool(_chosen, request, here, form, whole)
    finally:
        await form.close()


def _chosen(request: Request, here: Explorer, sent: FormData, whole: bool) -> Response:
    a, b, tolerance, how = (_text(sent, name) for name in ("a", "b", "tolerance", "how"))
    form, field, file = CompareForm(a, b, tolerance, how), "tolerance", sent.get("file")
    try:
        tolerance_of(tolerance)
        field = "file"
        if not whole:
            raise too_large("the file", here.uploads.limit_bytes)
        if isinstance(file, UploadFile) and file.filename:
            form = replace(form, b=FILE + here.uploads.add(file.file, file.filename).id)
        field = missing_field(form)
        check_choice(form)
    except ProvenanceError as problem:
        status = 413 if isinstance(problem, TooLarge) else 422
        return render(request, "compare_form.html", form_page(here, refused(form, problem, field)), status=status)
    return RedirectResponse(Wanted(form.a, form.b, form.tolerance, form.how).url(), 303)


def _text(sent: FormData, name: str) -> str:
    value = sent.get(name)
    return value.strip() if isinstance(value, str) else ""


async def _form(request: Request, limit_bytes: int) -> tuple[FormData, bool]:
    """The form of a request, and whether all of it was read.

    A body over the limit is closed there, and the rest dropped as it comes: the fields before the file
    are there all the same, and a browser that is still sending sees the answer.
    """
    received, most = 0, limit_bytes + _OVERHEAD_BYTES
    _, options = parse_options_header(request.headers.get("content-type", ""))
    end = b"\r\n--" + options.get(b"boundary", b"") + b"--\r\n"

    async def receive() -> Message:
        nonlocal received
        message = await request.receive()
        before, received = received, received + len(message.get("body", b""))
        if received <= most:
            return message
        return {**message, "body": end if before <= most else b""}

    form = await Request(request.scope, receive).form(max_files=1, max_fields=8)
    return form, received <= most


@router.get("/compare/heatmap.png")
def show_heatmap(request: Request, here: Here) -> Response:
    """The picture of a difference, with the parameters of its page."""
    return Response(png_of(_apart(request, here)), media_type="image/png",
                    headers={"Cache-Control": "private, max-age=300"})  # fmt: skip


@router.get("/api/compare/slice")
def slice_of_difference(request: Request, here: Here, index: str = "") -> SliceOut:
    """Some cells of a difference, for the read-out of its picture."""
    found = _apart(request, here)
    return slice_out(here, found.view, "float64", found.array, found.hidden, index)


def how_of(text: str) -> How | None:
    """The way that an address asks for; None leaves the choice. Raises InvalidInput."""
    if not text:
        return None
    try:
        return How(text)
    except ValueError:
        raise InvalidInput(
            f"{text[:40]!r} is no way to compare.", hint=f"how is {', '.join(How)}, or left out."
        ) from None


def _apart(request: Request, here: Here) -> Apart:
    wanted = _wanted(request)
    found = compared(here, wanted.a, wanted.b, tolerance_of(wanted.tolerance), how_of(wanted.how))
    row = looked_at(found.comparison, wanted)
    if row is None or row.status is Status.UNFIT:
        raise OutOfRange("There is no difference to draw.", hint="Name in `at` a tensor that was compared.")
    return apart(here, found.a.trace, row, found.pair(row), Asked.of(request.query_params), wanted)


def _wanted(request: Request) -> Wanted:
    query = request.query_params
    words = {name: query.get(name, "").strip() for name in ("a", "b", "tolerance", "how", "at", "show")}
    return Wanted(**words, step=number_of("step", query.get("step")))
