"""The examples in docstrings and pages run, and what they print is what stands there."""

import contextlib
import doctest
import functools
import importlib
import inspect
import io
import re
import shlex
from unittest import mock

import pytest

import tf_pfor
from tf_pfor.core.registry import REGISTRY
from tf_pfor.frontends import command_line
from tf_pfor.layouts import ragged_rules
from tools import check_links, coverage

BLOCK = re.compile(
    r"^```(python|console|\{code-cell\} ipython3)\n(.*?)^```", re.MULTILINE | re.DOTALL
)
PAGES = [p for p in check_links.pages() if BLOCK.search(p.read_text())]
TOCTREE = re.compile(r"^```\{toctree\}\n(?::[^\n]*\n)+\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
COMMAND = "$ python -m tf_pfor "
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def _public():
    names = [name for name in tf_pfor.__all__ if name != "__version__"]
    fronts = {"data": tf_pfor.data, "keras": tf_pfor.keras}
    return [*names, *(f"{front}.{name}" for front, m in fronts.items() for name in m.__all__)]


_item = lambda name: functools.reduce(getattr, name.split("."), tf_pfor)


@pytest.mark.parametrize("name", _public())
def test_doctests(name):
    item = _item(name)
    finder = doctest.DocTestFinder(recurse=False)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    module = importlib.import_module(item.__module__) if hasattr(item, "__module__") else tf_pfor
    for test in finder.find(item, name, module=module, globs={}):
        runner.run(test)
    assert runner.failures == 0


@pytest.mark.parametrize("name", _public())
def test_public_functions_have_an_example(name):
    item = _item(name)
    if inspect.isfunction(item) or name == "RegisterPFor":
        assert ">>>" in (item.__doc__ or ""), f"{name} has no example"


def test_the_reference_has_all_public_names():
    page = next(p for p in check_links.pages() if p.name == "api.md").read_text()
    missing = [name for name in _public() if not re.search(rf":: (tf_pfor\.)?{name}\n", page)]
    others = {"beam", "data", "keras", "saved_model", "registry", "shapes"}
    assert set(missing) <= others, missing


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_pages_run(page, tmp_path, monkeypatch):
    """All Python blocks of a page, one after the other, in one namespace; and its commands.

    In an empty folder. A block that begins with the name of a file is written to it, too.
    """
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    namespace = {"__name__": "page"}
    with REGISTRY.temporary(), mock.patch.dict(ragged_rules.OPS):
        for found in BLOCK.finditer(text):
            kind, block = found.groups()
            line = text[: found.start()].count("\n") + 1
            if kind == "console":
                _check_commands(block, f"{page.name}:{line}")
                continue
            if file := FILE.match(block):
                (tmp_path / file.group(1)).write_text(block)
            code = "\n" * line + block  # so that tracebacks name the page's lines
            exec(compile(code, str(page), "exec"), namespace)


def _check_commands(block, where):
    """Each command of a console block prints what stands below it."""
    commands = block.split(COMMAND)
    assert not commands.pop(0), where
    for text in commands:
        argv, _, expected = text.partition("\n")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = command_line.main(shlex.split(argv))
        checker = doctest.OutputChecker()
        same = checker.check_output(expected.strip() + "\n", out.getvalue().strip() + "\n", FLAGS)
        assert same, f"{where}: {argv} (exit code {code}) prints\n{out.getvalue()}"


def test_readme_shows_an_example_first():
    text = (check_links.ROOT / "README.md").read_text()
    assert text.index("```python") < text.index("\n## ")


def test_links():
    assert not check_links.broken_links()


def test_each_page_is_in_the_contents():
    """Sphinx warns of a page that no contents name; the decisions are named by a pattern."""
    docs = check_links.ROOT / "docs"
    pages = {p.relative_to(docs).with_suffix("").as_posix() for p in docs.rglob("*.md")}
    found = {p for p in pages if not re.match(r"_build/|index|decisions/0", p)}
    blocks = TOCTREE.findall((docs / "index.md").read_text())
    assert {name for block in blocks for name in block.split() if name[0] != "/"} == found


def test_coverage_page_is_current():
    import tensorflow as tf

    if tf.__version__.startswith("2.21."):
        assert coverage.PAGE.read_text() == coverage.page(), "run `make docs`"


def test_the_architecture_page_names_what_is_there():
    """Functions and files by which one finds the place to change."""
    page = (check_links.ROOT / "docs" / "architecture.md").read_text()
    files = [p for p in check_links.ROOT.glob("t*/**/*.py")]
    words = {word for p in files for word in re.findall(r"\w+", p.read_text())}
    words |= {part for p in files for part in p.relative_to(check_links.ROOT).with_suffix("").parts}
    for name in re.findall(r"`([A-Za-z_][\w./]*)(?:\(\))?`", page):
        for part in re.split(r"[./]", name.removesuffix(".py").removesuffix(".md")):
            assert not part or part in words, name
