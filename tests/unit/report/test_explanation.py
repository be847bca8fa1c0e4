"""Which rule decided, in words and with its numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import a_finding
from builders import a_location
from builders import a_test
from builders import a_verdict

from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.finding import Phase
from pytest_gpuperf.model.verdict import DecidedBy
from pytest_gpuperf.model.verdict import Evidence
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.model.verdict import Verdict
from pytest_gpuperf.report.screen.explanation import RULE_WORDS
from pytest_gpuperf.report.screen.explanation import explanation_lines
from pytest_gpuperf.report.screen.summary import Line
from pytest_gpuperf.report.screen.summary import LineRole


EVIDENCE = Evidence(
    estimate=0.06,
    low=0.05,
    high=0.07,
    tolerance=0.01,
    detect=0.03,
    runs=5,
    stored_runs=8,
    smallest_detectable=0.021,
    discount=0.004,
    p_regressed=0.00002,
    p_improved=1.0,
    rule=DecidedBy.T_AND_RANK,
)
SLOWER = a_verdict(
    "step_ms", Outcome.REGRESSED, None, 10.0, because="so it is", evidence=EVIDENCE
)


def explained(*verdicts: Verdict) -> list[str]:
    lines = explanation_lines([a_test(*verdicts, test="t")])

    assert lines[0] == Line(text="t", role=LineRole.HEADER)
    return [line.text for line in lines[1:]]


def test_a_time_is_explained_by_its_rule_and_all_its_numbers() -> None:
    assert explained(SLOWER) == [
        "    step_ms worse: the t test and the rank test both prove more than the",
        "        tolerance; +6.0 % (95 %: +5.0 % to +7.0 %), tolerance 1.0 %, detect",
        "        3.0 %, 5 fresh runs, 8 stored, p = 2e-05 of a slowdown by chance, p = 1",
        "        of a speed-up by chance, the machine looks 0.4 % slower, smallest",
        "        detectable change 2.1 %",
    ]


def test_a_budget_has_no_tolerance_and_what_is_not_known_is_left_out() -> None:
    evidence = replace(
        EVIDENCE,
        runs=1,
        discount=-0.01,
        p_regressed=None,
        p_improved=None,
        rule=DecidedBy.BUDGET,
    )
    budget = replace(SLOWER, outcome=Outcome.PASS, baseline=None, evidence=evidence)

    assert explained(budget) == [
        "    step_ms passed: the mean of the runs was compared with the limit; +6.0 %",
        "        (95 %: +5.0 % to +7.0 %), 1 fresh run, 8 stored, the machine looks 1.0 %",
        "        faster, smallest detectable change 2.1 %",
    ]


def test_what_could_not_be_decided_keeps_the_reason_of_the_judge() -> None:
    open_verdict = replace(
        SLOWER,
        outcome=Outcome.INCONCLUSIVE,
        because="disturbed: hot",
        evidence=replace(EVIDENCE, rule=DecidedBy.DIRTY),
    )

    assert " ".join(explained(open_verdict)).endswith("disturbed:         hot")


def test_an_exact_metric_is_explained_by_its_reason() -> None:
    count = a_verdict("syncs", Outcome.PASS, None, None, because="0 against 0 stored")

    assert explained(count) == ["    syncs passed: 0 against 0 stored"]


@pytest.mark.parametrize("rule", DecidedBy)
def test_every_rule_has_its_words(rule: DecidedBy) -> None:
    assert RULE_WORDS[rule]


def test_the_peak_of_memory_stands_below_the_verdicts() -> None:
    peak = a_finding(
        FindingKind.PEAK,
        op="aten::add",
        location=a_location(12, "train.py", "step"),
        phase=Phase.OPTIMIZER,
        reason="parameters 1.0 MiB",
        held_bytes=2**20,
    )
    passed = a_verdict(
        "predicted_peak_allocated_bytes", Outcome.PASS, because="so it is"
    )

    lines = explanation_lines([a_test(passed, test="t", findings=(peak,))])

    assert [line.text for line in lines] == [
        "t",
        "    predicted_peak_allocated_bytes passed: so it is",
        "    --> train.py:12 in step: most memory is in use here: aten::add, optimizer,",
        "             1.000 MiB: parameters 1.0 MiB",
    ]
