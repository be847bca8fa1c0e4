"""What it costs to end a gate's run before it has all its rounds, on recorded rounds.

    pytest --gpuperf --gpuperf-update=all
    python benchmarks/early_end.py [.gpuperf/samples.json]

Takes each recorded run as a gate's first one, against the other runs of its test, whole
and ended early, as it is and slowed by ``detect``. Exits with 1 if a run that ends early
lets more than 5 % of the slowed ones pass, or saves no rounds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

from pytest_gpuperf.judge.calls import judge_calls
from pytest_gpuperf.judge.calls import prior_of
from pytest_gpuperf.judge.context import SuiteContext
from pytest_gpuperf.judge.early_end import enough_ms
from pytest_gpuperf.judge.early_end import news_ms
from pytest_gpuperf.judge.early_end import stored_steps
from pytest_gpuperf.judge.statistics import PASS_RISK
from pytest_gpuperf.judge.verdict import noticed
from pytest_gpuperf.measure.plan import LEAST_ROUNDS
from pytest_gpuperf.model.baseline import Entry
from pytest_gpuperf.model.baseline import RunSummary
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.environment import Environment
from pytest_gpuperf.model.environment import Hardware
from pytest_gpuperf.model.measurement import Distribution
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.metrics import STEP_MS
from pytest_gpuperf.model.run import StepCall
from pytest_gpuperf.model.run import StoredStep
from pytest_gpuperf.model.verdict import Outcome


CPU: Final = Hardware(kind=DeviceKind.CPU, name="x")
DEFAULT: Final = Tolerance()

Rounds = Sequence[float]
"""Milliseconds of a step in each round of a run."""


def recorded(path: Path) -> dict[str, list[Rounds]]:
    tests = json.loads(path.read_text())["tests"]
    return {key: [run["step_ms"] for run in runs] for key, runs in tests.items()}


def entry_of(runs: Sequence[Rounds]) -> Entry:
    times = [{STEP_MS.name: Distribution.of(rounds)} for rounds in runs]
    return Entry(runs=tuple(RunSummary(times=t) for t in times))


def ended(rounds: Rounds, stored: StoredStep) -> Rounds:
    """Return the rounds that a gate times beside what is *stored*."""
    enough = enough_ms(stored, (), CPU, DEFAULT, confirms=False)
    news = news_ms(stored, DEFAULT)
    for count in range(LEAST_ROUNDS, len(rounds)):
        if news <= Distribution.of(rounds[:count]).location(CPU.kind) <= enough:
            return rounds[:count]
    return rounds


def passes(rounds: Rounds, entry: Entry, suite: SuiteContext) -> bool:
    measurement = Measurement(
        test="t",
        environment=Environment(hardware=CPU),
        times={STEP_MS.name: Distribution.of(rounds)},
    )
    call = StepCall(measurement=measurement, budgets=(), tolerances=())
    verdicts = judge_calls([call], entry, suite).verdicts
    return all(v.outcome in {Outcome.PASS, Outcome.IMPROVED} for v in verdicts)


def replayed(
    tests: Mapping[str, Sequence[Rounds]], slowed: float, *, early: bool
) -> tuple[float, float]:
    """Return the mean number of rounds, and the share of the runs that pass."""
    entries = {key: entry_of(runs) for key, runs in tests.items()}
    prior = prior_of(entries.values(), CPU.kind)
    suite = SuiteContext(prior=prior, tests=len(tests))
    found = []
    for key, runs in tests.items():
        for index, run in enumerate(runs):
            others = [other for place, other in enumerate(runs) if place != index]
            known = {**entries, key: entry_of(others)}
            stored = stored_steps(known, CPU.kind)[key]
            rounds = [ms * slowed for ms in run]
            rounds = ended(rounds, stored) if early else rounds
            found.append((len(rounds), passes(rounds, known[key], suite)))
    return fmean(n for n, _ in found), fmean(passed for _, passed in found)


def main() -> int:
    path = Path(sys.argv[1] if len(sys.argv) > 1 else ".gpuperf/samples.json")
    tests = {key: runs for key, runs in recorded(path).items() if len(runs) > 1}
    detect = 1 + noticed(STEP_MS, DEFAULT)
    print(f"{sum(map(len, tests.values()))} runs of {len(tests)} tests")
    found = {
        (slowed, early): replayed(tests, slowed, early=early)
        for slowed in (1.0, detect)
        for early in (False, True)
    }
    for (slowed, early), (rounds, passed) in found.items():
        name = "ended early" if early else "whole"
        print(
            f"x{slowed:.2f} {name:<12} {rounds:5.1f} rounds, {passed:6.1%} pass at once"
        )
    saved = found[1.0, True][0] < found[1.0, False][0]
    return 0 if saved and found[detect, True][1] <= PASS_RISK else 1


if __name__ == "__main__":
    sys.exit(main())
