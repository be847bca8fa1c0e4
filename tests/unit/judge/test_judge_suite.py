"""The tests of one run together: blame shared out, and what they have in common."""

from __future__ import annotations

import random
from dataclasses import replace
from math import log, nan

import pytest
from builders import a_test, a_verdict, some_evidence
from hypothesis import given, strategies as st

from pytest_gpuperf.judge.calls import holm, settle_suite, suite_shift, suite_verdict
from pytest_gpuperf.model.verdict import (
    DecidedBy,
    Outcome,
    ShiftCause,
    SuiteVerdict,
    TestVerdict,
    Verdict,
)


pytestmark = pytest.mark.slow


SIX_PERCENT = log(1.06)


@pytest.mark.parametrize(
    ("p_values", "rejected"),
    [
        ({}, set()),
        ({"a": 0.01}, {"a"}),
        ({"a": 0.011}, set()),
        ({"a": 0.005, "b": 0.01}, {"a", "b"}),
        ({"a": 0.006, "b": 0.006}, set()),
        ({"a": 0.001, "b": 0.004, "c": 0.02, "d": 1.0}, {"a"}),
        ({"a": 0.001, "b": 0.003, "c": 0.02, "d": 1.0}, {"a", "b"}),
        ({"a": 0.02, "b": 0.0001, "c": 0.3}, {"b"}),
        ({"a": nan, "b": 0.0001}, {"b"}),
    ],
)
def test_holm_rejects_step_by_step(
    p_values: dict[str, float], rejected: set[str]
) -> None:
    assert holm(p_values, 0.01) == rejected


names = st.text(max_size=3)
probabilities = st.floats(min_value=0, max_value=1)


@given(st.dictionaries(names, probabilities, min_size=1, max_size=9), probabilities)
def test_holm_lies_between_bonferroni_and_every_test_for_itself(
    p_values: dict[str, float], alpha: float
) -> None:
    bonferroni = {n for n, p in p_values.items() if p <= alpha / len(p_values)}
    each = {n for n, p in p_values.items() if p <= alpha}

    assert bonferroni <= holm(p_values, alpha) <= each


@pytest.mark.parametrize(
    ("shifts", "median"),
    [
        ([], 0.0),
        ([0.06] * 7, 0.0),
        ([0.06] * 8, 0.06),
        ([0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.9], 0.035),
    ],
)
def test_the_shift_of_a_suite_is_the_median_of_at_least_8_tests(
    shifts: list[float], median: float
) -> None:
    assert suite_shift(shifts) == pytest.approx(median)


def shown(
    outcome: Outcome, p: float | None = None, *, baseline: float | None = 10.0
) -> Verdict:
    """Make a verdict on a time whose two probabilities are *p* and its complement."""
    slow = outcome is not Outcome.IMPROVED
    rest = None if p is None else 1 - p
    return a_verdict(
        "step_ms",
        outcome,
        10.5,
        baseline,
        because="as judged alone",
        evidence=some_evidence(
            estimate=0.05 if slow else -0.05,
            low=-0.01,
            high=0.1,
            smallest_detectable=0.042,
            p_regressed=p if slow else rest,
            p_improved=rest if slow else p,
        ),
    )


def suite(*verdicts: Verdict) -> list[TestVerdict]:
    return [a_test(v, test=f"t{n}") for n, v in enumerate(verdicts)]


def outcomes(tests: tuple[TestVerdict, ...]) -> list[Outcome]:
    return [test.outcome for test in tests]


def test_blame_that_chance_explains_among_all_tests_becomes_inconclusive() -> None:
    passed = [shown(Outcome.PASS)] * 38

    *settled, proven, chance = settle_suite(
        suite(*passed, shown(Outcome.REGRESSED, 1e-5), shown(Outcome.REGRESSED, 0.004))
    )

    assert outcomes(tuple(settled)) == [Outcome.PASS] * 38
    assert proven.verdicts[0].because == "as judged alone"
    assert chance.verdicts[0].outcome is Outcome.INCONCLUSIVE
    assert chance.verdicts[0].because == (
        "+5.0 % would be slower for one test alone; among 40 tests that are judged "
        "together chance explains it"
    )
    assert chance.verdicts[0].evidence is not None
    assert chance.verdicts[0].evidence.rule is DecidedBy.HOLM


