"""Rendered pages that are kept, each together with the state of everything that it was made from.

A page is shown again only while that state is the same; in doubt it is rendered anew.
"""

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from app.explorer import Explorer

_ID = re.compile(r"[0-9a-f]{32}")
_TRACES = "/traces/"
_LISTS = ("/", "/traces")
_MOST_ADDRESS = 2048
_OVERHEAD_BYTES = 1024
"""About what an entry takes beside its body and its address."""

State = tuple[object, ...]
"""What a page was made from; two are equal where nothing has changed."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a page's content depends on: its address, and which part of the page is asked for."""

    path: str
    query: str
    parts: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A rendered page: compressed, the fingerprint of its bytes before that, its headers, and its route."""

    compressed: bytes
    fingerprint: str
    headers: tuple[tuple[bytes, bytes], ...]
    route: str = ""


class PageCache:
    """The pages asked for last, up to a number of bytes. Safe for several threads."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        self._pages: OrderedDict[Request, tuple[State, Page]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._pages)

    def get(self, request: Request, state: State) -> Page | None:
        """The page, unless something that it was made from has changed."""
        with self._lock:
            known = self._pages.get(request)
            if known is None or known[0] != state:
                return None
            self._pages.move_to_end(request)
            return known[1]

    def put(self, request: Request, state: State, page: Page) -> None:
        """Keep a page that was rendered after its state was read, in place of an earlier one."""
        with self._lock:
            self._drop(request)
            self._pages[request] = (state, page)
            self.bytes += _size(request, page)
            while self.bytes > self.most_bytes:
                self._drop(next(iter(self._pages)))

    def clear(self) -> None:
        """Forget all pages."""
        with self._lock:
            self._pages.clear()
            self.bytes = 0

    def _drop(self, request: Request) -> None:
        if request in self._pages:
            self.bytes -= _size(request, self._pages.pop(request)[1])


def _size(request: Request, page: Page) -> int:
    return len(page.compressed) + 2 * (len(request.path) + len(request.query)) + _OVERHEAD_BYTES


def state_of(explorer: Explorer, request: Request) -> State | None:
    """Everything that changes and that a page shows; None where that cannot be told from its address.

    Which traces there are, for lists what their records say; of those that the address names, their
    files, how their verification and recording stand, and how many of their tensors were summed up.
    What is missing is not among it: a page that was rendered without a model or a source is not kept
    (`Explorer.missing`).
    It looks at files, so it must not run on an event loop.
    """
    if len(request.path) + len(request.query) > _MOST_ADDRESS:
        return None
    named = _named(request)
    if not all(map(_ID.fullmatch, named)):
        return None  # the beginning of an id: which trace it is depends on the others
    return (
        explorer.store.state(),
        tuple(_trace_state(explorer, id) for id in named),
        _overview(explorer) if request.path in _LISTS else (),
    )


def _overview(explorer: Explorer) -> State:
    """What the lists of traces show: every record, what is being recorded, and which models there are."""
    listed = explorer.store.list()
    kept = tuple(explorer.store.state_of(found.id) for found in listed)
    return listed, kept, explorer.jobs.waiting(), explorer.models.sources(), explorer.showcase()


def _named(request: Request) -> list[str]:
    """The traces that an address names, as they are written."""
    named = [text for name, text in parse_qsl(request.query) if name == "trace"]
    if request.path.startswith(_TRACES):
        named.append(unquote(request.path.removeprefix(_TRACES)).partition("/")[0])
    return named


def _trace_state(explorer: Explorer, id: str) -> State:
    job = explorer.job(id)
    return (
        explorer.store.state_of(id),
        explorer.verifications.under_way(id),
        None if job is None else (job.state, job.done, job.position, job.error),
        explorer.summed_up(id),
    )
