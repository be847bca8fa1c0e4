"""Whether a step takes longer the more steps were made: what rounds show, what is judged."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from builders import a_measurement
from scripted_steps import Clockwork

from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.judge.budget import judge_slope_budget
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.measure.timing import slope_of
from pytest_gpuperf.model.budget import parse_budget
from pytest_gpuperf.model.budget import parse_tolerance
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.metrics import SLOPE
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.model.verdict import Verdict


def judged(slopes: Sequence[float], limit: float = 1.05) -> Verdict:
    runs = [
        a_measurement(
            {SLOPE.name: slope},
            "the step drifted by +9.0% while it was timed",
            on=DeviceKind.CPU,
        )
        for slope in slopes
    ]
    return judge_slope_budget(SLOPE, runs, limit)


def test_a_step_that_takes_the_same_has_no_slope() -> None:
    assert slope_of([10.0] * 20, steps=1) == 1.0


def test_a_slope_is_told_over_a_hundred_steps_however_many_a_round_has() -> None:
    doubled_each_hundred = [10.0 * 2 ** (n / 10) for n in range(20)]

    assert slope_of(doubled_each_hundred, steps=10) == pytest.approx(2.0)
    assert slope_of(doubled_each_hundred, steps=20) == pytest.approx(2**0.5)


def test_a_step_that_becomes_quicker_has_a_slope_below_one() -> None:
    assert slope_of([10.0 * 0.5**n for n in range(5)], steps=100) == pytest.approx(0.5)


def test_a_quarter_of_disturbed_rounds_does_not_move_it() -> None:
    rounds = [10.0] * 15 + [35.0, 90.0, 41.0, 66.0, 70.0]

    assert slope_of(rounds, steps=1) == 1.0


@pytest.mark.parametrize(
    "rounds", [[10.0] * 4, [0.0] * 20], ids=["too few rounds", "no time at all"]
)
def test_where_nothing_can_be_told_there_is_none(rounds: list[float]) -> None:
    assert slope_of(rounds, steps=1) is None


def test_a_ridiculous_slope_is_still_a_number() -> None:
    assert slope_of([10.0**n for n in range(5)], steps=1) == pytest.approx(22026.47)


def test_a_measured_step_that_grows_says_so_and_a_flat_one_too() -> None:
    growing = Clockwork(lambda n: 10.0 + 0.1 * n)
    flat = Clockwork(lambda _: 10.0)

    slopes = [
        measure(d, Subject(step=d.step), MeasurePlan(test="step", seconds=60))
        .measurement.times["slope"]
        .q50
        for d in (growing, flat)
    ]

    assert slopes == [pytest.approx(1.49, abs=0.01), 1.0]


def test_a_run_in_which_the_machine_was_disturbed_says_why_it_has_none() -> None:
    device = Clockwork(lambda _: 10.0)
    device.troubles = lambda _: "the GPU was throttled by heat"

    measurement = measure(
        device, Subject(step=device.step), MeasurePlan(test="step", seconds=60)
    ).measurement

    assert "slope" not in measurement.times
    assert measurement.missed["slope"] == "the GPU was throttled by heat"


def test_one_run_is_no_evidence_and_asks_for_another() -> None:
    verdict = judged([1.4])

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.because == (
        "1.4x against 1.05x in one run, and only others can tell how far that is by chance"
    )
    assert not verdict.settled


def test_a_step_that_grows_in_every_run_is_over_though_it_drifts() -> None:
    verdict = judged([1.40, 1.42, 1.41])

    assert verdict.outcome is Outcome.OVER_BUDGET
    assert verdict.because.startswith(
        "1.41x against 1.05x, over in each of 2 runs, and more than their scatter"
    )


def test_a_step_that_does_not_grow_passes_with_its_second_run() -> None:
    verdict = judged([1.001, 0.999])

    assert verdict.outcome is Outcome.PASS
    assert verdict.because == "1.001x against 1.05x"


def test_noise_neither_fails_nor_passes() -> None:
    verdict = judged([1.3, 0.8, 1.2, 0.7, 1.1])

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.settled
    assert "cannot tell +-" in verdict.because


def test_slopes_by_chance_alone_fail_in_less_than_one_of_a_hundred_tests() -> None:
    noise = random.Random(0)  # noqa: S311 - noise, no secret

    failed = sum(
        judged([1.05 * noise.lognormvariate(0, 0.1) for _ in range(runs)]).outcome
        is Outcome.OVER_BUDGET
        for _ in range(300)
        for runs in (2, 3, 5)
    )

    assert failed <= 9


def test_nan_is_no_slope() -> None:
    verdict = judged([float("nan")])

    assert (verdict.outcome, verdict.because) == (
        Outcome.INCONCLUSIVE,
        "not a ratio: nan",
    )


def test_a_slope_has_a_ceiling_and_no_tolerance() -> None:
    assert parse_budget({"slope_pct": 5}).limits == {"slope_pct": 5.0}
    with pytest.raises(UsageError, match="GP201"):
        parse_tolerance({"slope_pct": "5%"})
