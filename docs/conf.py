"""Sphinx: the settings of the documentation site, which ``make docs`` builds.

The source folder is the root of the repository. So links of a page to CONTRIBUTING.md, to examples
and to other pages are the same in the repository and on the site.
"""

import os
import pathlib
import re
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent

project = "tf_pfor"
author = "the authors of tf_pfor"
version = release = re.findall(r'"(.+)"', (ROOT / "tf_pfor" / "version.py").read_text())[-1]
root_doc = "docs/index"
include_patterns = ["docs/**", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
exclude_patterns = ["docs/_build", "docs/images"]

extensions = [
    "myst_nb",  # pages in Markdown, and tutorials that are run
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
]
source_suffix = {".md": "myst-nb"}
html_theme = "furo"
html_title = f"tf_pfor {version}"

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
# Blocks "diff" and "console" show dots for what differs between runs, which no lexer reads.
suppress_warnings = ["misc.highlighting_failure"]

nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "notebooks")
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

# The inventories of other sites need the network: DOCS_LINKS=1 asks for them.
intersphinx_mapping = (
    {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "jax": ("https://docs.jax.dev/en/latest", None),
    }
    if os.environ.get("DOCS_LINKS")
    else {}
)


def _escaped(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escapes the stars of shapes, [*batch, k], and the bars of norms, |b|, outside of code."""
    for i, line in enumerate(lines):
        parts = re.split(r"(``.+?``|^ *>>>.*)", line)
        parts[::2] = [re.sub(r"(?<![\\*])\*(?=\w)|(?<!\\)\|", r"\\\g<0>", p) for p in parts[::2]]
        lines[i] = "".join(parts)


def setup(app: Any) -> None:
    """Connects the hook, behind napoleon's."""
    app.connect("autodoc-process-docstring", _escaped, priority=900)
