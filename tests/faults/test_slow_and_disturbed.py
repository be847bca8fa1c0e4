"""The larger a fault, the surer the blame: no cap, neighbour or odd run hides a slowdown."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import pytest
from builders import a_measurement, a_run
from scripted_project import ScriptedProject

from pytest_gpuperf.judge.budget import judge_time_budget
from pytest_gpuperf.judge.comparison import FAR
from pytest_gpuperf.judge.context import SuiteContext
from pytest_gpuperf.judge.readings import DISTURBANCE
from pytest_gpuperf.judge.stored_times import judge_stored
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.metrics import STEP_MS
from pytest_gpuperf.model.verdict import Outcome, Verdict


STORED_MS = 10.0
GRANTED = DISTURBANCE[DeviceKind.SCRIPTED]
EIGHT = [9.97, 9.98, 9.99, 10.0, 10.0, 10.01, 10.02, 10.03]

CAPS = ("0.1", "1", "15", "60")
SLOWER = (2.0, 5.0, 39.0, 100.0, 1000.0, 4000.0)
TOGETHER = "--override-ini=gpuperf_isolation=module"
"""All tests of a run share a process: the script's clock is no worse for it."""

DISTURBED = (
    {"disturbance": "throttled by heat"},
    {"waiting": 0.1},
    {"waiting": 0.5},
    {"waiting": 0.8},
)


def named(factor: float) -> str:
    return f"test_{factor:g}_times_as_slow".replace(".", "_")


def with_baselines(project: ScriptedProject, factors: Sequence[float]) -> None:
    """Record baselines of one test per factor, all of the same step."""
    project.file("".join(f"def {named(f)}(gpuperf): gpuperf(int)\n" for f in factors))
    project.script({"*": {"step_ms": STORED_MS}})
    project.record(TOGETHER)


def slowed(factors: Sequence[float], **more: object) -> dict[str, object]:
    return {named(f): {"step_ms": STORED_MS * f, **more} for f in factors}


@pytest.mark.parametrize("seconds", CAPS)
def test_a_slower_step_fails_under_every_time_cap(
    project: ScriptedProject, seconds: str
) -> None:
    # A tenth of a second is too little for more than a few steps, warm ones among them.
    factors = [f for f in SLOWER if f >= 5 or float(seconds) >= 1]
    with_baselines(project, factors)
    project.script(slowed(factors))

    result = project.run(f"--gpuperf-seconds={seconds}", TOGETHER)

    result.assert_outcomes(failed=len(factors))
    if seconds == "1":
        said = " ".join(result.stdout.str().split())
        assert "100 times the stored time" in said
        assert "too slow to measure within --gpuperf-seconds" in said


@pytest.mark.parametrize("seconds", CAPS[::3])
@pytest.mark.parametrize("how", DISTURBED, ids=str)
def test_unchanged_code_never_fails_for_a_disturbed_machine(
    project: ScriptedProject, how: dict[str, object], seconds: str
) -> None:
    waited = 1 - float(str(how.get("waiting", 0.0)))
    factors = [f / waited for f in (1.0, 1.5, 2.0, 3.0)]
    with_baselines(project, factors)
    project.script(slowed(factors, **how))

    result = project.run(f"--gpuperf-seconds={seconds}", TOGETHER)

    result.assert_outcomes(
        passed=len(factors), warnings=result.parseoutcomes()["warnings"]
    )


def test_a_step_that_grows_without_end_fails(project: ScriptedProject) -> None:
    with_baselines(project, [1.0])
    project.script({"*": {"step_ms": 60.0, "growth": 1.05}})

    project.run().assert_outcomes(failed=1)


# What the judge says of runs as such.


def measured(ms: float, *dirty: str, unwaited: float | None = None) -> Measurement:
    return a_measurement(
        {STEP_MS.name: ms},
        *dirty,
        on=DeviceKind.SCRIPTED,
        unwaited={} if unwaited is None else {STEP_MS.name: unwaited},
    )


def judged(
    stored: Sequence[float],
    fresh: Sequence[Measurement],
    suite_context: SuiteContext = SuiteContext(),  # noqa: B008, it is frozen
) -> Verdict:
    entries = [a_run(ms) for ms in stored]
    return judge_stored(
        STEP_MS,
        fresh,
        entries,
        tolerance=0.01,
        detect=0.03,
        floor=0.0,
        suite_context=suite_context,
    )


