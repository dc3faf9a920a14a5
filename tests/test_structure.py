"""The shape of the house (DESIGN 2): sizes, the direction of imports, private symbols, names."""

import ast
import graphlib
import pathlib
import re
import subprocess
import sys

import pytest

from tools import imports

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_LINES = 500
FUNCTION_LINES = 60
# Imports go down this list only: a module imports from lines above its own.
LAYERS = (
    "version errors settings elementwise",
    "axes _definitions",
    "_tf",
    "_graphs linear ranges",
    "values nests",
    "collectives",
    "emit",
    "pending stacked_lists",
    "loop row_reads repeats",
    "by_row",
    "contracts",
    "registry",
    "report",
    "conversion",
    "call",
    "shapes handles matching checked",
    "regions",
    "gradients padded masked",
    "cut",
    "windows",
    "all_slices",
    "left_out",
    "accesses",
    "randomness row_shapes",
    "fallback",
    "jagged",
    "recurrences ordered pairs selections",
    "converters",
    "convert",
    "trace",
    "options memory",
    "function inputs row_links",
    "run",
    "code_reads identity",
    "objects",
    "fingerprint",
    "rebuild",
    "caching",
    "api",
    "vmap",
    "indexed_slices",
    "pullbacks",
    "differentiated",
    "derivatives functional per_example explain",
    "check drop_in",
)
FILES = imports.python_files()
CORE = [f for f in FILES if f.startswith("tf_pfor/")]


def _tree(path):
    return ast.parse((ROOT / path).read_text())


@pytest.mark.parametrize("path", FILES)
def test_sizes(path):
    lines = len((ROOT / path).read_text().splitlines())
    assert lines <= FILE_LINES, f"{path} has {lines} lines"
    for node in ast.walk(_tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            long = node.end_lineno - _first_line(node) + 1
            assert long <= FUNCTION_LINES, f"{path}:{node.lineno}: {node.name} has {long} lines"


def _first_line(node):
    """Where the code begins: a long docstring is no reason to split a function."""
    first = node.body[0]
    is_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return first.end_lineno + 1 if is_doc else node.lineno


def test_imports_run_one_way():
    layer = {name: i for i, line in enumerate(LAYERS) for name in line.split()}
    modules = frozenset(imports.module_of(f) for f in FILES)
    wrong = []
    for path in CORE:
        parts = path.removesuffix(".py").split("/")
        if parts[1] == "__init__":
            continue
        assert parts[1] in layer, f"{path}: give it a place in LAYERS"
        for imported in imports.imported_by(path, modules):
            other = imported.split(".")
            if other[0] != "tf_pfor" or len(other) == 1:
                continue
            above = layer[other[1]] < layer[parts[1]]
            if other[1] == parts[1] == "converters":
                above = parts[-1] == "__init__" or _is_shared(imported)
            if not above:
                wrong.append(f"{path} imports {imported}")
    assert not wrong, "\n".join(wrong)


def test_no_circle_of_imports():
    """Of all modules, with what is imported in functions and for type checkers."""
    modules = frozenset(imports.module_of(f) for f in FILES)
    needs = {imports.module_of(f): imports.imported_by(f, modules) & modules for f in CORE}
    graph = {m: needed - {m} for m, needed in needs.items()}
    list(graphlib.TopologicalSorter(graph).static_order())  # CycleError names the circle


def _is_shared(module):
    """Converters import what converters share: files that register nothing."""
    text = (ROOT / (module.replace(".", "/") + ".py")).read_text()
    return module.split(".")[-1].startswith("_") or "RegisterPFor" not in text


@pytest.mark.parametrize("path", FILES)
def test_private_tensorflow_stays_in_two_files(path):
    if path in ("tf_pfor/_tf.py", "tf_pfor/drop_in.py"):
        return
    for node in ast.walk(_tree(path)):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            assert not name.startswith(("tensorflow.python", "tensorflow.core")), path


def test_nothing_comes_from_the_peer():
    for path in FILES:
        if path in ("tf_pfor/drop_in.py", "tests/test_structure.py"):
            continue
        assert "parallel_for" not in (ROOT / path).read_text(), path


def test_an_op_type_stands_once_in_converters():
    """One file for each op type; several patterns of it stand next to each other."""
    from tf_pfor.registry import REGISTRY

    for op_type in REGISTRY.op_types():
        files = {rule.where.rsplit(":", 1)[0] for rule in REGISTRY.rules(op_type)}
        assert len(files) == 1, f"{op_type}: {sorted(files)}"


def test_registered_names_are_ops():
    """A misspelt op type would never be found; other versions of TensorFlow have others."""
    import tensorflow as tf

    from tf_pfor import _tf
    from tf_pfor.registry import REGISTRY

    unknown = [op for op in REGISTRY.op_types() if _tf.schema(op) is None]
    if tf.__version__.startswith("2.21."):
        assert not unknown, unknown


def test_public_names_are_documented():
    import tf_pfor

    for name in tf_pfor.__all__:
        if name == "__version__":
            continue
        assert getattr(tf_pfor, name).__doc__, name
        assert hasattr(tf_pfor, name)


def test_no_paths_of_a_machine():
    """Nothing committed may depend on where somebody's clone is."""
    pattern = re.compile(r"(?<![\w.])/(work|tmp|root|home)/")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    for path in listed:
        file = ROOT / path
        if path == "tests/test_structure.py" or not file.is_file():
            continue
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        assert not pattern.search(text), f"{path}: {pattern.search(text)}"


def test_import_without_tensorflow_names_the_extra():
    code = (
        "import sys\n"
        "sys.modules['tensorflow'] = None\n"
        "try:\n"
        "    import tf_pfor\n"
        "except ImportError as e:\n"
        "    print(e)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "pip install" in found.stdout, found.stderr
    assert "tf-pfor[cpu]" in found.stdout
