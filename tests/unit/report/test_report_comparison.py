"""Two steps side by side, as people read them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import a_comparison, a_verdict

from pytest_gpuperf.model.ab import Answer, Comparison
from pytest_gpuperf.model.environment import DeviceKind, Hardware
from pytest_gpuperf.model.training import Training, TrainingAnswer
from pytest_gpuperf.model.verdict import Outcome, TestVerdict, Verdict
from pytest_gpuperf.report.screen.comparison import compared_lines, comparison_lines
from pytest_gpuperf.report.screen.counts import counts_line
from pytest_gpuperf.report.screen.summary import LineRole, summary_lines
from pytest_gpuperf.worker.call_result import Compared


WHY = (
    "after is faster by more than 1 %: time -23.1 %, 95 % interval -24.0 % to -22.5 %; "
    "label-swap test over 14 quads"
)
TIME = a_comparison(
    Answer.FASTER,
    1 / 1.3,
    why=WHY,
    low=1 / 1.3158,
    high=1 / 1.29,
    before_ms=13.0,
    after_ms=10.0,
)
SIDES = Comparison(
    time=TIME,
    before={"peak_allocated_bytes": 90 * 2**20, "syncs": 2, "launches": 7},
    after={"peak_allocated_bytes": 80 * 2**20, "syncs": 0, "launches": 7},
    unmeasured={"pageable_copies": "nothing is copied"},
    training=Training(
        answer=TrainingAnswer.SAME,
        text="the gradients of 4 tensors agree within 1 % over 3 steps",
    ),
)
UNTIMED = Comparison(
    before={"syncs": 1}, after={"syncs": 0}, unmeasured={"speedup": "no clock"}
)
CPU = Hardware(kind=DeviceKind.CPU, name="x")


def verdict_of(sides: Comparison, *verdicts: Verdict) -> TestVerdict:
    return TestVerdict(test="a.py::t#compare", verdicts=verdicts, sides=sides)


def on_speedup(outcome: Outcome, because: str) -> Verdict:
    return a_verdict("speedup", outcome, 1.3, None, because=because, limit=1.4)


def texts(*verdicts: TestVerdict) -> list[str]:
    return [line.text for line in compared_lines(verdicts)]


def test_a_comparison_is_a_few_lines_of_at_most_80_columns() -> None:
    assert str(Compared(SIDES)).splitlines() == [*comparison_lines(SIDES)]
    assert max(map(len, comparison_lines(SIDES))) <= 80


def test_what_an_assertion_shows_of_a_result_is_short() -> None:
    result = Compared(SIDES)

    assert repr(result.time) == "<faster, speedup 1.300x (95 %: 1.290x to 1.316x)>"
    assert repr(result.memory) == "<memory 90.00 MiB -> 80.00 MiB (-11.1 %)>"
    assert repr(result.copies) == "<copies not measured: nothing is copied>"
    assert repr(result) == (
        "<comparison: faster, speedup 1.300x (95 %: 1.290x to 1.316x)>"
    )


def test_numbers_of_a_result() -> None:
    result = Compared(SIDES)

    assert (result.time.speedup, result.time.low, result.time.high) == (
        1.3,
        1.29,
        1.3158,
    )
    assert (result.time.verdict, result.time.why) == ("faster", WHY)
    assert (result.memory.before, result.memory.after) == (90 * 2**20, 80 * 2**20)
    assert (result.memory.difference, result.syncs.difference) == (-10 * 2**20, -2)
    assert result.ops.difference == 0


def test_an_interval_that_nothing_bounds_has_no_ends() -> None:
    time = Compared(replace(SIDES, time=replace(TIME, low=None, high=None))).time

    assert (time.low, time.high) == (0.0, float("inf"))


@pytest.mark.parametrize(
    ("sides", "number", "reason"),
    [
        (UNTIMED, "time.speedup", "time was not measured: no clock"),
        (UNTIMED, "time.low", "time was not measured: no clock"),
        (UNTIMED, "time.high", "time was not measured: no clock"),
        (UNTIMED, "time.verdict", "time was not measured: no clock"),
        (UNTIMED, "time.why", "time was not measured: no clock"),
        (SIDES, "copies.before", "copies was not measured: nothing is copied"),
        (SIDES, "copies.after", "copies was not measured: nothing is copied"),
        (SIDES, "copies.difference", "copies was not measured: nothing is copied"),
        (
            Comparison(time=replace(TIME, ratio=None, why="no room")),
            "time.speedup",
            "time was not measured: no room",
        ),
    ],
)
def test_a_number_that_was_not_measured_skips_the_test(
    sides: Comparison, number: str, reason: str
) -> None:
    group, name = number.split(".")

    with pytest.raises(pytest.skip.Exception) as skipped:
        getattr(getattr(Compared(sides), group), name)

    assert str(skipped.value) == reason


def test_comparisons_have_a_table_of_their_own_with_both_sides() -> None:
    missed = on_speedup(Outcome.OVER_BUDGET, "too slow")

    assert texts(
        verdict_of(UNTIMED), verdict_of(replace(SIDES, training=None), missed)
    ) == [
        (
            "speedup     95 % interval                  step                  memory   "
            "syncs  verdict              test"
        ),
        (
            " 1.300x  1.290x to 1.316x  13.00 ms -> 10.00 ms  90.00 MiB -> 80.00 MiB  "
            "2 -> 0  BELOW LIMIT speedup  a.py::t#compare"
        ),
        "    speedup: too slow",
        (
            "      -                 -                     -                       -  "
            "1 -> 0  -                    a.py::t#compare"
        ),
        "    time was not measured: no clock",
    ]
    assert summary_lines([verdict_of(SIDES)]) == ()
    assert compared_lines([TestVerdict(test="t", verdicts=())]) == ()


def test_what_agreed_and_what_could_not_be_told_stand_below_the_row() -> None:
    inconclusive = replace(TIME, answer=Answer.INCONCLUSIVE, why="too noisy")

    assert texts(verdict_of(replace(SIDES, time=inconclusive)))[2:] == [
        "    too noisy",
        "    same training: the gradients of 4 tensors agree within 1 % over 3 steps",
    ]


def test_the_last_line_counts_comparisons_that_nobody_judged() -> None:
    met = verdict_of(SIDES, on_speedup(Outcome.PASS, "met"))

    line = counts_line([met, verdict_of(SIDES)], CPU)
    alone = counts_line([verdict_of(SIDES)], CPU)

    assert (line.text, line.role) == (
        "gpuperf: 1 passed, 1 compared on CPU x",
        LineRole.GOOD,
    )
    assert (alone.text, alone.role) == ("gpuperf: 1 compared on CPU x", LineRole.PLAIN)
