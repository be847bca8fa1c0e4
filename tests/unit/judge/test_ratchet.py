"""Stored counts of a watched suite: what an edit of a line does to them."""

from __future__ import annotations

import pytest

from pytest_gpuperf.judge.ratchet import Counts
from pytest_gpuperf.judge.ratchet import with_edits
from pytest_gpuperf.judge.ratchet import worse_than
from pytest_gpuperf.judge.watch import WatchedTest
from pytest_gpuperf.model.finding import Finding
from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.finding import Location


NOW = {"net.py": ["def step(x):", "a = loss.item()", "b = norm.item()"]}


def use(source: str, function: str = "step", waits: int = 1) -> Finding:
    place = Location(file="net.py", line=3, function=function)
    return Finding(
        kind=FindingKind.SYNC,
        op="item",
        reason="it is read",
        location=place,
        source=source,
        per_step=waits,
    )


def stored(*keys: str) -> dict[str, Counts]:
    return {"lines": {key: {"waits": 1} for key in keys}, "leaks": {}}


def complaints(known: dict[str, Counts], *uses: Finding) -> list[str]:
    records = [WatchedTest(test="test_it.py::test_step", lines=uses)]
    edited = with_edits(known, records, lambda file: NOW.get(file, ()))
    return [objection.what for objection in worse_than(edited, records)]


@pytest.mark.parametrize(
    ("key", "source", "waits", "expected"),
    [
        pytest.param("net.py step: loss.item()", "a = loss.item()", 1, [], id="edited"),
        pytest.param(
            "net.py old_step: loss.item()",
            "a = loss.item()",
            1,
            [],
            id="edited, and its function renamed",
        ),
        pytest.param(
            "net.py step: loss.item()",
            "a = loss.item()",
            2,
            ["2 waits in one test, baseline 1"],
            id="edited, and worse",
        ),
        pytest.param(
            "net.py step: b = norm.item()",
            "a = loss.item()",
            1,
            ["1 wait in one test, by a new line"],
            id="new beside one that is there and did not run",
        ),
        pytest.param(
            "other.py step: loss.item()",
            "a = loss.item()",
            1,
            ["1 wait in one test, by a new line"],
            id="gone from another file",
        ),
    ],
)
def test_a_line_is_judged_by_the_row_of_what_it_was(
    key: str, source: str, waits: int, expected: list[str]
) -> None:
    assert complaints(stored(key), use(source, waits=waits)) == expected


def test_a_row_is_that_of_one_edited_line_alone() -> None:
    known = stored("net.py step: loss.item()")

    found = complaints(known, use("a = loss.item()"), use("b = norm.item()"))

    assert found == ["1 wait in one test, by a new line"]


def test_of_two_rows_an_edited_line_has_the_one_most_like_it() -> None:
    known = {
        "lines": {
            "net.py step: loss.item()": {"waits": 1},
            "net.py step: norm.item()": {"waits": 3},
        },
        "leaks": {},
    }

    assert complaints(known, use("b = norm.item()", waits=3)) == []


def test_a_row_of_the_same_function_goes_before_one_that_is_more_alike() -> None:
    known = {
        "lines": {
            "net.py other: b = norm.item(),": {"waits": 1},
            "net.py step: float(n)": {"waits": 3},
        },
        "leaks": {},
    }

    assert complaints(known, use("b = norm.item()", waits=3)) == []
