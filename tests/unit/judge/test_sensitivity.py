"""What a scatter lets the judge see, held against what the judge then says."""

from __future__ import annotations

from math import exp, expm1, log1p, sqrt

import numpy as np
import pytest
from builders import a_measurement, a_run
from hypothesis import assume, given, strategies as st

from pytest_gpuperf.judge.comparison import (
    ROUND_TOLERANCES,
    _ranked,
    acuity,
    passes_calm,
    smallest_blamed,
    suite_acuity,
)
from pytest_gpuperf.judge.context import SuiteContext
from pytest_gpuperf.judge.readings import Limits, StoredTimes
from pytest_gpuperf.judge.statistics import Spread, t_isf
from pytest_gpuperf.judge.stored_times import judge_stored, reference_of
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.metrics import STEP_MS
from pytest_gpuperf.model.verdict import DetectableChange, Outcome, SuiteAcuity, Verdict


SCRIPTED = DeviceKind.SCRIPTED
NINE_IN_TEN = 1.2816

times = st.lists(st.floats(9.0, 11.0), min_size=5, max_size=20)
tolerances = st.floats(0.0, 0.3)
suite_contexts = st.builds(
    SuiteContext,
    prior=st.none()
    | st.builds(Spread, sigma=st.floats(0.003, 0.05), nu=st.floats(1.0, 50.0)),
    tests=st.integers(1, 500),
)


def reference(values: list[float], suite_context: SuiteContext) -> StoredTimes:
    found = reference_of(
        STEP_MS, [a_run(ms) for ms in values], SCRIPTED, suite_context.prior
    )
    assert found is not None
    return found


def judged(
    values: list[float],
    fresh: list[float],
    tolerance: float,
    suite_context: SuiteContext,
) -> Verdict:
    return judge_stored(
        STEP_MS,
        [a_measurement(ms, on=SCRIPTED) for ms in fresh],
        [a_run(ms) for ms in values],
        tolerance=tolerance,
        detect=tolerance + 0.02,
        floor=0.0,
        suite_context=suite_context,
    )


def limits(tolerance: float) -> Limits:
    return Limits(tolerance=tolerance, detect=tolerance + 0.02, floored=False)


def seen(
    values: list[float], tolerance: float, suite_context: SuiteContext
) -> DetectableChange:
    return acuity(
        "t", reference(values, suite_context), limits(tolerance), suite_context
    )


@given(times, tolerances, suite_contexts)
def test_the_smallest_slowdown_is_the_one_that_every_verdict_tells(
    values: list[float], tolerance: float, suite_context: SuiteContext
) -> None:
    said = judged(values, [10.0], tolerance, suite_context).evidence

    assert said is not None
    assert seen(values, tolerance, suite_context).smallest == said.smallest_detectable


@given(times, tolerances, suite_contexts)
def test_decidable_is_what_passes_when_the_runs_come_out_as_slow_as_one_time_in_ten(
    values: list[float], tolerance: float, suite_context: SuiteContext
) -> None:
    known = reference(values, suite_context)
    error = known.spread.error(5, known.runs)
    bound = NINE_IN_TEN * error + known.spread.quantile(0.05) * error
    assume(abs(bound - log1p(tolerance + 0.02)) > 1e-6)
    unlucky = known.typical * exp(NINE_IN_TEN * error)

    verdict = judged(values, [unlucky] * 5, tolerance, suite_context)

    found = seen(values, tolerance, suite_context)
    assert found.decidable is (verdict.outcome is Outcome.PASS)


@given(st.floats(0.002, 0.2), st.floats(1.01, 3.0), st.integers(5, 20))
def test_more_scatter_never_sees_more(sigma: float, louder: float, runs: int) -> None:
    calm = Spread(sigma=sigma, nu=runs - 1)
    loud = Spread(sigma=louder * sigma, nu=runs - 1)

    smallest = [
        smallest_blamed(spread, 0.01, stored=runs, fresh=5) for spread in (calm, loud)
    ]
    passing = [
        passes_calm(spread, limits(0.05), stored=runs, fresh=5)
        for spread in (calm, loud)
    ]

    assert smallest[0] < smallest[1]
    assert passing[0] >= passing[1]


def test_eight_stored_and_five_fresh_runs_follow_the_t_test() -> None:
    spread = Spread(sigma=0.005, nu=7)

    smallest = smallest_blamed(spread, 0.01, stored=8, fresh=5)

    error = 0.005 * sqrt(1.08 / 8 + 0.5 + 0.5 / 5)
    assert smallest == pytest.approx((t_isf(0.01, 7) + NINE_IN_TEN) * error)


def test_with_many_stored_runs_the_rank_test_is_what_asks_for_more() -> None:
    spread = Spread(sigma=0.005, nu=19)

    smallest = smallest_blamed(spread, 0.01, stored=20, fresh=20)

    assert smallest == pytest.approx(0.005 * _ranked(20, 20))
    assert smallest > 1.25 * (t_isf(0.01, 19) + NINE_IN_TEN) * spread.error(20, 20)


