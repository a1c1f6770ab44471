"""Asking the application for a page inside this process, without a network or a socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from fastapi import FastAPI

from provenance.errors import Unavailable

_HOST = "localhost"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the application answered: status, media type without its parameters, body."""

    status: int
    media_type: str
    body: bytes


@asynccontextmanager
async def started(app: FastAPI) -> AsyncIterator[FastAPI]:
    """The application between its start and its stop."""
    async with app.router.lifespan_context(app):
        yield app


async def ask(app: FastAPI, url: str) -> Answer:
    """The answer to GET of an address such as `/sites?q=x`."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": quote(path).encode(), "query_string": parts.query.encode(), "root_path": "",
        "headers": [(b"host", _HOST.encode())], "server": (_HOST, 80), "client": (_HOST, 0),
    }  # fmt: skip
    status, headers, body = 500, {}, bytearray()
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            # Nobody goes away: an answer in several parts is sent whole.
            await asyncio.Event().wait()
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], {k.lower(): v for k, v in message["headers"]}
        elif message["type"] == "http.response.body":
            body.extend(message.get("body", b""))

    await app(scope, receive, send)
    media_type = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip()
    return Answer(status, media_type, bytes(body))


async def fetch(app: FastAPI, url: str) -> Answer:
    """The answer to an address that must be there. Raises Unavailable."""
    answer = await ask(app, url)
    if answer.status != 200:
        raise Unavailable(
            f"The page {url} cannot be exported: the app answers {answer.status}.",
            hint="Open it in the app (`tensor-provenance serve`); it says why.",
        )
    return answer
