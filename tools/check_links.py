"""Checks that every relative link of the pages leads to a file, and to a heading in it."""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEXT = re.compile(r"\[([^\]]*)\]\([^)]*\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
BUILT = ROOT / "docs" / "_build"


def pages() -> list[pathlib.Path]:
    """Every page of the repository."""
    docs = [p for p in (ROOT / "docs").rglob("*.md") if BUILT not in p.parents]
    return sorted([*ROOT.glob("*.md"), *docs])


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    headings = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", h)
        for h in HEADING.findall(CODE_BLOCK.sub("", text))
    ]
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def _is_broken(page: pathlib.Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.parent / name) if name else page
    if not target.exists():
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in anchors(target.read_text())


def broken_links() -> list[str]:
    """``page: link`` for each relative link without a target."""
    return [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages()
        for link in LINK.findall(page.read_text())
        if "://" not in link and _is_broken(page, link)
    ]


if __name__ == "__main__":
    found = broken_links()
    print("\n".join(found) or f"{len(pages())} pages, no broken link")
    sys.exit(bool(found))
