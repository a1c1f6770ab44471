"""The token that recording and deleting take: in a header, or a cookie that proves it without holding it."""

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie

from app.limits import Window, limit_reached
from provenance.errors import SignInNeeded

COOKIE = "tensor-provenance-session"
SESSION_SECONDS = 7 * 24 * 3600
_ATTEMPTS = 10
_ATTEMPTS_SECONDS = 15 * 60
_BEARER = b"bearer "


class Access:
    """Who may change something. Without a token, everybody."""

    def __init__(
        self,
        token: str | None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._digest = _digest(token.encode()) if token else b""
        self._key = _session_key(token.encode()) if token else b""
        self._clock = clock
        self._failures = Window(_ATTEMPTS, _ATTEMPTS_SECONDS, monotonic)

    @property
    def needed(self) -> bool:
        """Whether there is a token."""
        return bool(self._key)

    def check(self, headers: Mapping[bytes, bytes], client: str) -> None:
        """Raise SignInNeeded without the token, or LimitReached after too many wrong ones."""
        if not self.needed:
            return
        given = headers.get(b"authorization", b"")
        if given[: len(_BEARER)].lower() == _BEARER:
            self.sign_in(given[len(_BEARER) :].strip(), client)
        elif not self.signed_in(headers):
            raise SignInNeeded(
                "This server takes changes only from those who have its token.",
                hint="Sign in at /login, or send it as `Authorization: Bearer TOKEN`.",
            )

    def sign_in(self, token: bytes, client: str) -> str:
        """The value of a session's cookie for the right token. Raises SignInNeeded, or LimitReached."""
        if wait := self._failures.wait(client):
            raise limit_reached("Too many wrong tokens came from this address.", wait)
        if not (self.needed and hmac.compare_digest(_digest(token), self._digest)):
            self._failures.take(client)
            raise SignInNeeded("This is not the token of this server.", hint="Ask whoever runs it.")
        return self._session(int(self._clock()) + SESSION_SECONDS)

    def signed_in(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether the request has the cookie of a session that has not ended."""
        try:
            cookies = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1"))
        except CookieError:
            return False
        session = cookies[COOKIE].value if COOKIE in cookies else ""
        ends = session.partition(".")[0]
        if not (self._key and ends.isascii() and ends.isdigit() and len(ends) < 12):
            return False
        whole = hmac.compare_digest(session.encode("latin-1", "replace"), self._session(int(ends)).encode())
        return whole and int(ends) > self._clock()

    def _session(self, ends: int) -> str:
        return f"{ends}.{hmac.new(self._key, f'session until {ends}'.encode(), hashlib.sha256).hexdigest()}"


def _digest(token: bytes) -> bytes:
    """Of equal length for all tokens, so that comparing two tells nothing about either."""
    return hashlib.sha256(token).digest()


def _session_key(token: bytes) -> bytes:
    """Slow on purpose: a cookie that was stolen is no way to guess the token."""
    return hashlib.scrypt(token, salt=b"tensor-provenance session", n=1 << 14, r=8, p=1, dklen=32)
