"""Colouring Python code: a whole file at once, since a line alone does not know that it is in a string."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import groupby

from markupsafe import Markup, escape
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String

# A few classes that mean something; Pygments' own short ones would meet those of the pages.
_CLASSES: Mapping[object, str] = {
    Comment: "py-c",
    String: "py-s",
    Number: "py-m",
    Keyword: "py-k",
    Operator.Word: "py-k",
    Name.Function: "py-d",
    Name.Class: "py-d",
    Name.Decorator: "py-d",
    Name.Builtin: "py-b",
}


@lru_cache(maxsize=8)
def highlighted(text: str) -> tuple[Markup, ...]:
    """The lines of a Python file as HTML, without their ends. Their text is that of the file."""
    lines: list[list[tuple[str, str]]] = [[]]
    for kind, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens(text):
        name = next((_CLASSES[above] for above in kind.split() if above in _CLASSES), "")
        first, *further = value.split("\n")
        lines[-1].append((name, first))
        lines += [[(name, piece)] for piece in further]
    return tuple(map(_line, lines))


def _line(parts: Iterable[tuple[str, str]]) -> Markup:
    """One line, its neighbouring parts of one class in one element."""
    runs = groupby(parts, key=lambda part: part[0])
    return Markup("").join(_part(name, "".join(text for _, text in run)) for name, run in runs)


def _part(name: str, text: str) -> Markup:
    if not name or not text.strip():
        return escape(text)
    return Markup('<span class="{}">{}</span>').format(name, text)
