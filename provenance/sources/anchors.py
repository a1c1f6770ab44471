"""Anchors: from the name of a function and of statements in it to lines of a source text."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from provenance.citation import Anchor, Span
from provenance.errors import AnchorMoved
from provenance.syntax import parse_module

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_KEYWORDS: dict[type[ast.stmt], str] = {
    ast.Return: "return",
    ast.Raise: "raise",
    ast.Assert: "assert",
    ast.If: "if",
    ast.For: "for",
    ast.AsyncFor: "for",
    ast.While: "while",
    ast.With: "with",
    ast.AsyncWith: "with",
    ast.Try: "try",
}
_NUMBERED = re.compile(r"(?P<name>.+)#(?P<number>[1-9][0-9]*)")


def resolve(source: bytes, anchor: Anchor) -> tuple[int, int]:
    """First and last line (1-based, both included) of what the anchor names.

    Raises AnchorMoved when the function or a statement is not there.
    """
    definition = _definition(source, anchor.function)
    if anchor.start is None:
        return definition.lineno, definition.end_lineno or definition.lineno
    start = _statement(definition, anchor, anchor.start)
    end = start if anchor.end is None else _statement(definition, anchor, anchor.end)
    first, last = start.lineno, _last_line(source, end)
    if last < first or end.lineno < first:
        raise AnchorMoved(f"The anchor {str(anchor)!r} ends at line {end.lineno}, before its start at line {first}.")
    return first, last


def check(source: bytes, span: Span) -> None:
    """Raises AnchorMoved unless the span's anchor gives exactly the span's lines."""
    first, last = resolve(source, span.anchor)
    if (first, last) != (span.first, span.last):
        raise AnchorMoved(
            f"The anchor {str(span.anchor)!r} stands at lines {first}–{last}, not at {span}.",
            hint="Either the pinned lines or the anchor must be corrected.",
        )


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a function: its lines (a compound one's header alone) and the selectors that find it."""

    first: int
    last: int
    selectors: tuple[str, ...]


@lru_cache(maxsize=256)
def statements(source: bytes, function: str) -> tuple[Statement, ...]:
    """All statements of a function, in order, as anchors count them. Raises AnchorMoved."""
    seen: Counter[str] = Counter()
    found: list[Statement] = []
    for node in _walk(_definition(source, function).body):
        names = tuple(dict.fromkeys(_names(node)))
        seen.update(names)
        selectors = tuple(name if seen[name] == 1 else f"{name}#{seen[name]}" for name in names)
        found.append(Statement(node.lineno, _last_line(source, node), selectors))
    return tuple(found)


@lru_cache(maxsize=8)
def _module(source: bytes) -> ast.Module:
    try:
        return parse_module(source)
    except (SyntaxError, ValueError) as error:
        raise AnchorMoved(f"The source cannot be read as Python: {error}.") from error


def _definition(source: bytes, qualified: str) -> Definition:
    """The one definition of that qualified name (`f`, `f.inner`, `Class.method`)."""
    body = _module(source).body
    found: Definition | None = None
    for name in qualified.split("."):
        here = [node for node in _walk(body) if isinstance(node, _DEFINITIONS) and node.name == name]
        if len(here) != 1:
            said = "is not defined" if not here else f"is defined {len(here)} times"
            raise AnchorMoved(f"{qualified!r} {said} in this source (looking for {name!r}).")
        found, body = here[0], here[0].body
    assert found is not None
    return found


def _statement(definition: Definition, anchor: Anchor, selector: str) -> ast.stmt:
    match = _NUMBERED.fullmatch(selector)
    name, number = (match["name"], int(match["number"])) if match else (selector, 1)
    hits = [node for node in _walk(definition.body) if name in _names(node)]
    if len(hits) < number:
        lines = ", ".join(str(node.lineno) for node in hits) or "none"
        raise AnchorMoved(
            f"The anchor {str(anchor)!r} needs statement {selector!r} in {anchor.function!r}, "
            f"which has {len(hits)} such (lines: {lines})."
        )
    return hits[number - 1]


def _walk(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements in order of source, into compound statements, not into definitions."""
    for node in body:
        yield node
        if not isinstance(node, _DEFINITIONS):
            for inner in _bodies(node):
                yield from _walk(inner)


def _bodies(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    if isinstance(node, ast.Match):
        yield from (case.body for case in node.cases)
        return
    yield getattr(node, "body", [])
    yield from (handler.body for handler in getattr(node, "handlers", []))
    yield getattr(node, "orelse", [])
    yield getattr(node, "finalbody", [])


def _names(node: ast.stmt) -> Iterator[str]:
    """Everything that a selector may call this statement."""
    if type(node) in _KEYWORDS:
        yield _KEYWORDS[type(node)]
    for target in _targets(node):
        yield from _members(target)
    if isinstance(node, ast.Expr):
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call):
            yield ast.unparse(value.func)


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor):
        return [node.target]
    if isinstance(node, ast.With | ast.AsyncWith):
        return [item.optional_vars for item in node.items if item.optional_vars is not None]
    return []


def _members(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Tuple | ast.List):
        for member in target.elts:
            yield from _members(member)
    elif isinstance(target, ast.Starred):
        yield from _members(target.value)
    else:
        yield ast.unparse(target)


def _last_line(source: bytes, node: ast.stmt) -> int:
    if hasattr(node, "body") or isinstance(node, ast.Match):
        return _header_end(source, node.lineno)
    return node.end_lineno or node.lineno


def _header_end(source: bytes, first: int) -> int:
    """Line of the colon that ends a compound statement's header.

    The syntax tree does not hold it: brackets around a whole condition leave no trace there,
    and comments may stand between header and body.
    """
    rest = b"\n".join(source.split(b"\n")[first - 1 :]).decode("utf-8")
    depth = lambdas = 0
    for token in tokenize.generate_tokens(io.StringIO(rest).readline):
        if token.string in ("(", "[", "{") and token.type == tokenize.OP:
            depth += 1
        elif token.string in (")", "]", "}") and token.type == tokenize.OP:
            depth -= 1
        elif depth == 0 and token.string == "lambda":
            lambdas += 1
        elif depth == 0 and token.string == ":" and token.type == tokenize.OP:
            if not lambdas:
                return first + token.start[0] - 1
            lambdas -= 1
    raise AnchorMoved(f"The statement at line {first} has no end of its header.")
