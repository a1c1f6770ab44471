"""Where the code of one file stores, returns and calls: its bytecode matched with its syntax tree.

Every instruction carries the source span that it was compiled from. Spans are looked up by their
end, which is unique among stores and among calls; their start moves when an attribute chain runs
over several lines.
"""

import ast
import dis
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import TypeVar

from provenance.syntax import parse_module

_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_ACTING = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Lambda, ast.comprehension)
_INDEXABLE = (ast.Call, ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List)

_End = tuple[int | None, int | None]
_Place = tuple[int, int]
_Node = TypeVar("_Node", bound=ast.expr)


@dataclass(frozen=True, slots=True)
class Target:
    """One assigned target: a plain name, or an expression that can be read again without acting."""

    expression: str
    line: int
    name: str | None = None
    is_global: bool = False
    reader: CodeType | None = None


@dataclass(frozen=True, slots=True)
class Return:
    """One return statement; `members` are the elements of a returned tuple display.

    `prefix` is the expression in a form that an index can follow.
    """

    expression: str
    line: int
    prefix: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """One call expression: its text, how to read its callee again, and what it passes.

    Positional arguments end at the first starred one, whose length only the run knows.
    """

    expression: str
    callee: CodeType | None
    positional: tuple[str, ...]
    keywords: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CodeMap:
    """What the instructions of one code object mean, by their offsets in bytes.

    `suspends` marks generators and coroutines, `comprehension` one that has a frame of its own.
    """

    function: str
    suspends: bool
    comprehension: bool
    stores: Mapping[int, tuple[Target, ...]]
    returns: Mapping[int, Return]
    calls: Mapping[int, Call]


class FileMap:
    """The maps of all code objects of one file, made when first asked for.

    Raises SyntaxError for bytes that are no Python source.
    """

    def __init__(self, source: bytes, filename: str) -> None:
        tree = parse_module(source, filename)
        nodes = list(ast.walk(tree))
        hidden = {id(name) for node in nodes if isinstance(node, ast.comprehension) for name in ast.walk(node.target)}
        self._targets = _by_end(
            node
            for node in nodes
            if isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and id(node) not in hidden
        )
        self._calls = _by_end(node for node in nodes if isinstance(node, ast.Call))
        self._lambdas = _by_end(node.body for node in nodes if isinstance(node, ast.Lambda))
        self._returns: list[tuple[_Place, _Place, Return]] = [
            (
                (node.lineno, node.col_offset),
                (node.end_lineno or 0, node.end_col_offset or 0),
                _return(node.value, node.lineno),
            )
            for node in nodes
            if isinstance(node, ast.Return) and node.value is not None
        ]
        self._maps: dict[CodeType, CodeMap] = {}

    def of(self, code: CodeType) -> CodeMap:
        """The map of one code object, which must have been compiled from this file's source."""
        known = self._maps.get(code)
        if known is None:
            known = self._maps[code] = self._read(code)
        return known

    def _read(self, code: CodeType) -> CodeMap:
        stores: dict[int, tuple[Target, ...]] = {}
        returns: dict[int, Return] = {}
        calls: dict[int, Call] = {}
        instructions = list(dis.get_instructions(code))
        for index, instruction in enumerate(instructions):
            where = instruction.positions
            if where is None:
                continue
            end = (where.end_lineno, where.end_col_offset)
            name = instruction.opname
            if name.startswith("STORE_"):
                if targets := self._stored(instruction, end):
                    stores[instruction.offset] = targets
            elif name.startswith(("CALL", "PRECALL")) and end in self._calls:
                # While a called function runs, its caller stands at the call or at one of its caches.
                following = instructions[index + 1].offset
                calls.update(dict.fromkeys(range(instruction.offset, following, 2), _call(self._calls[end])))
            if (point := self._returned(code, where)) is not None:
                returns[instruction.offset] = point
        return CodeMap(
            function=code.co_qualname,
            suspends=bool(code.co_flags & _SUSPENDS),
            comprehension=code.co_name in _COMPREHENSIONS,
            stores=stores,
            returns=returns,
            calls=calls,
        )

    def _stored(self, instruction: dis.Instruction, end: _End) -> tuple[Target, ...]:
        node = self._targets.get(end)
        if node is None:
            return ()
        if not isinstance(node, ast.Name):
            reader = _reader(node)
            return () if reader is None else (Target(ast.unparse(node), node.lineno, reader=reader),)
        if instruction.opname == "STORE_FAST_STORE_FAST":
            # Python 3.13 joins two neighbouring stores and keeps the span of the first alone.
            return tuple(Target(name, node.lineno, name) for name in instruction.argval)
        name = instruction.argval[0] if isinstance(instruction.argval, tuple) else instruction.argval
        return (Target(node.id, node.lineno, name, is_global=instruction.opname == "STORE_GLOBAL"),)

    def _returned(self, code: CodeType, where: dis.Positions) -> Return | None:
        """The return that an instruction works for. A `with` around it returns from its own line."""
        if code.co_name == "<lambda>":
            body = self._lambdas.get((where.end_lineno, where.end_col_offset))
            return None if body is None else _return(body, body.lineno)
        if code.co_name in _COMPREHENSIONS:
            return None
        start = (where.lineno or 0, where.col_offset or 0)
        end = (where.end_lineno or 0, where.end_col_offset or 0)
        for first, last, point in self._returns:
            if first <= start and end <= last:
                return point
        return None


def _by_end(nodes: Iterable[_Node]) -> dict[_End, _Node]:
    return {(node.end_lineno, node.end_col_offset): node for node in nodes}


def _return(value: ast.expr, line: int) -> Return:
    expression = ast.unparse(value)
    members: tuple[str, ...] = ()
    if isinstance(value, ast.Tuple) and not any(isinstance(item, ast.Starred) for item in value.elts):
        members = tuple(ast.unparse(item) for item in value.elts)
    prefix = expression if isinstance(value, _INDEXABLE) else f"({expression})"
    return Return(expression, line, prefix, members)


def _call(node: ast.Call) -> Call:
    positional: list[str] = []
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            break
        positional.append(ast.unparse(argument))
    keywords = tuple((word.arg, ast.unparse(word.value)) for word in node.keywords if word.arg is not None)
    return Call(ast.unparse(node), _reader(node.func), tuple(positional), keywords)


def _reader(node: ast.expr) -> CodeType | None:
    """Code that reads an expression again; None where reading it could act a second time."""
    if any(isinstance(part, _ACTING) for part in ast.walk(node)):
        return None
    return compile(ast.unparse(node), "<read again>", "eval", dont_inherit=True)
