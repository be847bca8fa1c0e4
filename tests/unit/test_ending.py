"""What pytest is told of a test: nothing in it that only this machine knows."""

from __future__ import annotations

from pathlib import Path

from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.finding import Finding
from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.run import Ending
from pytest_gpuperf.model.run import TestResult
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.model.verdict import TestVerdict
from pytest_gpuperf.model.verdict import Verdict
from pytest_gpuperf.report.json.results import from_json
from pytest_gpuperf.runner.outcome import report_of
from pytest_gpuperf.runner.screening import Case
from pytest_gpuperf.settings import Isolation
from pytest_gpuperf.settings import MissingBaseline
from pytest_gpuperf.settings import Settings


SETTINGS = Settings(
    device=DeviceKind.SCRIPTED,
    update=None,
    seconds=60.0,
    inline=False,
    strict=False,
    missing_baseline=MissingBaseline.WARN,
    isolation=Isolation.TEST,
    baselines=Path("baselines"),
    artefacts=Path(".gpuperf"),
)


def test_the_verdicts_that_pytest_reports_name_no_path_of_this_machine() -> None:
    file = "/home/eve/.venv/lib/python3.11/site-packages/nn/layer.py"
    finding = Finding(
        kind=FindingKind.SYNC,
        op="aten::item",
        api=None,
        per_step=1,
        blocked_ms=0.5,
        location=Location(file=file, line=3, function="step"),
    )
    over = Verdict(metric="syncs", outcome=Outcome.OVER_BUDGET, because="", now=1)
    verdict = TestVerdict(test="t", verdicts=(over,), findings=(finding,))
    case = Case("t", [TestResult(test="t", ending=Ending.PASSED)])

    report = report_of(case, {"t": verdict}, SETTINGS, lambda told: str(told.findings))

    (read,) = map(from_json, report.verdicts)
    assert str(read.findings[0].location) == "nn/layer.py:3 in step"
    assert file in report.text
