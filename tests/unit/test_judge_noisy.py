"""The rank rule: who is blamed, who passes, and when it is settled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuperf.judge.noisy import judge_noisy
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.environment import Environment
from pytest_gpuperf.model.environment import Hardware
from pytest_gpuperf.model.measurement import Distribution
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.metric import STEP_MS
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.model.verdict import Verdict


STILL = [10.0] * 8
CALM = [9.9, 9.9, 10.0, 10.0, 10.0, 10.0, 10.1, 10.3]  # slow: 10.201, fast: 9.80
WILD = [8.0, 9.0, 10.0, 10.0, 10.0, 10.0, 12.0, 14.0]  # slow: 12.12, quick: 10.3

GOOD_TO_BAD = [
    Outcome.IMPROVED,
    Outcome.PASS,
    Outcome.INCONCLUSIVE,
    Outcome.REGRESSED,
]


def timed(ms: float, *dirty: str) -> Measurement:
    return Measurement(
        test="t",
        environment=Environment(hardware=Hardware(kind=DeviceKind.CUDA, name="x")),
        times={"step_ms": Distribution.of([ms])},
        dirty=dirty,
    )


def judged(stored: list[float], fresh: list[Measurement]) -> Verdict:
    return judge_noisy(STEP_MS, fresh, sorted(stored), tolerance=0.01, detect=0.03)


def clean(*times: float) -> list[Measurement]:
    return [timed(ms) for ms in times]


@pytest.mark.parametrize(
    ("stored", "fresh", "outcome", "settled"),
    [
        pytest.param(CALM, clean(10.0), Outcome.PASS, True, id="one run passes"),
        pytest.param(
            CALM, clean(10.201), Outcome.PASS, True, id="at the limit, it passes"
        ),
        pytest.param(
            CALM, clean(10.3), Outcome.INCONCLUSIVE, False, id="one slow run is open"
        ),
        pytest.param(
            CALM,
            clean(10.3, 10.4, 10.3, 10.5),
            Outcome.INCONCLUSIVE,
            False,
            id="four slow runs are open",
        ),
        pytest.param(
            CALM,
            clean(10.3, 10.4, 10.3, 10.5, 10.3),
            Outcome.REGRESSED,
            True,
            id="five slow runs blame",
        ),
        pytest.param(
            CALM,
            clean(10.3, 10.4, 10.2, 10.5, 10.3),
            Outcome.INCONCLUSIVE,
            True,
            id="one run inside the limit saves",
        ),
        pytest.param(
            CALM,
            clean(10.3, 10.0, 10.0),
            Outcome.PASS,
            True,
            id="the median passes before five runs",
        ),
        pytest.param(
            CALM,
            clean(10.3, 10.15),
            Outcome.INCONCLUSIVE,
            False,
            id="the median may yet pass",
        ),
        pytest.param(
            CALM,
            clean(10.3, 10.15, 10.3, 10.3),
            Outcome.INCONCLUSIVE,
            True,
            id="three slow of four cannot pass any more",
        ),
        pytest.param(
            CALM,
            clean(10.3, 10.15, 10.3, 10.15),
            Outcome.INCONCLUSIVE,
            False,
            id="the fifth run may decide",
        ),
        pytest.param(
            CALM[:4],
            clean(11.0),
            Outcome.INCONCLUSIVE,
            False,
            id="few stored runs: two more may pass",
        ),
        pytest.param(
            CALM[:4],
            clean(11.0, 11.0, 11.0),
            Outcome.INCONCLUSIVE,
            True,
            id="few stored runs: settled as soon as nothing can pass",
        ),
        pytest.param(
            CALM[:4], clean(5.0), Outcome.PASS, True, id="few stored runs: no IMPROVED"
        ),
        pytest.param([10.0], clean(10.05), Outcome.PASS, True, id="one stored run"),
        pytest.param(
            WILD,
            clean(11.0),
            Outcome.INCONCLUSIVE,
            False,
            id="above detect nothing passes on a wild baseline",
        ),
        pytest.param(
            WILD,
            clean(11.0, 11.0, 11.0),
            Outcome.INCONCLUSIVE,
            True,
            id="inside the spread: settled early",
        ),
        pytest.param(
            CALM, clean(9.7), Outcome.PASS, False, id="a fast run passes, and is chased"
        ),
        pytest.param(
            CALM,
            clean(9.7, 9.6, 9.7, 9.7),
            Outcome.PASS,
            False,
            id="four fast runs are chased",
        ),
        pytest.param(
            CALM,
            clean(9.7, 9.6, 9.7, 9.7, 9.5),
            Outcome.IMPROVED,
            True,
            id="five fast runs improve",
        ),
        pytest.param(
            CALM, clean(9.7, 9.9), Outcome.PASS, True, id="no longer all fast: passed"
        ),
        pytest.param(
            CALM,
            [timed(9.7, "hot")] * 4,
            Outcome.PASS,
            True,
            id="more disturbed fast runs than are made up for are not chased",
        ),
        pytest.param(
            CALM,
            [timed(12.0, "hot")],
            Outcome.INCONCLUSIVE,
            False,
            id="a disturbed slow run says nothing",
        ),
        pytest.param(
            CALM,
            [timed(12.0, "hot"), timed(10.0)],
            Outcome.PASS,
            True,
            id="a disturbed slow run does not spoil a pass",
        ),
        pytest.param(
            CALM,
            [timed(12.0, "hot"), *clean(11, 11, 11, 11)],
            Outcome.INCONCLUSIVE,
            False,
            id="four clean slow runs do not blame, a fifth may",
        ),
        pytest.param(
            CALM,
            [timed(12.0, "hot"), *clean(11, 11, 11, 11, 11)],
            Outcome.REGRESSED,
            True,
            id="five clean slow runs of six blame",
        ),
        pytest.param(
            CALM,
            [timed(10.0, "hot"), *clean(11, 11, 11, 11, 11)],
            Outcome.INCONCLUSIVE,
            True,
            id="a disturbed run inside the limit saves",
        ),
        pytest.param(
            CALM,
            [timed(12.0, "hot")] * 4,
            Outcome.INCONCLUSIVE,
            False,
            id="four disturbed runs leave room for four more",
        ),
        pytest.param(
            CALM,
            [timed(12.0, "hot")] * 8,
            Outcome.INCONCLUSIVE,
            True,
            id="eight disturbed runs settle",
        ),
    ],
)
def test_the_rank_rule(
    *,
    stored: list[float],
    fresh: list[Measurement],
    outcome: Outcome,
    settled: bool,
) -> None:
    verdict = judged(stored, fresh)

    assert (verdict.outcome, verdict.settled) == (outcome, settled)


SEEN = "; the smallest slowdown this machine could have seen is "


@pytest.mark.parametrize(
    ("stored", "fresh", "because"),
    [
        (CALM, clean(10.08), "10.08 ms, baseline 10 ms, +0.8 %"),
        (
            CALM,
            clean(10.3, 10.4, 10.3, 10.5, 10.3),
            (
                "each of 5 runs is more than 1 % slower than the second slowest of "
                "8 stored runs, 10.1 ms"
            ),
        ),
        (
            CALM,
            clean(9.7, 9.6, 9.7, 9.7, 9.5),
            (
                "each of 5 runs is more than 1 % faster than the second fastest of "
                "8 stored runs, 9.9 ms"
            ),
        ),
        (CALM, clean(10.3), f"undecided after 1 of at most 5 runs{SEEN}3.0 %"),
        (
            CALM[:3],
            clean(11, 11, 11),
            f"too few stored runs (3, 5 are needed to blame){SEEN}1.0 %",
        ),
        (
            CALM,
            clean(10.3, 10.4, 10.15, 10.5, 10.3),
            f"noise: runs lie on both sides of 10.2 ms{SEEN}3.0 %",
        ),
        (
            WILD,
            clean(11, 11, 11),
            (
                "noise: the runs are slow, but inside the spread of the stored runs"
                f"{SEEN}51.5 %"
            ),
        ),
        (
            CALM,
            [*[timed(12, "hot", "shared")] * 4, *clean(11, 11, 11, 11)],
            f"dirty: hot, shared{SEEN}3.0 %",
        ),
    ],
)
def test_every_outcome_says_why(
    stored: list[float], fresh: list[Measurement], because: str
) -> None:
    assert judged(stored, fresh).because == because


def test_the_numbers_are_the_medians_and_the_limit_of_blame() -> None:
    verdict = judged(CALM, clean(10.3, 10.0, 10.1))

    assert (verdict.now, verdict.baseline) == (10.1, 10.0)
    assert verdict.limit == pytest.approx(10.201)


def test_tolerance_and_detect_widen_both_limits() -> None:
    fresh = clean(10.6)

    narrow = judge_noisy(STEP_MS, fresh, STILL, tolerance=0.01, detect=0.03)
    wide = judge_noisy(STEP_MS, fresh, STILL, tolerance=0.07, detect=0.09)

    assert narrow.outcome is Outcome.INCONCLUSIVE
    assert wide.outcome is Outcome.PASS


times = st.floats(min_value=8.0, max_value=13.0)
reasons = st.sampled_from([(), (), ("hot",)])
fresh_runs = st.lists(st.tuples(times, reasons), min_size=1, max_size=6)
stored_runs = st.lists(times, min_size=1, max_size=10)


@given(stored_runs, fresh_runs, st.data())
def test_slowing_any_run_never_improves_the_outcome(
    stored: list[float], fresh: list[tuple[float, tuple[str, ...]]], data: st.DataObject
) -> None:
    factors = data.draw(
        st.lists(
            st.floats(min_value=1.0, max_value=2.0),
            min_size=len(fresh),
            max_size=len(fresh),
        )
    )
    slowed = [
        timed(ms * by, *why) for (ms, why), by in zip(fresh, factors, strict=True)
    ]

    before = judged(stored, [timed(ms, *why) for ms, why in fresh]).outcome
    after = judged(stored, slowed).outcome

    assert GOOD_TO_BAD.index(after) >= GOOD_TO_BAD.index(before)


@given(stored_runs, fresh_runs, st.integers(min_value=-20, max_value=20))
def test_the_unit_of_time_does_not_matter(
    stored: list[float], fresh: list[tuple[float, tuple[str, ...]]], power: int
) -> None:
    scale = 2.0**power  # exact in binary, so that no limit moves by rounding

    here = judged(stored, [timed(ms, *why) for ms, why in fresh])
    there = judged(
        [ms * scale for ms in stored], [timed(ms * scale, *why) for ms, why in fresh]
    )

    assert (here.outcome, here.settled) == (there.outcome, there.settled)


@given(stored_runs, fresh_runs)
def test_nothing_is_blamed_without_five_stored_and_five_clean_runs(
    stored: list[float], fresh: list[tuple[float, tuple[str, ...]]]
) -> None:
    few = len(stored) < 5 or sum(not why for _, why in fresh) < 5

    verdict = judged(stored, [timed(ms, *why) for ms, why in fresh])

    assert not few or verdict.outcome in {Outcome.PASS, Outcome.INCONCLUSIVE}


@given(stored_runs, st.floats(min_value=1.0301, max_value=3.0), st.data())
def test_a_slowdown_above_detect_never_passes(
    stored: list[float], slowdown: float, data: st.DataObject
) -> None:
    typical = sorted(stored)[len(stored) // 2]
    runs = data.draw(st.integers(min_value=1, max_value=6))

    verdict = judged(stored, clean(*[typical * slowdown] * runs))

    assert verdict.outcome in {Outcome.INCONCLUSIVE, Outcome.REGRESSED}


@given(stored_runs, st.lists(st.tuples(times, reasons), min_size=8, max_size=10))
def test_eight_runs_always_settle(
    stored: list[float], fresh: list[tuple[float, tuple[str, ...]]]
) -> None:
    verdict = judged(stored, [timed(ms, *why) for ms, why in fresh])

    assert verdict.settled
