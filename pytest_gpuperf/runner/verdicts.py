"""Every verdict of a run, by test and by call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ..judge.calls import accepted, judge_calls, settle_together, suite_context_of
from ..judge.context import SuiteContext
from ..judge.interleaved import judge_comparison
from ..judge.verdict import ALONE
from ..model.baseline import Entry
from ..model.run import Ending, StepCall, TestResult
from ..model.verdict import Outcome, TestVerdict
from ..settings import Settings
from .screening import Case, JudgeCall, runs_of, settled


Verdicts = Mapping[str, Mapping[str, TestVerdict]]
"""By test and by call."""


class Judge:
    """Judges calls against their stored *entries*, in the context of the suite."""

    def __init__(
        self,
        entries: Mapping[str, Entry],
        settings: Settings,
        confined: Callable[
            [JudgeCall, Sequence[StepCall]], TestVerdict
        ] = lambda judge, calls: judge(calls),
        session: str = "",
    ) -> None:
        """*confined* asks a judge about calls, and answers where that fails.

        *session* is the present one; empty if nobody knows.
        """
        self._entries = entries
        self._settings = settings
        self._confined = confined
        self._session = session
        self._decided: dict[str, SuiteContext] = {}
        self.suite_context = ALONE

    def look(self, cases: Mapping[str, Case], tests: int = 1) -> None:
        """Derive the suite context from *cases*; at least *tests* share the risk."""
        found = suite_context_of(runs_of(cases), self._entries)
        self.suite_context = replace(
            found, tests=max(found.tests, tests), now=self._session
        )

    def decide(self, cases: Mapping[str, Case]) -> None:
        """Fix the suite context for *cases*, which are not measured again."""
        calls = (key for case in cases.values() for key in case.calls)
        self._decided.update(dict.fromkeys(calls, self.suite_context))

    def reconsider(self) -> None:
        """Judge all calls in one suite context again, as more runs may follow."""
        self._decided.clear()

    def verdict(self, calls: Sequence[StepCall]) -> TestVerdict:
        """Judge one call by all its runs, oldest first."""
        return self._judged(calls, self._suite_context_of(calls))

    def has_settled(self, case: Case) -> bool:
        """Whether no more run is needed to judge *case*."""
        return all(self.verdict(calls).settled for calls in case.calls.values())

    def _suite_context_of(self, calls: Sequence[StepCall]) -> SuiteContext:
        return self._decided.get(calls[-1].measurement.test, self.suite_context)

    def _judged(
        self, calls: Sequence[StepCall], suite_context: SuiteContext
    ) -> TestVerdict:
        return self._confined(partial(self._judged_alone, suite_context), calls)

    def _judged_alone(
        self, suite_context: SuiteContext, calls: Sequence[StepCall]
    ) -> TestVerdict:
        key = calls[-1].measurement.test
        entry = self._entries.get(key)
        return judge_calls(calls, entry, suite_context, self._settings.tolerance)


def verdicts_of(
    cases: Mapping[str, Case], taken: Mapping[str, str], judge: JudgeCall
) -> Verdicts:
    """Judge each call, then all together; what a refresh has *taken* is accepted.

    Comparisons follow the calls: neither suite nor baseline takes part in judging them.
    """
    together = settle_together(
        {
            test: {
                key: accepted(settled(judge_calls(calls, None)), taken[key])
                if key in taken
                else settled(judge(calls))
                for key, calls in case.judged.items()
            }
            for test, case in cases.items()
        }
    )
    return {
        test: {
            **_of_weight(cases[test], {**calls, **_settled(cases[test])}, judge),
            **unchecked(cases[test].last),
        }
        for test, calls in together.items()
    }


def _of_weight(
    case: Case, verdicts: Mapping[str, TestVerdict], judge: JudgeCall
) -> Mapping[str, TestVerdict]:
    """Leave out the verdicts that do not matter for a test that did not pass.

    No ending may hide that it became worse; a skip must not hide an inconclusive metric.
    """
    ending = case.last.ending
    if ending is Ending.PASSED:
        return verdicts
    shown = {Outcome.INCONCLUSIVE}
    if ending.fails:
        before = {key: settled(judge(calls)) for key, calls in case.measured.items()}
        verdicts, shown = {**before, **verdicts}, set()
    return {
        key: verdict
        for key, verdict in verdicts.items()
        if verdict.outcome.fails or verdict.outcome in shown
    }


def _settled(case: Case) -> dict[str, TestVerdict]:
    return {key: settled(verdict) for key, verdict in compared(case).items()}


def compared(case: Case) -> dict[str, TestVerdict]:
    """Judge the comparisons of one test, by call."""
    return {key: judge_comparison(calls) for key, calls in case.comparisons.items()}


def unchecked(result: TestResult) -> dict[str, TestVerdict]:
    """Report a test as not checked if it was skipped for want of a GPU."""
    if not result.needs_gpu or result.ending is not Ending.SKIPPED:
        return {}
    verdict = TestVerdict(test=result.test, verdicts=(), remarks=(result.text,))
    return {result.test: verdict}
