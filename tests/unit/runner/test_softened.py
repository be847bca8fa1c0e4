"""Which earlier runs make a slow one a warning, and until when a day softens failures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import a_missed_budget
from builders import a_regression
from builders import a_result
from builders import a_test
from builders import a_verdict
from history_rows import H200
from history_rows import STEP
from history_rows import keep
from history_rows import row

from pytest_gpuperf.model.run import Ending
from pytest_gpuperf.model.soft_start import Quarantine
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.model.verdict import TestVerdict
from pytest_gpuperf.runner.screening import Case
from pytest_gpuperf.runner.soft_start import SoftStart
from pytest_gpuperf.settings import MissingBaseline
from pytest_gpuperf.settings import Settings


SLOW = a_test(a_regression(), test=STEP)
OVER = a_test(a_regression(), a_missed_budget("syncs"), test=STEP)


def softened(
    soft: SoftStart, verdict: TestVerdict = SLOW, ending: Ending = Ending.PASSED
) -> str:
    case = Case(STEP, [a_result(test=STEP, ending=ending)])
    return soft.applied({STEP: case}, {STEP: {STEP: verdict}})[STEP][STEP].softened


def after(folder: Path, *outcomes: str, consecutive: int = 2) -> SoftStart:
    """A run after others, with times that came to *outcomes*, the newest last."""
    for number, outcome in enumerate(outcomes):
        shown = row(number, outcomes={"step_ms": outcome} if outcome else {})
        keep(folder / "runs", f"{H200}/{number:04}.jsonl.gz", shown)
    settings = Settings(
        history=str(folder / "runs"), artefacts=folder, consecutive=consecutive
    )
    return SoftStart(settings, H200)


@pytest.mark.parametrize(
    ("outcomes", "consecutive", "row_of"),
    [
        (["pass"], 2, 1),
        (["regressed", "improved"], 2, 1),
        (["regressed", "inconclusive"], 2, 1),
        (["pass", "regressed"], 2, 0),
        (["pass", "over budget"], 2, 0),
        (["pass", "regressed"], 3, 2),
        (["pass", "regressed", "pass"], 3, 1),
        (["pass", "regressed", "regressed"], 3, 0),
        # Nobody knows whether it was worse.
        ([], 2, 0),
        (["pass", "no baseline"], 2, 0),
        (["pass", "not judged"], 2, 0),
        (["pass", ""], 2, 0),
        (["regressed"], 3, 0),
        (["pass", ""], 3, 2),
    ],
)
def test_a_slow_run_is_a_warning_if_one_of_those_that_decide_was_not_worse(
    tmp_path: Path, outcomes: list[str], consecutive: int, row_of: int
) -> None:
    soft = after(tmp_path, *outcomes, consecutive=consecutive)

    said = softened(soft)

    words = f"worse in {row_of} of {consecutive} consecutive runs"
    assert said == (words if row_of else "")
    is_unknown = not row_of and len([o for o in outcomes if o]) < consecutive
    if is_unknown:
        assert "counts as worse" in "".join(soft.notes(STEP, SLOW))


def test_a_history_says_nothing_of_counts_and_of_other_tests(tmp_path: Path) -> None:
    soft = after(tmp_path, "pass")

    assert softened(soft)
    assert not softened(soft, OVER)
    assert not softened(soft, a_test(a_missed_budget("syncs"), test=STEP))
    assert not softened(soft, a_test(a_regression(), test="t.py::test_other"))


def test_a_time_may_be_all_that_was_judged_of_a_test(tmp_path: Path) -> None:
    soft = after(tmp_path, "pass")
    settings = replace(soft.settings, missing_baseline=MissingBaseline.FAIL)
    soft = SoftStart(settings, H200)
    unknown = a_verdict("syncs", Outcome.NO_BASELINE, baseline=None)

    assert softened(soft, a_test(a_regression(), unknown, test=STEP))


def test_files_that_are_none_of_a_history_change_nothing(tmp_path: Path) -> None:
    soft = after(tmp_path, "pass")
    (tmp_path / "runs" / "README.md").touch()

    assert softened(soft)


@pytest.mark.parametrize(
    ("today", "soft_until", "until", "day"),
    [
        ("2027-01-15", "2027-01-15", None, "2027-01-15"),
        ("2027-01-16", "2027-01-15", None, ""),
        ("2026-12-31", None, "2027-01-01", "2027-01-01"),
        ("2027-01-02", None, "2027-01-01", ""),
        ("2027-01-02", "2027-01-15", "2027-01-01", "2027-01-15"),
        ("2027-01-02", "2027-01-03", "2027-01-31", "2027-01-31"),
        ("2027-01-02", None, None, ""),
    ],
)
def test_the_last_day_is_included_and_the_later_one_decides(
    today: str, soft_until: str | None, until: str | None, day: str
) -> None:
    soft = SoftStart(Settings(today=today, soft_until=soft_until), H200)
    if until:
        soft.quarantines[STEP] = Quarantine(until=until, reason="issue 12")

    assert softened(soft, OVER) == (f"would have failed until {day}" if day else "")
    assert not softened(soft, a_test(test=STEP))
    assert not softened(soft, OVER, Ending.FAILED)
    assert not softened(soft, OVER, Ending.DIED)


def test_what_passes_by_the_settings_is_no_warning() -> None:
    undecided = a_test(a_verdict(outcome=Outcome.INCONCLUSIVE), test=STEP)
    until = "2027-01-15"

    lenient = SoftStart(Settings(today=until, soft_until=until), H200)
    strict = SoftStart(Settings(today=until, soft_until=until, strict=True), H200)

    assert not softened(lenient, undecided)
    assert softened(strict, undecided)
