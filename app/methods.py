"""Which methods an address takes, over all routes that share it."""

from fastapi import Request
from starlette.routing import BaseRoute, Match

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def allowed_methods(request: Request) -> tuple[str, ...]:
    """The methods that some route takes at a request's address."""
    routes: list[BaseRoute] = request.app.routes
    # A router of routes has no list of methods to read, so each method is tried.
    return tuple(method for method in _METHODS if any(_takes(route, request, method) for route in routes))


def _takes(route: BaseRoute, request: Request, method: str) -> bool:
    return route.matches({**request.scope, "method": method})[0] is Match.FULL
