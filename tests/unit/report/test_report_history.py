"""The history as text: whole lines in 80 columns."""

from __future__ import annotations

import pytest

from pytest_gpuperf.model.history import LeftOut
from pytest_gpuperf.report.screen.history import left_out_lines
from pytest_gpuperf.report.table import ASCII
from pytest_gpuperf.report.table import BLOCKS
from pytest_gpuperf.report.table import marks_for
from pytest_gpuperf.report.table import sparkline


def test_a_sparkline_goes_from_the_smallest_to_the_largest_value() -> None:
    assert sparkline(list(range(8)), 80) == "▁▂▃▄▅▆▇█"
    assert sparkline(list(range(8)), 80, ASCII) == "_.-=+*%#"
    assert sparkline([3.0, 1.0, 2.0], 80) == "█▁▅"


def test_a_sparkline_of_equal_values_is_flat() -> None:
    assert sparkline([2.0, 2.0, 2.0], 80) == "▁▁▁"


def test_more_values_than_columns_are_gathered() -> None:
    assert sparkline([1.0, 1.0, 9.0, 5.0, 5.0, 5.0], 2) == "▁█"
    assert len(sparkline(list(range(997)), 80)) == 80


@pytest.mark.parametrize(
    ("encoding", "marks"),
    [
        ("utf-8", BLOCKS),
        ("ascii", ASCII),
        ("latin-1", ASCII),
        (None, ASCII),
        ("?", ASCII),
    ],
)
def test_blocks_are_drawn_where_the_terminal_can_show_them(
    encoding: str | None, marks: str
) -> None:
    assert marks_for(encoding) == marks


def test_files_that_are_left_out_are_named_once_a_reason() -> None:
    files = [LeftOut(name=f"a/{n}.jsonl.gz", why="it is truncated") for n in range(5)]

    assert left_out_lines([*files, LeftOut(name="b", why="it is empty")]) == (
        "left out: a/0.jsonl.gz, a/1.jsonl.gz, a/2.jsonl.gz and 2 more: it is truncated",
        "left out: b: it is empty",
    )
