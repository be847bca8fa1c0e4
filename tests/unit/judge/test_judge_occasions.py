"""Times against stored runs of other sessions: what a shift between them explains."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log1p, sqrt

import numpy as np
import pytest
from builders import a_measurement, a_run, an_entry
from scipy import stats

from pytest_gpuperf.judge.calls import sessions_prior_of, suite_context_of
from pytest_gpuperf.judge.context import SuiteContext
from pytest_gpuperf.judge.statistics import (
    ASSUMED_SHIFT,
    MOST_POOLED_NU,
    MOST_SHIFT,
    SHIFT_RISK,
    SessionShift,
    Spread,
    pooled_shift,
)
from pytest_gpuperf.judge.stored_times import judge_stored
from pytest_gpuperf.model.baseline import RunSummary
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.metrics import STEP_MS
from pytest_gpuperf.model.verdict import DecidedBy, Outcome, Verdict


CUDA = DeviceKind.CUDA
QUIET = (-0.002, -0.001, 0.0, 0.001, 0.002)
"""Logs of the runs of one session."""

SMALL = Spread(sigma=0.002, nu=20.0)


def on_days(*shifts: float, named: bool = True) -> list[RunSummary]:
    """Return five quiet runs a day, each day shifted by so much."""
    return [
        a_run(
            10 * float(np.exp(shift + log)),
            session=f"2026-01-{day:02}T09:00Z-0000" if named else "",
        )
        for day, shift in enumerate(shifts, start=1)
        for log in QUIET
    ]


def runs(ratio: float, count: int = 5, kind: DeviceKind = CUDA) -> list[Measurement]:
    return [a_measurement(10 * ratio, on=kind)] * count


def judged(
    stored: Sequence[RunSummary],
    fresh: list[Measurement],
    suite_context: SuiteContext | None = None,
) -> Verdict:
    return judge_stored(
        STEP_MS,
        fresh,
        stored,
        tolerance=0.01,
        detect=0.03,
        floor=0.0,
        suite_context=suite_context or SuiteContext(),
    )


def rule_of(verdict: Verdict) -> DecidedBy:
    assert verdict.evidence is not None
    return verdict.evidence.rule


TWO_PERCENT = (0.0, 0.02, -0.02, 0.01, -0.01)
STILL = (0.0, 0.001, -0.001, 0.0, 0.0)


@pytest.mark.parametrize(
    ("stored", "ratio", "outcome"),
    [
        pytest.param(on_days(0.0), 1.06, Outcome.INCONCLUSIVE, id="one day, 6 %"),
        pytest.param(on_days(0.0), 1.12, Outcome.INCONCLUSIVE, id="one day, 12 %"),
        pytest.param(on_days(0.0), 1.20, Outcome.REGRESSED, id="one day, 20 %"),
        pytest.param(on_days(0.0), 5.0, Outcome.REGRESSED, id="one day, five times"),
        pytest.param(
            on_days(0.0, 0.0, 0.0, named=False),
            1.12,
            Outcome.INCONCLUSIVE,
            id="nobody knows of which days",
        ),
        pytest.param(on_days(0.0, 0.0), 1.10, Outcome.INCONCLUSIVE, id="two days"),
        pytest.param(on_days(*STILL), 1.06, Outcome.REGRESSED, id="five still days"),
        pytest.param(
            on_days(*TWO_PERCENT), 1.06, Outcome.INCONCLUSIVE, id="five that differ"
        ),
        pytest.param(
            on_days(*TWO_PERCENT), 1.20, Outcome.REGRESSED, id="beyond what differs"
        ),
        pytest.param(on_days(*STILL), 0.94, Outcome.IMPROVED, id="faster, still days"),
        pytest.param(on_days(0.0), 0.94, Outcome.PASS, id="faster, one day"),
    ],
)
def test_blame_needs_more_than_a_shift_between_sessions(
    stored: list[RunSummary], ratio: float, outcome: Outcome
) -> None:
    assert judged(stored, runs(ratio)).outcome is outcome


@pytest.mark.parametrize("kind", [DeviceKind.CPU, DeviceKind.SCRIPTED])
def test_where_no_shift_is_assumed_one_session_is_enough(kind: DeviceKind) -> None:
    assert judged(on_days(0.0), runs(1.06, kind=kind)).outcome is Outcome.REGRESSED


def test_sessions_that_are_asked_for_tell() -> None:
    assert judged(on_days(0.0, 0.0, 0.0, 0.0, 0.0), runs(1.10)).outcome is (
        Outcome.REGRESSED
    )


def test_noise_is_still_called_noise() -> None:
    mixed = [*runs(1.0, 2), *runs(1.1, 3)]

    assert rule_of(judged(on_days(0.0), mixed)) is DecidedBy.NOISE


def test_more_stored_sessions_see_smaller_slowdowns() -> None:
    seen = []
    for days in (1, 2, 3, 5, 10):
        evidence = judged(on_days(*[0.0] * days), runs(1.0)).evidence
        assert evidence is not None
        seen.append(evidence.smallest_detectable)

    assert seen == sorted(seen, reverse=True)
    assert [seen[0], seen[-1]] == pytest.approx([0.174, 0.0177], abs=0.001)


# What passes


@pytest.mark.parametrize(
    ("stored", "ratio", "outcome"),
    [
        pytest.param(on_days(0.0), 1.0, Outcome.INCONCLUSIVE, id="one day"),
        pytest.param(on_days(0.0), 0.93, Outcome.PASS, id="far faster than one day"),
        pytest.param(on_days(0.0, 0.001), 1.0, Outcome.INCONCLUSIVE, id="two days"),
        pytest.param(on_days(*STILL), 1.0, Outcome.PASS, id="five still days"),
    ],
)
def test_a_pass_needs_more_than_a_day_that_may_hide_a_slowdown(
    stored: list[RunSummary], ratio: float, outcome: Outcome
) -> None:
    verdict = judged(stored, runs(ratio, 1))

    assert verdict.outcome is outcome
    if outcome is Outcome.INCONCLUSIVE:
        assert rule_of(verdict) is DecidedBy.SESSIONS
        assert verdict.settled  # more runs of today cannot tell


@pytest.mark.parametrize("kind", [DeviceKind.CPU, DeviceKind.SCRIPTED])
def test_where_no_shift_is_assumed_one_session_is_enough_to_pass(
    kind: DeviceKind,
) -> None:
    assert judged(on_days(0.0), runs(1.0, 1, kind)).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("now", "outcome"),
    [
        ("2026-01-01T09:00Z-0000", Outcome.PASS),
        ("2026-01-01T09:29Z-0000", Outcome.PASS),
        ("2026-01-01T09:30Z-0000", Outcome.INCONCLUSIVE),
        ("2026-01-01T08:59Z-0000", Outcome.INCONCLUSIVE),
        ("", Outcome.INCONCLUSIVE),
    ],
)
def test_runs_of_the_stored_session_pass_by_their_scatter_alone(
    now: str, outcome: Outcome
) -> None:
    suite_context = SuiteContext(now=now)

    assert judged(on_days(0.0), runs(1.0, 1), suite_context).outcome is outcome


def test_runs_of_an_unknown_session_are_never_those_of_now() -> None:
    stored, now = on_days(0.0, named=False), SuiteContext(now="2026-01-01T09:00Z-0000")

    assert judged(stored, runs(1.0, 1), now).outcome is Outcome.INCONCLUSIVE


def test_a_slower_time_is_not_blamed_because_it_is_still_the_stored_session() -> None:
    now = SuiteContext(now="2026-01-01T09:00Z-0000")

    assert judged(on_days(0.0), runs(1.06), now).outcome is Outcome.INCONCLUSIVE


def test_the_sessions_that_are_asked_for_let_it_pass() -> None:
    assert judged(on_days(0.0, 0.0, 0.0), runs(1.001, 1)).outcome is Outcome.PASS


@pytest.mark.slow
@pytest.mark.parametrize("sd", [0.005, 0.01, 0.02, 0.03])
@pytest.mark.parametrize("sessions", [1, 2, 3, 5])
def test_five_percent_hardly_ever_pass_because_of_the_day(
    sessions: int, sd: float
) -> None:
    random = np.random.default_rng([sessions, int(1000 * sd)])
    passed = 0
    for _ in range(300):
        stored = on_days(*random.normal(0, sd, sessions).tolist())
        shifted = 1.05 * float(np.exp(random.normal(0, sd)))
        passed += judged(stored, runs(shifted, 1)).outcome is Outcome.PASS

    assert passed <= 0.05 * 300


# The formulas


def test_the_degrees_of_freedom_are_those_of_satterthwaite() -> None:
    shift = SessionShift.of([[0.01], [-0.01], [0.0]], None, 0.0)
    wide = Spread(sigma=0.03, nu=5.0)
    between, within = 0.01**2 * 4 / 3, 0.03**2 * (1 + 1.08 / 3 - 4 / 3)
    nu = (between + within) ** 2 / (between**2 / 2 + within**2 / 5)
    seen = stats.t.isf(0.1, nu) * sqrt(between + within)
    believed = stats.norm.isf(0.1) * _believed(wide, 1)

    assert seen < believed
    assert shift.reach(0.2, wide, 1) == pytest.approx(seen)
    assert shift.reach(1e-6, wide, 1) == pytest.approx(
        stats.norm.isf(5e-7) * _believed(wide, 1)
    )


def _believed(spread: Spread, fresh: int) -> float:
    return sqrt(MOST_SHIFT**2 * 4 / 3 + spread.sigma**2 * (1 / fresh + 1.08 / 3))


def test_what_reaches_the_risk_has_that_chance() -> None:
    for sessions in ([[0.0] * 8], [[0.0, 0.01], [0.02]], [[0.01], [0.0]] * 4):
        shift = SessionShift.of(sessions, None, ASSUMED_SHIFT[CUDA])

        reached = shift.reach(SHIFT_RISK, SMALL, 5)

        assert shift.p(reached, SMALL, 5) == pytest.approx(SHIFT_RISK, rel=1e-6)


def test_the_assumption_fades_as_sessions_are_stored() -> None:
    still = [
        SessionShift.of([[0.0]] * days, None, 0.007).sigma for days in (1, 2, 3, 10)
    ]

    assert still == pytest.approx(
        [0.007, 0.007 / sqrt(2), 0.007 / sqrt(3), 0.00221], 1e-2
    )


def test_the_assumption_never_takes_off_what_was_seen() -> None:
    seen = SessionShift.of([[0.03], [-0.03]], None, 0.007)

    assert seen.sigma == pytest.approx(0.03 * sqrt(2))


def test_one_wild_run_makes_no_shift() -> None:
    calm = on_days(*STILL)
    wild = a_run(30.0, session=calm[0].session)

    assert judged([*calm, wild], runs(1.08)).outcome is Outcome.REGRESSED


# What the suite says


def test_tests_that_shift_together_are_worth_no_more_than_one() -> None:
    found = pooled_shift([(1e-4, 2.0)] * 40)

    assert found == Spread(sigma=pytest.approx(0.01), nu=pytest.approx(2.0))


def test_one_test_of_many_sessions_does_not_lend_its_freedom_to_others() -> None:
    found = pooled_shift([(1e-4, 1.0)] * 39 + [(1e-4, 5.0)])

    assert found is not None
    assert found.nu == pytest.approx(44**2 / (39 + sqrt(5)) ** 2)


def test_a_suite_is_worth_so_many_degrees_of_freedom_at_most() -> None:
    found = pooled_shift([(1e-4, 19.0)] * 3)

    assert found is not None
    assert found.nu == MOST_POOLED_NU


def test_tests_of_one_session_say_nothing() -> None:
    assert pooled_shift([(0.0, 0.0)] * 5) is None
    assert sessions_prior_of([an_entry(*on_days(0.0))], CUDA) is None
    assert sessions_prior_of([an_entry(*on_days(0.0, 0.1))], DeviceKind.CPU) is None


def test_a_test_of_one_session_is_judged_by_those_of_the_others() -> None:
    entries = {
        "t": an_entry(*on_days(0.0)),
        **{str(n): an_entry(*on_days(*STILL)) for n in range(9)},
    }
    suite_context = suite_context_of({"t": runs(1.1)[:1]}, entries)

    alone = judged(entries["t"].runs, runs(1.1))
    among = judged(entries["t"].runs, runs(1.1), suite_context)

    assert [alone.outcome, among.outcome] == [Outcome.INCONCLUSIVE, Outcome.REGRESSED]


def test_a_test_that_shifts_more_than_its_suite_is_judged_by_itself() -> None:
    own = SessionShift.of([[0.03], [-0.03], [0.0]], Spread(sigma=0.001, nu=6.0), 0.007)

    assert own.sigma == pytest.approx(0.03)


# Simulated days


@pytest.mark.slow
@pytest.mark.parametrize("sd", [0.005, 0.01, 0.02, 0.03])
@pytest.mark.parametrize("sessions", [1, 3, 5])
def test_unchanged_code_is_not_blamed_for_its_day(sessions: int, sd: float) -> None:
    random = np.random.default_rng([sessions, int(1000 * sd)])
    blamed = 0
    for _ in range(300):
        stored = on_days(*random.normal(0, sd, sessions).tolist())
        shifted = float(np.exp(random.normal(0, sd)))
        blamed += judged(stored, runs(shifted)).outcome is Outcome.REGRESSED

    assert blamed == 0


def test_a_risk_is_shared_by_both_ways_to_prove_it() -> None:
    shift = SessionShift(sigma=0.01, nu=4.0, counts=(4,) * 5)

    assert shift.p(-1.0, SMALL, 5) == 1.0
    assert shift.p(inf, SMALL, 5) == 0.0
    assert shift.reach(SHIFT_RISK, SMALL, 5) < log1p(0.2)
