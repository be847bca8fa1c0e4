"""A sync in a condition of several lines is shown at the operand that waits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_gpuperf.devices.source_lines import location_of


CONDITIONS: dict[str, tuple[str, int]] = {
    "call in an if": ("if ( / yes / and waits.all() / and yes / ): pass", 3),
    "comparison in an if": ("if ( / yes / and waits > 3 / ): pass", 3),
    "name in an if": ("if ( / no / or / waits / ): pass", 4),
    "negated call in an if": ("if ( / yes / and not / waits.all() / ): pass", 4),
    "call over several lines": ("if ( / yes / and waits / .all() / ): pass", 4),
    "first operand of a while": ("while ( / waits.all() / and no / ): pass", 2),
    "assertion": ("assert ( / yes / and waits.all() / )", 3),
    "value of an assignment": ("found = ( / yes and / waits.all() / or no / )", 3),
    "condition of a value": (
        "found = ( / 1 / if yes and / waits.all() / else 2 / )",
        4,
    ),
    "condition of a comprehension": (
        "found = [ / 1 / for _ in range(1) / if yes and / waits.all() / ]",
        5,
    ),
    "one line": ("if waits.all(): pass", 1),
    "call of bool": ("if ( / yes / and bool( / waits / ) / ): pass", 3),
}
"""Code, with a stroke for the end of a line, and the line that waits."""


class Waits:
    """Remembers the line of the code that asks for its truth."""

    def __init__(self) -> None:
        self.lines: list[int] = []

    def __bool__(self) -> bool:
        self.lines.append(location_of(sys._getframe(1)).line)
        return True

    def __gt__(self, other: object) -> Waits:
        return self

    def all(self) -> Waits:
        return self


@pytest.mark.parametrize(("source", "line"), CONDITIONS.values(), ids=CONDITIONS.keys())
def test_the_line_is_that_of_the_operand(source: str, line: int) -> None:
    waits = Waits()
    names: dict[str, Any] = {"waits": waits, "yes": True, "no": False}

    exec(compile(source.replace(" / ", "\n"), "train.py", "exec"), names)  # noqa: S102

    assert waits.lines == [line]


def test_other_lines_are_those_that_python_gives() -> None:
    def caller() -> Iterator[int]:
        yield location_of(sys._getframe()).line

    first = caller.__code__.co_firstlineno

    assert list(caller()) == [first + 1]
