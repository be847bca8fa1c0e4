"""How many runs a precision takes, and that the judge then makes and needs them."""

from __future__ import annotations

from math import exp
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuperf.judge.context import SuiteContext
from pytest_gpuperf.judge.readings import Limits
from pytest_gpuperf.judge.readings import StoredTimes
from pytest_gpuperf.judge.sensitivity import STORED_RUNS
from pytest_gpuperf.judge.sensitivity import deciding_runs
from pytest_gpuperf.judge.sensitivity import effort
from pytest_gpuperf.judge.sensitivity import shown_by
from pytest_gpuperf.judge.statistics import Prior
from pytest_gpuperf.judge.statistics import Spread
from pytest_gpuperf.judge.stored_times import judge_stored
from pytest_gpuperf.judge.stored_times import reference_of
from pytest_gpuperf.judge.tails import t_isf
from pytest_gpuperf.model.baseline import RunSummary
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.environment import Environment
from pytest_gpuperf.model.environment import Hardware
from pytest_gpuperf.model.measurement import Distribution
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.metrics import STEP_MS
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.model.verdict import Verdict


SCRIPTED = DeviceKind.SCRIPTED
LIMITS = Limits(tolerance=0.01, detect=0.03, floored=False)
NORMAL = (-1.42, -0.85, -0.47, -0.15, 0.15, 0.47, 0.85, 1.42)
"""Eight runs, in standard deviations of about 0.9."""

SUITE = SuiteContext(prior=Prior(sigma=0.005, nu=50.0), tests=40)


def took(ms: float) -> dict[str, Distribution]:
    return {"step_ms": Distribution(q10=ms, q25=ms, q50=ms, mean=ms, samples=100)}


def stored(sigma: float, runs: int = 8) -> tuple[RunSummary, ...]:
    spread = [NORMAL[number % 8] for number in range(runs)]
    return tuple(RunSummary(times=took(10 * exp(sigma * z))) for z in spread)


def reference(sigma: float, suite_context: SuiteContext, runs: int = 8) -> StoredTimes:
    found = reference_of(STEP_MS, stored(sigma, runs), SCRIPTED, suite_context.prior)
    assert found is not None
    return found


def asking(
    precision: float | None, suite_context: SuiteContext = SUITE
) -> SuiteContext:
    return SuiteContext(
        prior=suite_context.prior, tests=suite_context.tests, precision=precision
    )


def judged(
    fresh: list[float], suite_context: SuiteContext, *, dirty: int = 0
) -> Verdict:
    environment = Environment(hardware=Hardware(kind=SCRIPTED, name="x"))
    runs = [
        Measurement(
            test="t",
            environment=environment,
            times=took(ms),
            dirty=("hot",) if number < dirty else (),
        )
        for number, ms in enumerate(fresh)
    ]
    return judge_stored(
        STEP_MS,
        runs,
        stored(0.005),
        tolerance=0.01,
        detect=0.03,
        floor=0.0,
        suite_context=suite_context,
    )


def deciding(precision: float | None) -> int:
    return deciding_runs(reference(0.005, SUITE), LIMITS, asking(precision))


def smallest(fresh: int) -> float:
    return shown_by(reference(0.005, SUITE), LIMITS, SUITE, 8, fresh)


def test_five_runs_decide_where_nobody_asks_for_more() -> None:
    assert deciding(None) == 5
    assert deciding(smallest(5)) == 5


def test_what_is_asked_for_decides_how_many_runs_do() -> None:
    assert deciding(smallest(9)) == 9
    assert deciding(smallest(20)) == 20


def test_five_runs_decide_where_no_number_of_them_is_enough() -> None:
    assert deciding(smallest(20) - 1e-6) == 5


def test_a_baseline_of_too_few_runs_can_blame_nobody_however_many_are_made() -> None:
    few = reference(0.005, SUITE, runs=4)

    assert deciding_runs(few, LIMITS, asking(0.05)) == 5


def test_a_slowdown_is_blamed_after_the_runs_that_decide_and_not_before() -> None:
    suite_context = asking(smallest(9))

    seen = [judged([10.6] * runs, suite_context) for runs in (5, 8, 9)]

    assert [v.outcome for v in seen] == [
        *(Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE, Outcome.REGRESSED)
    ]
    assert [v.settled for v in seen] == [False, False, True]
    assert seen[0].because.startswith("undecided after 5 of at most 9 runs; ")
    assert judged([10.6] * 5, asking(None)).outcome is Outcome.REGRESSED


