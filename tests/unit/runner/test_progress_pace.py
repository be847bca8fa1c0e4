"""What is left is known within a factor of 1.5 once each test has run: simulated refreshes.

Each plays the rounds of a refresh as the gate makes them, with the gate's own code, on a
clock that is set; every seed is fixed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import pytest
from builders import a_measurement
from builders import a_result

from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.run import TestResult
from pytest_gpuperf.runner.progress import Progress
from pytest_gpuperf.runner.progress import expected_runs
from pytest_gpuperf.runner.screening import Case
from pytest_gpuperf.runner.screening import complete
from pytest_gpuperf.runner.screening import screen


WANTED = 8


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A suite on a machine: costs in seconds by test, the share of disturbed runs.

    ``first`` is what a first run costs more, ``later`` what a later one does, as factors;
    ``start`` the seconds of a process beside its test.
    """

    costs: Sequence[float]
    dirty: float = 0.0
    first: float = 1.0
    later: float = 1.0
    start: float = 0.0
    scatter: float = 0.05
    slots: int = 1


ALIKE = (5.0,) * 8
UNLIKE = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 30.0, 60.0)

SCENARIOS = {
    "8 tests alike, quiet": Scenario(costs=ALIKE),
    "1 test, quiet": Scenario(costs=(5.0,)),
    "1 test of a second whose process takes 2": Scenario(costs=(1.0,), start=2.0),
    "tests of 0.2 to 60 s, quiet": Scenario(costs=UNLIKE),
    "40 tests, a tenth disturbed": Scenario(costs=ALIKE * 5, dirty=0.1),
    "8 tests, a tenth disturbed": Scenario(costs=ALIKE, dirty=0.1),
    "8 tests, a third disturbed": Scenario(costs=ALIKE, dirty=0.33),
    "8 tests, half disturbed": Scenario(costs=ALIKE, dirty=0.5),
    "8 tests, all disturbed": Scenario(costs=ALIKE, dirty=1.0),
    "tests of 0.2 to 60 s, a third disturbed": Scenario(costs=UNLIKE, dirty=0.33),
    "3 tests, a quarter disturbed": Scenario(costs=(3.0, 5.0, 7.0), dirty=0.25),
    "first runs a fifth dearer": Scenario(costs=ALIKE, first=1.2),
    "later runs a fifth dearer": Scenario(costs=ALIKE, later=1.2),
    "costs that scatter by 40 %": Scenario(costs=ALIKE, scatter=0.4),
    "4 devices side by side": Scenario(costs=ALIKE * 3, slots=4),
    "2 devices, tests unlike": Scenario(costs=UNLIKE, slots=2, dirty=0.2),
}


class Simulated:
    """Refreshes a suite with the gate's own code, and hears what is said before it."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario = scenario
        self._noise = random.Random(seed)  # noqa: S311  noise, no secret
        self._seconds = 0.0
        self._job = 0.0
        self.progress = Progress(None, lambda: self._job)
        self.groups = [(f"t.py::t{n}",) for n in range(len(scenario.costs))]

    def run(self, groups: Sequence[tuple[str, ...]], number: int) -> list[TestResult]:
        slots = [(self.groups.index(g) % self._scenario.slots,) for g in groups]
        self.progress.begin(groups, number, slots)
        busy = dict.fromkeys(range(self._scenario.slots), 0.0)
        found = []
        for index, group in enumerate(groups):
            cost = self._cost(group, number)
            busy[slots[index][0]] += cost
            self.progress.started(index)
            self._job += cost
            results = [self._result(test) for test in group]
            self.progress.ended(index, results)
            found += results
        self._seconds += max(busy.values())
        return found

    def _cost(self, group: tuple[str, ...], number: int) -> float:
        plan = self._scenario
        cost = plan.costs[self.groups.index(group)] + plan.start
        factor = plan.later if number else plan.first
        return cost * factor * self._noise.lognormvariate(0, plan.scatter)

    def _result(self, test: str) -> TestResult:
        dirty = self._noise.random() < self._scenario.dirty
        measured = a_measurement(
            None, *("hot",) if dirty else (), test=test, on=DeviceKind.SCRIPTED
        )
        return a_result(measured, test=test)

    def ratio(self, rounds: int = 1) -> float:
        """Return what was foretold after so many *rounds*, as a part of what it took."""
        cases: dict[str, Case] = screen(self.groups, self.run)
        wanted = {test: WANTED for group in self.groups for test in group}
        if rounds > 1:
            for number in range(1, rounds):
                for result in self.run(self.groups, number):
                    cases[result.test].results.append(result)
        told = self.progress.seconds_for(dict.fromkeys(self.groups, WANTED))
        begun = self._seconds
        complete(self.groups, self.run, cases, wanted)
        assert told is not None
        return told / (self._seconds - begun)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_what_a_refresh_will_take_is_told_within_a_factor_after_the_first_run(
    scenario: Scenario,
) -> None:
    ratios = sorted(Simulated(scenario, seed).ratio() for seed in range(12))

    assert ratios[1] >= 1 / 1.5
    assert ratios[-2] <= 1.5, "of 12 refreshes one may be off at each end"
    assert 0.75 <= median(ratios) <= 1.33


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_the_estimate_is_corrected_as_runs_come_in(scenario: Scenario) -> None:
    ratios = sorted(Simulated(scenario, seed).ratio(rounds=5) for seed in range(12))

    assert ratios[2] >= 1 / 1.5
    assert ratios[-2] <= 1.5
    assert 0.75 <= median(ratios) <= 1.33


def test_nothing_is_told_before_anything_was_measured() -> None:
    assert Progress(None).seconds_for({("t.py::a",): WANTED}) is None


@pytest.mark.parametrize(
    ("clean", "most", "share", "expected"),
    [(7, 15, 1.0, 7.0), (8, 15, 0.0, 15.0), (0, 15, 0.5, 0.0), (1, 2, 0.5, 1.5)],
)
def test_the_runs_to_come_are_what_chance_says(
    clean: int, most: int, share: float, expected: float
) -> None:
    assert expected_runs(clean, most, share) == pytest.approx(expected)
