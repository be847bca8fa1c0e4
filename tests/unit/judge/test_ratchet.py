"""Stored counts of a watched suite: what an edit of a line does to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.judge.ratchet import (
    Counts,
    better_lines,
    stored_counts,
    updated,
    with_edits,
    worse_than,
)
from pytest_gpuperf.judge.watch import WatchedTest
from pytest_gpuperf.model.finding import Finding, FindingKind, Location
from pytest_gpuperf.model.metrics import PAGEABLE_COPIES, SYNCS


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


IT = "test_it.py::test_step"
OTHER = "test_it.py::test_overfits"


def stored(*keys: str) -> Counts:
    rows = {key: {IT: {"waits": 1}} for key in keys}
    return {"lines": rows, "leaks": {}, "tests": [IT]}


def complaints(known: Counts, *uses: Finding) -> list[str]:
    records = [WatchedTest(test=IT, lines=uses, used=True)]
    edited = with_edits(known, records, lambda file: NOW.get(file, ()))
    return [objection.what for objection in worse_than(edited, records)]


NEW = "1 wait in one test, by a new line"
WORSE = "2 waits in one test, baseline 1"


@pytest.mark.parametrize(
    ("key", "waits", "expected"),
    [
        pytest.param("net.py step: loss.item()", 1, [], id="edited"),
        pytest.param("net.py old_step: loss.item()", 1, [], id="its function renamed"),
        pytest.param("net.py step: loss.item()", 2, [WORSE], id="edited, and worse"),
        pytest.param("net.py step: b = norm.item()", 1, [NEW], id="that did not run"),
        pytest.param(
            "other.py step: loss.item()", 1, [NEW], id="gone from another file"
        ),
    ],
)
def test_a_line_is_judged_by_the_row_of_what_it_was(
    key: str, waits: int, expected: list[str]
) -> None:
    assert complaints(stored(key), use("a = loss.item()", waits=waits)) == expected


def test_a_row_is_that_of_one_edited_line_alone() -> None:
    known = stored("net.py step: loss.item()")

    found = complaints(known, use("a = loss.item()"), use("b = norm.item()"))

    assert found == ["1 wait in one test, by a new line"]


def counts(tests: tuple[str, ...] = (IT,), **rows: int) -> Counts:
    """Return a baseline: each line waits as often in the first of the *tests*."""
    lines = {KEYS[name]: {tests[0]: {"waits": n}} for name, n in rows.items()}
    return {"lines": lines, "leaks": {}, "tests": [*tests]}


KEYS = {
    "loss": "net.py step: loss.item()",
    "norm": "net.py step: norm.item()",
    "now": "net.py step: b = norm.item()",
    "elsewhere": "net.py other: b = norm.item(),",
    "copy": "net.py step: x = images.to(device)",
}


def test_of_two_rows_an_edited_line_has_the_one_most_like_it() -> None:
    known = counts(loss=1, norm=3)

    assert complaints(known, use("b = norm.item()", waits=3)) == []


def test_a_row_of_the_same_function_goes_before_one_that_is_more_alike() -> None:
    known = counts(elsewhere=1, norm=3)

    assert complaints(known, use("b = norm.item()", waits=3)) == []


def test_a_wait_that_was_removed_pays_for_no_other_one_beside_it() -> None:
    found = complaints(counts(copy=4), use("b = norm.item()"))

    assert found == ["1 wait in one test, by a new line"]


def test_the_row_of_an_edited_line_is_not_taken_by_a_new_one_that_comes_first() -> None:
    found = complaints(
        counts(loss=1), use("b = norm.item()", waits=9), use("a = loss.item()")
    )

    assert found == ["9 waits in one test, by a new line"]


@pytest.mark.parametrize(
    "key",
    ["net.py old_step: b = norm.item()", "gone.py step: b = norm.item()"],
    ids=["its function was renamed", "it moved to another file"],
)
def test_the_same_text_at_another_place_keeps_its_row(key: str) -> None:
    assert complaints(stored(key), use("b = norm.item()")) == []


def watched(test: str, *lines: Finding) -> WatchedTest:
    return WatchedTest(test=test, lines=lines, used=True)


def test_each_test_has_a_limit_of_its_own_on_a_line_that_others_use_more() -> None:
    known = counts((OTHER, IT), now=120)

    (found,) = worse_than(known, [watched(IT, use("b = norm.item()", waits=8))])

    assert (found.what, found.test) == ("8 waits in one test, baseline 0", IT)


def test_a_line_that_rose_in_several_tests_is_named_once() -> None:
    uses = [watched(f"t{n}", use("b = norm.item()", waits=n)) for n in (1, 3, 2)]

    (found,) = worse_than(counts(("t1", "t2", "t3"), now=1), uses)

    assert found.what == "3 waits in one test, baseline 0, and more in 1 other test"


def test_a_copy_that_is_a_wait_as_well_is_one_complaint() -> None:
    copied = replace(use("x = x.cuda()"), metrics=(SYNCS.name, PAGEABLE_COPIES.name))

    (found,) = worse_than(counts(now=1), [watched(IT, copied)])

    assert found.what == (
        "1 wait in one test, by a new line; 1 pageable copy in one test, by a new line"
    )


def test_a_new_test_may_use_the_lines_that_are_known_and_no_others() -> None:
    uses = watched("new", use("b = norm.item()", waits=60), use("a = loss.item()"))

    (found,) = worse_than(counts(now=1), [uses])

    assert found.what == "1 wait in one test, by a new line"


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"rises": True}, {IT: 5, "new": 60, OTHER: 2}),
        ({"rises": False}, {IT: 1, "new": 60, OTHER: 2}),
        ({"rises": False, "falls": False}, {IT: 1, "new": 60, OTHER: 9}),
    ],
    ids=["all", "improved", "missing"],
)
@pytest.mark.parametrize("whole", [True, False])
def test_what_is_stored_of_the_tests_that_ran(
    how: dict[str, bool], expected: dict[str, int], *, whole: bool
) -> None:
    line = KEYS["now"]
    row = {IT: {"waits": 1}, OTHER: {"waits": 9}, "absent": {"waits": 4}}
    known = {"lines": {line: row}, "leaks": {}, "tests": [IT, OTHER, "absent"]}
    ran = {IT: 5, OTHER: 2, "new": 60}
    records = [watched(t, use("b = norm.item()", waits=n)) for t, n in ran.items()]

    found = updated(known, records, is_gone=lambda _: whole, **how)

    absent = {} if whole else {"absent": 4}
    waits = {test: row["waits"] for test, row in found["lines"][line].items()}
    assert waits == {**expected, **absent}
    assert found["tests"] == sorted(waits)


def test_a_baseline_of_format_1_limits_each_test_to_that_of_the_busiest() -> None:
    document = {"format": 1, "lines": {KEYS["now"]: {"waits": 2}}, "leaks": {}}
    known = stored_counts(document, "counts.json")
    records = [watched(IT, use("b = norm.item()", waits=2))]

    assert [*worse_than(known, records)] == []
    assert updated(known, records, rises=False, is_gone=lambda _: True)["lines"] == {
        KEYS["now"]: {IT: {"waits": 2}}
    }


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"format": 3, "lines": {}, "leaks": {}},
        {"format": 2, "lines": {"a": {"waits": 1}}, "leaks": {}},
        {"format": 2, "lines": {}, "leaks": []},
        {"format": 2, "lines": {}, "leaks": {}, "tests": 3},
        {"format": 1, "lines": {"a": 1}, "leaks": {}},
    ],
)
def test_what_is_no_baseline_is_refused(document: object) -> None:
    with pytest.raises(UsageError, match=r"counts\.json: found no baseline of"):
        stored_counts(document, "counts.json")


def test_lines_that_became_better_are_counted_in_tests_that_ran() -> None:
    known = counts(loss=2, now=2)

    assert better_lines(known, [watched(IT, use("b = norm.item()", waits=1))]) == 2
    assert better_lines(known, [watched("new")]) == 0
