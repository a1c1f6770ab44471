"""The page that takes the server's token."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.frame import Frame, frame
from app.pages.scope import Scope


@dataclass(frozen=True, slots=True)
class LoginPage:
    """The form; `needed` where this server has a token at all, `next` is where to go on."""

    frame: Frame
    next: str
    needed: bool
    signed_in: bool
    message: str


def login_page(
    explorer: Explorer, next: str, *, needed: bool, signed_in: bool = False, message: str = ""
) -> LoginPage:
    """The page, before or after a token was wrong."""
    return LoginPage(frame(Scope.of(explorer), "Sign in"), next, needed, signed_in, message)
