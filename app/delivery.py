"""How answers leave: ETags, compression, HEAD, and pages that are kept as they were rendered."""

import gzip
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.entrance import ROUTE
from app.explorer import Explorer
from app.page_cache import Page, PageCache, Request, State, state_of
from app.static_files import etag_of, fingerprint_of, matches, takes_gzip

KEEP = "kept_page"
"""The name in a request's state by which a route says that its page may be kept; see `app.render`."""

_PARTS = (b"hx-request", b"hx-history-restore-request", b"hx-target")
"""The headers of a request by which a page answers with a part of itself."""

_NOT_PAGES = ("/api/", "/static/", "/healthz", "/readyz", "/metrics")
_NOT_PAGES_EITHER = (".png", "/events")
_PAGE = "text/html"
_ENDLESS = "text/event-stream"
_LEAST_BYTES = 500
_LEVEL = 6


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a request says about how it is to be answered."""

    page: Request | None
    gzip: bool
    if_none_match: str
    head: bool


class Delivery:
    """Middleware around the whole application. Event streams and files in parts pass through it unchanged."""

    def __init__(self, app: ASGIApp, cache: PageCache) -> None:
        self.app = app
        self.cache = cache

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope.setdefault("state", {})  # shared with what the routes see, though they may copy the scope
        asked = _asked(scope)
        state: State | None = None
        if asked.page is not None:
            state = await run_in_threadpool(state_of, _explorer(scope), asked.page)
            page = None if state is None else self.cache.get(asked.page, state)
            if page is not None:
                scope["state"][ROUTE] = page.route
                await _send_page(page, asked, send)
                return
        inside = {**scope, "method": "GET"} if asked.head else scope
        await self.app(inside, receive, _Sender(self.cache, scope, asked, state, send))


class _Sender:
    """Sends one answer of the application: as it is, compressed, or with an ETag."""

    def __init__(self, cache: PageCache, scope: Scope, asked: _Asked, state: State | None, send: Send) -> None:
        self.cache = cache
        self.scope = scope
        self.asked = asked
        self.state = state
        self.send = send
        self.start: Message | None = None
        self.missing = _explorer(scope).missing if asked.page is not None else 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message["headers"]))
            self.start = {**message, "headers": headers.raw}
            return
        if self.start is None:  # the rest of an answer in parts
            await self.send(message)
            return
        start, self.start = self.start, None
        if message.get("more_body", False) or message["type"] != "http.response.body":
            await self.send(start)
            await self.send(message)
            return
        await self._whole(start, message.get("body", b""))

    async def _whole(self, start: Message, body: bytes) -> None:
        headers = MutableHeaders(raw=start["headers"])
        kind = headers.get("content-type", "").partition(";")[0].strip()
        if self.asked.page is not None and start["status"] == 200 and kind == _PAGE:
            await _send_page(await run_in_threadpool(self._page, headers, body), self.asked, self.send)
            return
        if _is_text(kind) and "content-encoding" not in headers and len(body) >= _LEAST_BYTES:
            if "accept-encoding" not in headers.get("vary", "").lower():
                headers.add_vary_header("Accept-Encoding")
            if self.asked.gzip:
                body = await run_in_threadpool(_compressed, body)
                headers["Content-Encoding"] = "gzip"
            headers["Content-Length"] = str(len(body))
        await self.send({**start, "headers": headers.raw})
        await self.send({"type": "http.response.body", "body": b"" if self.asked.head else body})

    def _page(self, headers: MutableHeaders, body: bytes) -> Page:
        """A page that was just rendered; it is kept where its route allows that and nothing was missing."""
        del headers["content-length"]
        headers.setdefault("Cache-Control", "no-cache")
        headers.add_vary_header("Accept-Encoding")
        told = self.scope["state"]
        page = Page(_compressed(body), fingerprint_of(body), tuple(headers.raw), told.get(ROUTE, ""))
        allowed = told.get(KEEP, False) and self.missing == _explorer(self.scope).missing
        if allowed and self.asked.page is not None and self.state is not None:
            self.cache.put(self.asked.page, self.state, page)
        return page


async def _send_page(page: Page, asked: _Asked, send: Send) -> None:
    etag = etag_of(page.fingerprint, compressed=asked.gzip)
    headers = [*page.headers, (b"etag", etag.encode("ascii"))]
    if matches(asked.if_none_match, etag):
        headers = [(name, value) for name, value in headers if name != b"content-type"]
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    body = page.compressed if asked.gzip else gzip.decompress(page.compressed)
    if asked.gzip:
        headers.append((b"content-encoding", b"gzip"))
    headers.append((b"content-length", str(len(body)).encode("ascii")))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if asked.head else body})


def _asked(scope: Scope) -> _Asked:
    path: str = scope["path"]
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    found = {name: value.decode("latin-1") for name, value in headers}
    reads = scope["method"] in ("GET", "HEAD") and not path.endswith(_NOT_PAGES_EITHER)
    is_page = reads and not path.startswith(_NOT_PAGES)
    query = scope["query_string"].decode("latin-1")
    return _Asked(
        page=Request(path, query, tuple(found.get(name) for name in _PARTS)) if is_page else None,
        gzip=takes_gzip(found.get(b"accept-encoding", "")),
        if_none_match=found.get(b"if-none-match", ""),
        head=is_page and scope["method"] == "HEAD",
    )


def _explorer(scope: Scope) -> Explorer:
    explorer: Explorer = scope["app"].state.explorer
    return explorer


def _is_text(kind: str) -> bool:
    if kind == _ENDLESS:
        return False
    return kind.startswith("text/") or kind.endswith(("json", "javascript", "svg+xml", "yaml"))


def _compressed(body: bytes) -> bytes:
    return gzip.compress(body, _LEVEL, mtime=0)
