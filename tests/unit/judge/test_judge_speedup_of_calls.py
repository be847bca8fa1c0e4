"""Which budgets hold for a comparison."""

from __future__ import annotations

import pytest
from builders import a_comparison, a_measurement

from pytest_gpuperf.judge.calls import judge_calls
from pytest_gpuperf.judge.interleaved import demands_speedup, judge_comparison
from pytest_gpuperf.model.ab import Answer, Comparison
from pytest_gpuperf.model.budget import Budget
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.run import ComparedCall, StepCall
from pytest_gpuperf.model.verdict import Outcome, TestVerdict


TIME = a_comparison(Answer.FASTER, 1 / 1.4, why="measured", low=1 / 1.45, high=1 / 1.35)


def judged(
    *budgets: Budget, kind: DeviceKind = DeviceKind.CUDA, runs: int = 1
) -> TestVerdict:
    call = ComparedCall(
        sides=Comparison(time=TIME),
        after=a_measurement(on=kind, exact={"peak_allocated_bytes": 2**20, "syncs": 1}),
        budgets=budgets,
    )
    return judge_comparison([call] * runs)


def outcomes(verdict: TestVerdict) -> dict[str, Outcome]:
    return {v.metric: v.outcome for v in verdict.verdicts}


def test_without_a_budget_there_is_no_verdict_and_nothing_fails() -> None:
    verdict = judged()

    assert verdict.verdicts == ()
    assert verdict.outcome is Outcome.PASS
    assert verdict.sides == Comparison(time=TIME)
    assert verdict.settled


@pytest.mark.parametrize("kind", [DeviceKind.CUDA, DeviceKind.CPU, DeviceKind.SCRIPTED])
def test_a_speedup_is_judged_wherever_there_is_a_clock(kind: DeviceKind) -> None:
    met = judged(Budget(limits={"speedup": 1.3}), kind=kind)
    missed = judged(Budget(limits={"speedup": 1.5}), kind=kind)

    assert outcomes(met) == {"speedup": Outcome.PASS}
    assert outcomes(missed) == {"speedup": Outcome.OVER_BUDGET}


def test_a_speedup_that_is_meant_for_other_hardware_is_not_checked() -> None:
    (verdict,) = judged(Budget(limits={"speedup": 1.5}, on=("*H100*",))).verdicts

    assert verdict.outcome is Outcome.NOT_CHECKED
    assert (
        verdict.because == "speedup=1.5 is meant for *H100*, this is cuda NVIDIA H200"
    )


def test_the_nearest_budget_decides_and_none_lifts_it() -> None:
    far = Budget(limits={"speedup": 1.5})

    assert outcomes(judged(Budget(limits={"speedup": 1.1}), far)) == {
        "speedup": Outcome.PASS
    }
    assert outcomes(judged(Budget(limits={"speedup": None}), far)) == {}


def test_exact_budgets_hold_for_after_and_a_second_run_settles_them() -> None:
    budget = Budget(limits={"syncs": 0, "mem_mb": 2, "speedup": 1.3})
    verdict = judged(budget, runs=2)

    assert outcomes(verdict) == {
        "speedup": Outcome.PASS,
        "peak_allocated_bytes": Outcome.PASS,
        "syncs": Outcome.OVER_BUDGET,
    }
    assert verdict.settled
    assert not judged(budget).settled
    assert verdict.outcome is Outcome.OVER_BUDGET


@pytest.mark.parametrize("keyword", ["ms", "latency_ms"])
def test_a_time_of_its_own_is_not_checked_by_a_comparison(keyword: str) -> None:
    (verdict,) = judged(Budget(limits={keyword: 12})).verdicts

    assert verdict.outcome is Outcome.NOT_CHECKED
    assert verdict.because == (
        "gpuperf.compare judges the speedup alone, gpuperf(step) judges times"
    )


def test_a_time_budget_that_does_not_bind_here_says_so() -> None:
    (verdict,) = judged(Budget(limits={"ms": 12}), kind=DeviceKind.CPU).verdicts

    assert (
        verdict.because
        == "ms=12 binds on cuda only, this is cpu AMD EPYC 2 cores; name it with on="
    )


def test_a_speedup_is_nothing_that_a_single_step_could_show() -> None:
    call = StepCall(
        measurement=a_measurement(), budgets=(Budget(limits={"speedup": 1.5}),)
    )

    verdict = judge_calls([call], None)

    assert "speedup" not in outcomes(verdict)
    assert demands_speedup([call])


@pytest.mark.parametrize(
    "budgets",
    [
        (),
        (Budget(limits={"speedup": None}), Budget(limits={"speedup": 1.5})),
        (Budget(limits={"speedup": 1.5}, on=("cpu",)),),
        (Budget(limits={"ms": 3}),),
    ],
)
def test_no_speedup_is_demanded(budgets: tuple[Budget, ...]) -> None:
    assert not demands_speedup([StepCall(measurement=a_measurement(), budgets=budgets)])
