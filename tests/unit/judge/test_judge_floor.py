"""How busy a GPU must be: missed only if proven, met only if proven."""

from __future__ import annotations

from math import nan

import pytest
from builders import CPU, H200, SIMULATED, a_measurement
from hypothesis import given, strategies as st

from pytest_gpuperf.judge.budget import ResolvedBudget, judge_floor, resolve
from pytest_gpuperf.judge.verdict import judge
from pytest_gpuperf.model.budget import Budget, Tolerance
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.metrics import BUSY
from pytest_gpuperf.model.verdict import Outcome


PASS, INCONCLUSIVE, OVER = Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.OVER_BUDGET


def busy(percent: float, *dirty: str) -> Measurement:
    return a_measurement({"busy_pct": percent}, *dirty)


@pytest.mark.parametrize(
    ("seen", "outcome", "settled", "because"),
    [
        ([96.1], PASS, True, "96.1 % against 85 %"),
        ([100.0], PASS, True, "100 % against 85 %"),
        (
            [61.0],
            INCONCLUSIVE,
            False,
            "61 % against 85 % so far, cannot tell +-1.8 % after 1 of at most 5 runs",
        ),
        (
            [61.0, 61.0],
            OVER,
            True,
            "61 % against 85 %, below in each of 2 runs, and more than their scatter explains",
        ),
        ([85.0] * 5, INCONCLUSIVE, True, "85 % against 85 %, cannot tell +-1.4 %"),
        ([0.0], INCONCLUSIVE, True, "not a share: 0.0"),
        ([100.1], INCONCLUSIVE, True, "not a share: 100.1"),
    ],
)
def test_a_floor_is_judged_as_a_ceiling_upside_down(
    seen: list[float], outcome: Outcome, *, settled: bool, because: str
) -> None:
    verdict = judge_floor(BUSY, [busy(percent) for percent in seen], 85.0)

    assert (verdict.outcome, verdict.settled) == (outcome, settled)
    assert verdict.because == because


def test_what_is_shown_is_the_mean_of_the_runs_and_has_no_evidence() -> None:
    verdict = judge_floor(BUSY, [busy(61.0), busy(61.0)], 85.0)

    assert verdict.now == pytest.approx(61.0)
    assert (verdict.limit, verdict.evidence) == (85.0, None)


def test_a_disturbed_run_says_nothing_unless_it_passes() -> None:
    assert judge_floor(BUSY, [busy(96.0, "hot")], 85.0).outcome is PASS
    verdict = judge_floor(BUSY, [busy(61.0, "hot")], 85.0)

    assert (verdict.outcome, verdict.settled) == (INCONCLUSIVE, False)
    assert verdict.because == (
        "61 % against 85 % so far, but disturbed: hot, after 1 of at most 6 runs"
    )


@pytest.mark.parametrize("percent", [nan, -1.0])
def test_what_is_no_share_decides_nothing(percent: float) -> None:
    verdict = judge_floor(BUSY, [busy(percent)], 85.0)

    assert (verdict.outcome, verdict.now) == (INCONCLUSIVE, None)
    assert verdict.because == f"not a share: {percent}"


@given(st.integers(1, 5), st.floats(1, 99), st.floats(0, 1), st.floats(1, 99))
def test_a_busier_gpu_is_never_judged_worse(
    runs: int, percent: float, more: float, least: float
) -> None:
    first, second = (
        judge_floor(BUSY, [busy(seen)] * runs, least).outcome
        for seen in (percent, percent + more)
    )

    order = [PASS, INCONCLUSIVE, OVER]
    assert order.index(second) <= order.index(first)


def test_a_budget_asks_for_it_and_nothing_else_judges_it() -> None:
    limit = ResolvedBudget(limits={"busy_pct": 85.0})

    asked = judge("t", [busy(90.0)], limit, Tolerance(), None)
    unasked = judge("t", [busy(90.0)], ResolvedBudget(), Tolerance(), None)

    assert [v.outcome for v in asked.verdicts] == [PASS]
    assert unasked.verdicts == ()


def test_it_binds_where_kernels_run() -> None:
    layers = [Budget(limits={"busy_pct": 85.0})]

    assert resolve(layers, H200).limits == {"busy_pct": 85.0}
    assert resolve(layers, CPU).unbound == {
        "busy_pct": "busy_pct=85 binds on cuda only, this is cpu AMD EPYC 2 cores, which has no "
        "kernels"
    }
    assert resolve(layers, SIMULATED).unbound == {
        "busy_pct": "busy_pct=85 binds on cuda only, the simulated GPU has no clock"
    }
