"""How quick a step must be for its run to end before it has all its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import pytest
from builders import CPU
from builders import a_measurement
from builders import an_entry
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuperf.judge.calls import judge_calls
from pytest_gpuperf.judge.early_end import ENOUGH_RATIO
from pytest_gpuperf.judge.early_end import enough_ms
from pytest_gpuperf.judge.early_end import news_ms
from pytest_gpuperf.judge.early_end import stored_steps
from pytest_gpuperf.model.budget import Budget
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.budget import parse_budget
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.run import StepCall
from pytest_gpuperf.model.run import StoredStep
from pytest_gpuperf.model.verdict import Outcome


STEADY = [9.96, 9.98, 9.99, 10.0, 10.0, 10.01, 10.02, 10.04]
NOISY = [9.8, 9.9, 9.95, 10.0, 10.0, 10.05, 10.1, 10.2]


def known(times_ms: Sequence[float]) -> StoredStep:
    return stored_steps({"t": an_entry(*times_ms)}, DeviceKind.CPU)["t"]


def enough(
    times_ms: Sequence[float],
    *budgets: Budget,
    tolerance: Tolerance = Tolerance(),  # noqa: B008  frozen
    confirms: bool = False,
) -> float:
    return enough_ms(known(times_ms), budgets, CPU, tolerance, confirms=confirms)


def outcomes(
    ms: float, times_ms: Sequence[float], *budgets: Budget, tolerance: Tolerance
) -> set[Outcome]:
    """Judge one run of *ms* by all rules."""
    measurement = a_measurement(ms, test="t", on=CPU)
    call = StepCall(measurement=measurement, budgets=budgets, tolerances=(tolerance,))
    verdict = judge_calls([call], an_entry(*times_ms))
    return {v.outcome for v in verdict.verdicts if v.metric == "step_ms"}


@given(
    st.lists(st.floats(9, 11), min_size=5, max_size=12),
    st.floats(0, 0.1),
    st.one_of(st.none(), st.floats(5, 20)),
    st.booleans(),
)
def test_what_lets_a_run_end_early_is_a_pass_by_every_rule(
    times_ms: list[float],
    tolerance: float,
    ceiling: float | None,
    confirms: bool,  # noqa: FBT001  drawn
) -> None:
    budgets = [] if ceiling is None else [parse_budget({"ms": ceiling, "on": "cpu"})]
    allowed = Tolerance(ratios={"ms": tolerance})

    quick = enough(times_ms, *budgets, tolerance=allowed, confirms=confirms)

    assert outcomes(quick, times_ms, *budgets, tolerance=allowed) <= {
        Outcome.PASS,
        Outcome.IMPROVED,
    }


def test_a_step_that_scatters_ends_with_the_longest_time_that_passes() -> None:
    allowed = Tolerance(ratios={"ms": 0.01})

    quick = enough(NOISY, tolerance=allowed)

    assert quick < ENOUGH_RATIO * 10
    assert outcomes(quick, NOISY, tolerance=allowed) == {Outcome.PASS}
    assert outcomes(1.001 * quick, NOISY, tolerance=allowed) == {Outcome.INCONCLUSIVE}


def test_a_steady_step_may_be_one_percent_slower_and_in_a_confirming_run_no_slower() -> (
    None
):
    assert enough(STEADY) == pytest.approx(10.1, rel=1e-6)
    assert enough(STEADY, confirms=True) == pytest.approx(10.0, rel=1e-6)


def test_a_step_is_faster_than_it_was_beyond_the_second_fastest_run_and_the_tolerance() -> (
    None
):
    allowed = Tolerance(ratios={"ms": 0.05})

    assert news_ms(known(STEADY), allowed) == pytest.approx(9.98 / 1.05)
    assert news_ms(known([10.0] * 5), allowed) == pytest.approx(10 / 1.05)


def test_a_budget_below_the_stored_time_needs_a_quicker_step() -> None:
    close, far = (
        parse_budget({"ms": 10.0, "on": "cpu"}),
        parse_budget({"ms": 20.0, "on": "cpu"}),
    )

    assert enough(STEADY, close) == pytest.approx(
        10 * exp(-known(STEADY).margin), rel=1e-3
    )
    assert enough(STEADY, far) == enough(STEADY)


def test_a_call_without_a_stored_time_is_not_known() -> None:
    nothing = an_entry(None, exact={"syncs": 1})

    assert stored_steps({"t": nothing}, DeviceKind.CPU) == {}