ODD = {
    "one of eight far slower": [*EIGHT[:7], 40.0],
    "one of eight far faster": [1.0, *EIGHT[1:]],
    "two of eight, one on each side": [1.0, *EIGHT[1:7], 40.0],
    "one of seven far slower": [*EIGHT[:6], 40.0],
    "one of six far slower": [*EIGHT[:5], 40.0],
    "one of sixteen far slower": [*EIGHT, *EIGHT[:7], 90.0],
    "one of eight a thousand times slower": [*EIGHT[:7], 10_000.0],
}


@pytest.mark.parametrize("factor", [1.2, 2.0, 3.0])
@pytest.mark.parametrize("stored", ODD.values(), ids=ODD.keys())
def test_one_odd_stored_run_does_not_blind_a_test(
    stored: list[float], factor: float
) -> None:
    slower = [measured(STORED_MS * factor) for _ in range(5)]

    assert judged(sorted(stored), slower).outcome is Outcome.REGRESSED


@pytest.mark.parametrize("stored", ODD.values(), ids=ODD.keys())
def test_unchanged_code_passes_next_to_an_odd_stored_run(stored: list[float]) -> None:
    assert judged(sorted(stored), [measured(10.0)]).outcome is Outcome.PASS


def test_a_baseline_of_two_kinds_of_runs_has_no_odd_ones() -> None:
    """A step that is quick in one process and slow in the next is blamed for neither."""
    torn = sorted([10.0] * 4 + [14.0] * 4)

    verdict = judged(torn, [measured(14.0) for _ in range(8)])

    assert verdict.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("factor", [5.0, 40.0, 4000.0])
@pytest.mark.parametrize("stored", [1, 2, 3, 4])
def test_with_few_stored_runs_five_times_in_every_run_is_a_regression(
    stored: int, factor: float
) -> None:
    slower = [measured(STORED_MS * factor) for _ in range(2)]
    first = judged(EIGHT[:stored], slower[:1])
    both = judged(EIGHT[:stored], slower)

    assert (first.settled, first.proving) == (False, True)
    assert both.outcome is Outcome.REGRESSED
    assert both.settled


@pytest.mark.parametrize("stored", [1, 2, 3, 4])
def test_with_few_stored_runs_less_than_that_is_not_blamed(stored: int) -> None:
    slower = [measured(0.95 * FAR * STORED_MS) for _ in range(5)]

    assert judged(EIGHT[:stored], slower).outcome is Outcome.INCONCLUSIVE


def test_one_run_that_is_not_slow_acquits_with_few_stored_runs() -> None:
    runs = [measured(500.0), measured(10.0)]

    assert judged(EIGHT[:2], runs).outcome is not Outcome.REGRESSED


@pytest.mark.parametrize(
    ("unwaited_ms", "outcome"),
    [
        pytest.param(GRANTED * 9.9, Outcome.INCONCLUSIVE, id="explained by sharing"),
        pytest.param(
            GRANTED * 10.5, Outcome.REGRESSED, id="more than sharing explains"
        ),
        pytest.param(1000.0, Outcome.REGRESSED, id="far more"),
        pytest.param(None, Outcome.INCONCLUSIVE, id="nothing known"),
        pytest.param(0.0, Outcome.INCONCLUSIVE, id="all of it waited"),
    ],
)
def test_disturbed_runs_blame_by_what_is_left_without_waiting_and_sharing(
    unwaited_ms: float | None, outcome: Outcome
) -> None:
    runs = [measured(1000.0, "no core", unwaited=unwaited_ms) for _ in range(5)]

    assert judged(EIGHT, runs).outcome is outcome


def test_a_disturbed_run_that_proves_nothing_takes_no_proof_from_clean_ones() -> None:
    runs = [
        measured(11.0, "no core", unwaited=11.0),
        *[measured(11.0) for _ in range(5)],
    ]

    assert judged(EIGHT, runs).outcome is Outcome.REGRESSED


@pytest.mark.parametrize("factor", [1.05, 2.0, 4.2, 42.0])
def test_a_disturbed_run_is_over_its_budget_by_its_bound_alone(factor: float) -> None:
    runs = [
        measured(500.0, "no core", unwaited=10.0 * GRANTED * factor) for _ in range(5)
    ]

    verdict = judge_time_budget(STEP_MS, runs, 10.0)

    assert verdict.outcome is Outcome.OVER_BUDGET
    assert "no core" in verdict.because


def test_a_shift_that_all_tests_share_excuses_no_more_than_a_quarter() -> None:
    slower = [measured(20.0) for _ in range(5)]

    verdict = judged(EIGHT, slower, SuiteContext(shift=log(2.0), tests=10))

    assert verdict.outcome is Outcome.REGRESSED
