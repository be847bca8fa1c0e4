"""What pytest is shown of a test: nothing in it that only this machine knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import a_finding, a_location, a_result, a_test, a_verdict

from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.run import Ending
from pytest_gpuperf.model.verdict import Outcome, Verdict
from pytest_gpuperf.report.json import from_json
from pytest_gpuperf.runner.outcome import report_of
from pytest_gpuperf.runner.screening import Case
from pytest_gpuperf.settings import Isolation, MissingBaseline, Settings


SETTINGS = Settings(
    device=DeviceKind.SCRIPTED,
    update=None,
    seconds=60.0,
    strict=False,
    missing_baseline=MissingBaseline.WARN,
    isolation=Isolation.TEST,
    baselines=Path("baselines"),
    artefacts=Path(".gpuperf"),
)


def test_the_verdicts_that_pytest_reports_name_no_path_of_this_machine() -> None:
    file = "/home/eve/.venv/lib/python3.11/site-packages/nn/layer.py"
    finding = a_finding(blocked_ms=0.5, location=a_location(3, file, "step"))
    over = a_verdict("syncs", Outcome.OVER_BUDGET, 1, None)
    verdict = a_test(over, findings=(finding,))
    case = Case("t", [a_result(test="t")])

    report = report_of(case, {"t": verdict}, SETTINGS, lambda said: str(said.findings))

    (read,) = map(from_json, report.verdicts)
    assert str(read.findings[0].location) == "nn/layer.py:3 in step"
    assert file in report.text


NEW = a_verdict("step_ms", Outcome.NO_BASELINE, 3.0, None)
MISSED = a_verdict("syncs", Outcome.INCONCLUSIVE, None, None, because="no profile")
NOWHERE = a_verdict("step_ms", Outcome.NOT_CHECKED, None, None, because="no clock")


@pytest.mark.parametrize(
    ("verdicts", "ending"),
    [
        ((NEW,), Ending.FAILED),
        ((NEW, MISSED), Ending.FAILED),
        ((NEW, replace(MISSED, limit=0.0)), Ending.PASSED),
        ((NEW, replace(MISSED, outcome=Outcome.PASS, limit=0.0)), Ending.PASSED),
        # The test has a baseline, and this metric is not in it.
        ((replace(NEW, not_stored=True), MISSED), Ending.FAILED),
        ((replace(NEW, not_stored=True),), Ending.FAILED),
        ((MISSED,), Ending.FAILED),
        ((MISSED, NOWHERE), Ending.FAILED),
        ((MISSED, replace(MISSED, now=1.0, limit=1.0)), Ending.PASSED),
        ((NOWHERE,), Ending.SKIPPED),
    ],
    ids=[
        "nothing stored",
        "nothing stored and one metric not measured",
        "a limit that is inconclusive",
        "a limit that is kept",
        "nothing that is stored was measured, but what is not",
        "nothing that is stored was measured",
        "no metric was measured",
        "no metric was measured of those that this device can",
        "one metric was measured and is inconclusive",
        "this device measures none",
    ],
)
def test_in_ci_a_test_fails_that_neither_a_limit_nor_a_baseline_judged(
    verdicts: tuple[Verdict, ...], ending: Ending
) -> None:
    in_ci = replace(SETTINGS, missing_baseline=MissingBaseline.FAIL)
    case = Case("t", [a_result(test="t")])
    verdict = a_test(*verdicts)

    assert report_of(case, {"t": verdict}, in_ci, str).ending is ending


def test_outside_of_ci_a_test_without_any_number_passes_with_a_warning() -> None:
    case = Case("t", [a_result(test="t")])
    verdict = a_test(MISSED, replace(MISSED, metric="launches"))

    report = report_of(case, {"t": verdict}, SETTINGS, str)

    assert report.ending is Ending.PASSED
    assert report.warning == "NOT MEASURED: syncs, kernel launches"
