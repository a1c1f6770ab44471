"""The application: routes, static files, error pages, and what happens at start and stop."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import Thread
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from app import (
    api,
    api_attribution,
    api_citing,
    api_compare,
    api_effect,
    api_export,
    api_lens,
    api_models,
    api_uploads,
    api_verdict,
    routes,
    routes_attribution,
    routes_compare,
    routes_drift,
    routes_edits,
    routes_lessons,
    routes_map,
    routes_models,
    routes_operation,
    routes_pictures,
    routes_proof,
    routes_traces,
)
from app.delivery import Delivery
from app.examples import record_examples
from app.explorer import Explorer
from app.layers import add_layers, note_route
from app.methods import allowed_methods
from app.page_cache import PageCache
from app.render import STATIC_FILES, error_page
from app.security import SAFE
from app.settings import Settings, load_settings, version
from provenance.errors import (
    AmbiguousName,
    Busy,
    Corrupt,
    InvalidInput,
    LimitReached,
    NotFound,
    ProvenanceError,
    Refused,
    SignInNeeded,
    TooLarge,
    Unavailable,
    UnknownSite,
    WrongHost,
)

log = logging.getLogger(__name__)

_STATUS: tuple[tuple[type[ProvenanceError], int, str], ...] = (
    (NotFound, 404, "Not found"),
    (TooLarge, 413, "Too large"),  # before its kind
    (InvalidInput, 422, "This cannot be done"),
    (LimitReached, 429, "Too many requests"),  # before its kind, as are the two below
    (Unavailable, 503, "Not available now"),
    (WrongHost, 421, "Wrong host"),
    (SignInNeeded, 401, "Sign in first"),
    (Refused, 403, "Refused"),
    (Corrupt, 410, "Stored data cannot be read"),
)


class Problem(BaseModel):
    """An error as RFC 9457 describes it (application/problem+json)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    near: list[str] = []
    candidates: list[str] = []


def create_app(settings: Settings | None = None, explorer_of: Callable[[Settings], Explorer] = Explorer) -> FastAPI:
    """Build the application; nothing is loaded or run before it starts."""
    settings = settings or load_settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        explorer = explorer_of(settings)
        app.state.explorer = explorer
        explorer.store.clean()
        # Loading the model takes seconds: the server answers meanwhile.
        example = Thread(target=record_examples, args=(explorer,))
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
        dependencies=[Depends(note_route)],
    )
    app.mount(STATIC_FILES.prefix, STATIC_FILES, name="static")
    app.include_router(api_citing.router)  # first: its addresses end where api.router's names go on
    app.include_router(routes_pictures.router)  # before api.router, for the same reason
    app.include_router(api_export.router)  # the same
    app.include_router(api.router)
    app.include_router(api_verdict.router)
    app.include_router(api_lens.router)
    app.include_router(api_compare.router)
    app.include_router(api_effect.router)
    app.include_router(api_attribution.router)
    app.include_router(api_models.router)
    app.include_router(api_uploads.router)
    app.include_router(routes_traces.router)
    app.include_router(routes_attribution.router)
    app.include_router(routes_edits.router)
    app.include_router(routes_compare.router)
    app.include_router(routes_proof.router)  # first: routes.router takes any word there for a tensor
    app.include_router(routes.router)
    app.include_router(routes_drift.router)
    app.include_router(routes_map.router)
    app.include_router(routes_lessons.router)
    app.include_router(routes_models.router)
    app.include_router(routes_operation.router)
    app.state.pages = PageCache(settings.page_cache_mib << 20)
    app.add_middleware(Delivery, cache=app.state.pages)
    add_layers(app, settings, _on_error, _on_failure)
    app.add_exception_handler(ProvenanceError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)
    _document_problems(app)
    return app


# --- errors: one place maps them to a status, and to JSON or a page ---


def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProvenanceError)
    status, title = next((s, t) for kind, s, t in _STATUS if isinstance(error, kind))
    near = error.near if isinstance(error, UnknownSite) else ()
    candidates = error.candidates if isinstance(error, AmbiguousName) else ()
    response = _answer(request, status, title, error.message, error.hint, near, candidates)
    if isinstance(error, Busy):
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    if isinstance(error, SignInNeeded):
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _on_failure(request: Request, id: str) -> Response:
    return _answer(request, 500, "The server failed", f"It could not answer this. Its log says more, at {id}.")


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
    if error.status_code == 405:
        # The error names the methods of one route, and several may share an address.
        response.headers["Allow"] = ", ".join(allowed_methods(request))
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
    if not request.url.path.startswith(("/api/", "/healthz", "/readyz")):
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
        for method, operation in (each for path in document["paths"].values() for each in path.items()):
            if method.upper() not in SAFE:  # what the guard may answer
                operation["responses"] = api.problems(401, 403, 413, 429, 503) | operation["responses"]
            if "application/json" in operation["responses"].get("422", {}).get("content", {}):
                operation["responses"]["422"] = api.problems(422)[422]
        for own in ("HTTPValidationError", "ValidationError"):
            schemas.pop(own, None)
        return document

    app.openapi = openapi  # type: ignore[method-assign]
