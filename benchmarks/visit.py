"""What a browser fetches when it comes to a page for the first time, in bytes over the wire."""

import asyncio
import gzip
import importlib
import re
import zlib
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin, urlsplit

from benchmarks.reader import Answer, ask

_HERE = "http://localhost"


@dataclass(frozen=True, slots=True)
class Fetched:
    """One file of a visit."""

    path: str
    type: str
    encoding: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Visit:
    """A page and all that it needs: style sheets, scripts, fonts, pictures."""

    path: str
    files: tuple[Fetched, ...]

    @property
    def with_pictures(self) -> int:
        """Bytes of all bodies."""
        return sum(file.bytes for file in self.files)

    @property
    def without_pictures(self) -> int:
        """Bytes of all but pictures."""
        return sum(file.bytes for file in self.files if not file.type.startswith("image/"))


class _Needs(HTMLParser):
    """Collects what a page makes a browser fetch by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        relations = set((given.get("rel") or "").split())
        if tag == "link" and relations & {"stylesheet", "icon", "preload", "modulepreload"}:
            self._need(given.get("href"))
        elif tag in ("script", "img", "source", "iframe", "embed"):
            self._need(given.get("src"))
            self.links += [part.split()[0] for part in (given.get("srcset") or "").split(",") if part.strip()]

    def _need(self, link: str | None) -> None:
        if link:
            self.links.append(link)


def needs(type: str, text: str) -> list[str]:
    """The links of a page or style sheet that a browser follows by itself."""
    if type.startswith("text/html"):
        parser = _Needs()
        parser.feed(text)
        return parser.links
    if type.startswith("text/css"):
        return [found.strip("'\" ") for found in re.findall(r"url\(([^)]+)\)", text)]
    if "javascript" in type:
        return re.findall(r"""(?:from|import)\s*\(?["']([./][^"']+)["']""", text)
    return []


def first_visit(port: int, path: str) -> Visit:
    """Fetch a page of the server at a port with all that it needs, and nothing in a cache."""
    return asyncio.run(_visit(port, path))


async def _visit(port: int, path: str) -> Visit:
    stream = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    waiting, fetched = [path], dict[str, Fetched]()
    while waiting:
        wanted = waiting.pop(0)
        if wanted in fetched:
            continue
        answer = await ask(stream, wanted)
        if answer.status != 200:
            raise ValueError(f"{wanted} is answered with {answer.status}")
        fetched[wanted] = Fetched(wanted, answer.type, answer.encoding, answer.wire_bytes)
        for link in needs(answer.type, _text(answer)):
            address = urlsplit(urldefrag(urljoin(_HERE + wanted, link))[0])
            if address.netloc == "localhost":
                waiting.append(address.path + (f"?{address.query}" if address.query else ""))
    stream[1].close()
    return Visit(path, tuple(fetched.values()))


def _text(answer: Answer) -> str:
    encoding, body = answer.encoding, answer.body
    if encoding == "gzip":
        body = gzip.decompress(body)
    elif encoding == "deflate":
        body = zlib.decompress(body)
    elif encoding == "br":
        body = importlib.import_module("brotli").decompress(body)
    elif encoding:
        raise ValueError(f"an answer in the encoding {encoding!r} cannot be read here")
    return body.decode(errors="replace")
