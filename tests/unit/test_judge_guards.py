"""A run on another GPU, or at another clock, must not blame code."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest

from pytest_gpuperf.judge.context import FAR_SLOWER
from pytest_gpuperf.judge.context import Sentinels
from pytest_gpuperf.judge.verdict import guarded
from pytest_gpuperf.model.baseline import RunSummary
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.environment import Environment
from pytest_gpuperf.model.environment import Hardware
from pytest_gpuperf.model.measurement import Board
from pytest_gpuperf.model.measurement import Measurement


ELSEWHERE = (
    "measured on another GPU of this model than the baseline, and two of them differ by "
    "several percent"
)
STORED = [
    RunSummary(board=Board(gpu="aa", sm_mhz=1980)),
    RunSummary(board=Board(gpu="bb", sm_mhz=2000)),
    RunSummary(board=Board(gpu="aa", sm_mhz=1000)),
]


UNSEEN = Sentinels(fresh=(None,))


def run(board: Board, *dirty: str) -> Measurement:
    hardware = Hardware(kind=DeviceKind.CUDA, name="x")
    return Measurement(
        test="t", environment=Environment(hardware=hardware), board=board, dirty=dirty
    )


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

    assert guarded([run(board)], [RunSummary(), RunSummary()], UNSEEN) == [run(board)]


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


@pytest.mark.parametrize(
    ("steps", "stored", "dirty"),
    [
        pytest.param(300, (300, 300), (), id="as many"),
        pytest.param(300, (15, 300), (), id="as many as in some of them"),
        pytest.param(None, (None, None), (), id="a device that queues nothing"),
        pytest.param(
            15,
            (300, 14),
            (
                (
                    "a round had 15 steps, and 14 or 300 with the baseline: their times are "
                    "not comparable, refresh it"
                ),
            ),
            id="another number",
        ),
        pytest.param(
            15,
            (None,),
            (
                (
                    "a round had 15 steps, and an unknown number with the baseline: their "
                    "times are not comparable, refresh it"
                ),
            ),
            id="a baseline that does not say it",
        ),
    ],
)
def test_a_run_is_dirty_where_its_rounds_have_other_numbers_of_steps(
    steps: int | None, stored: tuple[int | None, ...], dirty: tuple[str, ...]
) -> None:
    (found,) = guarded(
        [replace(run(Board()), round_steps=steps)],
        [RunSummary(round_steps=known) for known in stored],
        UNSEEN,
    )

    assert found.dirty == dirty
