"""What stored runs let the judge see: of all tests of a file, each with its marks."""

from __future__ import annotations

from math import exp

import pytest
from builders import a_measurement, an_entry

from pytest_gpuperf.judge.calls import judge_calls, suite_context_of
from pytest_gpuperf.model.baseline import Entry
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.run import StepCall
from pytest_gpuperf.runner.baseline_writer import acuity_of


SCRIPTED = DeviceKind.SCRIPTED
NORMAL = (-1.42, -0.85, -0.47, -0.15, 0.15, 0.47, 0.85, 1.42)
"""Eight runs, in standard deviations of about 0.9."""


def scattering(sigma: float) -> Entry:
    return an_entry(*(10 * exp(sigma * z) for z in NORMAL))


def suite(*sigmas: float) -> dict[str, Entry]:
    return {f"t{number}": scattering(sigma) for number, sigma in enumerate(sigmas)}


def unmarked(entries: dict[str, Entry]) -> dict[str, tuple[Tolerance, ...]]:
    return dict.fromkeys(entries, ())


def test_what_is_foreseen_is_what_the_verdicts_then_tell() -> None:
    entries = suite(*[0.005] * 10, *[0.02] * 10)
    first = {test: a_measurement(test=test, on=SCRIPTED) for test in entries}
    suite_context = suite_context_of({t: [run] for t, run in first.items()}, entries)
    verdicts = [
        judge_calls([StepCall(measurement=first[test])], entry, suite_context).verdicts[
            0
        ]
        for test, entry in entries.items()
    ]

    found = acuity_of(unmarked(entries), entries, SCRIPTED)

    assert found is not None
    assert {one.test: one.smallest for one in found.tests} == {
        test: verdict.evidence and verdict.evidence.smallest_detectable
        for test, verdict in zip(entries, verdicts, strict=True)
    }


def test_a_test_is_judged_with_all_stored_ones_also_if_it_is_refreshed_alone() -> None:
    entries = suite(*[0.01] * 40)

    alone = acuity_of({"t0": ()}, {"t0": entries["t0"]}, SCRIPTED)
    among = acuity_of({"t0": ()}, entries, SCRIPTED)

    assert alone is not None
    assert among is not None
    assert len(among.tests) == 1
    assert among.smallest == pytest.approx(0.0534, abs=1e-4)
    assert alone.smallest == pytest.approx(0.0447, abs=1e-4)


def test_the_advice_is_true_of_a_project_that_follows_it() -> None:
    entries = suite(*[0.003] * 12, *[0.03] * 28)

    now = acuity_of(unmarked(entries), entries, SCRIPTED)
    assert now is not None
    assert now.advised is not None
    then = acuity_of(
        unmarked(entries), entries, SCRIPTED, Tolerance(ratios={"ms": now.advised})
    )

    assert now.decidable < 38 <= now.decidable_then
    assert then is not None
    assert then.decidable == now.decidable_then
    assert then.advised is None


def test_a_project_that_names_detect_is_advised_a_tolerance_beyond_it() -> None:
    entries = suite(0.032)

    free = acuity_of(unmarked(entries), entries, SCRIPTED)
    bound = acuity_of(unmarked(entries), entries, SCRIPTED, Tolerance(detect=0.03))

    assert free is not None
    assert bound is not None
    assert (free.advised, bound.advised) == (0.08, 0.1)
    assert acuity_of(unmarked(entries), entries, SCRIPTED, Tolerance(detect=0.08)) == (
        acuity_of({"t0": (Tolerance(detect=0.08),)}, entries, SCRIPTED)
    )


def test_what_marks_tolerate_is_not_moved_by_a_project() -> None:
    entries = suite(0.03)
    strict = Tolerance(ratios={"ms": 0.01})

    found = acuity_of({"t0": (strict,)}, entries, SCRIPTED)

    assert found is not None
    assert (found.decidable, found.advised) == (0, None)


def test_tests_without_a_stored_time_are_left_out() -> None:
    entries = {"t": scattering(0.01), "u": an_entry(None, exact={"syncs": 0})}

    found = acuity_of({"t": (), "u": (), "gone": ()}, entries, SCRIPTED)

    assert found is not None
    assert [one.test for one in found.tests] == ["t"]
    assert acuity_of({"u": ()}, entries, SCRIPTED) is None
