"""The static site of a trace on a plain web server, which knows nothing of the app."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from app.explorer import Explorer
from app.export import site
from app.export.addresses import canonical, file_of
from app.export.plan import Plan, plan_of
from provenance.names import Address
from provenance.trace import Trace

_SITES = (
    "tokens", "logits", "h.ln_1.g", "h.ln_1.out", "h.attn.scores", "h.attn.pattern", "h.attn.mask.m", "h.attn.k",
    "h.attn.k_all", "h.resid_mid", "h.resid_post", "h.ln_2.u", "h.ln_2.s", "h.ln_2.normalized", "h.ln_2.out",
)  # fmt: skip
_WITHOUT_A_TRACE = ("/sites/h.attn.k", "/sites/wte", "/sites/h.attn.scores")
_CITED = ("/cite/sites/h.attn.scores", "/cite/sites/h.attn.scores/1")


@dataclass(frozen=True)
class Place:
    """Where a reader is: the live app, or with `trace` a static site of it."""

    base: str
    trace: Trace | None = None

    def at(self, url: str) -> str:
        """The path at which a page of the app stands here."""
        if self.trace is None:
            return url
        target = canonical(self.trace, "/", url)
        assert target is not None
        return "/" + file_of(self.trace, target.url)


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served_folder(folder: Path) -> Iterator[str]:
    """Serve a folder's files on a free port; the server's address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def is_looked_at(trace: Trace, url: str) -> bool:
    """Whether a test looks at a page: a whole site of this trace would take minutes."""
    parts = urlsplit(url)
    path, query = parts.path, dict(parse_qsl(parts.query))
    near = query.get("layer", "0") in "01" and query.get("step", "0") in "02"
    if path.startswith("/sites/"):
        return path in _WITHOUT_A_TRACE
    if path.startswith("/cite/sites/"):
        return path in _CITED
    place = path.removeprefix(f"/traces/{trace.id}/")
    if place == "lens":
        return query.get("stage", "h.2.resid_post") == "h.2.resid_post"
    if place == path or place in ("verdict", "attribution"):
        return near
    at = Address.parse(place)
    return near and at.site in _SITES and at.layer in (None, 0, 1, 5) and query.get("head", "7") in "37"


def export_some(here: Explorer, trace: Trace, folder: Path) -> None:
    """Export the pages that the tests look at."""

    def some(here: Explorer, trace: Trace, most_pages: int) -> Plan:
        whole = plan_of(here, trace, 10**6)
        return Plan({url: file for url, file in whole.files.items() if is_looked_at(trace, url)}, ())

    # Playwright keeps an event loop in this thread; an export needs one of its own.
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as thread:
        patch.setattr(site, "plan_of", some)
        thread.submit(site.export_site, here.settings, trace.id, folder).result()
