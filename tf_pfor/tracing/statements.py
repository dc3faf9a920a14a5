"""The statement of a user's function that decides or iterates in a line."""

from __future__ import annotations

import ast
import builtins
import linecache
from collections.abc import Iterator

# Functions of Python that AutoGraph converts, also if they get tensors.
_CONVERTED = frozenset(["abs", "float", "int", "len", "range"])

_KINDS = {
    ast.For: "a for statement",
    ast.While: "a while statement",
    ast.If: "an if statement",
    ast.IfExp: "a conditional expression",
    ast.Assert: "an assert statement",
}


def statement_at(line: str, *, iterates: bool) -> str:
    """The kind of statement at a line, as in "a while statement", that AutoGraph would convert.

    "" if there is none, or if the source cannot be read.

    Args:
      line: ``file:line``.
      iterates: whether it goes over a tensor, and does not decide by one.
    """
    file, _, number = line.rpartition(":")
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, SystemError):  # CPython 3.11, in two threads
        return ""
    found = [kind for kind, head in _heads(tree, iterates) if _is_head(head, int(number))]
    return found[-1] if found else ""


def _heads(tree: ast.AST, iterates: bool) -> Iterator[tuple[str, ast.expr]]:
    """The kind of each statement, and what it goes over or decides by."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and iterates:
            yield _KINDS[ast.For], node.iter
        elif isinstance(node, (ast.While, ast.If, ast.IfExp, ast.Assert)) and not iterates:
            yield _KINDS[type(node)], node.test


def _is_head(head: ast.expr, number: int) -> bool:
    """Whether an expression stands in a line, and AutoGraph can give it tensors."""
    if not head.lineno <= number <= (head.end_lineno or head.lineno):
        return False
    for node in ast.walk(head):
        if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
            return False
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and hasattr(builtins, called.id):
            return called.id in _CONVERTED
    return True