def test_an_improvement_is_shared_out_in_the_same_way() -> None:
    passed = [shown(Outcome.PASS)] * 18

    *_, proven, chance = settle_suite(
        suite(*passed, shown(Outcome.IMPROVED, 1e-5), shown(Outcome.IMPROVED, 0.004))
    )

    assert proven.outcome is Outcome.IMPROVED
    assert chance.outcome is Outcome.PASS
    assert chance.verdicts[0].because == (
        "-5.0 % would be faster for one test alone; among 20 tests that are judged "
        "together chance explains it"
    )


def test_one_test_alone_keeps_its_verdict() -> None:
    tests = suite(shown(Outcome.REGRESSED, 0.009))

    assert settle_suite(tests) == tuple(tests)


def test_what_is_no_time_against_a_baseline_neither_counts_nor_changes() -> None:
    exact = a_verdict("syncs", Outcome.REGRESSED, None, None, because="1 against 0")
    budget = shown(Outcome.OVER_BUDGET, 0.9, baseline=None)
    blamed = shown(Outcome.REGRESSED, 0.009)
    test = a_test(exact, budget, blamed, runs=5)

    assert settle_suite([test]) == (test,)


verdicts = st.builds(
    shown,
    st.sampled_from([Outcome.REGRESSED, Outcome.IMPROVED, Outcome.PASS]),
    st.floats(min_value=0, max_value=0.01),
)


MACHINE = "sentinels too: the machine, not the code"
CODE = "sentinels still: a common cause in code or a dependency"
UNKNOWN = (
    "no sentinel was measured: the machine, or a common cause in code or a dependency"
)


@pytest.mark.parametrize(
    ("sentinels", "cause", "said"),
    [
        ([0.05] * 40, ShiftCause.MACHINE, MACHINE),
        ([0.001] * 40, ShiftCause.CODE, CODE),
        ([0.01] * 40, ShiftCause.CODE, CODE),
        ([-0.05] * 40, ShiftCause.CODE, CODE),
        ([], ShiftCause.UNKNOWN, UNKNOWN),
    ],
)
def test_a_change_that_all_share_is_said_once(
    sentinels: list[float], cause: ShiftCause, said: str
) -> None:
    verdict = suite_verdict([SIX_PERCENT] * 40, sentinels)

    assert verdict is not None
    assert (verdict.cause, verdict.because) == (cause, f"all 40 tests +6.0 %, {said}")


def test_a_change_that_nearly_all_share_says_how_many() -> None:
    verdict = suite_verdict([-SIX_PERCENT] * 7 + [0.0], [-0.05])

    assert verdict is not None
    assert verdict.cause is ShiftCause.MACHINE
    assert verdict.because == f"7 of 8 tests -5.7 %, {MACHINE}"


def test_a_suite_verdict_holds_its_numbers() -> None:
    verdict = suite_verdict([SIX_PERCENT] * 30 + [0.0] * 10, [0.03] * 40)

    assert verdict == SuiteVerdict(
        tests=40,
        moved=30,
        shift=pytest.approx(0.06),
        sentinels=pytest.approx(0.0305, rel=1e-2),
        cause=ShiftCause.MACHINE,
        because=f"30 of 40 tests +6.0 %, {MACHINE}",
    )


@pytest.mark.parametrize(
    "shifts",
    [
        [],
        [SIX_PERCENT] * 7,
        [0.0] * 40,
        [0.009] * 40,
        [SIX_PERCENT] * 29 + [0.0] * 11,
        [SIX_PERCENT] * 20 + [-SIX_PERCENT] * 20,
    ],
)
def test_a_suite_that_did_not_move_as_one_says_nothing(shifts: list[float]) -> None:
    assert suite_verdict(shifts) is None


def test_a_wider_tolerance_takes_a_larger_shift() -> None:
    shifts = [SIX_PERCENT] * 8

    assert suite_verdict(shifts, tolerance=0.07) is None


def test_a_whole_suite_without_a_change_is_blamed_in_one_run_of_a_hundred() -> None:
    chance = random.Random(4)  # noqa: S311  a reproducible order
    blamed = 0
    for _ in range(600):
        p_values = [chance.random() for _ in range(40)]
        tests = suite(
            *(
                shown(Outcome.REGRESSED if p < 0.01 else Outcome.PASS, p)
                for p in p_values
            )
        )
        blamed += any(t.outcome is Outcome.REGRESSED for t in settle_suite(tests))

    assert 0 < blamed / 600 <= 0.02


def test_a_verdict_without_numbers_stays_as_it_is() -> None:
    bare = replace(shown(Outcome.REGRESSED, 0.009), evidence=None)
    tests = suite(bare, shown(Outcome.PASS), shown(Outcome.PASS))

    assert settle_suite(tests) == tuple(tests)
