"""The second layer: what a request must fulfil before anything of the application sees it.

The host is ours; what changes something comes from no other web site, is allowed here, and brings the
token where there is one; nobody asks too often; a body is not too large; and an answer begins in time.
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access import Access
from app.limits import Window, asking, client_of, limit_reached
from app.security import SAFE, Hosts, same_origin
from app.settings import Settings
from provenance.errors import LimitReached, ProvenanceError, Refused, TooLarge, WrongHost

log = logging.getLogger("app.requests")

_PROBES = ("/healthz", "/readyz")
_UNCOUNTED = (*_PROBES, "/static/")
_SIGNING = ("/login", "/logout")
_FILES = ("/compare", "/api/uploads")
"""Addresses that take files. They end reading at the files' limit themselves, with a kinder answer."""
_FORMS = re.compile(r"/traces/[^/]+/(edit|delete)|/login")
"""Pages that are nothing but the form of a change."""
_DELETING = re.compile(r".*/(delete|cancel)")
_LEAST_BYTES_PER_SECOND = 16 << 10
"""A body that arrives slower than this is cut; one that is faster has as long as it takes."""

Answering = Callable[[Request, Exception], Response]


class Guard:
    """Middleware around the application; `answer` turns an error into a page or a problem."""

    def __init__(self, app: ASGIApp, settings: Settings, access: Access, answer: Answering) -> None:
        self.app = app
        self.settings = settings
        self.access = access
        self.answer = answer
        self.hosts = Hosts(settings.allowed_hosts, settings.host)
        self.requests = Window(settings.client_requests_per_minute, 60)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        address = scope.get("client")
        client = client_of(address[0]) if address else ""
        try:
            self._check(scope, headers, client)
        except (WrongHost, LimitReached) as error:
            await short_answer(scope, error)(scope, receive, send)
            return
        except ProvenanceError as error:
            response = await run_in_threadpool(self.answer, Request(scope), error)
            await response(scope, receive, send)
            return
        exchange = _Exchange(
            scope, receive, send, self._most_bytes(scope["path"]), self.settings.request_timeout_seconds
        )
        with asking(client):
            await exchange.run(self.app)

    def _check(self, scope: Scope, headers: dict[bytes, bytes], client: str) -> None:
        path, method = scope["path"], scope["method"]
        host = headers.get(b"host", b"").decode("latin-1")
        if not path.startswith(_PROBES) and not self.hosts.allow(host):
            raise WrongHost(
                f"This server is not asked under the name {host[:100]!r}.",
                hint="Whoever runs it can allow that name with the setting allowed_hosts.",
            )
        if not path.startswith(_UNCOUNTED) and (seconds := self.requests.take(client)):
            raise limit_reached(f"More than {self.requests.most} requests came from you in a minute.", seconds)
        if method in SAFE:
            if self.settings.read_only and _FORMS.fullmatch(path):
                raise read_only()
            return
        if not same_origin(headers):
            raise Refused(
                "This request was sent by a page of another web site.",
                hint="Open this server's own page and send it from there.",
            )
        if self.settings.read_only:
            raise read_only()
        deletes = method == "DELETE" or _DELETING.fullmatch(path)
        if path not in _SIGNING and (deletes or self.settings.token_for == "changes"):
            self.access.check(headers, client)
        announced = headers.get(b"content-length", b"")
        most = self._most_bytes(path)
        if announced.isdigit() and int(announced[:20]) > most and path not in _FILES:
            raise TooLarge(f"A request's body may have {most >> 10} KiB here, and this one has more.")

    def _most_bytes(self, path: str) -> int:
        if path in _FILES:
            # What is over the file's limit is read and dropped: a browser that sends sees the answer.
            return max(self.settings.upload_limit_mib << 22, self.settings.body_limit_kib << 10)
        return self.settings.body_limit_kib << 10


def read_only() -> Refused:
    """The error for everything that changes something, where nothing is changed."""
    return Refused(
        "This server only shows the traces that it has.",
        hint="Run your own to record: the README says how.",
    )


def short_answer(scope: Scope, error: ProvenanceError) -> Response:
    """The answer to a request with which nobody wants to spend time: no page is rendered for it."""
    status, title = (421, "Wrong host") if isinstance(error, WrongHost) else (429, "Too many requests")
    response = _short(scope, status, title, str(error))
    if isinstance(error, LimitReached):
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    return response


def _short(scope: Scope, status: int, title: str, detail: str) -> Response:
    if not scope["path"].startswith("/api/"):
        return Response(f"{title}\n\n{detail}\n", status, media_type="text/plain")
    problem = {
        "type": "about:blank", "title": title, "status": status, "detail": detail, "near": [], "candidates": [],
    }  # fmt: skip
    return Response(json.dumps(problem), status, media_type="application/problem+json")


class _Exchange:
    """One request on its way through the application, with a limit of bytes and of time.

    A thread cannot be stopped. So where the time is over, an answer is sent at once, and whatever the
    application still sends is dropped.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, most_bytes: int, timeout_seconds: float) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._most_bytes = most_bytes
        self._timeout_seconds = timeout_seconds
        self._received = 0
        self._whole = False
        self._begun = False
        self._late: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, app: ASGIApp) -> None:
        """Let the application answer."""
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        self._timer = loop.call_later(self._timeout_seconds, self._time_is_over)
        try:
            await app(self._scope, self._receive_some, self._send_on)
        except Exception as error:
            if self._late is None:
                raise
            log.info("ended after its time: %s", type(error).__name__)
        finally:
            self._timer.cancel()
            if self._late is not None:
                await self._late

    async def _receive_some(self) -> Message:
        if self._late is not None:
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._received > self._most_bytes:
                raise HTTPException(413, f"A request's body may have {self._most_bytes >> 10} KiB here.")
        return message

    async def _send_on(self, message: Message) -> None:
        if self._late is not None:
            return
        self._begun = True
        if self._timer is not None:
            self._timer.cancel()
        await self._send(message)

    def _time_is_over(self) -> None:
        if self._begun:
            return
        loop = asyncio.get_running_loop()
        receiving = self._received > 0 and not self._whole
        fast = self._received >= _LEAST_BYTES_PER_SECOND * (loop.time() - self._began)
        if receiving and fast:
            self._timer = loop.call_later(self._timeout_seconds, self._time_is_over)
            return
        self._late = loop.create_task(self._answer(cut=receiving))

    async def _answer(self, *, cut: bool) -> None:
        if cut:
            response = _short(self._scope, 408, "Too slow", "The request's body came too slowly, and was cut.")
            response.headers["Connection"] = "close"
        else:
            response = _short(
                self._scope,
                503,
                "Not available now",
                f"This took longer than the {self._timeout_seconds:g} seconds allowed here. "
                "What was begun may go on: ask again in a while, or for less at once.",
            )
            response.headers["Retry-After"] = str(max(1, round(self._timeout_seconds)))
        await response(self._scope, self._receive, self._send)
