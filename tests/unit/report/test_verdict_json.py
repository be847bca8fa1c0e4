"""Verdicts cross from process to process as JSON."""

from __future__ import annotations

import pytest
from builders import a_comparison, a_finding, a_test, a_verdict

from pytest_gpuperf.errors import RunError
from pytest_gpuperf.model.ab import Answer, Comparison, Training, TrainingAnswer
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.verdict import Outcome, TestVerdict
from pytest_gpuperf.report.json import from_json, to_json


VERDICT = a_test(
    a_verdict("step_ms", Outcome.REGRESSED, 12.03, 10.0, because="slower", limit=10.26),
    a_verdict("syncs", Outcome.NOT_CHECKED, None, None, settled=False),
    test="tests/test_x.py::test_y",
    findings=(
        a_finding(
            blocked_ms=0.31,
            location=Location(file="a.py", line=3, function="step", exact=False),
        ),
    ),
    runs=5,
    changed={"torch": ("2.12.1", "2.13.0")},
)

BARE = (
    '{"test": "t", "verdicts": [], "findings": [], "runs": 0, "changed": {"torch": '
    '["2.12.1", "2.13.0"]}, "remarks": [], "snapshot": "", "trace": "", "sides": '
    'null, "rates": {}}'
)


def test_a_verdict_comes_back_as_it_went() -> None:
    assert from_json(to_json(VERDICT)) == VERDICT


def test_a_comparison_comes_back_as_it_went() -> None:
    time = a_comparison(Answer.FASTER, 0.75, why="faster")
    sides = Comparison(
        time=time,
        before={"syncs": 2},
        after={"syncs": 0},
        training=Training(answer=TrainingAnswer.SAME, text="same"),
    )
    verdict = TestVerdict(test="t", verdicts=(), sides=sides)

    assert from_json(to_json(verdict)) == verdict


def test_a_verdict_is_one_line_of_json() -> None:
    bare = TestVerdict(test="t", verdicts=(), changed={"torch": ("2.12.1", "2.13.0")})

    assert to_json(bare) == BARE


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ('{"test": "t", "verdicts": [], "extra": 1}', "TestVerdict has no field extra"),
    ],
)
def test_any_other_text_is_refused_in_one_sentence(text: str, found: str) -> None:
    with pytest.raises(RunError) as caught:
        from_json(text)

    assert str(caught.value) == (
        f"a process reported a verdict that cannot be read ({found}); expected the JSON "
        "of this version: install the same pytest-gpuperf for every process [GP603]"
    )
