"""The parts of a map that has its places: boxes, frames and lines. Lengths are in the drawing's own units."""

from dataclasses import dataclass

WIDTH = 372.0
"""As wide as a phone, so that text keeps its size there."""

LEFT, RIGHT = 34.0, 334.0
"""Between these stand the nodes; the lanes of long lines run outside."""


@dataclass(frozen=True, slots=True)
class Label:
    """What a node says: title, name in the code, where it lies, a measure, and its part in the picture.

    `bars` are fractions of the highest, one for each layer.
    """

    title: str
    name: str = ""
    place: str = ""
    measure: str = ""
    mark: str = ""
    bars: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text, centred at x."""

    x: float
    y: float
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a strip of layers, and the full height that can be clicked."""

    layer: int
    x: float
    y: float
    width: float
    height: float
    top: float
    full: float


@dataclass(frozen=True, slots=True)
class Box:
    """A node's place."""

    key: str
    x: float
    y: float
    width: float
    height: float
    texts: tuple[Text, ...]
    bars: tuple[Bar, ...]

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Frame:
    """A group drawn around its nodes."""

    slug: str
    title: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Line:
    """The path of one flow, as SVG writes it."""

    source: str
    target: str
    path: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A whole drawing."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    frames: tuple[Frame, ...]
    lines: tuple[Line, ...]
