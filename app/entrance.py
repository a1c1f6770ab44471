"""The outermost layer of the application: every request gets an id, its answer the security headers, and a line
in the log; whatever fails inside is answered here.
"""

import logging
import time
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.logs import FIELDS, REQUEST_ID, request_id
from app.metrics import Metrics
from app.security import HEADERS

log = logging.getLogger("app.requests")
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
_NAMES = frozenset(name for name, _ in _HEADERS)
_QUIET = ("/healthz", "/readyz", "/metrics")
_LONGEST_PATH = 300
Failing = Callable[[Request, str], Response]
"""Answers a request that failed, with its id."""

ROUTE = "route_template"
"""The name in a request's state of the route that it was for, such as `/traces/{id}`."""


class Entrance:
    """Middleware around everything else."""

    def __init__(
        self,
        app: ASGIApp,
        failed: Failing,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.app = app
        self.failed = failed
        self.metrics = metrics
        self.clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), None)
        id = request_id(given)
        scope.setdefault("state", {})  # shared with what the routes see, though they may copy the scope
        answer = _Answer(send, id)
        mark = REQUEST_ID.set(id)
        began = self.clock()
        try:
            await self.app(scope, receive, answer.send)
        except Exception:
            log.exception("failed", extra={FIELDS: {"method": scope["method"], "path": _path(scope)}})
            if not answer.status:
                response = await self._answer_of_failure(scope, id)
                await response(scope, receive, answer.send)
        finally:
            self._note(scope, answer, self.clock() - began)
            REQUEST_ID.reset(mark)

    async def _answer_of_failure(self, scope: Scope, id: str) -> Response:
        try:
            return await run_in_threadpool(self.failed, Request(scope), id)
        except Exception:
            return PlainTextResponse(f"The server failed. Its log says more, at {id}.\n", 500)

    def _note(self, scope: Scope, answer: "_Answer", seconds: float) -> None:
        if self.metrics is not None:
            self.metrics.answered(scope["method"], _template(scope, answer.status), answer.status, seconds)
        level = logging.DEBUG if scope["path"] in _QUIET and answer.status < 400 else logging.INFO
        if log.isEnabledFor(level):
            said = {
                "method": scope["method"][:20],
                "path": _path(scope),
                "status": answer.status,
                "ms": round(seconds * 1000, 1),
                "bytes": answer.bytes,
            }
            log.log(level, "answered" if answer.status else "left unanswered", extra={FIELDS: said})


class _Answer:
    """Sends an answer on with our headers, and counts it."""

    def __init__(self, send: Send, id: str) -> None:
        self._send = send
        self._id = id.encode("ascii")
        self.status = 0
        self.bytes = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = [pair for pair in message["headers"] if pair[0].lower() not in _NAMES]
            message = {**message, "headers": [*own, *_HEADERS, (b"x-request-id", self._id)]}
        elif message["type"] == "http.response.body":
            self.bytes += len(message.get("body", b""))
        await self._send(message)


def _template(scope: Scope, status: int) -> str:
    """What a request is counted under: few names, whatever is asked for."""
    if scope["path"].startswith("/static/"):
        return "/static"
    # Pages that are kept and files of which a browser has the newest never reach a route.
    return scope["state"].get(ROUTE) or ("kept page" if 0 < status < 400 else "none")


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return path[:_LONGEST_PATH]
