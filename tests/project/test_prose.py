"""The script that looks for unclear English finds each kind, and clean rooms stay clean."""

import pytest

from tools import prose

LONG = " ".join(["word"] * prose.MOST_WORDS)


def _kinds(path, text):
    path.write_text(text)
    return [f"{f.line} {f.kind}" for f in prose.check(path)]


@pytest.mark.parametrize("first", ["What", "Of a row,", "That of", "Those", "How", "Whether it"])
def test_first_words_of_docstrings(tmp_path, first):
    text = f'"""A module."""\n\ndef f():\n    """{first} is given."""\n'
    assert "4 first word" in _kinds(tmp_path / "a.py", text)


def test_first_words_that_name_a_thing(tmp_path):
    text = '"""Whether the rows are equal."""\n\n# What stands in a comment.\nx = "What"\n'
    assert not _kinds(tmp_path / "a.py", text)


@pytest.mark.parametrize("phrase", ["of own length", "with own rows", "sizes of their own"])
def test_phrases(tmp_path, phrase):
    assert _kinds(tmp_path / "a.md", f"One line.\n\nRows {phrase}.\n") == ["3 phrase"]
    assert _kinds(tmp_path / "a.py", f"x = 1  # Rows {phrase}.\n") == ["1 phrase"]
    assert not _kinds(tmp_path / "b.md", f"Code: `{phrase}`.\n\n```python\n# {phrase}\n```\n")


def test_long_sentences(tmp_path):
    page = tmp_path / "a.md"
    assert not _kinds(page, LONG + ".\n")
    assert _kinds(page, LONG + " more.\n") == [f"1 {prose.MOST_WORDS + 1} words"]
    assert not _kinds(page, f"| {LONG} | {LONG} |\n")
    assert not _kinds(page, f"- {LONG}\n- {LONG}\n")
    assert not _kinds(page, f"{LONG}. {LONG.capitalize()} `a b c`.\n".replace("word `", "`"))
    code = f'"""One.\n\n>>> f()\n{LONG} more\n\nArgs:\n  x: {LONG[5:]}.\n  y: {LONG[5:]}.\n"""\n'
    assert not _kinds(tmp_path / "a.py", code)


def test_sources(tmp_path):
    assert _kinds(tmp_path / "a.py", '"""A rule (papers/01).\n\nSee DESIGN 2."""\n') == [
        "1 source",
        "3 source",
    ]


def test_entries(tmp_path):
    text = '"""One.\n\nArgs:\n  x: what comes in.\n  y: the row.\n"""\n'
    assert _kinds(tmp_path / "a.py", text) == ["4 entry"]


def test_generated_pages_are_left_out():
    found = {p.relative_to(prose.ROOT).as_posix() for p in prose.files(["docs"])}
    assert "docs/vmap.md" in found
    assert not found & set(prose.GENERATED)


def test_clean_rooms_stay_clean():
    found = [f"{p}:{f}" for p in prose.files(prose.CLEAN) for f in prose.check(p)]
    assert prose.files(prose.CLEAN)
    assert not found, "\n".join(found)
