"""Verdicts cross from process to process as JSON."""

from __future__ import annotations

import pytest

from pytest_gpuperf.errors import RunError
from pytest_gpuperf.model.ab import AbResult
from pytest_gpuperf.model.ab import Answer
from pytest_gpuperf.model.ab import Sides
from pytest_gpuperf.model.finding import Finding
from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.model.verdict import TestVerdict
from pytest_gpuperf.model.verdict import Verdict
from pytest_gpuperf.report.json.results import from_json
from pytest_gpuperf.report.json.results import to_json


VERDICT = TestVerdict(
    test="tests/test_x.py::test_y",
    verdicts=(
        Verdict(
            metric="step_ms",
            outcome=Outcome.REGRESSED,
            because="slower",
            now=12.03,
            baseline=10.0,
            limit=10.26,
        ),
        Verdict(metric="syncs", outcome=Outcome.NOT_JUDGED, because="", settled=False),
    ),
    findings=(
        Finding(
            kind=FindingKind.SYNC,
            op="aten::item",
            api=None,
            per_step=1,
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
    'null, "diagnosis": null, "rates": {}}'
)


def test_a_verdict_comes_back_as_it_went() -> None:
    assert from_json(to_json(VERDICT)) == VERDICT


def test_a_comparison_comes_back_as_it_went() -> None:
    time = AbResult(answer=Answer.FASTER, why="faster", ratio=0.75)
    sides = Sides(time=time, before={"syncs": 2}, after={"syncs": 0}, training="same")
    verdict = TestVerdict(test="t", verdicts=(), sides=sides)

    assert from_json(to_json(verdict)) == verdict


def test_a_verdict_is_one_line_of_json() -> None:
    bare = TestVerdict(test="t", verdicts=(), changed={"torch": ("2.12.1", "2.13.0")})

    assert to_json(bare) == BARE


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ("[]", "expected an object for TestVerdict, found []"),
        ('{"test": "t", "verdicts": [], "extra": 1}', "TestVerdict has no field extra"),
        ('{"test": 1, "verdicts": []}', "expected str, found 1"),
        (
            '{"test": "t", "verdicts": [], "changed": []}',
            "expected an object, found []",
        ),
    ],
)
def test_any_other_text_is_refused_in_one_sentence(text: str, found: str) -> None:
    with pytest.raises(RunError) as caught:
        from_json(text)

    assert str(caught.value) == (
        f"a process reported a verdict that cannot be read ({found}); expected the JSON "
        "of this version: install the same pytest-gpuperf for every process [GP603]"
    )
