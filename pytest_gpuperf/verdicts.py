"""Every verdict of a run, by test and by call."""

from __future__ import annotations

from collections.abc import Mapping

from .comparing import judge_comparison
from .gate import Case
from .gate import Judge
from .gate import settled
from .judging import accepted
from .judging import judge_calls
from .judging import settle_together
from .model.run import Ending
from .model.run import TestResult
from .model.verdict import TestVerdict


def verdicts_of(
    cases: Mapping[str, Case], taken: Mapping[str, str], judge: Judge
) -> Mapping[str, Mapping[str, TestVerdict]]:
    """Judge each call, then all together; what a refresh has *taken* is accepted.

    Comparisons stand behind the calls: no suite and no baseline has a say in them.
    """
    together = settle_together(
        {
            test: {
                key: accepted(settled(judge_calls(calls, None)), taken[key])
                if key in taken
                else settled(judge(calls))
                for key, calls in case.calls.items()
            }
            for test, case in cases.items()
        }
    )
    return {
        test: {**calls, **compared(cases[test]), **unjudged(cases[test].last)}
        for test, calls in together.items()
    }


def compared(case: Case) -> dict[str, TestVerdict]:
    """Judge the comparisons of one test."""
    judged = [judge_comparison(call) for call in case.comparisons]
    return {verdict.test: verdict for verdict in judged}


def unjudged(result: TestResult) -> dict[str, TestVerdict]:
    """Say that a test was not judged that only a GPU could have run."""
    if not result.needs_gpu or result.ending is not Ending.SKIPPED:
        return {}
    verdict = TestVerdict(test=result.test, verdicts=(), remarks=(result.text,))
    return {result.test: verdict}
