"""Addresses for whoever runs the server: is it ready, its metrics; and signing in with its token."""

import re
import tempfile
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from app.access import COOKIE, SESSION_SECONDS, Access
from app.api import problems
from app.explorer import Explorer
from app.limits import client_of
from app.metrics import CONTENT_TYPE, Metrics
from app.pages.login import login_page
from app.render import render
from app.routes import Here
from provenance.errors import LimitReached, ProvenanceError, SignInNeeded, Unavailable

router = APIRouter()

_REFERER = re.compile(r"https?://[^/?#]*(/[^#]*)")
_OWN_PATH = re.compile(r"/(?!/)[!-\[\]-~]*")
"""No second slash, which would begin another host's name; no backslash, which browsers take for one."""


class Ready(BaseModel):
    """The server can do its work."""

    status: str = "ready"


@router.get("/readyz", tags=["server"], responses=problems(503))
def readyz(request: Request, here: Here) -> Ready:
    """Whether the server can do its work: model, store and room in the queue are there."""
    reasons = ["The server is stopping."] if request.app.state.stopping else _reasons(here)
    if reasons:
        raise Unavailable(" ".join(reasons))
    return Ready()


def _reasons(here: Explorer) -> list[str]:
    found = []
    settings = here.settings
    try:
        if not here.models.known(settings.model).available:
            found.append(f"The weights of the model {settings.model!r} are not here.")
        if not settings.read_only and here.jobs.tally().waiting >= settings.queue_length:
            found.append("The queue of recordings is full.")
    except ProvenanceError as error:
        found.append(error.message)
    if not settings.read_only and not _writable(here):
        found.append("The directory of the traces cannot be written.")
    return found


def _writable(here: Explorer) -> bool:
    directory = here.settings.data_directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


@router.get("/metrics", include_in_schema=False)
def show_metrics(request: Request, here: Here) -> Response:
    """Numbers for Prometheus, where the setting `metrics` says so."""
    metrics: Metrics | None = request.app.state.metrics
    if metrics is None:
        raise HTTPException(404)
    return Response(metrics.text(here), media_type=CONTENT_TYPE, headers={"Cache-Control": "no-store"})


@router.get("/login", include_in_schema=False)
def show_login(request: Request, here: Here, next: str = "/") -> Response:
    """The form that takes the token."""
    access = _access(request)
    signed_in = access.signed_in(dict(request.headers.raw))
    return render(request, "login.html", login_page(here, own_path(next), needed=access.needed, signed_in=signed_in))


@router.post("/login", include_in_schema=False)
def sign_in(
    request: Request, here: Here, token: Annotated[str, Form()] = "", next: Annotated[str, Form()] = "/"
) -> Response:
    """Start a session: its cookie proves the token and does not hold it."""
    client = client_of(request.client.host) if request.client else ""
    try:
        session = _access(request).sign_in(token.encode(errors="surrogatepass"), client)
    except (SignInNeeded, LimitReached) as problem:
        page = login_page(here, own_path(next), needed=_access(request).needed, message=str(problem))
        answer = render(request, "login.html", page, status=429 if isinstance(problem, LimitReached) else 401)
        if isinstance(problem, LimitReached):
            answer.headers["Retry-After"] = str(problem.retry_after_seconds)
        return answer
    done = RedirectResponse(own_path(next), 303)
    done.set_cookie(
        COOKIE,
        session,
        max_age=SESSION_SECONDS,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return done


@router.post("/logout", include_in_schema=False)
def sign_out() -> Response:
    """End the session in this browser."""
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer


def sign_in_first(request: Request, problem: SignInNeeded) -> Response:
    """The form in the place of a page that takes the token; it leads back to where the request was sent from."""
    here: Explorer = request.app.state.explorer
    sent_from = _REFERER.match(request.headers.get("referer", "")[:2000])
    back = sent_from[1] if sent_from else "/"
    page = login_page(here, own_path(back), needed=True, message=problem.message)
    return render(request, "login.html", page, status=401)


def own_path(address: str) -> str:
    """An address on this server to go on to; the first page for anything else."""
    return address if _OWN_PATH.fullmatch(address) else "/"


def _access(request: Request) -> Access:
    access: Access = request.app.state.access
    return access
