"""Checks that every relative link of the pages leads to a file: part of ``make docs``."""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def pages() -> list[pathlib.Path]:
    """Every page of the repository."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def broken_links() -> list[str]:
    """``page: link`` for each relative link without a target."""
    out: list[str] = []
    for page in pages():
        for link in LINK.findall(page.read_text()):
            if "://" in link or link.startswith("#"):
                continue
            if not (page.parent / link.split("#")[0]).exists():
                out.append(f"{page.relative_to(ROOT)}: {link}")
    return out


if __name__ == "__main__":
    found = broken_links()
    print("\n".join(found) or f"{len(pages())} pages, no broken link")
    sys.exit(bool(found))
