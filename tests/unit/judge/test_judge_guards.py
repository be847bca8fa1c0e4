"""A run on another GPU, or at another clock, must not blame code."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from math import log
from random import Random

import pytest
from builders import a_measurement, a_run

from pytest_gpuperf.judge.context import FAR_SLOWER, Sentinels, SuiteContext
from pytest_gpuperf.judge.stored_times import judge_stored
from pytest_gpuperf.judge.verdict import clock_ratio, guarded
from pytest_gpuperf.model.baseline import session_id
from pytest_gpuperf.model.measurement import Board, Measurement
from pytest_gpuperf.model.metrics import STEP_MS
from pytest_gpuperf.model.verdict import Outcome, Verdict


ELSEWHERE = (
    "measured on another GPU of this model than the baseline, and two of them differ by "
    "several percent"
)
STORED = [
    a_run(None, board=Board(gpu="aa", sm_mhz=1980)),
    a_run(None, board=Board(gpu="bb", sm_mhz=1980)),
    a_run(None, board=Board(gpu="aa", sm_mhz=1000)),
]


UNSEEN = Sentinels(fresh=(None,))


def run(board: Board, *dirty: str) -> Measurement:
    return a_measurement(None, *dirty, board=board)


@pytest.mark.parametrize(
    ("board", "dirty"),
    [
        (Board(gpu="aa", sm_mhz=1980), ()),
        (Board(gpu="bb", sm_mhz=2009), ()),
        (Board(gpu="bb", sm_mhz=1951), ()),
        (Board(), ()),
        (
            Board(gpu="aa", sm_mhz=2010),
            ("the SM clock was 2010 MHz, 1980 MHz with the baseline",),
        ),
        (
            Board(gpu="aa", sm_mhz=1950),
            ("the SM clock was 1950 MHz, 1980 MHz with the baseline",),
        ),
        (Board(gpu="cc"), (ELSEWHERE,)),
        (
            Board(gpu="cc", sm_mhz=1410),
            (ELSEWHERE, "the SM clock was 1410 MHz, 1980 MHz with the baseline"),
        ),
    ],
)
def test_a_run_is_dirty_where_its_board_is_not_the_stored_ones(
    board: Board, dirty: tuple[str, ...]
) -> None:
    (found,) = guarded([run(board)], STORED, UNSEEN)

    assert found == run(board, *dirty)


def test_what_disturbed_a_run_itself_comes_first() -> None:
    (found,) = guarded([run(Board(gpu="cc"), "hot")], STORED, UNSEEN)

    assert found.dirty == ("hot", ELSEWHERE)


def test_a_baseline_that_knows_no_board_guards_nothing() -> None:
    board = Board(gpu="cc", sm_mhz=1)

    assert guarded([run(board)], [a_run(None), a_run(None)], UNSEEN) == [run(board)]


@pytest.mark.parametrize(
    ("slower", "dirty"),
    [
        pytest.param(0.9, (), id="faster"),
        pytest.param(1.04, (), id="a little slower, which is taken off"),
        pytest.param(
            1.5,
            ("its sentinels call this machine 50 % slower",),
            id="so much slower that nobody knows what it does to a step",
        ),
    ],
)
def test_a_run_is_dirty_where_its_sentinels_call_the_machine_slower_by_far(
    slower: float, dirty: tuple[str, ...]
) -> None:
    sentinels = Sentinels(fresh=(log(slower),), stored=(0.0, 0.0001, -0.0001))

    (found,) = guarded([run(Board())], STORED, sentinels)

    assert found.dirty == dirty


def test_a_gpu_that_its_sentinels_call_slower_by_far_excuses_no_more_than_a_little() -> (
    None
):
    """It would show in clocks, throttling or neighbours; code can slow sentinels, too."""
    sentinels = Sentinels(fresh=(log(1.72),), stored=(0.0, 0.0), most=FAR_SLOWER)

    (found,) = guarded([run(Board())], STORED, sentinels)

    assert found.dirty == ()


def test_runs_that_their_sentinels_call_slower_have_one_reason() -> None:
    fresh = (log(1.5), log(1.27), 0.0)
    sentinels = Sentinels(fresh=fresh, stored=(0.0, 0.0001, -0.0001))

    found = guarded([run(Board())] * 3, STORED, sentinels)

    why = "its sentinels call this machine 27 to 50 % slower"
    assert [seen.dirty for seen in found] == [(why,), (why,), ()]


NOT_COMPARABLE = "with the baseline: their times are not comparable, refresh it"


@pytest.mark.parametrize(
    ("steps", "stored", "dirty"),
    [
        pytest.param(300, (300, 300), (), id="as many"),
        pytest.param(300, (15, 300), (), id="as many as in some of them"),
        pytest.param(None, (None, None), (), id="a device that queues nothing"),
        pytest.param(
            15,
            (300, 14),
            (f"a round had 15 steps, and 14 or 300 {NOT_COMPARABLE}",),
            id="another number",
        ),
        pytest.param(
            15,
            (None,),
            (f"a round had 15 steps, and an unknown number {NOT_COMPARABLE}",),
            id="a baseline that does not say it",
        ),
    ],
)
def test_a_run_is_dirty_where_its_rounds_have_other_numbers_of_steps(
    steps: int | None, stored: tuple[int | None, ...], dirty: tuple[str, ...]
) -> None:
    (found,) = guarded(
        [replace(run(Board()), round_steps=steps)],
        [a_run(None, round_steps=known) for known in stored],
        UNSEEN,
    )

    assert found.dirty == dirty


@pytest.mark.parametrize(
    ("clocks", "allowed"),
    [
        pytest.param([1980] * 8, 0.015, id="locked"),
        pytest.param([1980], 0.015, id="one"),
        pytest.param([1965, 1980, 1980, 1995], 0.0169, id="steps of 15 MHz"),
        pytest.param([1560, 1580, 1600, 1620, 1640], 0.0556, id="at its power limit"),
        pytest.param([1000, 1500, 2000], 0.1, id="anything"),
    ],
)
def test_a_clock_may_differ_by_the_scatter_of_the_stored_ones(
    clocks: list[int], allowed: float
) -> None:
    assert clock_ratio(clocks) == pytest.approx(allowed, abs=1e-4)


RUNS = 300
"""Baselines and the runs judged by them, drawn anew each."""


DAYS = [
    session_id(datetime(2026, 1, day, tzinfo=timezone.utc), "a") for day in range(1, 5)
]


def judged(slower: float, capped: float, random: Random) -> tuple[Verdict, bool]:
    """Judge runs until it is settled, *slower* by a factor, at a clock of *capped* times the usual.

    The clock is that of a GPU at its power limit, 1600 MHz with a scatter of 40. Also
    returns whether the clock was called another one in most of them.
    """

    def clock(share: float) -> Board:
        return Board(gpu="aa", sm_mhz=round(share * random.gauss(1600, 40) / 15) * 15)

    def ms(factor: float) -> float:
        return 10 * factor * random.gauss(1, 0.004)

    stored = [
        a_run(ms(1.0), board=clock(1.0), session=day) for day in DAYS for _ in range(2)
    ]
    fresh: list[Measurement] = []
    while True:
        fresh.append(a_measurement(ms(slower), board=clock(capped)))
        seen = guarded(fresh, stored, Sentinels(fresh=(None,) * len(fresh)))
        verdict = judge_stored(
            STEP_MS,
            seen,
            stored,
            tolerance=0.01,
            detect=0.03,
            floor=0.0,
            suite_context=SuiteContext(),
        )
        if verdict.settled:
            return verdict, sum(bool(one.dirty) for one in seen) > len(seen) / 2


def test_slow_code_on_a_gpu_whose_clock_scatters_is_judged() -> None:
    random = Random(1)  # noqa: S311 - noise, no secret

    found = [judged(1.15, 1.0, random) for _ in range(RUNS)]

    blamed = sum(verdict.outcome is Outcome.REGRESSED for verdict, _ in found)
    assert blamed >= 0.9 * RUNS


def test_a_clock_that_is_held_down_is_recognised_by_a_gpu_whose_clock_scatters() -> (
    None
):
    random = Random(1)  # noqa: S311 - noise, no secret

    found = [judged(1 / 0.85, 0.85, random) for _ in range(RUNS)]

    assert sum(is_other for _, is_other in found) >= 0.97 * RUNS
    blamed = sum(verdict.outcome is Outcome.REGRESSED for verdict, _ in found)
    assert blamed <= 0.01 * RUNS
