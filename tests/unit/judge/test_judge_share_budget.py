"""The share of a loop that waits for its loader, against a ceiling."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import pytest
from builders import a_distribution, a_measurement, an_entry

from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.judge.budget import (
    ResolvedBudget,
    judge_time_budget,
    log_excess,
    value_at,
)
from pytest_gpuperf.judge.verdict import judge
from pytest_gpuperf.model.baseline import RunSummary
from pytest_gpuperf.model.budget import Tolerance, parse_budget, parse_tolerance
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Distribution, Measurement, location
from pytest_gpuperf.model.metrics import LOADER_WAIT, STEP_MS
from pytest_gpuperf.model.verdict import Outcome


PASS, INCONCLUSIVE, OVER = Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.OVER_BUDGET


def waited(percent: float, *dirty: str) -> Measurement:
    bursts = replace(a_distribution(0.0), q50=percent, mean=percent)
    return a_measurement(
        None, *dirty, on=DeviceKind.CPU, times={LOADER_WAIT.name: bursts}
    )


@pytest.mark.parametrize(
    ("runs", "outcome", "because", "settled"),
    [
        ([waited(0.0)], PASS, "0 % against 35 %", True),
        ([waited(12.5)], PASS, "12.5 % against 35 %", True),
        (
            [waited(52.0), waited(54.0)],
            OVER,
            "53.01 % against 35 %, over in each of 2 runs, and more than their scatter explains",
            True,
        ),
        (
            [waited(34.0)],
            INCONCLUSIVE,
            "34 % against 35 % so far, cannot tell +-3.5 points after 1 of at most 5 runs",
            False,
        ),
        (
            [waited(52.0, "busy")],
            INCONCLUSIVE,
            "52 % against 35 % so far, but disturbed: busy, after 1 of at most 6 runs",
            False,
        ),
    ],
    ids=["no", "less", "more", "near", "dirty"],
)
def test_a_share_passes_or_is_over_where_that_is_proven(
    runs: list[Measurement], outcome: Outcome, because: str, *, settled: bool
) -> None:
    verdict = judge_time_budget(LOADER_WAIT, runs, 35.0)

    assert (verdict.outcome, verdict.because) == (outcome, because)
    assert verdict.settled is settled


def test_the_evidence_is_relative_to_the_ceiling() -> None:
    verdict = judge_time_budget(LOADER_WAIT, [waited(21.0)], 35.0)

    evidence = verdict.evidence
    assert evidence is not None
    assert verdict.now == pytest.approx(21.0)
    assert evidence.estimate == pytest.approx(21.0 / 35.0 - 1)
    assert evidence.low < evidence.estimate < evidence.high


@pytest.mark.parametrize("percent", [0.0, 3.0, 35.0, 99.0])
def test_an_excess_leads_back_to_its_share(percent: float) -> None:
    excess = log_excess(LOADER_WAIT, percent, 35.0)

    assert (excess > 0) == (percent > 35.0)
    assert value_at(LOADER_WAIT, excess, 35.0) == pytest.approx(percent)


def test_a_run_says_the_mean_of_its_shares_and_a_low_quantile_of_its_times() -> None:
    bursts = Distribution.of([0.0, 0.0, 0.0, 40.0])

    assert location(LOADER_WAIT, bursts, DeviceKind.CPU) == 10.0
    assert location(STEP_MS, bursts, DeviceKind.CPU) == 0.0


def test_a_share_is_judged_by_its_budget_and_by_no_baseline() -> None:
    run = waited(30.0)
    entry = an_entry(*[RunSummary.of(waited(1.0))] * 8)

    limited = judge(
        "t", [run], ResolvedBudget(limits={"loader_wait_pct": 60.0}), Tolerance(), entry
    )
    free = judge("t", [run], ResolvedBudget(), Tolerance(), entry)

    assert [(v.metric, v.outcome) for v in limited.verdicts] == [
        ("loader_wait_pct", PASS)
    ]
    assert free.verdicts == ()


@pytest.mark.parametrize("value", [0, 100.1, -3, True, "35", nan])
def test_a_ceiling_of_a_share_lies_between_0_and_100(value: object) -> None:
    with pytest.raises(UsageError) as caught:
        parse_budget({"loader_wait_pct": value})

    assert str(caught.value) == (
        f"gpuperf.budget(loader_wait_pct={value!r}): expected a number above 0, "
        "at most 100, or None to lift it [GP202]"
    )


@pytest.mark.parametrize("value", [0.0, 70.0, 99.9])
def test_no_share_is_above_a_ceiling_of_100(value: float) -> None:
    verdict = judge_time_budget(LOADER_WAIT, [waited(value)], 100.0)

    assert verdict.outcome is PASS


def test_a_ceiling_of_a_share_may_be_any_other_number() -> None:
    assert parse_budget({"loader_wait_pct": 0.5}).limits == {"loader_wait_pct": 0.5}
    assert parse_budget({"loader_wait_pct": None}).limits == {"loader_wait_pct": None}


def test_a_share_has_no_tolerance() -> None:
    with pytest.raises(UsageError, match="does not know loader_wait_pct; it knows ms"):
        parse_tolerance({"loader_wait_pct": "5%"})
