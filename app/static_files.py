"""Styles, scripts and icons, held in memory: each has an address that changes with its content."""

import gzip
import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from provenance.errors import Unavailable

_HTMX_OWNER, _HTMX = "django-js-lib-htmx", "js_lib_htmx/static/htmx/htmx.min.js"
HTMX = "vendor/htmx.min.js"
"""The name of htmx among the files; it is carried by a package."""

_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"
_LEVEL = 9  # once, at the start


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file: its bytes, as they are and compressed, and a fingerprint of them."""

    content: bytes
    compressed: bytes
    fingerprint: str
    media_type: str


class StaticFiles:
    """An ASGI application for the files of a folder and htmx, read once.

    An address with the right fingerprint may be kept for ever; without one, browsers ask again.
    """

    def __init__(self, directory: Path, prefix: str = "/static") -> None:
        self.prefix = prefix
        paths = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if path.is_file()}
        if (htmx := _htmx_path()) is not None:
            paths[HTMX] = htmx
        self.files: Mapping[str, StaticFile] = {name: _read(path) for name, path in sorted(paths.items())}

    def url(self, name: str) -> str:
        """The address of a file, with its fingerprint. Raises KeyError for a name that no file has."""
        if name == HTMX and name not in self.files:
            return f"{self.prefix}/{name}"
        return f"{self.prefix}/{name}?v={self.files[name].fingerprint}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET and HEAD. Raises HTTPException, and Unavailable where htmx is not installed."""
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        name = scope["path"].removeprefix(scope.get("root_path", "")).lstrip("/")
        file = self.files.get(name)
        if file is None and name == HTMX:
            raise Unavailable("htmx is not installed.", hint=f"Install {_HTMX_OWNER}; pages work without it.")
        if file is None:
            raise HTTPException(404)
        await _answer(file, scope)(scope, receive, send)


def _answer(file: StaticFile, scope: Scope) -> Response:
    asked = {name: value.decode("latin-1") for name, value in scope["headers"]}
    short = takes_gzip(asked.get(b"accept-encoding", "")) and len(file.compressed) < len(file.content)
    etag = etag_of(file.fingerprint, compressed=short)
    wanted = parse_qs(scope["query_string"].decode("latin-1")).get("v", [""])[0]
    headers = {
        "ETag": etag,
        "Cache-Control": _FOR_EVER if wanted == file.fingerprint else _ASK_AGAIN,
        "Vary": "Accept-Encoding",
    }
    if matches(asked.get(b"if-none-match", ""), etag):
        return Response(status_code=304, headers=headers)
    if short:
        headers["Content-Encoding"] = "gzip"
    body = file.compressed if short else file.content
    if scope["method"] == "HEAD":
        headers["Content-Length"], body = str(len(body)), b""
    return Response(body, media_type=file.media_type, headers=headers)


def takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    for part in accepted.lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "").removeprefix("q=").strip("0.") != "" or not weight
    return False


def etag_of(fingerprint: str, *, compressed: bool) -> str:
    """A strong ETag: the bytes that are sent differ with their compression, so it does too."""
    return f'"{fingerprint}-gzip"' if compressed else f'"{fingerprint}"'


def matches(asked: str, etag: str) -> bool:
    """Whether an If-None-Match header names an ETag; weakly, as that header is compared."""
    return asked.strip() == "*" or etag in (part.strip().removeprefix("W/") for part in asked.split(","))


def fingerprint_of(content: bytes) -> str:
    """The first 80 bits of a SHA-256, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()[:20]


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return StaticFile(content, gzip.compress(content, _LEVEL, mtime=0), fingerprint_of(content), media_type)


def _htmx_path() -> Path | None:
    found = [file for file in files(_HTMX_OWNER) or () if str(file) == _HTMX]
    return Path(str(found[0].locate())) if found else None
