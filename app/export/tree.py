"""A page as a tree that can be changed and written again; what is not touched stays as it was, byte for byte."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser

_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)


@dataclass(slots=True)
class Element:
    """One element. `written` is its opening tag as it stood; None once it was changed. Text is kept raw."""

    tag: str
    attributes: dict[str, str | None]
    written: str | None
    closed: bool = False
    inside: list["Element | str"] = field(default_factory=list)

    def get(self, name: str) -> str:
        """An attribute; empty where it is missing."""
        return self.attributes.get(name) or ""

    def has_class(self, name: str) -> bool:
        """Whether it has that class."""
        return name in self.get("class").split()

    def set(self, name: str, value: str | None) -> None:
        """Set an attribute; None takes it away."""
        if value is None:
            self.attributes.pop(name, None)
        else:
            self.attributes[name] = value
        self.written = None

    def rename(self, tag: str, keep: tuple[str, ...]) -> None:
        """Make it another element with only some of its attributes."""
        self.tag = tag
        self.attributes = {name: value for name, value in self.attributes.items() if name in keep}
        self.written = None

    def elements(self) -> Iterator["Element"]:
        """All elements inside, in the order of the page."""
        for part in self.inside:
            if isinstance(part, Element):
                yield part
                yield from part.elements()

    def text(self) -> str:
        """All text inside, raw."""
        return "".join(part if isinstance(part, str) else part.text() for part in self.inside)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.open = [Element("", {}, "")]

    def updatepos(self, i: int, j: int) -> int:
        """Nobody asks for the line of a tag, and counting lines takes a tenth of the time."""
        return j

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs), self.get_starttag_text())
        self.open[-1].inside.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(Element(tag, dict(attrs), self.get_starttag_text(), closed=True))

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1].tag != tag:
            raise ValueError(f"</{tag}> stands where <{self.open[-1].tag}> is open")
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)

    def handle_entityref(self, name: str) -> None:
        self.handle_data(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.handle_data(f"&#{name};")

    def handle_decl(self, decl: str) -> None:
        self.handle_data(f"<!{decl}>")

    def handle_comment(self, data: str) -> None:
        self.handle_data(f"<!--{data}-->")


def read(source: str) -> Element:
    """The tree of a page, below an element without a name. Raises ValueError where tags do not fit together."""
    reader = _Reader()
    reader.feed(source)
    reader.close()
    if len(reader.open) != 1:
        raise ValueError(f"<{reader.open[-1].tag}> is not closed")
    return reader.open[0]


def write(root: Element) -> str:
    """The page of a tree."""
    parts: list[str] = []
    _write(root, parts)
    return "".join(parts)


def _write(element: Element, parts: list[str]) -> None:
    if element.tag:
        parts.append(_opening(element) if element.written is None else element.written)
    for part in element.inside:
        if isinstance(part, str):
            parts.append(part)
        else:
            _write(part, parts)
    if element.tag and not element.closed and element.tag not in _VOID:
        parts.append(f"</{element.tag}>")


def _opening(element: Element) -> str:
    attributes = "".join(
        f" {_CASED.get(name, name)}" if value is None else f' {_CASED.get(name, name)}="{escape(value)}"'
        for name, value in element.attributes.items()
    )
    return f"<{element.tag}{attributes}{'/' if element.closed else ''}>"


# The parser hands out names in small letters; SVG's are not all small.
_CASED = {
    name.lower(): name
    for name in (
        "gradientUnits", "lengthAdjust", "markerHeight", "markerUnits", "markerWidth", "preserveAspectRatio",
        "refX", "refY", "textLength", "viewBox",
    )
}  # fmt: skip
