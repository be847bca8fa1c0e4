"""Verdicts as properties of a test: names with units, and no sign that XML has not."""

from __future__ import annotations

import pytest
from builders import a_test, a_verdict

from pytest_gpuperf.model.ab import Comparison
from pytest_gpuperf.model.verdict import Outcome, Verdict
from pytest_gpuperf.report.json import to_json
from pytest_gpuperf.report.measured_calls import properties_of


def judged(key: str, *verdicts: Verdict, sides: Comparison | None = None) -> str:
    return to_json(a_test(test=key, verdicts=verdicts, sides=sides))


def test_what_was_not_checked_has_an_outcome_and_no_number() -> None:
    missing = judged("t", a_verdict("step_ms", Outcome.NOT_CHECKED, None))

    assert properties_of("t", [missing]) == [("gpuperf.outcome", "not checked")]
    assert properties_of("t", []) == []


def test_two_steps_that_were_only_shown_side_by_side_pass() -> None:
    shown = judged("t#compare", sides=Comparison())

    assert properties_of("t", [shown]) == [("gpuperf.outcome", "pass")]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a|<b>'\"", "a|<b>'\""),
        ("two\nlines", "two\\nlines"),
        ("\x00\x1b", "\\x00\\x1b"),
        ("\ud800", "\\ud800"),
        ("\U0001f600", "\U0001f600"),
    ],
)
def test_a_name_is_written_with_signs_that_xml_has(name: str, written: str) -> None:
    found = properties_of(
        "t", [judged(f"t#{name}", a_verdict("syncs", Outcome.PASS, 1))]
    )

    assert found[1] == (f"gpuperf.syncs#{written}", 1)
