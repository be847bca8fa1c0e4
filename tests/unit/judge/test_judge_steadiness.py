"""A machine that others slow for a while blames nobody; one that is steady still does."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from builders import a_measurement, an_entry

from pytest_gpuperf.judge.calls import judge_calls, settle_together, suite_context_of
from pytest_gpuperf.judge.context import ADDED, burst
from pytest_gpuperf.judge.statistics import Spread
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.run import StepCall
from pytest_gpuperf.model.verdict import Outcome, Verdict


SIGMA = 0.014
STEADY = Spread(sigma=SIGMA, nu=50.0)
TESTS = 40
LATER = 12
"""Tests that were measured again while the machine was slow."""


def run(ms: float, *dirty: str) -> Measurement:
    return a_measurement(ms, *dirty, on=DeviceKind.CPU)


def runs_of(logs: np.ndarray) -> list[Measurement]:
    return [run(exp(value)) for value in logs]


class Suite:
    """40 tests of 1 ms; 12 of them have further runs, which others slow by *slower*."""

    def __init__(self, seed: int, slower: float, own: float = 0.0) -> None:
        noise = np.random.default_rng(seed)
        stored = noise.normal(0, SIGMA, (TESTS, 8))
        self.entries = {
            str(n): an_entry(*map(exp, logs)) for n, logs in enumerate(stored)
        }
        first = noise.normal(0, SIGMA, TESTS)
        # What others do ends and begins anew: it has its own size in each run.
        added = noise.uniform(0.4, 1.6, (LATER, 5)) * slower
        again = noise.normal(0, SIGMA, (LATER, 5)) + added
        self.runs = {str(n): runs_of(first[n : n + 1]) for n in range(LATER, TESTS)}
        self.runs |= {str(n): runs_of(again[n]) for n in range(LATER)}
        self.runs["0"] = runs_of(again[0] + own)

    def verdicts(self) -> dict[str, Verdict]:
        """Those of all tests, by what all runs say about the suite."""
        found = suite_context_of(self.runs, self.entries)
        judged = {
            test: {
                test: judge_calls(
                    [StepCall(measurement=one) for one in runs],
                    self.entries[test],
                    found,
                )
            }
            for test, runs in self.runs.items()
        }
        return {
            test: calls[test].verdicts[0]
            for test, calls in settle_together(judged).items()
        }


SEEDS = range(20)


def blamed(slower: float, own: float = 0.0) -> list[str]:
    """Return who is blamed, of all seeds."""
    return [
        test
        for seed in SEEDS
        for test, verdict in Suite(seed, slower, own).verdicts().items()
        if verdict.outcome is Outcome.REGRESSED
    ]


def test_nobody_is_blamed_on_a_machine_that_others_slow_for_a_while() -> None:
    assert blamed(slower=0.12) == []


def test_a_test_that_is_slower_by_far_more_is_blamed_all_the_same() -> None:
    assert blamed(slower=0.12, own=log(1.7)) == ["0"] * len(SEEDS)


def test_on_a_steady_machine_a_slowdown_of_a_tenth_is_blamed() -> None:
    assert blamed(slower=0.0, own=log(1.1)) == ["0"] * len(SEEDS)


def test_the_reason_says_what_the_machine_may_have_added() -> None:
    said = {v.because for v in Suite(1, slower=0.12).verdicts().values()}

    (added,) = {
        one.partition("others may slow a run by ")[2].partition(";")[0]
        for one in said
        if one.startswith("unsteady machine: 95 % range ")
    }
    assert float(added.removesuffix(" %")) == pytest.approx(8.5, abs=1.5)


@pytest.mark.parametrize(("slower", "named"), [(0.12, True), (0.0, False)])
def test_a_wide_range_names_the_machine_if_it_is_what_widens_it(
    slower: float, *, named: bool
) -> None:
    said = [
        verdict.because
        for seed in SEEDS
        for verdict in Suite(seed, slower, own=0.035).verdicts().values()
        if verdict.because.startswith("too noisy to tell: the real change is between")
    ]

    assert said
    assert {"others may slow a run by" in one for one in said} == {named}


@pytest.mark.parametrize("sigma", [0.03, 0.05, 0.1])
def test_what_others_add_is_measured_by_the_confirming_runs(sigma: float) -> None:
    noise = np.random.default_rng(5).normal(0, sigma, (60, 5))

    found = burst([runs_of(logs) for logs in noise], STEADY)

    # The one that scatters most is left out of 60.
    assert found == pytest.approx(ADDED * (sigma**2 - SIGMA**2) ** 0.5, rel=0.15)


def test_a_suite_that_scatters_as_its_stored_runs_is_steady() -> None:
    noise = np.random.default_rng(6)

    found = [
        burst([runs_of(logs) for logs in noise.normal(0, SIGMA, (10, 5))], STEADY)
        for _ in range(200)
    ]

    assert sum(value > 0 for value in found) <= 16, "1 in 20 by chance"


def test_first_runs_and_disturbed_ones_say_nothing() -> None:
    one = [run(1.5), run(1.0), run(1.001), run(3.0, "a neighbour"), run(1.0)]

    assert burst([one] * 10, STEADY) == 0


def test_one_erratic_test_excuses_no_other() -> None:
    calm = [run(1.0), run(1.0), run(1.001), run(1.0), run(1.0)]
    erratic = [run(1.0), run(1.0), run(2.0), run(1.0), run(4.0)]

    assert burst([calm, calm, calm, erratic], STEADY) == 0


@pytest.mark.parametrize(
    "runs",
    [[], [[run(1.0)]] * 20, [[run(1.0), run(1.0), run(2.0)]] * 3],
    ids=["no run", "first runs alone", "too few tests"],
)
def test_too_few_runs_say_nothing(runs: list[list[Measurement]]) -> None:
    assert burst(runs, STEADY) == 0


def test_without_stored_runs_nobody_knows_what_is_steady() -> None:
    assert burst([[run(1.0), run(1.0), run(2.0)]] * 20, None) == 0
