"""What keeps other web sites out: the headers of every answer, the names of this server, who sent a request."""

import ipaddress
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), "
    "magnetometer=(), microphone=(), midi=(), payment=(), publickey-credentials-get=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""On every answer. The policy allows no inline script or style, and no other origin."""

SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LONGEST_NAME = 300
_ANY = ("0.0.0.0", "::")
_OWN = ("same-origin", "none")
_PORTS = {"http": 80, "https": 443}


class Hosts:
    """The names under which this server may be asked.

    Without a list: loopback names and the address that it listens on. One that listens on all addresses
    takes any IP address too: a web site that points its own name here sends that name.
    """

    def __init__(self, allowed: Iterable[str], listening: str) -> None:
        names = [name.lower().strip("[]") for name in allowed]
        self._all = "*" in names
        self._endings = tuple(name[1:] for name in names if name.startswith("*."))
        self._names = frozenset(names) | set(_LOOPBACK if names else (*_LOOPBACK, listening.lower()))
        self._addresses = not names and listening in _ANY

    def allow(self, host: str) -> bool:
        """Whether a Host header names this server."""
        if self._all:
            return True
        name = host_name(host) if len(host) <= _LONGEST_NAME else None
        if name is None:
            return False
        return name in self._names or name.endswith(self._endings) or (self._addresses and _is_address(name))


@lru_cache(1024)
def host_name(host: str) -> str | None:
    """The name in a Host header, without its port and brackets; None where it is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        parts.port  # noqa: B018 (raises where the port is none)
    except ValueError:
        return None
    plain = parts.netloc == host and not any(mark in host for mark in "@/?#\\ \t")
    return parts.hostname.rstrip(".") if plain and parts.hostname else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def same_origin(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request comes from a page of this server, or from no web page at all.

    Browsers say where from in Sec-Fetch-Site, older ones in Origin; command lines say neither.
    """
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site.decode("latin-1") in _OWN
    origin = headers.get(b"origin")
    return origin is None or _same(origin.decode("latin-1"), headers.get(b"host", b"").decode("latin-1"))


def _same(origin: str, host: str) -> bool:
    """Whether an origin is the host that was asked; behind a proxy the scheme is not known here."""
    try:
        asked, sender = urlsplit(f"//{host}"), urlsplit(origin)
        default = _PORTS.get(sender.scheme)
        ports = (sender.port or default, asked.port or default)
    except ValueError:
        return False
    return (
        default is not None and bool(sender.hostname) and sender.hostname == asked.hostname and ports[0] == ports[1]
    )
