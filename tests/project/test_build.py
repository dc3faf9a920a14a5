"""BUILD is Starlark, has every Python file once, and names what the files import."""

import ast
import fnmatch
import pathlib
import re
import sys

import pytest

from tools import imports

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNER = "tests/__main__.py"
# Packages that are imported under another name than their own.
MODULES = {"absl_py": "absl", "scikit-learn": "sklearn"}
# What a BUILD file is made of; all of it means the same in Python. No statements but calls,
# assignments and comprehensions: Bazel refuses def, if, for and f-strings at the top of a file.
SYNTAX = (
    *(ast.Module, ast.Expr, ast.Assign, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Store),
    *(ast.Constant, ast.List, ast.ListComp, ast.comprehension, ast.BinOp, ast.Add, ast.Attribute),
)


def _glob(include, exclude=()):
    """Bazel's: no file of a folder that has a BUILD file of its own, and never nothing."""
    found = [p for pattern in include for p in ROOT.glob(pattern) if "__pycache__" not in p.parts]
    names = sorted({p.relative_to(ROOT).as_posix() for p in found})
    assert found, f"no file is like {include}"
    return [name for name in names if not any(fnmatch.fnmatch(name, e) for e in exclude)]


@pytest.fixture(scope="module")
def tree():
    return ast.parse((ROOT / "BUILD").read_text())


@pytest.fixture(scope="module")
def targets(tree):
    """The targets that BUILD declares: name -> (kind, attributes)."""
    made = {}

    def rule(kind):
        def declare(*, name, **attributes):
            assert name not in made, f"two targets are called {name}"
            made[name] = (kind, attributes)

        return declare

    functions = {kind: rule(kind) for kind in ("py_library", "py_test")}
    ignored = dict.fromkeys(
        ("exports_files", "licenses", "load", "package"), lambda *args, **kwargs: None
    )
    exec(
        compile(tree, "BUILD", "exec"),
        {"__builtins__": {"True": True}, "glob": _glob, **functions, **ignored},
    )
    return made


def _libraries(targets):
    return {name: given for name, (kind, given) in targets.items() if kind == "py_library"}


def test_it_is_starlark(tree):
    for node in ast.walk(tree):
        assert isinstance(node, SYNTAX), f"line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.Call):  # BUILD files have no *args and no **kwargs
            assert all(k.arg for k in node.keywords)
            assert not any(isinstance(a, ast.Starred) for a in node.args)


def test_it_stays_short_and_alone():
    assert len((ROOT / "BUILD").read_text().splitlines()) <= 90
    others = [p for f in imports.FOLDERS for p in (ROOT / f).rglob("BUILD*")]
    assert not others, "a glob does not go into a folder with a BUILD file"


def test_every_python_file_is_in_one_library(targets):
    listed = sorted(f for given in _libraries(targets).values() for f in given["srcs"])
    assert listed == sorted(set(listed)), "a file is in two libraries"
    assert listed == [f for f in imports.python_files() if f not in (RUNNER, "setup.py")]


def test_every_test_file_has_its_target(targets):
    tests = [given for kind, given in targets.values() if kind == "py_test"]
    for given in tests:
        assert (given["srcs"], given["main"], given["deps"]) == ([RUNNER], RUNNER, [":tests"])
    files = [f for f in imports.python_files() if re.match(r"tests/(.*/)?test_[^/]*\.py$", f)]
    assert sorted(f for given in tests for f in given["args"]) == files


def test_deps_are_the_imports(targets):
    libraries = _libraries(targets)
    modules = frozenset(imports.module_of(f) for f in imports.python_files())
    owner = {imports.module_of(f): name for name in libraries for f in libraries[name]["srcs"]}
    for name, given in libraries.items():
        needs = set()
        for file in given["srcs"]:
            for module in imports.imported_by(file, modules):
                if module in owner:
                    needs.add(f":{owner[module]}")
                elif module not in sys.stdlib_module_names:
                    needs.add(module)
        packages = [d.removeprefix("@pypi//") for d in given["deps"]]
        assert {MODULES.get(d, d) for d in packages} == needs - {f":{name}"}
        assert given["deps"] == sorted(given["deps"])


def test_data_is_there(targets):
    for given in _libraries(targets).values():
        for file in given.get("data", ()):
            assert (ROOT / file).is_file()
