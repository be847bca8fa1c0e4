"""Which rule decided, in words and with its numbers."""

from __future__ import annotations

from dataclasses import replace

from builders import a_test, a_verdict

from pytest_gpuperf.model.verdict import DecidedBy, Evidence, Outcome, Verdict
from pytest_gpuperf.report.screen.explanation import explanation_lines
from pytest_gpuperf.report.screen.summary import Line, LineRole


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
