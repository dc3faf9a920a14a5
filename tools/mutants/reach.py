"""The tests of ``make test`` that reach each fault: a fault is tried with these only.

A copy of the package gets a probe at the statement of each fault, and all tests of ``make test``
run there once. A fault outside functions, in a table say, has no probe.
"""

from __future__ import annotations

import ast
import collections
import difflib
import json
import os
import pathlib
import time
from collections.abc import Iterator

import pytest

from tools.mutants.faults import Fault

REACHED: set[int] = set()  # the faults whose probes ran since the last test
PROBE = '__import__("tools.mutants.reach").mutants.reach.REACHED.add({})'
FILES = "reach-{}.jsonl"  # a line for each test, in the root of the copy
ONLY = "only.json"  # the tests that a run keeps, with their seconds, there


def put_probes(package: pathlib.Path, faults: list[Fault]) -> None:
    """Writes a probe in front of the statement of each fault that stands in a function."""
    probes = collections.defaultdict(list)
    for number, fault in enumerate(faults):
        if (line := _statement(package, fault)) is not None:
            probes[fault.file].append((line, number))
    for file, placed in probes.items():
        lines = (package / file).read_text().split("\n")
        for line, number in sorted(placed, reverse=True):
            indent = len(lines[line - 1]) - len(lines[line - 1].lstrip())
            lines.insert(line - 1, " " * indent + PROBE.format(number))
        (package / file).write_text("\n".join(lines))


def _statement(package: pathlib.Path, fault: Fault) -> int | None:
    """The first line of the innermost statement of a function that the fault changes."""
    text = (package / fault.file).read_text()
    old, new = fault.old.split("\n"), fault.new.split("\n")
    blocks = difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes()
    changed = next(begin for kind, begin, *_ in blocks if kind != "equal")
    line = text[: text.index(fault.old)].count("\n") + 1 + min(changed, len(old) - 1)
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
    function = max((f for f in functions if _has(f, line)), key=_first, default=None)
    if function is None:
        return None
    begin = ast.get_docstring(function) is not None
    inside = [_first(s) for s in _statements(function.body) if _has(s, line)]
    return max(inside, default=_first(function.body[begin]))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that a line can be put in front of, and those inside them."""
    for statement in body:
        yield statement
        yield from _inside(statement)


def _inside(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements inside of one; nothing can be put in front of an elif."""
    yield from _statements(getattr(statement, "body", []))
    other = getattr(statement, "orelse", [])
    is_elif = len(other) == 1 and isinstance(other[0], ast.If)
    yield from _inside(other[0]) if is_elif else _statements(other)


def _has(node: ast.stmt, line: int) -> bool:
    """Whether the line is one of the statement's."""
    return _first(node) <= line <= (node.end_lineno or node.lineno)


def _first(node: ast.stmt) -> int:
    """The first line, with decorators."""
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


def read(copy: pathlib.Path) -> dict[int, dict[str, float]]:
    """For each fault the tests that reach it, with their seconds."""
    tests: dict[int, dict[str, float]] = collections.defaultdict(dict)
    for path in copy.glob(FILES.format("*")):
        for line in path.read_text().splitlines():
            name, seconds, reached = json.loads(line)
            for number in reached:
                tests[number][name] = seconds
    return dict(tests)


# ---- As a plugin of pytest -----------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Writes which probes the test reached."""
    REACHED.clear()
    begun = time.monotonic()
    result = yield
    if "REACH" in os.environ:
        line = json.dumps([item.nodeid, time.monotonic() - begun, sorted(REACHED)])
        with (item.config.rootpath / FILES.format(os.getpid())).open("a") as file:
            file.write(line + "\n")
    return result


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the tests that ``ONLY`` names, the fastest ones first."""
    path = config.rootpath / ONLY
    if path.exists():
        seconds = json.loads(path.read_text())
        items[:] = sorted(
            (i for i in items if i.nodeid in seconds), key=lambda i: seconds[i.nodeid]
        )
