"""The application: routes, static files, error pages, and what happens at start and stop."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import files
from pathlib import Path
from threading import Thread
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from app import (
    api,
    api_citing,
    api_lens,
    api_models,
    api_verdict,
    routes,
    routes_drift,
    routes_map,
    routes_models,
    routes_pictures,
    routes_proof,
    routes_traces,
)
from app.explorer import Explorer
from app.render import STATIC, error_page
from app.settings import Settings, load_settings, version
from provenance.errors import (
    AmbiguousName,
    Corrupt,
    InvalidInput,
    NotFound,
    ProvenanceError,
    Unavailable,
    UnknownSite,
)

log = logging.getLogger(__name__)

_STATUS: tuple[tuple[type[ProvenanceError], int, str], ...] = (
    (NotFound, 404, "Not found"),
    (InvalidInput, 422, "This cannot be done"),
    (Unavailable, 503, "Not available now"),
    (Corrupt, 410, "Stored data cannot be read"),
)
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
_HTMX = "js_lib_htmx/static/htmx/htmx.min.js"


class Problem(BaseModel):
    """An error as RFC 9457 describes it (application/problem+json)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    near: list[str] = []
    candidates: list[str] = []


def create_app(settings: Settings | None = None) -> FastAPI:
    """Build the application; nothing is loaded or run before it starts."""
    settings = settings or load_settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        explorer = Explorer(settings)
        app.state.explorer = explorer
        explorer.store.clean()
        # Loading the model takes seconds: the server answers meanwhile.
        example = Thread(target=_record_example, args=(explorer,))
        example.start()
        yield
        explorer.close()
        example.join()  # torch does not survive the end of the interpreter in another thread

    app = FastAPI(
        title="Tensor Provenance",
        version=version(),
        summary="Every tensor inside GPT-2: what it is, its value, and the source lines that say so.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
    )
    app.include_router(api_citing.router)  # first: its addresses end where api.router's names go on
    app.include_router(routes_pictures.router)  # before api.router, for the same reason
    app.include_router(api.router)
    app.include_router(api_verdict.router)
    app.include_router(api_lens.router)
    app.include_router(api_models.router)
    app.include_router(routes_traces.router)
    app.include_router(routes_proof.router)  # first: routes.router takes any word there for a tensor
    app.include_router(routes.router)
    app.include_router(routes_drift.router)
    app.include_router(routes_map.router)
    app.include_router(routes_models.router)
    app.add_api_route("/static/vendor/htmx.min.js", _htmx, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.middleware("http")(_add_headers)
    app.add_exception_handler(ProvenanceError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)
    _document_problems(app)
    return app


def _record_example(explorer: Explorer) -> None:
    try:
        explorer.record_example()
    except ProvenanceError as error:
        log.warning("no example trace: %s", error)


async def _add_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _htmx() -> FileResponse:
    return FileResponse(_htmx_path(), media_type="text/javascript")


def _htmx_path() -> Path:
    found = [file for file in files("django-js-lib-htmx") or () if str(file) == _HTMX]
    if not found:
        raise Unavailable("htmx is not installed.", hint="Install django-js-lib-htmx; pages work without it.")
    return Path(str(found[0].locate()))


# --- errors: one place maps them to a status, and to JSON or a page ---


def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProvenanceError)
    status, title = next((s, t) for kind, s, t in _STATUS if isinstance(error, kind))
    near = error.near if isinstance(error, UnknownSite) else ()
    candidates = error.candidates if isinstance(error, AmbiguousName) else ()
    return _answer(request, status, title, error.message, error.hint, near, candidates)


def _on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first: dict[str, Any] = dict(error.errors()[0])
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    detail = f"{where}: {first['msg']}" if where else f"The request's body: {first['msg']}"
    if first["type"] == "json_invalid":
        detail = f"The request's body is not JSON (character {where}: {first['ctx']['error']})"
    return _answer(request, 422, "This cannot be done", f"{detail}.")


def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    messages = {
        400: "The request's body cannot be read.",
        404: "There is no page at this address.",
        405: "This address does not take that method.",
    }
    response = _answer(request, error.status_code, "Not found" if error.status_code == 404 else "Refused",
                       messages.get(error.status_code, str(error.detail)))  # fmt: skip
    response.headers.update(error.headers or {})
    return response


def _answer(
    request: Request,
    status: int,
    title: str,
    message: str,
    hint: str = "",
    near: tuple[str, ...] = (),
    candidates: tuple[str, ...] = (),
) -> Response:
    if not request.url.path.startswith(("/api/", "/healthz")):
        page: Response = error_page(request, status, title, message, hint, near)
        return page
    problem = Problem(
        title=title,
        status=status,
        detail=f"{message} {hint}".strip(),
        near=list(near),
        candidates=list(candidates),
    )
    return JSONResponse(problem.model_dump(), status_code=status, media_type="application/problem+json")


def _document_problems(app: FastAPI) -> None:
    """Put the schema of problems into the OpenAPI document, and drop FastAPI's own error schemas."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        document = make()
        schemas = document["components"]["schemas"]
        schemas["Problem"] = Problem.model_json_schema()
        for operation in (each for path in document["paths"].values() for each in path.values()):
            if "application/json" in operation["responses"].get("422", {}).get("content", {}):
                operation["responses"]["422"] = api.problems(422)[422]
        for own in ("HTTPValidationError", "ValidationError"):
            schemas.pop(own, None)
        return document

    app.openapi = openapi  # type: ignore[method-assign]
