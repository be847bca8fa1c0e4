"""Calls judged in the light of all others of their run, and of the baseline file."""

from __future__ import annotations

from math import log

import pytest
from builders import a_measurement, an_entry

from pytest_gpuperf.judge.calls import (
    judge_calls,
    prior_of,
    settle_together,
    suite_context_of,
    suite_of,
)
from pytest_gpuperf.judge.context import SuiteContext
from pytest_gpuperf.model.baseline import Entry, typical_time
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.run import StepCall
from pytest_gpuperf.model.verdict import Outcome, ShiftCause, TestVerdict


BESIDE = [9.98, 9.99, 9.99, 10.0, 10.0, 10.01, 10.01, 10.02]
"""Stored runs of a test whose scatter is a tenth of what others show."""


def named(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def alone(first: dict[str, Measurement]) -> dict[str, list[Measurement]]:
    return {test: [measured] for test, measured in first.items()}


def judged(stored: Entry, ms: list[float], suite_context: SuiteContext) -> TestVerdict:
    return judge_calls(
        [
            StepCall(measurement=a_measurement(one, on=DeviceKind.SCRIPTED))
            for one in ms
        ],
        stored,
        suite_context,
    )


def test_a_run_without_calls_has_no_suite_context() -> None:
    assert suite_context_of({}, {"t": an_entry(*BESIDE)}) == SuiteContext()


def test_the_scatter_comes_from_every_entry_also_of_tests_that_were_not_selected() -> (
    None
):
    entries = {name: an_entry(9.9, 10.0, 10.1) for name in named(8)}

    suite_context = suite_context_of(
        {"t0": [a_measurement(10.0, on=DeviceKind.SCRIPTED)]}, entries
    )

    assert suite_context.tests == 1
    assert suite_context.prior is not None
    assert suite_context.prior == prior_of(entries.values(), DeviceKind.SCRIPTED)
    assert suite_context.prior.nu == 50
    assert 0.01 < suite_context.prior.sigma < 0.014


def test_a_file_of_few_tests_and_entries_of_one_run_say_nothing_about_scatter() -> None:
    entries = {name: an_entry(9.9, 10.1) for name in named(7)} | {"t7": an_entry(10.0)}

    assert (
        suite_context_of(
            {"t0": [a_measurement(10.0, on=DeviceKind.SCRIPTED)]}, entries
        ).prior
        is None
    )


def test_a_scatter_that_all_other_tests_show_keeps_a_calm_one_from_blame() -> None:
    wild = {
        name: an_entry(*(10 + 30 * (ms - 10) for ms in BESIDE)) for name in named(20)
    }

    alone = suite_context_of(
        {"t": [a_measurement(10.3, on=DeviceKind.SCRIPTED)]}, {"t": an_entry(*BESIDE)}
    )
    among = suite_context_of(
        {"t": [a_measurement(10.3, on=DeviceKind.SCRIPTED)]},
        {"t": an_entry(*BESIDE), **wild},
    )

    assert judged(an_entry(*BESIDE), [10.3] * 5, alone).outcome is Outcome.REGRESSED
    assert judged(an_entry(*BESIDE), [10.3] * 5, among).outcome is Outcome.INCONCLUSIVE


def test_the_shift_is_the_median_of_the_clean_first_runs() -> None:
    entries = {name: an_entry(*BESIDE) for name in named(12)}
    first = {name: a_measurement(10.6, on=DeviceKind.SCRIPTED) for name in named(8)} | {
        name: a_measurement(20.0, "hot", on=DeviceKind.SCRIPTED)
        for name in named(12)[8:]
    }

    suite_context = suite_context_of(alone(first), entries)

    assert suite_context.shift == pytest.approx(log(10.6 / typical_time(BESIDE)))
    assert suite_context.tests == 12


def test_calls_without_a_baseline_or_a_time_do_not_count() -> None:
    entries = {name: an_entry(*BESIDE) for name in named(7)}
    first = {name: a_measurement(10.6, on=DeviceKind.SCRIPTED) for name in named(9)}

    assert suite_context_of(alone(first), entries).shift == 0
    assert suite_context_of(alone(first), entries).tests == 7
    assert suite_of(first, entries) is None


def test_what_all_tests_share_is_a_verdict_of_its_own() -> None:
    entries = {name: an_entry(*BESIDE) for name in named(8)}
    first = {name: a_measurement(10.6, on=DeviceKind.SCRIPTED) for name in named(8)}

    suite = suite_of(first, entries)

    assert suite is not None
    assert (suite.tests, suite.moved, suite.cause) == (8, 8, ShiftCause.UNKNOWN)
    assert suite.because == (
        "all 8 tests +6.0 %, no sentinel was measured: the machine, or a common cause "
        "in code or a dependency"
    )


def test_blame_is_shared_out_over_all_calls_and_each_keeps_its_place() -> None:
    slow = judged(
        an_entry(*BESIDE), [10.27, 10.28, 10.27, 10.28, 10.27], SuiteContext()
    )
    calm = judged(an_entry(*BESIDE), [10.0], SuiteContext())

    alone = settle_together({"a": {"a": calm, "a#2": slow}})
    among = settle_together(
        {"a": {"a": calm, "a#2": slow}, **{n: {n: calm} for n in named(10_000)}}
    )

    assert alone == {"a": {"a": calm, "a#2": slow}}
    assert slow.outcome is Outcome.REGRESSED
    assert among["a"]["a"] == calm
    assert among["a"]["a#2"].outcome is Outcome.INCONCLUSIVE
    assert list(among) == ["a", *named(10_000)]
