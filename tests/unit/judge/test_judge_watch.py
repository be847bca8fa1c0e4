"""Stored counts of a watched suite: which counts tests may have, and which are stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_gpuperf.judge.watch import entry_of, outcomes_of, worse_than
from pytest_gpuperf.model.baseline import Entry
from pytest_gpuperf.model.finding import Finding, FindingKind, Location, WatchedTest
from pytest_gpuperf.model.metrics import PAGEABLE_COPIES, SYNCS
from pytest_gpuperf.model.verdict import Outcome


def use(source: str, syncs: int = 1) -> Finding:
    place = Location(file="net.py", line=3, function="step")
    return Finding(
        kind=FindingKind.SYNC,
        op="item",
        reason="it is read",
        location=place,
        source=source,
        per_step=syncs,
        metrics=(SYNCS.name,),
    )


LOSS, NORM = use("a = loss.item()"), use("b = norm.item()")
LEFT = replace(LOSS, kind=FindingKind.LEFT, per_step=2)
COPIED = replace(LOSS, metrics=(SYNCS.name, PAGEABLE_COPIES.name))


def watched(test: str, *lines: Finding, left: tuple[Finding, ...] = ()) -> WatchedTest:
    return WatchedTest(test=test, lines=lines, left=left, used=True)


def stored(*records: WatchedTest) -> dict[str, Entry]:
    return {record.test: entry_of(record) for record in records}


def complaints(known: dict[str, Entry], *records: WatchedTest) -> list[str]:
    return [
        f"{found.test}: {found.what}{''.join(f' {x.place.line}' for x in found.lines)}"
        for found in worse_than(known, records)
    ]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(watched("it", LOSS), [], id="the same"),
        pytest.param(watched("it", use("x = loss.item()")), [], id="an edited line"),
        pytest.param(watched("it"), [], id="less"),
        pytest.param(
            watched("it", LOSS, NORM), ["it: 2 syncs, baseline 1 3"], id="one more"
        ),
        pytest.param(
            watched("it", COPIED), ["it: 1 pageable copy, baseline 0 3"], id="a copy"
        ),
        pytest.param(
            watched("it", LOSS, left=(LEFT,)), ["it: 2 tensors leaked, baseline 0"]
        ),
        pytest.param(
            WatchedTest(test="it", unchecked="failed: why"),
            ["it: not checked, and the baseline has it: failed: why"],
        ),
        pytest.param(watched("new", LOSS), [], id="a new test on a known line"),
        pytest.param(
            watched("new", LOSS, NORM),
            ["new: 1 sync, by a new line 3"],
            id="a new test on a new line",
        ),
        pytest.param(WatchedTest(test="new", unchecked="failed: why"), [], id="new"),
    ],
)
def test_a_test_may_do_what_is_stored(now: WatchedTest, expected: list[str]) -> None:
    assert complaints(stored(watched("it", LOSS)), now) == expected


def test_tests_that_became_worse_on_the_same_line_are_one_complaint() -> None:
    known = stored(*(watched(f"t{n}", LOSS) for n in range(3)))
    now = [watched(f"t{n}", LOSS, NORM) for n in range(3)]

    assert complaints(known, *now) == [
        "t0: 2 syncs, baseline 1, and more in 2 other tests 3"
    ]


def test_a_new_test_may_use_the_line_that_was_edited_in_a_known_one() -> None:
    edited = use("x = loss.item()")

    known = stored(watched("it", LOSS))

    assert complaints(known, watched("it", edited), watched("new", edited)) == []


def test_each_count_has_an_outcome_by_which_a_refresh_takes_it() -> None:
    before = entry_of(watched("it", LOSS, left=(LEFT,)))
    now = watched("it", COPIED)

    assert [*outcomes_of(now, before).values()] == [
        (Outcome.PASS,),
        (Outcome.REGRESSED,),
        (Outcome.IMPROVED,),
    ]
    assert outcomes_of(now, None) == {}