def test_disturbed_runs_are_made_up_for_as_ever() -> None:
    suite_context = asking(smallest(9))

    assert not judged([10.6] * 11, suite_context, dirty=3).settled
    assert judged([10.6] * 12, suite_context, dirty=3).outcome is Outcome.REGRESSED


def test_one_run_among_the_stored_ones_saves_however_many_are_slow() -> None:
    verdict = judged([10.6] * 8 + [10.0], asking(smallest(9)))

    assert verdict.outcome is not Outcome.REGRESSED


def test_a_pass_needs_no_more_runs_than_ever() -> None:
    assert judged([10.0], asking(smallest(9))).outcome is Outcome.PASS
    assert judged([10.0], asking(smallest(9))).settled


def test_every_verdict_tells_the_smallest_slowdown_of_the_runs_that_decide() -> None:
    asked = smallest(9)

    verdict = judged([10.0], asking(asked))

    assert verdict.evidence is not None
    assert verdict.evidence.smallest_detectable == pytest.approx(asked)
    assert verdict.evidence.smallest_detectable < smallest(5)


def test_a_refresh_stores_more_runs_rather_than_making_each_gate_run_longer() -> None:
    known = reference(0.005, SUITE)
    shown = shown_by(known, LIMITS, SUITE, 12, 5)

    found = effort(known, LIMITS, asking(shown), STORED_RUNS)

    assert (found.stored, found.fresh, found.reached) == (12, 5, True)


def test_where_twenty_stored_runs_are_not_enough_fresh_ones_have_to_help() -> None:
    known = reference(0.005, SUITE)
    shown = shown_by(known, LIMITS, SUITE, 20, 8)

    found = effort(known, LIMITS, asking(shown), STORED_RUNS)

    assert (found.stored, found.fresh, found.reached) == (20, 8, True)


def test_what_cannot_be_reached_has_a_floor_and_costs_nothing() -> None:
    known = reference(0.005, SUITE)

    found = effort(known, LIMITS, asking(0.015), STORED_RUNS)
    at_floor = effort(known, LIMITS, asking(found.floor), STORED_RUNS)

    assert (found.stored, found.fresh, found.reached) == (8, 5, False)
    assert found.floor > 0.015
    assert at_floor.reached
    assert effort(known, LIMITS, asking(found.floor - 1e-9), [8]).floor == found.floor


def test_nothing_below_the_tolerance_can_be_asked_for() -> None:
    still = StoredTimes.of([10.0] * 8, None, Spread.assumed(SCRIPTED))

    assert effort(still, LIMITS, asking(0.01, SuiteContext()), STORED_RUNS).floor > 0.01


@given(
    st.floats(0.002, 0.1),
    st.integers(1, 200),
    st.floats(0.001, 0.9),
    st.integers(5, 20),
)
def test_what_is_reached_is_shown_and_what_is_not_lies_below_the_floor(
    sigma: float, tests: int, precision: float, runs: int
) -> None:
    suite_context = SuiteContext(tests=tests, precision=precision)
    known = reference(sigma, suite_context, runs)

    gate = effort(known, LIMITS, suite_context, [runs])
    refresh = effort(known, LIMITS, suite_context, STORED_RUNS)

    assert gate.fresh == deciding_runs(known, LIMITS, suite_context)
    assert refresh.reached is (refresh.floor <= precision)
    for found in (gate, refresh):
        shown = shown_by(known, LIMITS, suite_context, found.stored, found.fresh)
        assert found.reached is (shown <= precision)
        assert 5 <= found.fresh <= 20


def test_more_runs_blame_unchanged_code_no_more_often() -> None:
    """Draws with a session of their own each: both tests, as the judge holds them."""
    rng = np.random.default_rng(11)
    before = np.sort(rng.normal(0, 1, (40_000, 8)), axis=1)
    session = rng.normal(0, sqrt(0.5), (40_000, 1))
    fresh = session + rng.normal(0, sqrt(0.5), (40_000, 20))
    sigma = before.std(axis=1, ddof=1)

    def blamed(runs: int) -> float:
        seen = fresh[:, :runs]
        moved = seen.mean(axis=1) - np.median(before, axis=1)
        t = moved / sigma / Spread(sigma=1.0, nu=7).error(runs, 8)
        return float(((t > t_isf(0.01, 7)) & (seen.min(axis=1) > before[:, -2])).mean())

    assert 0.01 > blamed(5) > blamed(10) > blamed(20)