def draws(
    stored_runs: int, fresh_runs: int, sigma: float, count: int = 20_000
) -> tuple[np.ndarray, np.ndarray]:
    """Log times of stored runs, ascending, and of fresh ones of one session each."""
    rng = np.random.default_rng(7)
    before = np.sort(rng.normal(0, sigma, (count, stored_runs)), axis=1)
    session = rng.normal(0, sigma * sqrt(0.5), (count, 1))
    return before, session + rng.normal(0, sigma * sqrt(0.5), (count, fresh_runs))


def typical(logs: np.ndarray) -> np.ndarray:
    """Where the runs of each row lie: the median over the means of all pairs."""
    left, right = np.triu_indices(logs.shape[1])
    means: np.ndarray = np.median((logs[:, left] + logs[:, right]) / 2, axis=1)
    return means


@pytest.mark.parametrize("stored_runs", [5, 8, 12, 20])
@pytest.mark.parametrize("fresh_runs", [5, 20])
def test_what_the_rank_test_needs_is_what_draws_show(
    stored_runs: int, fresh_runs: int
) -> None:
    before, fresh = draws(stored_runs, fresh_runs, 1.0)
    edge = before[:, -2 if stored_runs >= 8 else -1]

    needed = np.quantile(edge - fresh.min(axis=1), 0.9)

    assert _ranked(stored_runs, fresh_runs) == pytest.approx(needed, rel=0.04)


@pytest.mark.parametrize(
    ("stored_runs", "fresh_runs", "risk"),
    [(8, 5, 0.01), (20, 5, 0.01), (20, 20, 0.01), (8, 5, 0.00025), (20, 20, 0.00025)],
)
def test_the_smallest_slowdown_is_blamed_about_nine_times_in_ten(
    stored_runs: int, fresh_runs: int, risk: float
) -> None:
    """The scatter is as the suite knows it: 50 more degrees of freedom."""
    before, fresh = draws(stored_runs, fresh_runs, 0.01)
    nu = stored_runs - 1 + 50
    own = before.var(axis=1, ddof=1) * (stored_runs - 1)
    sigma = np.sqrt((own + 50 * 0.01**2) / nu)
    error = Spread(sigma=1.0, nu=nu).error(fresh_runs, stored_runs)
    smallest = smallest_blamed(
        Spread(sigma=0.01, nu=nu), risk, stored=stored_runs, fresh=fresh_runs
    )
    slow = fresh + smallest

    t = (slow.mean(axis=1) - typical(before)) / (sigma * error)
    blamed = (t > t_isf(risk, nu)) & (slow.min(axis=1) > before[:, -2])

    assert 0.85 < blamed.mean() < 0.95


def test_of_few_stored_runs_it_is_shown_what_enough_of_them_would_show() -> None:
    few = seen([10.0, 10.1], 0.01, SuiteContext())
    spread = Spread(sigma=reference([10.0, 10.1], SuiteContext()).spread.sigma, nu=4)

    assert few.smallest == pytest.approx(
        expm1(log1p(0.01) + smallest_blamed(spread, 0.01, stored=5, fresh=5))
    )


def one(scatter: float, *, decidable: bool, name: str = "t") -> DetectableChange:
    return DetectableChange(
        test=name,
        scatter=scatter,
        smallest=2 * scatter,
        tolerance=0.01,
        decidable=decidable,
    )


def many(decidable: int, tests: int = 40) -> list[DetectableChange]:
    return [one(0.01, decidable=number < decidable) for number in range(tests)]


@pytest.mark.parametrize(
    ("now", "then", "advised", "decidable_then"),
    [
        pytest.param(38, (39, 40), None, 0, id="enough now"),
        pytest.param(12, (37, 38, 40), 0.03, 38, id="the first that is enough"),
        pytest.param(12, (12, 20, 20), 0.03, 20, id="else the first that helps most"),
        pytest.param(12, (12, 12), None, 0, id="none where none helps"),
        pytest.param(0, (0, 0), None, 0, id="nor where nothing can be decided"),
    ],
)
def test_a_tolerance_is_advised_where_fewer_than_95_percent_can_be_decided(
    now: int, then: tuple[int, ...], advised: float | None, decidable_then: int
) -> None:
    wider = dict(zip((0.02, 0.03, 0.05), map(many, then), strict=False))

    suite = suite_acuity(many(now), wider)

    assert suite.decidable == now
    assert suite.advised == advised
    assert suite.decidable_then == decidable_then


def test_a_suite_is_known_by_its_medians_and_names_the_noisiest_first() -> None:
    tests = [one(s, decidable=True, name=str(s)) for s in (0.01, 0.05, 0.02)]

    suite = suite_acuity(tests, {})

    assert suite == SuiteAcuity(
        tests=(tests[1], tests[2], tests[0]), scatter=0.02, smallest=0.04, decidable=3
    )


def test_advised_tolerances_are_round_and_ascend() -> None:
    assert list(ROUND_TOLERANCES) == sorted(ROUND_TOLERANCES)
    assert all(
        round(100 * ratio) == pytest.approx(100 * ratio) for ratio in ROUND_TOLERANCES
    )
