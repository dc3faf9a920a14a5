"""Plain English of docstrings, comments and pages: ``python -m tools.prose [PATH ...]``.

Without a path the script reads ``CLEAN``, the rooms that have no finding, as ``make lint`` does.
``--count`` counts the findings of each room.
"""

from __future__ import annotations

import ast
import collections
import io
import pathlib
import re
import sys
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Files and folders without a finding. The list grows; nothing is taken off it.
PAGES = ["CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "docs"]
CLEAN = [*PAGES, "benchmarks", "examples", "tests", "tf_pfor", "tools"]
GENERATED = ("docs/contexts.md", "docs/coverage.md", "docs/ragged_coverage.md")
MOST_WORDS = 25

FIRST = re.compile(
    r"(What|Which|How|Where|Of|That|Those|As|Such|Who|Whose|Around|With|There|So (is|are)"
    r"|Whether (it|they))\b"
)
PATTERNS = {
    "phrase": r"(?i)\bown (length|size|shape|height|width)s?\b|\b(of|with|over|to|has|have) own\b"
    r"|\b(length|size|shape|range)s? of (its|their) own\b|\b(that|those) of\b|\bwere looped\b",
    "source": r"\bpapers/|\bDESIGN\b",
    "entry": r"\A\s*\*{0,2}\w+: (?:what|which|how|of|those|whose)\b",
}
CODE = re.compile(r"``.+?``|`[^`]+`", re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
END = re.compile(r"(?<=[.!?])[)\"*]*\s+(?=[A-Z\"(*`0-9])|[.:!?][)\"*]*\s*$")
# A line that begins a text of its own: an item, a row of a table, an argument, a heading.
ITEM = re.compile(r"\s*(?:[-*|#>]|\d+\.|\*?\*?[\w.]+(?: \(.*\))?: )")
HEADER = re.compile(r"\s*[A-Z]\w+:$")
PRAGMA = re.compile(r"#!|#\s*(?:fmt|noqa|type|pyright|ruff)\b")


class Text(NamedTuple):
    """A docstring, a block of comments or a page, and the line where it begins."""

    line: int
    text: str
    is_docstring: bool = False


class Finding(NamedTuple):
    """A place to mend."""

    line: int
    kind: str
    text: str


def python_texts(source: str) -> Iterator[Text]:
    """Yields each docstring and each block of comments of a Python file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            doc = ast.get_docstring(node)
            if doc:
                yield Text(node.body[0].lineno, doc, is_docstring=True)
    blocks: list[list[tuple[int, str]]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or PRAGMA.match(token.string):
            continue
        line, is_whole = token.start[0], token.line.lstrip().startswith("#")
        if not (is_whole and blocks and line == blocks[-1][-1][0] + 1):
            blocks.append([])
        blocks[-1].append((line, token.string[1:]))
    for block in blocks:
        yield Text(block[0][0], "\n".join(text for _, text in block))


def paragraphs(text: Text) -> Iterator[Text]:
    """Yields paragraphs, items and cells, without examples and blocks of code."""
    lines, first, in_code, in_example = list[str](), text.line, False, False
    for number, line in enumerate([*text.text.splitlines(), ""], text.line):
        is_fence = line.lstrip().startswith("```")
        in_example = bool(line.strip()) and (in_example or line.lstrip().startswith(">>>"))
        is_code = in_code or is_fence or in_example or not line.strip() or HEADER.match(line)
        in_code ^= is_fence
        if lines and (is_code or ITEM.match(line)):
            yield Text(first, "\n".join(lines))
            lines = []
        if is_code:
            continue
        if line.lstrip().startswith(("|", "#")):
            yield from (Text(number, cell) for cell in line.split("|"))
            continue
        first = first if lines else number
        lines.append(line)


def sentences(paragraph: str) -> list[str]:
    """Splits a paragraph; inline code is one word, a link is its text."""
    plain = LINK.sub(r"\1", CODE.sub("Code", paragraph))
    return [s for s in END.split(plain) if s and s.strip()]


def findings(text: Text) -> Iterator[Finding]:
    """Yields what a text has of banned words, sources that users lack, and long sentences."""
    if text.is_docstring and FIRST.match(text.text):
        yield Finding(text.line, "first word", text.text.splitlines()[0])
    for part in paragraphs(text):
        for kind, pattern in PATTERNS.items():
            for found in re.finditer(pattern, CODE.sub("Code", part.text)):
                yield Finding(part.line, kind, found.group())
        for sentence in sentences(part.text):
            words = [w for w in sentence.split() if re.search(r"\w", w)]
            if len(words) > MOST_WORDS:
                yield Finding(part.line, f"{len(words)} words", " ".join(words[:8]) + " ...")


def check(path: pathlib.Path) -> list[Finding]:
    """The findings of one file, by line."""
    source = path.read_text()
    texts = python_texts(source) if path.suffix == ".py" else [Text(1, source)]
    return sorted(f for text in texts for f in findings(text))


def files(names: list[str]) -> list[pathlib.Path]:
    """The Python files and pages below some paths; generated pages are left out."""
    paths = [p for name in names for p in ROOT.glob(name)]
    found = {f for p in paths for f in ([p] if p.is_file() else p.rglob("*.*"))}
    pages = {ROOT / name for name in GENERATED}
    return sorted(f for f in found - pages if f.suffix in (".py", ".md"))


def main(arguments: list[str]) -> int:
    """Prints the findings, or how many each folder has; gives the exit code."""
    names = [a for a in arguments if a != "--count"]
    counts = collections.Counter[str]()
    for path in files(names or CLEAN):
        found = check(path)
        name = path.relative_to(ROOT).as_posix()
        counts[name if path.suffix == ".md" else name.rpartition("/")[0]] += len(found)
        if "--count" not in arguments:
            print(*(f"{name}:{f.line}: {f.kind}: {f.text}\n" for f in found), sep="", end="")
    if "--count" in arguments:
        print(*(f"{n:5} {room}\n" for room, n in sorted(counts.items())), sep="", end="")
    return bool(counts.total())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
