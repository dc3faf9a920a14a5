"""The shape of the house: sizes, the direction of imports, private symbols, names."""

import ast
import collections
import functools
import graphlib
import importlib
import importlib.util
import pathlib
import re
import subprocess
import sys

from tools import imports

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE_LINES = 700
FUNCTION_LINES = 60
# The rooms, and which stand directly below each: a module imports from rooms below its own only.
BELOW = {
    "_tf": "",
    "core": "_tf",
    "layouts": "core",
    "fallback": "layouts",
    "walker": "fallback",
    "converters/analysis": "layouts",
    "converters/lists": "converters/analysis",
    "converters/math": "converters/lists",
    "converters/arrays": "converters/math",
    "converters/nn": "converters/math",
    "converters/ragged": "converters/arrays converters/nn",
    "converters/sparse": "converters/ragged",
    "converters/parsing": "converters/ragged fallback",
    "converters/strings": "converters/sparse",
    "converters/state": "converters/math fallback",
    "converters/control_flow": (
        "converters/arrays converters/nn converters/ragged converters/sparse converters/state"
    ),
    "tracing": "core",
    "api": "tracing walker",
    "reports": "api",
    "recording": "api",
    "derivatives": "api",
    "frontends": "derivatives reports",
}
FOLDER_MODULES = 21
FILES = imports.python_files()
CORE = [f for f in FILES if f.startswith("tf_pfor/")]


@functools.cache
def _tree(path):
    return ast.parse((ROOT / path).read_text())


def test_sizes_of_files():
    lines = {path: len((ROOT / path).read_text().splitlines()) for path in FILES}
    long = [f"{path} has {k} lines" for path, k in lines.items() if k > FILE_LINES]
    assert not long, "\n".join(long)


