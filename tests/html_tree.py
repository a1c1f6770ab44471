"""A page as a tree of elements. Fails where elements are not closed in order."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "link", "input", "br", "img", "hr"}


@dataclass
class Node:
    """One element: its tag, attributes, and what is inside it."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    inside: list["Node | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text inside."""
        return "".join(part if isinstance(part, str) else part.text for part in self.inside)

    @property
    def elements(self) -> Iterator["Node"]:
        """All elements inside, in the order of the page."""
        for part in self.inside:
            if isinstance(part, Node):
                yield part
                yield from part.elements

    def all(self, tag: str, class_: str = "", **attributes: str) -> list["Node"]:
        """Elements of a tag inside; `class_` is one of their classes."""
        return [
            node
            for node in self.elements
            if node.tag == tag
            and (not class_ or class_ in node.attributes.get("class", "").split())
            and all(node.attributes.get(name) == value for name, value in attributes.items())
        ]

    def one(self, tag: str, class_: str = "", **attributes: str) -> "Node":
        """The only such element inside."""
        found = self.all(tag, class_, **attributes)
        assert len(found) == 1, f"{len(found)} × {tag} {class_} {attributes}"
        return found[0]


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Node("document")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            node = self.open[-1].inside[-1]
            assert isinstance(node, Node)
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(Node(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)


def tree(source: str) -> Node:
    """The tree of a page or a part of one."""
    parser = _Parser()
    parser.feed(source)
    parser.close()
    assert len(parser.open) == 1, f"not closed: {[node.tag for node in parser.open[1:]]}"
    return parser.open[0]


def words(text: str) -> str:
    """A text with its white space evened out."""
    return " ".join(text.split())
