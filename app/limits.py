"""Who asks, how often, and how much is kept: the limits that are fair to everybody."""

import ipaddress
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

from app.settings import Settings
from provenance.errors import Busy, LimitReached
from provenance.storage import Store

_MOST_CLIENTS = 20_000
_FULL_SECONDS = 3600
_CLIENT: ContextVar[str] = ContextVar("client", default="")


@lru_cache(4096)
def client_of(address: str) -> str:
    """The client that an address stands for: an IPv6 network of 64 bits is one, as one customer has it."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))


@contextmanager
def asking(client: str) -> Iterator[None]:
    """While a request of that client is answered, in this task and the threads that it starts."""
    token = _CLIENT.set(client)
    try:
        yield
    finally:
        _CLIENT.reset(token)


def client_now() -> str:
    """Who is being answered; empty for the server itself and the command line, which have no limits."""
    return _CLIENT.get()


class Window:
    """How often each client did something in the last `seconds`. Safe for several threads."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self.seconds = seconds
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, client: str) -> int:
        """Count one more and return 0; where that is too many, the whole seconds until there is room."""
        if not (self.most and client):
            return 0
        with self._lock:
            times = self._recent(client)
            if len(times) >= self.most:
                return self._wait(times)
            times.append(self._clock())
        return 0

    def wait(self, client: str) -> int:
        """The seconds until there is room, without counting."""
        if not (self.most and client):
            return 0
        with self._lock:
            times = self._recent(client)
            return self._wait(times) if len(times) >= self.most else 0

    def _wait(self, times: deque[float]) -> int:
        return max(1, math.ceil(times[0] + self.seconds - self._clock()))

    def _recent(self, client: str) -> deque[float]:
        times = self._times.setdefault(client, deque())
        self._times.move_to_end(client)
        while len(self._times) > _MOST_CLIENTS:
            self._times.popitem(last=False)
        while times and times[0] + self.seconds <= self._clock():
            times.popleft()
        return times


def in_words(seconds: int) -> str:
    """A time to wait, as a person says it."""
    if seconds < 120:
        return "1 second" if seconds == 1 else f"{seconds} seconds"
    return f"{math.ceil(seconds / 60)} minutes"


def limit_reached(what: str, seconds: int) -> LimitReached:
    """The error for a client that has had its share."""
    return LimitReached(what, hint=f"Ask again in {in_words(seconds)}.", retry_after_seconds=seconds)


def check_room(store: Store, waiting: Iterable[str], settings: Settings) -> None:
    """Raise Busy where the store has no room for one more trace beside those that are being recorded, by their ids.

    Nothing is deleted to make room: somebody may have linked to it.
    """
    if not (settings.traces_limit or settings.store_limit_mib):
        return
    listed = store.list()
    # One that is stored already may still be ending.
    if settings.traces_limit and len({found.id for found in listed} | set(waiting)) >= settings.traces_limit:
        raise _full(f"This server keeps {settings.traces_limit} traces, and has them.")
    used = sum(found.record.tensors_bytes for found in listed if found.record is not None)
    if settings.store_limit_mib and used >= settings.store_limit_mib << 20:
        raise _full(f"The {settings.store_limit_mib} MiB that this server has for traces are used.")


def _full(what: str) -> Busy:
    return Busy(what, hint="Nothing can be recorded until some are deleted.", retry_after_seconds=_FULL_SECONDS)
