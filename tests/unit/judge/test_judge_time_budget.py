"""Time budgets on noisy machines: over only if proven, passed only if proven."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from builders import a_measurement, a_run
from hypothesis import given, strategies as st
from scipy import stats

from pytest_gpuperf.judge.budget import judge_time_budget
from pytest_gpuperf.judge.statistics import Spread
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.metrics import STEP_MS
from pytest_gpuperf.model.verdict import DecidedBy, Evidence, Outcome, Verdict


STEADY = [9.96, 9.98, 9.99, 10.0, 10.0, 10.01, 10.02, 10.04]

PASS, INCONCLUSIVE, OVER = Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.OVER_BUDGET


def clean(*times: float) -> list[Measurement]:
    return [a_measurement(ms) for ms in times]


def judged(runs: list[Measurement], stored: Sequence[float] = ()) -> Verdict:
    return judge_time_budget(
        STEP_MS, runs, 12.0, entry_runs=[a_run(ms) for ms in stored]
    )


def hot(ms: float, runs: int = 1) -> list[Measurement]:
    """Runs that were disturbed."""
    return [a_measurement(ms, "hot")] * runs


def under(ms: float) -> tuple[Outcome, str]:
    return PASS, f"{ms:g} ms against 12 ms"


def over(ms: float, runs: int) -> tuple[Outcome, str]:
    return OVER, (
        f"{ms:g} ms against 12 ms, over in each of {runs} runs, and more than their "
        "scatter explains"
    )


def unclear(ms: float, margin: float, runs: int | None = None) -> tuple[Outcome, str]:
    """What more than *runs* may still decide, or nothing if there is no number."""
    so_far, after = (
        (" so far", f" after {runs} of at most 5 runs") if runs else ("", "")
    )
    text = f"{ms:g} ms against 12 ms{so_far}, cannot tell +-{margin:g} %{after}"
    return INCONCLUSIVE, text


def disturbed(ms: float, why: str) -> tuple[Outcome, str]:
    return INCONCLUSIVE, f"{ms:g} ms against 12 ms{why}"


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (clean(11.78), under(11.78)),
        (clean(11.79), unclear(11.79, 1.8, 1)),
        (clean(12.0), unclear(12.0, 1.8, 1)),
        (clean(11.79, 11.79), under(11.79)),
        (clean(13), unclear(13, 1.8, 1)),
        (clean(13, 13), over(13, 2)),
        (clean(12.35, 12.35), unclear(12.35, 1.6, 2)),
        (clean(12.35, 12.35, 12.35), over(12.35, 3)),
        (clean(*[12.33] * 4), unclear(12.33, 1.4, 4)),
        (clean(*[12.33] * 5), over(12.33, 5)),
        (clean(*[12.05] * 5), unclear(12.05, 1.4)),
        (clean(13, 13, 11, 11, 11), over(13, 2)),
        (clean(11, 14, 14), under(11)),
        (clean(13, 11.9, 13), unclear(12.62, 1.5)),
        (clean(12.05, 11.97), unclear(12.01, 1.6, 2)),
        (hot(11), under(11)),
        (hot(15) + clean(11), under(11)),
        (
            hot(15),
            disturbed(15, " so far, but disturbed: hot, after 1 of at most 6 runs"),
        ),
        (hot(15) + clean(13, 13), over(13, 2)),
        (hot(11.9) + clean(13, 13), over(13, 2)),
        (clean(12.1) + hot(11) + clean(12.4, 12.4), under(11.54)),
        (
            [*hot(15, 7), a_measurement(13, "shared")],
            disturbed(14.73, ", but disturbed: hot, shared"),
        ),
        (hot(15, 7) + clean(13), disturbed(13, ", but disturbed: hot")),
    ],
)
def test_a_budget_is_broken_or_kept_only_where_that_is_proven(
    runs: list[Measurement], said: tuple[Outcome, str]
) -> None:
    verdict = judged(runs)

    assert (verdict.outcome, verdict.because) == said
    assert verdict.settled is (" so far" not in verdict.because)
    assert (verdict.limit, verdict.baseline) == (12.0, None)


@pytest.mark.parametrize(
    ("kind", "margin"),
    [(DeviceKind.CUDA, "1.8"), (DeviceKind.SCRIPTED, "0.9"), (DeviceKind.CPU, "5.6")],
)
def test_the_device_says_how_far_runs_scatter_where_nothing_is_stored(
    kind: DeviceKind, margin: str
) -> None:
    verdict = judge_time_budget(STEP_MS, [a_measurement(12, on=kind)], 12.0)

    assert verdict.because == (
        f"12 ms against 12 ms so far, cannot tell +-{margin} % after 1 of at most 5 runs"
    )


def test_five_stored_runs_say_it_better_and_four_do_not_say_it() -> None:
    fresh = clean(11.93)

    assert judged(fresh, STEADY).outcome is PASS
    assert judged(fresh, STEADY[:5]).outcome is PASS
    assert judged(fresh, STEADY[:4]) == Verdict(
        metric="step_ms",
        outcome=INCONCLUSIVE,
        because=(
            "11.93 ms against 12 ms so far, cannot tell +-1.8 % after 1 of at most 5 runs"
        ),
        now=pytest.approx(11.93),
        limit=12.0,
        settled=False,
        evidence=judged(fresh, STEADY[:4]).evidence,
    )


def test_a_prior_makes_few_stored_runs_speak() -> None:
    verdict = judge_time_budget(
        STEP_MS,
        clean(11.93),
        12.0,
        entry_runs=[a_run()],
        prior=Spread(sigma=0.002, nu=20),
    )

    assert verdict.outcome is PASS


def test_the_evidence_says_all_numbers() -> None:
    verdict = judged(clean(12.1, 12.1), STEADY)

    sigma = np.log(STEADY).std(ddof=1)
    error = sigma * np.sqrt(0.5 + 0.5 / 2)
    moved = np.log(12.1 / 12)
    half = stats.t.isf(0.025, 7) * error
    proof = stats.t.isf(0.01 / 3, 7) + stats.norm.isf(0.1)
    assert verdict.evidence == Evidence(
        estimate=pytest.approx(12.1 / 12 - 1),
        low=pytest.approx(np.expm1(moved - half)),
        high=pytest.approx(np.expm1(moved + half)),
        tolerance=0.0,
        detect=0.0,
        runs=2,
        stored_runs=8,
        smallest_detectable=pytest.approx(
            np.expm1(proof * sigma * np.sqrt(0.5 + 0.5 / 5)), rel=1e-4
        ),
        p_regressed=pytest.approx(stats.t.sf(moved / error, 7), rel=1e-9),
        rule=DecidedBy.BUDGET,
    )


def test_disturbed_slow_runs_alone_give_no_probability() -> None:
    evidence = judged([a_measurement(15, "hot")]).evidence

    assert evidence is not None
    assert (evidence.runs, evidence.p_regressed) == (0, None)
    assert evidence.rule is DecidedBy.DIRTY


def expected(logs: np.ndarray, sigma: float, nu: float) -> Outcome:
    """Go through the looks one by one, with scipy."""
    for m in range(1, len(logs) + 1):
        seen = logs[:m]
        error = sigma * np.sqrt(0.5 + 0.5 / m)
        if seen.mean() + stats.t.isf(0.05, nu) * error < 0:
            return PASS
        proven = stats.t.sf(seen.mean() / error, nu) < 0.01 / 3
        if m in {2, 3, 5} and proven and seen.min() > 0:
            return OVER
    return INCONCLUSIVE


def test_the_verdict_is_that_of_an_independent_reference() -> None:
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(400):
        logs = rng.normal(rng.choice([-0.02, 0, 0.02]), 0.007, rng.integers(1, 6))
        stored = 10 * np.exp(rng.normal(0, 0.007, 8))

        alone = judged(clean(*(12 * np.exp(logs))))
        in_addition = judged(clean(*(12 * np.exp(logs))), stored)

        sigma = max(0.002, np.log(stored).std(ddof=1))
        assert alone.outcome is expected(logs, 0.01, 10)
        assert in_addition.outcome is expected(logs, sigma, 7)
        seen.add(alone.outcome)
    assert seen == {PASS, INCONCLUSIVE, OVER}


times = st.floats(min_value=11.0, max_value=13.5)
reasons = st.sampled_from([(), (), ("hot",)])


@given(st.lists(st.tuples(times, reasons), min_size=8, max_size=10))
def test_eight_runs_always_settle(fresh: list[tuple[float, tuple[str, ...]]]) -> None:
    assert judged([a_measurement(ms, *why) for ms, why in fresh]).settled


def test_a_time_at_its_budget_is_rarely_called_over() -> None:
    rng = np.random.default_rng(2)

    def shares(slowdown: float) -> tuple[float, float]:
        outcomes = [
            judged(clean(*(12 * np.exp(slowdown + rng.normal(0, 0.004) + row)))).outcome
            for row in rng.normal(0, 0.0058, (500, 5))
        ]
        return outcomes.count(OVER) / 500, outcomes.count(PASS) / 500

    assert shares(0.0)[0] <= 0.01
    assert shares(0.05)[0] >= 0.99
    assert shares(-0.05)[1] >= 0.99
