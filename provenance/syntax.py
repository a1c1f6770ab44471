"""Reading Python source into a tree, from several threads.

CPython counts the depth of a tree that it hands over for all threads together: where two parse at once,
one of them can fail with a SystemError. So one of ours parses at a time; where a library's parser was the
other one, it is tried again.
"""

import ast
import threading

# Of one thread again and again: what the collector of garbage ends meanwhile may parse too.
ONE_AT_A_TIME = threading.RLock()
"""Held while Python source is parsed, by a library too."""

_ATTEMPTS = 20


def parse_module(source: bytes | str, filename: str = "<unknown>") -> ast.Module:
    """The tree of a file. Raises SyntaxError, or ValueError for NUL bytes."""
    tree = _parse(source, filename, "exec")
    assert isinstance(tree, ast.Module)
    return tree


def parse_expression(text: str) -> ast.Expression:
    """The tree of an expression. Raises as `parse_module`, and MemoryError or RecursionError for a deep one."""
    tree = _parse(text, "<unknown>", "eval")
    assert isinstance(tree, ast.Expression)
    return tree


def _parse(source: bytes | str, filename: str, mode: str) -> ast.AST:
    with ONE_AT_A_TIME:
        for _ in range(_ATTEMPTS - 1):
            try:
                return ast.parse(source, filename, mode)
            except SystemError:
                continue
        return ast.parse(source, filename, mode)
