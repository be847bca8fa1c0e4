"""Edits of one file, joined."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuperf.fixes.edits import Edit, combined


BEFORE = "a = 1\nb = 2\nc = 3\n"


def edit_to(after: str, before: str = BEFORE) -> Edit:
    return Edit(rule="x", file=Path("x.py"), line=1, before=before, after=after)


@pytest.mark.parametrize(
    ("afters", "joined"),
    [
        ([], BEFORE),
        (["a = 5\nb = 2\nc = 3\n", "a = 1\nb = 2\nc = 6\n"], "a = 5\nb = 2\nc = 6\n"),
        (["a = 5\nb = 2\nc = 3\n"] * 2, "a = 5\nb = 2\nc = 3\n"),
        (["a = 5\nb = 2\nc = 3\n", "a = 6\nb = 2\nc = 3\n"], None),
        (["a = 1\nx\nb = 2\nc = 3\n", "a = 1\ny\nb = 2\nc = 3\n"], "a = 1\nx\ny\nb = 2\nc = 3\n"),
        (["a = 1\nc = 3\n", "a = 1\nx\nb = 2\nc = 3\n"], "a = 1\nx\nc = 3\n"),
    ],
)  # fmt: skip
def test_edits_are_joined_unless_they_change_the_same_words(
    afters: list[str], joined: str | None
) -> None:
    assert combined(BEFORE, [edit_to(after) for after in afters]) == joined


def test_edits_of_one_line_are_joined_word_by_word() -> None:
    before = "for x in y:\n    print(a, b, f'{c}')\n"
    afters = [before.replace("(a", "(float(a)"), before.replace("{c", "{c.item()")]

    joined = combined(before, [edit_to(after, before) for after in afters])

    assert joined == "for x in y:\n    print(float(a), b, f'{c.item()}')\n"


@pytest.mark.parametrize("text", ["a\r\nb", "a\n\x0cb\n", "\ta\u2028b\r"])
def test_line_ends_stay_as_they_are(text: str) -> None:
    assert combined(text, [edit_to(f"{text}x", text)]) == f"{text}x"
