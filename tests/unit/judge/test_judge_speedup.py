"""A speedup that was asked: met, missed, or neither."""

from __future__ import annotations

import pytest

from pytest_gpuperf.judge.interleaved import judge_speedup
from pytest_gpuperf.model.ab import AbResult, Answer, Comparison
from pytest_gpuperf.model.verdict import Outcome, Verdict


def sides(
    speedup: float | None, low: float | None = None, high: float | None = None
) -> Comparison:
    return Comparison(
        time=AbResult(
            answer=Answer.FASTER,
            why="the time cap left room for 2 of at most 224 quads",
            ratio=speedup and 1 / speedup,
            low=high and 1 / high,
            high=low and 1 / low,
        )
    )


@pytest.mark.parametrize(
    ("interval", "outcome", "because"),
    [
        (
            (1.3, 1.32),
            Outcome.PASS,
            (
                "after is 1.31 times as fast as before (95 %: 1.3 to 1.32), and 1.3 was "
                "asked"
            ),
        ),
        (
            (1.29, 1.3),
            Outcome.INCONCLUSIVE,
            (
                "after is 1.31 times as fast as before (95 %: 1.29 to 1.3), which "
                "neither reaches nor misses the 1.3 that was asked"
            ),
        ),
    ],
)
def test_the_whole_interval_must_be_on_one_side(
    interval: tuple[float, float], outcome: Outcome, because: str
) -> None:
    verdict = judge_speedup([sides(1.31, *interval)], 1.3)

    assert verdict == Verdict(
        metric="speedup", outcome=outcome, because=because, now=1.31, limit=1.3
    )


MISSED = sides(1.28, 1.25, 1.299)


def test_a_speedup_is_missed_if_all_of_several_processes_miss_it() -> None:
    found = [judge_speedup([MISSED] * runs, 1.3) for runs in (1, 4, 5)]

    assert {verdict.outcome for verdict in found} == {Outcome.OVER_BUDGET}
    assert [verdict.settled for verdict in found] == [False, False, True]
    assert found[2].because == (
        "after is 1.28 times as fast as before (95 %: 1.25 to 1.299), less than the 1.3 "
        "that was asked, in each of 5 runs"
    )


@pytest.mark.parametrize("other", [sides(1.4, 1.35, 1.5), sides(1.3, 1.2, 1.4)])
def test_a_speedup_that_one_process_may_reach_is_not_missed(other: Comparison) -> None:
    verdict = judge_speedup([MISSED, MISSED, other], 1.3)

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.settled
    assert "that was asked, but in another run after is 1." in verdict.because


def test_the_first_process_that_reaches_it_is_enough() -> None:
    verdict = judge_speedup([sides(1.4, 1.35, 1.5), MISSED], 1.3)

    assert verdict.outcome is Outcome.PASS


@pytest.mark.parametrize("speedup", [None, 1.5])
def test_too_little_for_an_interval_is_inconclusive(speedup: float | None) -> None:
    verdict = judge_speedup([sides(speedup)], 1.3)

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.because == "the time cap left room for 2 of at most 224 quads"
    assert verdict.now == speedup


def test_without_a_clock_it_is_not_checked() -> None:
    verdict = judge_speedup(
        [Comparison(unmeasured={"speedup": "there is no clock"})], 1.3
    )

    assert (verdict.outcome, verdict.because) == (
        Outcome.NOT_CHECKED,
        "there is no clock",
    )
