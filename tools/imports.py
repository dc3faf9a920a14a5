"""The Python files of the repository and what they import, for the tests of its shape."""

from __future__ import annotations

import ast
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("benchmarks", "docs", "examples", "tests", "tf_pfor", "tools")


def python_files() -> list[str]:
    """Every Python file of the repository, relative to its root."""
    files = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")]
    files += ROOT.glob("*.py")
    return sorted(p.relative_to(ROOT).as_posix() for p in files if "__pycache__" not in p.parts)


def module_of(path: str) -> str:
    """tf_pfor/api/run.py -> tf_pfor.run; tf_pfor/__init__.py -> tf_pfor."""
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def imported_by(path: str, modules: frozenset[str]) -> set[str]:
    """The modules that a file imports; ``from package import module`` gives package.module.

    Imports for type checkers (under ``if TYPE_CHECKING:``) and in functions count as well.
    """
    tree = ast.parse((ROOT / path).read_text())
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {_longest(a.name, modules) for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for a in node.names:
                found.add(_longest(f"{node.module}.{a.name}", modules))
    return found


def _longest(name: str, modules: frozenset[str]) -> str:
    """The longest prefix of ``name`` that is a module of ours, else its first part."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        if ".".join(parts[:k]) in modules:
            return ".".join(parts[:k])
    return parts[0]
