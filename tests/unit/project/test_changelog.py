"""Fragments of the changelog are short, and each is in a category."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest


FOLDER: Final = Path(__file__).parents[3] / "changelog.d"
NAME: Final = re.compile(r"(\d+|\+[a-z-]+)\.(added|changed|fixed|removed)(\.\d+)?\.md")
MOST_LINES: Final = 3
MOST_COLUMNS: Final = 120
MOST_ENTRIES: Final = 80
"""A person reads the notes of a release."""

FRAGMENTS: Final = sorted(FOLDER.glob("*.md"))

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="a source archive has no fragments"
)


@pytest.mark.parametrize("path", FRAGMENTS, ids=lambda path: path.name)
def test_a_fragment_is_at_most_three_lines_of_one_category(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()

    assert NAME.fullmatch(path.name), path.name
    assert 0 < len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= MOST_COLUMNS
    # towncrier adds the bullet itself.
    assert not lines[0].startswith(("-", "*", "#", " "))
    assert all(line.strip() for line in lines)


MOST_NOTES: Final = 120


def test_the_notes_of_this_release_are_what_a_stranger_reads() -> None:
    text = (FOLDER.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    notes = text.partition("<!-- towncrier release notes start -->\n")[2].split("\n## ")
    newest = notes[1].splitlines()
    project = (FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8")
    groups = [line for line in newest if line.startswith("### ")]

    assert f'\nversion = "{newest[0].split()[0]}"\n' in project
    assert groups == [
        f"### {name}" for name in ("Added", "Changed", "Fixed", "Removed")
    ]
    assert len(newest) <= MOST_NOTES
    assert max(map(len, newest)) <= MOST_COLUMNS


def test_a_release_has_as_many_entries_as_a_person_reads() -> None:
    assert len(FRAGMENTS) <= MOST_ENTRIES