def test_sizes_of_functions():
    lines = {
        f"{path}:{node.lineno}: {node.name}": node.end_lineno - _first_line(node) + 1
        for path in FILES
        for node in ast.walk(_tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    long = [f"{where} has {k} lines" for where, k in lines.items() if k > FUNCTION_LINES]
    assert not long, "\n".join(long)


def _first_line(node):
    """The line where the code begins: a long docstring is no reason to split a function."""
    first = node.body[0]
    is_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return first.end_lineno + 1 if is_doc else node.lineno


def _room(module):
    """tf_pfor.converters.lists.optional -> converters/lists; the top of a package is in no room."""
    path = module.replace(".", "/").removeprefix("tf_pfor").lstrip("/")
    return next((r for r in BELOW if path == r or path.startswith(r + "/")), "")


def _below(room):
    direct = BELOW[room].split()
    return {room, *direct}.union(*(_below(other) for other in direct))


def _graph():
    """Every module of the package, and what it imports of it, also for type checkers only."""
    modules = frozenset(imports.module_of(f) for f in FILES)
    return {
        imports.module_of(f): {
            m for m in imports.imported_by(f, modules) if m.split(".")[0] == "tf_pfor"
        }
        for f in CORE
    }


# Public names of rooms.
FRONT_DOORS = ("beam", "data", "keras", "registry", "saved_model", "shapes")


def test_each_module_is_in_a_room():
    outside = {m for m in _graph() if not _room(m)}
    front_doors = {f"tf_pfor.{name}" for name in FRONT_DOORS}
    top = {"tf_pfor", "tf_pfor.__main__", "tf_pfor.converters", "tf_pfor.version"}
    assert outside <= top | front_doors


def test_imports_between_rooms_go_down():
    upwards = {
        f"{module} -> {other}"
        for module, found in _graph().items()
        for other in found
        if _room(module)
        and _room(other) not in _below(_room(module))
        and other != "tf_pfor.version"
    }
    assert not upwards, sorted(upwards)


def test_no_circles():
    """The graph of all modules has no circle, with imports in functions and for type checkers."""
    graph = {module: found - {module} for module, found in _graph().items()}
    list(graphlib.TopologicalSorter(graph).static_order())  # CycleError names the circle


def test_folders_are_small():
    folders = collections.Counter(
        f.rsplit("/", 1)[0] for f in FILES if not f.endswith("__init__.py")
    )
    large = {f: k for f, k in folders.items() if k > FOLDER_MODULES}
    assert not large, large


def test_converters_import_what_registers_nothing():
    """Files with rules are imported by their rooms only."""
    wrong = [
        f"{module} imports {other}"
        for module, found in _graph().items()
        for other in found
        if _room(other).startswith("converters/")
        and not (ROOT / module.replace(".", "/") / "__init__.py").exists()
        and not _is_shared(other)
    ]
    assert not wrong, wrong


def test_closures_read_names_that_stay():
    """A closure that is called late sees the last value of a name, not that where it was made."""
    late = [
        f"{path}:{closure.lineno}: {name} is bound again in line {line}"
        for path in CORE
        for function in ast.walk(_tree(path))
        if isinstance(function, ast.FunctionDef)
        for closure in _own(function, _CLOSURES)
        for name in _free(closure)
        for line in _bound_again(function, closure, name)
    ]
    assert not late, "\n".join(late)


_CLOSURES = (ast.FunctionDef, ast.Lambda)


def _own(function, kinds):
    """Nodes of some kinds in a function, but not in functions of it."""
    found, todo = [], [*function.body] if isinstance(function.body, list) else [function.body]
    while todo:
        node = todo.pop()
        found += [node] if isinstance(node, kinds) else []
        todo += [] if isinstance(node, _CLOSURES) else ast.iter_child_nodes(node)
    return found


def _arguments(function):
    a = function.args
    return {x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if x}


def _stored(function):
    """Name -> the lines where it is bound, 0 for an argument."""
    found = collections.defaultdict(list, {name: [0] for name in _arguments(function)})
    for name in _own(function, ast.Name):
        if isinstance(name.ctx, ast.Store):
            found[name.id].append(name.lineno)
    return found


def _free(closure):
    read = {x.id for x in _own(closure, ast.Name) if isinstance(x.ctx, ast.Load)}
    return read.union(*map(_free, _own(closure, _CLOSURES))) - set(_stored(closure))


def _bound_again(function, closure, name):
    lines = _stored(function)[name]
    is_before = any(line <= closure.lineno for line in lines)
    return [line for line in lines if is_before and line > closure.end_lineno]


def _is_shared(module):
    """Converters import what converters share: files that register nothing."""
    text = (ROOT / (module.replace(".", "/") + ".py")).read_text()
    return module.split(".")[-1].startswith("_") or "RegisterPFor" not in text


def test_private_tensorflow_stays_in_its_room():
    prefixes = ("tensorflow.python", "tensorflow.core")
    private = [
        f"{path}:{node.lineno} imports {name}"
        for path in FILES
        if not path.startswith("tf_pfor/_tf/") and not path.endswith("drop_in.py")
        if any(prefix in (ROOT / path).read_text() for prefix in prefixes)
        for node in ast.walk(_tree(path))
        for name in _imported(node)
        if name.startswith(prefixes)
    ]
    assert not private, "\n".join(private)


def _imported(node):
    if isinstance(node, ast.Import):
        return [a.name for a in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_nothing_comes_from_the_peer():
    allowed = ("tf_pfor/frontends/drop_in.py", "tests/project/test_structure.py")
    named = [p for p in FILES if p not in allowed and "parallel_for" in (ROOT / p).read_text()]
    assert not named, named


def test_an_op_type_stands_once_in_converters():
    """One file for each op type; several patterns of it stand next to each other."""
    from tf_pfor.core.registry import REGISTRY

    for op_type in REGISTRY.op_types():
        files = {rule.where.rsplit(":", 1)[0] for rule in REGISTRY.rules(op_type)}
        assert len(files) == 1, f"{op_type}: {sorted(files)}"


def test_registered_names_are_ops():
    """A misspelt op type would never be found; other versions of TensorFlow have others."""
    import tensorflow as tf

    from tf_pfor import _tf
    from tf_pfor.core.registry import REGISTRY

    unknown = [op for op in REGISTRY.op_types() if _tf.schema(op) is None]
    if tf.__version__.startswith("2.21."):
        assert not unknown, unknown


def test_front_doors_name_what_they_have():
    import tf_pfor

    for name in FRONT_DOORS:
        if name == "beam" and importlib.util.find_spec("apache_beam") is None:
            continue
        module = importlib.import_module(f"tf_pfor.{name}")
        assert module is getattr(tf_pfor, name)
        assert module.__doc__
        assert all(hasattr(module, public) for public in module.__all__)


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
        if path == "tests/project/test_structure.py" or not file.is_file():
            continue
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        assert not pattern.search(text), f"{path}: {pattern.search(text)}"


def test_import_without_tensorflow_says_what_to_install():
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
    assert 'pip install "tensorflow-cpu>=2.16' in found.stdout


def test_memos_know_their_keys():
    """A key is an object, not its id: that may be another one's when the object is gone."""
    found = [
        f"{f}:{k}"
        for f in CORE
        for k, line in enumerate((ROOT / f).read_text().splitlines(), 1)
        if re.search(r"memo.*\bid\(", line) or re.search(r"\"\w[\w ]*\", (.*, )?id\(", line)
    ]
    assert not found, found


def _lines_with(pattern):
    """The lines of the package that a pattern matches: file and number."""
    return [
        f"{path}:{number}"
        for path in CORE
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1)
        if re.search(pattern, line)
    ]


def test_the_formatter_lays_out_all_code():
    found = _lines_with("# fmt: (skip|off)")
    assert not found, found


# Modules that import more than IMPORTS others of the package: no more than they do today.
IMPORTS = 15
LONGER_IMPORTS = {"tf_pfor.api.run": 17, "tf_pfor.walker.walker": 20}


def test_modules_import_few_others():
    is_package = {imports.module_of(f) for f in CORE if f.endswith("__init__.py")} - {"tf_pfor._tf"}
    many = {
        module: len(found)
        for module, found in _graph().items()
        if module not in is_package and len(found) > LONGER_IMPORTS.get(module, IMPORTS)
    }
    assert not many, many


def test_few_annotations_are_any():
    found = _lines_with(r": Any\b")
    assert len(found) <= 283, found


def test_few_type_errors_are_ignored():
    found = _lines_with(r"# (type|pyright): ignore")
    assert len(found) <= 37, found
