"""Sites and addresses: the names by which every tensor is found.

A *site* is a named place in the computation with the layer left open: `h.attn.scores`.
An *address* is one tensor of a trace: the site, its layer and its step: `h.3.attn.scores@2`.
Sites of the repeated block start with `h.`; the layer stands right behind it.
"""

import re
from dataclasses import dataclass
from typing import Self

from provenance.errors import InvalidAddress

BLOCK = "h."
"""What the names of all sites inside the repeated block start with."""

LARGEST = 999_999
"""The largest layer or step that an address can hold."""

_SEGMENTS = r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*"
_NUMBER = r"0|[1-9][0-9]{0,5}"
_SITE = re.compile(_SEGMENTS)
_ADDRESS = re.compile(rf"(?:h\.(?P<layer>{_NUMBER})\.)?(?P<rest>{_SEGMENTS})(?:@(?P<step>{_NUMBER}))?")


def is_site(text: str) -> bool:
    """Whether the text has the form of a site's name (it need not exist)."""
    return _SITE.fullmatch(text) is not None


def is_layered(site: str) -> bool:
    """Whether the site lies inside the repeated block, so that its addresses carry a layer."""
    return site.startswith(BLOCK)


def slug(text: str) -> str:
    """Lower-case words joined by hyphens, as a part of a page's address."""
    return "-".join("".join(char if char.isalnum() else " " for char in text.lower()).split())


@dataclass(frozen=True, slots=True)
class Address:
    """One tensor of a trace: a site, its layer (None outside the block) and its step.

    Step 0 is the prefill; step n is the n-th decode step. `str()` and `parse` are exact
    inverses: `str(Address.parse(text)) == text` for every text that str() prints.
    """

    site: str
    layer: int | None = None
    step: int = 0

    def __post_init__(self) -> None:
        if not is_site(self.site):
            raise InvalidAddress(f"{self.site!r} is not the name of a site.")
        if is_layered(self.site) and self.layer is None:
            raise InvalidAddress(
                f"{self.site!r} exists once in every layer.",
                hint=f"Name the layer: {self.site.replace(BLOCK, 'h.0.', 1)!r}.",
            )
        if not is_layered(self.site) and self.layer is not None:
            raise InvalidAddress(f"{self.site!r} has no layers.", hint="Leave the layer out.")
        if (self.layer or 0) < 0 or self.step < 0:
            raise InvalidAddress("Layers and steps are counted from 0.")
        if max(self.layer or 0, self.step) > LARGEST:
            raise InvalidAddress(f"Layers and steps go to at most {LARGEST}.")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an address as `str()` prints it; `@0` is accepted too. Raises InvalidAddress."""
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise InvalidAddress(f"{text!r} is not an address.", hint="An address looks like 'h.3.attn.scores@2'.")
        layer, rest, step = match["layer"], match["rest"], match["step"]
        site = BLOCK + rest if layer is not None else rest
        return cls(site, int(layer) if layer is not None else None, int(step or 0))

    @property
    def place(self) -> str:
        """The address without its step: `h.3.attn.scores`. The taps and stored tensors use it."""
        if self.layer is None:
            return self.site
        return f"{BLOCK}{self.layer}.{self.site.removeprefix(BLOCK)}"

    @property
    def html_id(self) -> str:
        """The address as an HTML id: dots and `@` replaced, so that CSS selectors work."""
        return str(self).replace(".", "-").replace("@", "-at-")

    def __str__(self) -> str:
        return f"{self.place}@{self.step}" if self.step else self.place
