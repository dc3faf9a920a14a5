"""Writes BUILD from the imports of every Python file: ``make build-file``.

One py_library for each core module, one for all converters, one py_test for each test file, one
py_binary for each program. ``tests/test_build.py`` compares BUILD with what this finds.
"""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("benchmarks", "examples", "tests", "tf_pfor", "tools")
# Modules that are imported under another name than their package has.
PACKAGES = {"google": "protobuf", "sklearn": "scikit-learn", "tensorflow": "tensorflow"}


@dataclasses.dataclass(frozen=True, order=True)
class Target:
    """One rule of BUILD."""

    name: str
    kind: str
    srcs: tuple[str, ...]
    deps: tuple[str, ...] = ()


def python_files() -> list[str]:
    """Every Python file of the repository, relative to its root."""
    files = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")]
    files += ROOT.glob("*.py")
    return sorted(p.relative_to(ROOT).as_posix() for p in files if "__pycache__" not in p.parts)


def module_of(path: str) -> str:
    """tf_pfor/run.py -> tf_pfor.run; tf_pfor/__init__.py -> tf_pfor."""
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def target_of(path: str) -> tuple[str, str]:
    """The name and kind of the target that ``path`` belongs to."""
    parts = path.removesuffix(".py").split("/")
    if parts[:2] == ["tf_pfor", "converters"]:
        return "converters", "py_library"
    if parts == ["tf_pfor", "__init__"]:
        return "tf_pfor", "py_library"
    if parts[0] == "tf_pfor":
        return parts[1], "py_library"
    if parts[:2] in (["tests", "programs"], ["tests", "samples"]):
        return "_".join(parts[:2]), "py_library"
    if parts[-1].startswith("test_"):
        return "_".join(parts), "py_test"
    if len(parts) == 1 or 'if __name__ == "__main__"' in (ROOT / path).read_text():
        return "_".join(parts), "py_binary"
    return "_".join(parts).replace("___init__", ""), "py_library"


def imports(path: str, modules: frozenset[str]) -> set[str]:
    """The modules that a file imports; ``from package import module`` gives package.module.

    Imports for type checkers only (under ``if TYPE_CHECKING:``) do not count.
    """
    tree = ast.parse((ROOT / path).read_text())
    found: set[str] = set()
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            found |= {_longest(a.name, modules) for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for a in node.names:
                found.add(_longest(f"{node.module}.{a.name}", modules))
    return found


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _statements(node)


def _longest(name: str, modules: frozenset[str]) -> str:
    """The longest prefix of ``name`` that is a module of ours, else its first part."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        if ".".join(parts[:k]) in modules:
            return ".".join(parts[:k])
    return parts[0]


def find_targets() -> list[Target]:
    """All targets, as the files and their imports say."""
    files = python_files()
    owner = {module_of(f): target_of(f)[0] for f in files}
    kinds: dict[str, str] = {}
    srcs: dict[str, list[str]] = {}
    deps: dict[str, set[str]] = {}
    for path in files:
        name, kind = target_of(path)
        assert kinds.setdefault(name, kind) == kind, f"two kinds of target {name}"
        srcs.setdefault(name, []).append(path)
        labels = deps.setdefault(name, set())
        for module in imports(path, frozenset(owner)):
            if module in owner:
                labels.add(f":{owner[module]}")
            elif module not in sys.stdlib_module_names:
                labels.add(f"@pypi//{PACKAGES.get(module, module)}")
        labels.discard(f":{name}")
    return sorted(Target(n, kinds[n], tuple(sorted(srcs[n])), tuple(sorted(deps[n]))) for n in srcs)


def render(targets: list[Target]) -> str:
    """The text of BUILD."""
    lines = [
        "# Written by `make build-file` from the imports; tests/test_build.py checks it.",
        "",
        'load("@rules_python//python:defs.bzl", "py_binary", "py_library", "py_test")',
        "",
        'package(default_visibility = ["//visibility:public"])',
        "",
        'licenses(["notice"])',
        "",
        'exports_files(["LICENSE"])',
    ]
    for target in targets:
        lines += ["", f"{target.kind}(", f'    name = "{target.name}",']
        lines += _list("srcs", target.srcs)
        if target.kind != "py_library":
            lines.append(f'    main = "{target.srcs[0]}",')
        if target.name == "tf_pfor":
            lines.append('    data = ["tf_pfor/py.typed"],')
        lines += _list("deps", target.deps)
        lines.append(")")
    return "\n".join(lines) + "\n"


def _list(name: str, items: tuple[str, ...]) -> list[str]:
    if not items:
        return []
    if len(items) == 1:
        return [f'    {name} = ["{items[0]}"],']
    return [f"    {name} = [", *[f'        "{x}",' for x in items], "    ],"]


if __name__ == "__main__":
    (ROOT / "BUILD").write_text(render(find_targets()))
