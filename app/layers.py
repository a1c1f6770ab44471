"""What stands around the application, from the outside in: entrance, trusted proxies, guard."""

from fastapi import FastAPI, Request, Response
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.access import Access
from app.entrance import ROUTE, Entrance, Failing
from app.guard import Answering, Guard
from app.metrics import Metrics
from app.routes_operation import sign_in_first
from app.settings import Settings
from provenance.errors import SignInNeeded


def add_layers(app: FastAPI, settings: Settings, answer: Answering, failed: Failing) -> None:
    """Put the layers around an application; what is added last is outermost."""
    access = Access(settings.token.get_secret_value() if settings.token else None)
    metrics = Metrics() if settings.metrics else None
    app.state.access = access
    app.state.metrics = metrics
    app.state.stopping = False

    def answer_or_ask(request: Request, error: Exception) -> Response:
        if not isinstance(error, SignInNeeded) or request.url.path.startswith("/api/"):
            return answer(request, error)
        page = sign_in_first(request, error)
        page.headers["WWW-Authenticate"] = "Bearer"
        return page

    app.add_middleware(Guard, settings=settings, access=access, answer=answer_or_ask)
    if settings.trusted_proxies:
        trusted = "*" if "*" in settings.trusted_proxies else list(settings.trusted_proxies)
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=trusted)
    app.add_middleware(Entrance, failed=failed, metrics=metrics)


async def note_route(request: Request) -> None:
    """Tell the entrance which route a request is for."""
    setattr(request.state, ROUTE, getattr(request.scope.get("route"), "path", ""))
