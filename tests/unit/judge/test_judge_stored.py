"""Times against the stored baseline: who is blamed, who passes, and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, log, nan

import numpy as np
import pytest
from builders import a_measurement, a_run
from hypothesis import assume, given, strategies as st
from scipy import stats

from pytest_gpuperf.judge.context import (
    FAR_SLOWER,
    Discount,
    Sentinels,
    SuiteContext,
    discounts,
)
from pytest_gpuperf.judge.statistics import Spread
from pytest_gpuperf.judge.stored_times import judge_stored, log_shift, log_variance
from pytest_gpuperf.model.codec import decode, encode
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.metrics import STEP_MS
from pytest_gpuperf.model.verdict import DecidedBy, Evidence, Outcome, Verdict


pytestmark = pytest.mark.slow


STEADY = [9.96, 9.98, 9.99, 10.0, 10.0, 100 / 9.99, 100 / 9.98, 100 / 9.96]
WILD = [8.0, 9.0, 10.0, 10.0, 10.0, 10.0, 12.0, 14.0]
TORN = [10.0, 13.0] * 4
SIX_PERCENT = log(1.06)

timed = partial(a_measurement, on=DeviceKind.SCRIPTED)


def clean(*times: float) -> list[Measurement]:
    return [timed(ms) for ms in times]


def judged(
    stored: Sequence[float],
    fresh: list[Measurement],
    *,
    tolerance: float = 0.01,
    detect: float = 0.03,
    floor: float = 0.0,
    suite_context: SuiteContext | None = None,
    sentinels: Sentinels | None = None,
) -> Verdict:
    return judge_stored(
        STEP_MS,
        fresh,
        [a_run(ms) for ms in stored],
        tolerance=tolerance,
        detect=detect,
        floor=floor,
        suite_context=suite_context or SuiteContext(),
        sentinels=sentinels,
    )


def evidence_of(verdict: Verdict) -> Evidence:
    assert verdict.evidence is not None
    return verdict.evidence


PASS, IMPROVED = Outcome.PASS, Outcome.IMPROVED
INCONCLUSIVE, REGRESSED = Outcome.INCONCLUSIVE, Outcome.REGRESSED


def hot(ms: float, runs: int = 1) -> list[Measurement]:
    """Runs that were disturbed."""
    return [timed(ms, "hot")] * runs


AGAINST_STEADY_RUNS = {
    "one run passes": (clean(10.0), PASS, True),
    "inside the bound": (clean(10.24), PASS, True),
    "outside the bound, open": (clean(10.25), INCONCLUSIVE, False),
    "a second run narrows the bound": (clean(10.25, 10.25), PASS, True),
    "four slow runs": (clean(*[10.3] * 4), INCONCLUSIVE, False),
    "five blame": (clean(*[10.3] * 5), REGRESSED, True),
    "eight blame": (clean(*[10.3] * 8), REGRESSED, True),
    "one run among the stored ones saves": (
        clean(10.3, 10.4, 10.1, 10.5, 10.3),
        INCONCLUSIVE,
        True,
    ),
    "the mean passes before five runs": (clean(10.3, 10.1), PASS, True),
    "no blame any more, possibly a pass": (clean(10.45, 10.1), INCONCLUSIVE, False),
    "neither any more": (clean(10.4, 10.1, 10.4, 10.6), INCONCLUSIVE, True),
    "a fast run passes, and is chased": (clean(9.7), PASS, False),
    "four are chased": (clean(*[9.7] * 4), PASS, False),
    "five improve": (clean(*[9.7] * 5), IMPROVED, True),
    "no longer all fast: passed": (clean(9.7, 9.95), PASS, True),
    "faster by the tolerance: passed": (clean(*[9.89] * 5), PASS, True),
    "disturbed and slow": (hot(12.0), INCONCLUSIVE, False),
    "disturbed and fast exonerates": (hot(10.0), PASS, True),
    "a disturbed slow run spoils no pass": (hot(12.0) + clean(10.0), PASS, True),
    "four clean slow runs do not blame, a fifth may": (
        hot(12.0) + clean(*[11.0] * 4),
        INCONCLUSIVE,
        False,
    ),
    "three disturbed runs are made up for": (
        hot(12.0, 3) + clean(*[11.0] * 5),
        REGRESSED,
        True,
    ),
    "four are not": (hot(12.0, 4) + clean(*[11.0] * 4), INCONCLUSIVE, True),
    "a disturbed fast run saves": (hot(10.0) + clean(*[11.0] * 5), INCONCLUSIVE, True),
    "eight disturbed runs settle": (hot(12.0, 8), INCONCLUSIVE, True),
    "disturbed fast runs are chased": (hot(9.7, 2), PASS, False),
    "more of them than are made up for are not": (hot(9.7, 4), PASS, True),
    "disturbed runs take no part in an improvement": (
        clean(*[9.7] * 5) + hot(10.0),
        IMPROVED,
        True,
    ),
}


@pytest.mark.parametrize(
    ("fresh", "outcome", "settled"),
    AGAINST_STEADY_RUNS.values(),
    ids=AGAINST_STEADY_RUNS,
)
def test_the_rules_against_eight_steady_runs(
    *, fresh: list[Measurement], outcome: Outcome, settled: bool
) -> None:
    verdict = judged(STEADY, fresh)

    assert (verdict.outcome, verdict.settled) == (outcome, settled)


AGAINST_OTHER_RUNS = {
    "five stored runs do": (STEADY[:5], clean(*[10.4] * 5), REGRESSED, True),
    "few stored runs may pass": (STEADY[:4], clean(10.0), PASS, True),
    "few never blame: settled where nothing can pass": (
        STEADY[:4],
        clean(11.0),
        INCONCLUSIVE,
        True,
    ),
    "few: nothing improves": (STEADY[:4], clean(5.0), PASS, True),
    "one stored run": ([10.0], clean(10.01), PASS, True),
    "one says little, and more of today say no more": (
        [10.0],
        [timed(10.1, on=DeviceKind.CUDA)],
        INCONCLUSIVE,
        True,
    ),
    "one on a cpu says nothing": (
        [10.0],
        [timed(10.0, on=DeviceKind.CPU)] * 5,
        INCONCLUSIVE,
        True,
    ),
    "a wild baseline passes nothing": (WILD, clean(10.0), INCONCLUSIVE, True),
    "but may blame what is far outside": (WILD, clean(16.0), INCONCLUSIVE, False),
    "inside the wild spread": (WILD, clean(*[11.0] * 5), INCONCLUSIVE, True),
    "far outside of it": (WILD, clean(*[20.0] * 5), REGRESSED, True),
    "two runs 30 % apart": ([10.0, 13.0], clean(10.0), INCONCLUSIVE, True),
    "bimodal then and now": (TORN, clean(10, 13, 10, 13, 10), INCONCLUSIVE, True),
    "constants, slower": ([10.0] * 8, clean(*[10.2] * 5), REGRESSED, True),
    "constants, the same": ([10.0] * 8, clean(10.0), PASS, True),
}


@pytest.mark.parametrize(
    ("stored", "fresh", "outcome", "settled"),
    AGAINST_OTHER_RUNS.values(),
    ids=AGAINST_OTHER_RUNS,
)
def test_the_rules_against_other_runs(
    *, stored: list[float], fresh: list[Measurement], outcome: Outcome, settled: bool
) -> None:
    verdict = judged(stored, fresh)

    assert (verdict.outcome, verdict.settled) == (outcome, settled)


SECOND = "the second slowest of 8 stored runs, 10.02 ms"


def shifted(*fresh: float) -> Sentinels:
    return Sentinels(fresh=fresh, stored=(0.0,) * 8)


def test_one_run_of_a_faster_machine_keeps_an_improvement_from_being_shown() -> None:
    fresh = clean(*[9.7] * 5)

    honest = judged(STEADY, fresh, sentinels=shifted(0, 0, 0, 0, 0))
    doubted = judged(STEADY, fresh, sentinels=shifted(-0.05, 0, 0, 0, 0))

    assert (honest.outcome, doubted.outcome) == (IMPROVED, PASS)


@pytest.mark.parametrize(
    ("seen", "step_ms", "outcome"),
    [
        pytest.param(0.02, 9.8, PASS, id="a little faster: what is seen is added"),
        pytest.param(0.02, 10.15, INCONCLUSIVE, id="a little faster, hides a little"),
        pytest.param(0.05, 9.5, INCONCLUSIVE, id="clearly: more may be unseen"),
        pytest.param(0.05, 9.7, INCONCLUSIVE, id="clearly: no improvement either"),
        pytest.param(0.05, 8.5, PASS, id="as fast as all that may be unseen"),
        pytest.param(0.05, 7.5, IMPROVED, id="faster than that"),
    ],
)
def test_a_clearly_faster_machine_may_hide_more_than_its_sentinels_see(
    seen: float, step_ms: float, outcome: Outcome
) -> None:
    fresh = clean(*[step_ms] * 5)

    verdict = judged(STEADY, fresh, sentinels=shifted(*[-seen] * 5))

    assert verdict.outcome is outcome


def test_a_disturbed_run_of_a_faster_machine_says_nothing() -> None:
    verdict = judged(STEADY, [timed(10.0, "hot")], sentinels=shifted(-0.06))

    assert evidence_of(verdict).runs == 0


@pytest.mark.parametrize(
    ("step_ms", "outcome"), [(16.0, REGRESSED), (10.56, INCONCLUSIVE)]
)
def test_sentinels_that_are_slower_by_far_excuse_five_percent_on_a_gpu(
    step_ms: float, outcome: Outcome
) -> None:
    slower = Sentinels(fresh=(log(1.723),) * 5, stored=(0.0,) * 8, most=FAR_SLOWER)

    verdict = judged(STEADY, clean(*[step_ms] * 5), sentinels=slower)

    assert verdict.outcome == outcome
    said = "its sentinels say that this machine is at least 5.0 % slower"
    assert (said in verdict.because) == (outcome is INCONCLUSIVE)


def test_a_slow_machine_may_be_its_old_self_again_in_the_next_run() -> None:
    verdict = judged(STEADY, clean(10.5), sentinels=shifted(0.05))

    assert (verdict.outcome, verdict.settled) == (INCONCLUSIVE, False)


def test_the_larger_of_suite_and_sentinels_counts_and_noise_does_not() -> None:
    sentinels = Sentinels(
        fresh=(0.05, 0.002, -0.04, None), stored=(-0.01, 0.0, 0.01, nan)
    )

    found = discounts(4, sentinels, SuiteContext(shift=0.01))

    assert [(d.slower, d.faster) for d in found] == [
        (pytest.approx(0.04), 0.0),
        (0.01, 0.0),
        (0.01, pytest.approx(0.03)),
        (0.01, 0.0),
    ]


def test_without_stored_sentinels_only_the_suite_is_evidence() -> None:
    found = discounts(1, Sentinels(fresh=(0.05,)), SuiteContext(shift=-0.02))

    assert found == (Discount(slower=0.0, faster=0.02),)


def test_one_stored_sentinel_is_believed_to_three_per_mille() -> None:
    found = discounts(1, Sentinels(fresh=(0.05,), stored=(0.01,)), SuiteContext())

    assert found == (Discount(slower=pytest.approx(0.037), faster=0.0),)


def test_sentinels_must_say_something_of_every_run() -> None:
    with pytest.raises(ValueError, match="sentinels") as refused:
        judged(STEADY, clean(10.0), sentinels=Sentinels(fresh=(0.0, 0.0)))

    assert refused.value.args == ("2 sentinels for 1 runs, one each is needed",)


@pytest.mark.parametrize("wrong", [nan, inf, 0.0, -1.0])
def test_a_baseline_that_holds_no_time_asks_for_a_refresh(wrong: float) -> None:
    assert judged([10.0, wrong], clean(10.0)) == Verdict(
        metric="step_ms",
        outcome=INCONCLUSIVE,
        because=f"a stored time is not a positive number: {wrong}; refresh it",
    )


def test_a_run_without_the_metric_is_no_run() -> None:
    empty = timed(None)
    sentinels = Sentinels(fresh=(9.0, 0.0), stored=(0.0,) * 8)

    verdict = judged(STEADY, [empty, timed(10.0)], sentinels=sentinels)

    assert evidence_of(verdict).runs == 1
    assert evidence_of(verdict).discount == 0.0


def test_a_change_must_exceed_the_floor_as_well() -> None:
    below = judged(STEADY, clean(*[10.6] * 5), floor=1.0)
    above = judged(STEADY, clean(*[11.6] * 5), floor=1.0)

    assert below.because == "10.6 ms, baseline 10 ms, +6.0 %"
    assert above.because == (
        f"each of 5 runs is more than 1 ms (the floor) slower than {SECOND}; 95 % range "
        "+15.4 % to +16.6 %"
    )
    assert evidence_of(above).tolerance == 0.1
    assert evidence_of(above).detect == pytest.approx(0.12)


def test_a_floor_below_the_tolerance_changes_nothing() -> None:
    fresh = clean(*[10.3] * 5)

    assert judged(STEADY, fresh, floor=0.1) == judged(STEADY, fresh)


def test_a_detect_below_the_tolerance_is_the_tolerance() -> None:
    verdict = judged(STEADY, clean(10.0), tolerance=0.05, detect=0.01)

    assert evidence_of(verdict).detect == 0.05


def test_an_infinite_disagreement_stays_a_number() -> None:
    verdict = judged([1e-100, 1e100, 1e100, 1e100, 1e100], clean(*[1e100] * 5))

    assert verdict.outcome is INCONCLUSIVE
    assert evidence_of(verdict).smallest_detectable < inf
    assert decode(Verdict, json.loads(json.dumps(encode(verdict)))) == verdict


def test_the_evidence_says_all_numbers() -> None:
    verdict = judged(
        STEADY, clean(*[10.3] * 5), suite_context=SuiteContext(shift=0.001)
    )

    logs = np.log(STEADY)
    error = logs.std(ddof=1) * np.sqrt(1.08 / 8 + 0.5 + 0.5 / 5)
    moved = np.log(1.03)
    half = stats.t.isf(0.025, 7) * error
    close = pytest.approx
    assert verdict.evidence == Evidence(
        estimate=close(0.03),
        low=close(np.expm1(moved - half)),
        high=close(np.expm1(moved + half)),
        tolerance=0.01,
        detect=0.03,
        runs=5,
        stored_runs=8,
        smallest_detectable=close(
            1.01 * np.exp((stats.t.isf(0.01, 7) + stats.norm.isf(0.1)) * error) - 1,
            rel=1e-4,
        ),
        discount=close(np.expm1(0.001)),
        p_regressed=close(
            stats.t.sf((moved - 0.001 - np.log1p(0.01)) / error, 7), rel=1e-9
        ),
        p_improved=close(stats.t.sf((-moved - np.log1p(0.01)) / error, 7), rel=1e-9),
        rule=DecidedBy.T_AND_RANK,
    )
    assert (verdict.now, verdict.baseline) == (close(10.3), 10.0)
    assert verdict.limit == close(
        10.0 * 1.01 * np.exp(stats.t.isf(0.01, 7) * error), rel=1e-9
    )


def test_the_limit_is_what_both_tests_ask_of_the_mean() -> None:
    sure = SuiteContext(prior=Spread(sigma=0.002, nu=500))

    ranked = judged([10.0] * 6 + [10.5] * 2, clean(10.0), suite_context=sure)
    proven = judged(STEADY, clean(*[10.3] * 8))

    error = np.log(STEADY).std(ddof=1) * np.sqrt(1.08 / 8 + 0.5 + 0.5 / 8)
    assert ranked.limit == pytest.approx(10.5 * 1.01)
    assert proven.limit == pytest.approx(
        10 * 1.01 * np.exp(stats.t.isf(0.01, 7) * error)
    )


def test_probabilities_are_shown_only_where_runs_are_enough_to_blame() -> None:
    few = evidence_of(judged(STEADY, clean(*[10.3] * 4)))
    unstored = evidence_of(judged(STEADY[:4], clean(*[10.3] * 5)))

    assert (few.p_regressed, few.p_improved) == (None, None)
    assert (unstored.p_regressed, unstored.p_improved) == (None, None)


def test_disturbed_slow_runs_are_not_counted_but_shown() -> None:
    verdict = judged(STEADY, [timed(12.0, "hot")] * 2)

    assert evidence_of(verdict).runs == 0
    assert evidence_of(verdict).estimate == pytest.approx(0.2)
    assert verdict.now == pytest.approx(12.0)


def test_more_tests_judged_together_see_less() -> None:
    alone = judged(STEADY, clean(10.0), suite_context=SuiteContext())
    among = judged(STEADY, clean(10.0), suite_context=SuiteContext(tests=40))

    ours, theirs = evidence_of(alone), evidence_of(among)
    assert theirs.smallest_detectable > ours.smallest_detectable
    assert alone.outcome is among.outcome is PASS


def test_a_prior_lets_few_stored_runs_pass() -> None:
    stored = [9.9, 10.0, 10.1]
    prior = Spread(sigma=0.005, nu=50)

    without = judged(stored, clean(10.0))
    with_prior = judged(stored, clean(10.0), suite_context=SuiteContext(prior=prior))

    assert (without.outcome, with_prior.outcome) == (INCONCLUSIVE, PASS)


def test_a_shift_and_a_variance_are_those_of_the_logarithms() -> None:
    variance = log_variance(STEP_MS, [a_run(ms) for ms in STEADY], DeviceKind.CUDA)

    assert log_shift(
        STEP_MS, timed(10.6), [a_run(ms) for ms in STEADY]
    ) == pytest.approx(SIX_PERCENT)
    assert variance == (pytest.approx(np.log(STEADY).var(ddof=1)), 7.0)


@pytest.mark.parametrize(
    ("run", "stored"),
    [
        (timed(nan), STEADY),
        (timed(10.0), [10.0, nan]),
        (timed(10.0), []),
        (timed(None), STEADY),
    ],
)
def test_a_shift_needs_times_on_both_sides(
    run: Measurement, stored: list[float]
) -> None:
    assert log_shift(STEP_MS, run, [a_run(ms) for ms in stored]) is None


@pytest.mark.parametrize("stored", [[], [10.0], [10.0, 0.0]])
def test_a_variance_needs_two_times(stored: list[float]) -> None:
    assert log_variance(STEP_MS, [a_run(ms) for ms in stored], DeviceKind.CUDA) is None


# An independent reference: the formulas in numpy and scipy, for clean runs.


@dataclass(frozen=True)
class Expected:
    outcome: Outcome
    p_regressed: float
    p_improved: float


def centre(base: np.ndarray) -> float:
    first, second = np.triu_indices(len(base))
    return float(np.median((base[first] + base[second]) / 2))


def expected(
    stored: np.ndarray,
    fresh: np.ndarray,
    slower: np.ndarray,
    faster: np.ndarray,
    prior: Spread | None,
) -> Expected:
    base = np.log(stored)
    r, m = len(base), len(fresh)
    moved = np.log(fresh) - centre(base)
    prior_nu, prior_variance = (prior.nu, prior.sigma**2) if prior else (0.0, 0.0)
    nu = r - 1 + prior_nu
    variance = (prior_nu * prior_variance + (r - 1) * base.var(ddof=1)) / nu
    error = max(np.sqrt(variance), 0.002) * np.sqrt(1.08 / r + 0.5 + 0.5 / m)
    ranks = np.sort(base - centre(base))
    second = 2 if r >= 8 else 1
    tau = np.log(1.01)
    p_slow = stats.t.sf(((moved - slower).mean() - tau) / error, nu)
    p_fast = stats.t.sf((-(moved + faster).mean() - tau) / error, nu)
    bound = (moved + faster).mean() + stats.t.isf(0.05, nu) * error
    enough = r >= 5 and m >= 5
    if enough and p_slow < 0.01 and (moved - slower).min() > ranks[-second] + tau:
        outcome = REGRESSED
    elif enough and p_fast < 0.01 and (moved + faster).max() < ranks[second - 1] - tau:
        outcome = IMPROVED
    else:
        outcome = PASS if bound < np.log(1.03) else INCONCLUSIVE
    return Expected(outcome=outcome, p_regressed=p_slow, p_improved=p_fast)


@pytest.mark.parametrize("prior", [None, Spread(sigma=0.006, nu=8.5)])
def test_the_verdict_is_that_of_an_independent_reference(prior: Spread | None) -> None:
    rng = np.random.default_rng(3)
    seen = set()
    for _ in range(400):
        sigma = rng.choice([0.001, 0.005, 0.02])
        stored = 10 * np.exp(rng.normal(0, sigma, rng.integers(2, 12)))
        fresh = 10 * np.exp(
            rng.normal(rng.choice([-0.05, 0, 0.02, 0.05]), sigma, rng.integers(1, 6))
        )
        shift = rng.choice([0.0, 0.01, -0.01])
        sentinels = rng.normal(0, 0.01, len(fresh))
        kernels = rng.normal(0, 0.004, 8)
        noise = max(0.003, kernels.std(ddof=1))
        shown = sentinels - np.median(kernels)
        slower = np.maximum(0, np.maximum(shown - noise, shift))
        faster = np.maximum(0, np.maximum(-shown - noise, -shift))

        verdict = judged(
            list(stored),
            clean(*fresh),
            suite_context=SuiteContext(prior=prior, shift=shift),
            sentinels=Sentinels(fresh=tuple(sentinels), stored=tuple(kernels)),
        )

        wanted = expected(stored, fresh, slower, faster, prior)
        seen.add(verdict.outcome)
        assert verdict.outcome is wanted.outcome
        if len(fresh) == 5 and len(stored) >= 5:
            found = evidence_of(verdict)
            assert found.p_regressed == pytest.approx(wanted.p_regressed, rel=1e-8)
            assert found.p_improved == pytest.approx(wanted.p_improved, rel=1e-8)
    assert seen == {IMPROVED, PASS, INCONCLUSIVE, REGRESSED}


times = st.floats(min_value=8.0, max_value=13.0)
near = st.floats(min_value=9.9, max_value=10.5)
reasons = st.sampled_from([(), (), ("hot",)])
fresh_runs = st.lists(st.tuples(times | near, reasons), min_size=1, max_size=8)
stored_runs = st.lists(times, min_size=1, max_size=10) | st.lists(
    st.floats(min_value=9.95, max_value=10.05), min_size=5, max_size=10
)


@given(stored_runs, fresh_runs)
def test_nothing_is_blamed_without_five_stored_and_five_clean_runs(
    stored: list[float], fresh: list[tuple[float, tuple[str, ...]]]
) -> None:
    few = len(stored) < 5 or sum(not why for _, why in fresh) < 5

    verdict = judged(stored, [timed(ms, *why) for ms, why in fresh])

    assert not few or verdict.outcome in {PASS, INCONCLUSIVE}


@given(stored_runs, st.floats(min_value=1.0301, max_value=3.0), st.data())
def test_a_slowdown_above_detect_never_passes(
    stored: list[float], slowdown: float, data: st.DataObject
) -> None:
    typical = float(np.exp(centre(np.log(stored))))
    runs = data.draw(st.integers(min_value=1, max_value=6))

    verdict = judged(stored, clean(*[typical * slowdown] * runs))

    assert verdict.outcome in {INCONCLUSIVE, REGRESSED}


@given(stored_runs, st.lists(st.tuples(times, reasons), min_size=8, max_size=10))
def test_eight_runs_always_settle(
    stored: list[float], fresh: list[tuple[float, tuple[str, ...]]]
) -> None:
    verdict = judged(stored, [timed(ms, *why) for ms, why in fresh])

    assert verdict.settled


@given(
    st.lists(st.floats(min_value=9.9, max_value=10.1), min_size=5, max_size=10),
    st.lists(st.floats(min_value=10.1, max_value=12.0), min_size=5, max_size=8),
)
def test_who_is_blamed_stands_above_the_limit(
    stored: list[float], fresh: list[float]
) -> None:
    verdict = judged(stored, clean(*fresh))

    assume(verdict.outcome is REGRESSED)
    assert verdict.now is not None
    assert verdict.limit is not None
    assert verdict.now > verdict.limit
