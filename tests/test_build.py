"""BUILD: every Python file is in one target, and the deps are what the files import."""

import ast
import pathlib

import pytest

from tools import build_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
HINT = "run `make build-file`"


def _read_targets():
    """The rules of BUILD, which is Python syntax."""
    found = []
    for node in ast.parse((ROOT / "BUILD").read_text()).body:
        call = node.value
        if call.func.id not in ("py_library", "py_test", "py_binary"):
            continue
        given = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
        found.append(
            build_file.Target(
                given["name"], call.func.id, tuple(given["srcs"]), tuple(given.get("deps", ()))
            )
        )
    return found


@pytest.fixture(scope="module")
def targets():
    return _read_targets()


def test_every_python_file_is_in_one_target(targets):
    listed = sorted(f for t in targets for f in t.srcs)
    assert listed == sorted(set(listed)), "a file is in two targets"
    assert listed == build_file.python_files(), HINT


def test_target_names_are_unique(targets):
    names = [t.name for t in targets]
    assert sorted(names) == sorted(set(names))


def test_each_core_module_each_test_and_all_converters_have_their_target(targets):
    sources = {t.name: t.srcs for t in targets}
    kinds = {t.name: t.kind for t in targets}
    for path in (ROOT / "tf_pfor").glob("*.py"):
        name = "tf_pfor" if path.stem == "__init__" else path.stem
        assert sources[name] == (f"tf_pfor/{path.name}",)
    for path in (ROOT / "tests").glob("test_*.py"):
        assert kinds[f"tests_{path.stem}"] == "py_test"
    converters = sorted(f"tf_pfor/converters/{p.name}" for p in _converters())
    assert sorted(sources["converters"]) == converters


def _converters():
    return (ROOT / "tf_pfor" / "converters").glob("*.py")


def test_deps_are_the_imports(targets):
    expected = {t.name: t for t in build_file.find_targets()}
    for target in targets:
        assert target == expected[target.name], HINT


def test_deps_have_no_cycle(targets):
    deps = {t.name: [d[1:] for d in t.deps if d.startswith(":")] for t in targets}
    done: set[str] = set()

    def visit(name, path):
        assert name not in path, " -> ".join([*path, name])
        if name in done:
            return
        for other in deps[name]:
            visit(other, [*path, name])
        done.add(name)

    for name in deps:
        visit(name, [])
