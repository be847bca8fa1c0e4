"""Turns measurements and verdicts into what pytest reports of a test."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ..baselines.store import path_of
from ..files import shown_path
from ..judge.calls import accepted, judge_calls, settle_together, suite_context_of
from ..judge.context import SuiteContext
from ..judge.interleaved import demands_speedup, judge_comparison
from ..judge.readings import WOULD_HAVE_FAILED
from ..judge.verdict import ALONE
from ..model.baseline import Entry
from ..model.environment import Hardware
from ..model.metrics import SPEEDUP
from ..model.run import Ending, Report, StepCall, TestResult
from ..model.verdict import Outcome, TestVerdict, Verdict
from ..report.command import Invocation
from ..report.headline import open_headline
from ..report.json import to_json
from ..report.screen.acceptance import LEFT_ALONE, drift_text, is_explained
from ..report.screen.failure import Failure
from ..report.screen.findings import SharedCauses
from ..report.secrets import shown_verdict
from ..settings import MissingBaseline, Settings, UncheckedBudget
from .baseline_writer import Refreshed
from .request import repeated_options
from .screening import Case, JudgeCall, runs_of, settled


NOTHING_JUDGED: Final = frozenset({Outcome.NO_BASELINE, Outcome.NOT_CHECKED})

NEVER_JUDGED = (
    "budget never judged: the test carries a gpuperf budget or takes the gpuperf "
    "fixture, and never called gpuperf(step); call it, or drop the budget"
)

SPEEDUP_NEVER_JUDGED = (
    "budget never judged: a gpuperf budget of this test asks for a speedup, and the test "
    "never called gpuperf.compare(before, after); call it, or drop speedup"
)

Explain = Callable[[TestVerdict], str]
"""Says why a test failed, on one screen."""


def report_of(
    case: Case,
    verdicts: Mapping[str, TestVerdict],
    settings: Settings,
    explain: Explain,
) -> Report:
    """Return the report of one test; its own failure comes before verdicts.

    So does its skip, unless it would hide one that fails or is inconclusive.
    """
    last, judged = case.last, list(verdicts.values())
    report = Report(
        test=case.test,
        ending=last.ending,
        text=last.text,
        headline=last.headline,
        sections=last.sections,
        properties=last.properties,
        # Without secrets: they are written to files that leave this machine.
        verdicts=tuple(to_json(shown_verdict(verdict)) for verdict in judged),
        stop=case.stop,
        seconds=sum(result.seconds for result in case.results),
    )
    if last.ending is not Ending.PASSED:
        return _ended_otherwise(report, case, judged, settings, explain)
    never = _never_judged(case, verdicts)
    if never:
        return replace(report, ending=Ending.FAILED, text=never, verdicts=())
    ending, text = _ending(judged, settings, explain)
    return replace(
        report,
        ending=ending,
        text=text,
        warning=_warning(judged) if ending is Ending.PASSED else "",
    )


def _ended_otherwise(
    report: Report,
    case: Case,
    judged: Sequence[TestVerdict],
    settings: Settings,
    explain: Explain,
) -> Report:
    """Add to the *report* of a test that did not pass what it had measured before."""
    last = case.last
    if not any(verdict.verdicts for verdict in judged):
        return report
    # No ending may hide that a test became worse. A missing baseline is not worse.
    lenient = replace(
        settings,
        missing_baseline=MissingBaseline.WARN,
        warn="" if last.ending.fails else settings.warn,
    )
    ending, why = _ending(judged, lenient, explain)
    if last.ending.fails:
        return replace(report, text="\n\n".join(filter(None, (last.text, why))))
    warning = "" if why else _warning(judged)
    text, warning = (
        "\n\n".join((said, _otherwise(case))) if said else "" for said in (why, warning)
    )
    return replace(
        report,
        ending=ending,
        text=text,
        headline="",
        warning=warning,
    )


def _otherwise(case: Case) -> str:
    """Say which runs did not pass, and why."""
    last, runs = case.last, len(case.results)
    others = sum(result.ending is not Ending.PASSED for result in case.results)
    which = "" if others == runs else f" in {others} of {runs} runs"
    return (
        f"the test was {last.ending.value}{which}, which hides no verdict: {last.text}"
    )


def failures_among(
    cases: Iterable[Case], reports: Mapping[str, Report], may_fail: Collection[str]
) -> int:
    """Count failing tests, by report or else by ending, except *may_fail*."""
    endings = {case.test: case.last.ending for case in cases}
    # A report comes last because a verdict may fail a test that passed by itself.
    endings.update({test: report.ending for test, report in reports.items()})
    return sum(e.fails and test not in may_fail for test, e in endings.items())


def _never_judged(case: Case, verdicts: Mapping[str, TestVerdict]) -> str:
    if not verdicts:
        return NEVER_JUDGED if case.last.asked else ""
    steps = [runs[-1] for runs in case.calls.values()]
    missing = not case.comparisons and demands_speedup(steps)
    return SPEEDUP_NEVER_JUDGED if missing else ""


def refused(report: Report, why: str) -> Report:
    """Fail the test of *report*: its baseline was to be refreshed and is not.

    What is only a line of another failure ends it; else that failure follows below.
    """
    own = report.text if report.ending.accuses else ""
    # Both may end with the same command.
    why = "\n".join(line for line in why.splitlines() if line not in own.splitlines())
    if own and why == LEFT_ALONE:
        return replace(report, ending=Ending.FAILED, text=f"{own}\n{why}", warning="")
    text = "\n\n".join(filter(None, (why, own)))
    return replace(report, ending=Ending.FAILED, text=text, warning="")


def _ending(
    verdicts: Sequence[TestVerdict], settings: Settings, explain: Explain
) -> tuple[Ending, str]:
    failing = [v for v in verdicts if fails(v, settings)]
    if failing:
        text = "\n\n".join(map(explain, failing))
        if settings.warns:
            return Ending.WARNED, f"{WOULD_HAVE_FAILED}: {text}"
        return Ending.FAILED, text
    outcomes = {v.outcome for verdict in verdicts for v in verdict.verdicts}
    is_silent = bool(verdicts) and not any(map(_is_shown, verdicts))
    if is_silent and outcomes <= {Outcome.NOT_CHECKED}:
        return Ending.SKIPPED, "; ".join(_reasons(verdicts, Outcome.NOT_CHECKED))
    return Ending.PASSED, ""


def _is_shown(verdict: TestVerdict) -> bool:
    """Whether two steps were compared without a required speedup: nothing to judge."""
    judged = {v.metric for v in verdict.verdicts}
    return verdict.sides is not None and SPEEDUP.name not in judged


def fails(verdict: TestVerdict, settings: Settings) -> bool:
    """Whether *verdict* fails its test, or would if failures were no warnings."""
    outcomes = {v.outcome for v in verdict.verdicts}
    if any(outcome.fails for outcome in outcomes):
        return True
    if settings.strict and Outcome.INCONCLUSIVE in outcomes:
        return True
    unchecked = any(v.unchecked_budget for v in verdict.verdicts)
    if unchecked and settings.unchecked_budget is UncheckedBudget.FAIL:
        return True
    return _fails_unchecked(verdict.verdicts, settings.missing_baseline)


def _fails_unchecked(verdicts: Sequence[Verdict], policy: MissingBaseline) -> bool:
    """Whether a number that was compared with nothing, or is missing, fails the test."""
    ungated = any(v.outcome is Outcome.NO_BASELINE for v in verdicts)
    missed = any(v.is_missed for v in verdicts)
    if policy is MissingBaseline.WARN or not (ungated or missed):
        return False
    if ungated and policy is MissingBaseline.EVERY_METRIC:
        return True
    return NOTHING_JUDGED.issuperset(v.outcome for v in verdicts if not v.is_missed)


def _warning(verdicts: Sequence[TestVerdict]) -> str:
    """Say in a line what a passed test leaves open; that nothing is stored the run says."""
    for verdict in verdicts:
        if any(
            v.outcome is Outcome.INCONCLUSIVE or v.not_stored or v.is_missed
            for v in verdict.verdicts
        ):
            return open_headline(verdict)
    return ""


def _reasons(verdicts: Sequence[TestVerdict], outcome: Outcome) -> list[str]:
    """Give each reason once, behind the metrics that it applies to."""
    metrics: dict[str, list[str]] = {}
    for verdict in verdicts:
        for v in verdict.verdicts:
            if v.outcome is outcome:
                metrics.setdefault(v.because, []).append(v.metric)
    reasons = [
        f"{', '.join(dict.fromkeys(names))}: {because}"
        for because, names in metrics.items()
    ]
    if len(metrics) == 1 and len(next(iter(metrics.values()))) > 1:
        return list(metrics)
    return reasons or ["nothing was measured"]


# The report of a run's tests: their verdicts in words, with the commands to run next.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """What the text of a test's report needs to know of its run."""

    settings: Settings
    hardware: Hardware
    rootdir: Path
    directory: Path

    @property
    def baseline_file(self) -> str:
        """The file of this hardware's baselines, as people see it."""
        path = path_of(self.settings.baselines, self.hardware)
        return shown_path(path, self.rootdir)

    @property
    def invocation(self) -> Invocation:
        """How a command is typed that measures what this run measured."""
        return Invocation(
            options=repeated_options(self.settings, self.hardware.kind),
            root=self.rootdir,
            folder=self.directory,
            seconds=self.settings.seconds,
        )

    @property
    def note(self) -> str:
        """What is to be known of the device that was taken, and of failures."""
        return self.settings.note_on(self.hardware.kind)

    def report(
        self, case: Case, verdicts: Mapping[str, TestVerdict], shared: SharedCauses
    ) -> Report:
        """Return the report of *case*, of which each call has one of *verdicts*.

        Causes that it shows are noted in those that are *shared*.
        """
        explain = partial(self.explanation, case.test, shared)
        return report_of(case, verdicts, self.settings, explain)

    def explanation(
        self, nodeid: str, shared: SharedCauses, verdict: TestVerdict
    ) -> str:
        """Say why *verdict*, of a call of the test *nodeid*, fails it."""
        return Failure(
            verdict,
            nodeid,
            self.invocation,
            strict=self.settings.strict,
            baseline_needed=self.settings.missing_baseline is not MissingBaseline.WARN,
            shared=shared,
        ).text

    def refusal(
        self,
        case: Case,
        refreshed: Refreshed,
        explained: Mapping[str, TestVerdict] = MappingProxyType({}),
    ) -> str:
        """Say why the refresh did not take *case* as it should; nothing if it did.

        What the *explained* verdicts say of a drift is not said again.
        """
        drifts = refreshed.drifts_of(case.calls)
        if not drifts:
            return refreshed.why_not(case.calls)
        if all(is_explained(drift, explained.get(drift.test)) for drift in drifts):
            return LEFT_ALONE
        return drift_text(
            drifts,
            nodeid=case.test,
            invocation=self.invocation,
        )


# Every verdict of a run, by test and by call.

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
        context = self._decided.get(calls[-1].measurement.test, self.suite_context)
        return self._judged(calls, context)

    def has_settled(self, case: Case) -> bool:
        """Whether no more run is needed to judge *case*."""
        return all(self.verdict(calls).settled for calls in case.calls.values())

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
