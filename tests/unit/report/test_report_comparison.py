"""Two steps side by side, as people read them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import a_comparison
from golden_lines import trained

from pytest_gpuperf.model.ab import AbRun, Answer, Comparison, Training, TrainingAnswer
from pytest_gpuperf.report.document import terminal
from pytest_gpuperf.report.screen.comparison import sides_blocks
from pytest_gpuperf.worker.fixture import Compared


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


def test_a_comparison_is_a_few_lines_of_at_most_80_columns() -> None:
    assert str(Compared(SIDES)).splitlines() == [*terminal(sides_blocks(SIDES))]
    assert max(map(len, terminal(sides_blocks(SIDES)))) <= 80


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


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (trained(TrainingAnswer.SAME), 0),
        (trained(TrainingAnswer.NOTHING), 0),
        (trained(TrainingAnswer.SAME, TrainingAnswer.NOT_COMPARED), 0),
        (trained(TrainingAnswer.SAME, worse=True), 1),
        (trained(TrainingAnswer.DIFFERS, worse=True), 2),
        (trained(TrainingAnswer.NOTHING, TrainingAnswer.NOT_COMPARED), 125),
        (trained(), 125),
    ],
)
def test_the_exit_status_says_what_matters_most(found: AbRun, status: int) -> None:
    assert found.status == status
