"""Small parts that several pictures share."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """A named place on an axis; `anchor` keeps its text inside the picture."""

    x: float
    text: str
    anchor: str = "middle"


@dataclass(frozen=True, slots=True)
class Heading:
    """The label of a row or column: its index, and the token that stands there, if one does."""

    index: str
    token: str = ""

    def __str__(self) -> str:
        return f"{self.index} “{self.token}”" if self.token else self.index


def visible(token: str, length: int = 14) -> str:
    """A token as a short label: its outer spaces gone unless it has nothing else, its end cut."""
    text = token.strip() or token.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣")
    text = "".join(char if char.isprintable() else "·" for char in text)
    return text if len(text) <= length else text[: length - 1] + "…"
