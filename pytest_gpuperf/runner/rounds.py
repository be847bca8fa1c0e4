"""The runs that verdicts and refreshes need, made in their order.

One run of everything screens, more confirm or make a baseline; failures may end it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import Final

from ..baselines.store import read
from ..errors import GpuperfError
from ..judge.calls import boards_of, counted, stored_round_steps, varies_by_run
from ..judge.verdict import waits_for_times
from ..model.baseline import FULL_RUNS, Refresh, full_runs, recorded_runs, session_id
from ..model.environment import Capability, DeviceSlot
from ..model.metrics import STEP_MS
from ..model.run import Ending, Report, RunMode, StepCall, TestResult
from ..model.verdict import Outcome, TestVerdict, Verdict
from ..settings import Settings
from .baseline_writer import Storing, selected_of, stored_device_text
from .evidence import record_memory
from .fork_server import EarlyServer
from .outcome import Judge, failures_among, refused, report_of, verdicts_of
from .pool import Progress, WorkerPool
from .request import Planned, Project, groups_of
from .screening import (
    Case,
    Group,
    JudgeCall,
    Run,
    complete,
    confirm,
    screen,
    with_counts_of,
)


# Confines an error to its test: it fails, and all others are judged.
#
# No test should meet an error of this package. If one does, the error must not take
# down a run in which hundreds of other tests have been measured.

REPORT_IT: Final = "an error of pytest-gpuperf, please report it with this text"


class ErrorIsolation:
    """Knows the calls of this run that could not be judged, and fails their tests."""

    def __init__(self) -> None:
        self._broken: dict[str, str] = {}

    def judged(self, judge: JudgeCall, calls: Sequence[StepCall]) -> TestVerdict:
        """Judge *calls*; if that raises, return an inconclusive verdict."""
        try:
            return judge(calls)
        # A usage error or a broken file concerns the whole run and has a message of its
        # own.
        except GpuperfError:
            raise
        # Broad, because a bug of the judge can raise anything. Only this test may fail
        # for it.
        except Exception as error:  # noqa: BLE001 - it becomes the test's failure
            key = calls[-1].measurement.test
            self._broken[key] = f"{key} could not be judged: {_described(error)}"
            because = f"it could not be judged: {type(error).__name__}: {error}"
            nothing = Verdict(
                metric=STEP_MS.name, outcome=Outcome.INCONCLUSIVE, because=because
            )
            return TestVerdict(test=key, verdicts=(nothing,), runs=len(calls))

    def reported(self, case: Case, report: Callable[[], Report]) -> Report:
        """Return the *report* of *case*; it fails if it could not be judged."""
        try:
            made = report()
        except GpuperfError:
            raise
        except Exception as error:  # noqa: BLE001 - it becomes the test's failure
            text = f"{case.test} could not be reported: {_described(error)}"
            return Report(test=case.test, ending=Ending.FAILED, text=text)
        broken = [self._broken[key] for key in case.calls if key in self._broken]
        return refused(made, "\n\n".join(broken)) if broken else made


def _described(error: Exception) -> str:
    lines = "".join(traceback.format_exception(error)).rstrip()
    return f"{type(error).__name__}: {error}; {REPORT_IT}\n{lines}"


class Rounds:
    """Owns the measuring processes of one enabled run, and what is known before it."""

    def __init__(  # noqa: PLR0913  what is asked, and who hears of it
        self,
        settings: Settings,
        project: Project,
        announce: Callable[[str], None],
        show: Callable[[str], None] | None = None,
        *,
        maxfail: int = 0,
        early: EarlyServer | None = None,
    ) -> None:
        """*show* gets the progress, all the time, *announce* the lines that must stay.

        Measuring ends once *maxfail* tests have failed, if that is not 0. An *early*
        server was started before the tests were collected.
        """
        self.settings = settings
        self.project = project
        self.announce = announce
        self.maxfail = maxfail
        self._progress = Progress(show)
        self._plan: Mapping[str, Planned] = {}
        self._storing = Storing(lambda _: True)
        self._is_stopped = False
        self.wanted: dict[str, int] = {}
        """Runs that make the baseline of each test that is refreshed."""
        self._workers = WorkerPool(settings, project, announce, self._progress, early)
        try:
            self.environment = self._workers.environment()
            self.baselines = read(settings.baselines, self.environment.hardware)
            self.stored_device = stored_device_text(settings, self.environment.hardware)
        # Also for KeyboardInterrupt: the caller has no object yet on which to call
        # `close`.
        except BaseException:
            self._workers.close()
            raise
        self.isolation = ErrorIsolation()
        self.judge = Judge(
            self.baselines.entries,
            settings,
            self.isolation.judged,
            session_id(datetime.now(timezone.utc)),
        )

    @property
    def slots(self) -> tuple[DeviceSlot, ...]:
        """Devices of one model that this run may use."""
        return self._workers.slots

    @property
    def tests(self) -> Sequence[str]:
        """What was to be measured, in its order."""
        return tuple(self._plan)

    def close(self) -> None:
        """End the measuring processes."""
        self._workers.close()

    def measure(
        self, plan: Sequence[Planned], store: Callable[[Sequence[Case]], bool]
    ) -> dict[str, Case]:
        """Give each test its runs.

        *store* takes those that a refresh is done with, and says whether it could.
        """
        self._plan = {planned.test: planned for planned in plan}
        self._storing = Storing(store)
        groups = groups_of(plan, self.settings.isolation)
        entries = self.baselines.entries
        # A refresh of everything replaces what is stored, and so may choose anew.
        is_anew = self.settings.update is Refresh.ALL
        round_steps = {} if is_anew else stored_round_steps(entries)
        self._workers.learn(boards_of(entries), counted(entries), round_steps)
        cases = self._screen(groups)
        if not self._is_stopped:
            self._settle(groups, cases)
        self._record_memory([g for g in groups if cases.keys() >= set(g)], cases)
        return cases

    def so_far(self) -> Mapping[str, Case]:
        """Return what a run that broke off has measured, each with all its results."""
        cases = self._storing.so_far()
        self.judge.look(cases, self._stored_tests)
        return cases

    def run(
        self,
        groups: Sequence[Group],
        number: int,
        mode: RunMode = RunMode.MEASURE,
        timed: Collection[str] = (),
    ) -> Sequence[TestResult]:
        """Run *groups*; one that records or traces counts for no refresh.

        Of the calls *timed* nothing but times is read.
        """
        counts = mode is RunMode.MEASURE
        if counts and self._needs_other_processes(groups, number, timed):
            self._workers.renew(number)
        self._storing.begin()
        return self._workers.run(
            self.environment.hardware.kind,
            self._plan,
            groups,
            number,
            mode=mode,
            timed=timed,
            arrived=self._storing.arrived if counts else (lambda _: None),
        )

    def _needs_other_processes(
        self, groups: Sequence[Group], number: int, timed: Collection[str]
    ) -> bool:
        """Whether counts of this run could be those of the last ones by their addresses.

        The second run tells, and shows whether they differ.
        """
        tests = {test for group in groups for test in group}
        counted = [
            calls
            for test, case in (self._storing.so_far() if number else {}).items()
            if test in tests
            for key, calls in case.calls.items()
            if key not in timed
        ]
        return any(number == 1 or varies_by_run(calls) for calls in counted)

    def _run_again(
        self, cases: Mapping[str, Case], groups: Sequence[Group], number: int
    ) -> Sequence[TestResult]:
        """Run *groups* once more; of calls with an open time alone, only that is read."""
        judge = self.judge.verdict
        first = {
            key: calls[0].measurement
            for test in (test for group in groups for test in group)
            for key, calls in cases[test].calls.items()
            if waits_for_times(judge(calls))
        }
        results = self.run(groups, number, timed=first)
        return [with_counts_of(first, result) for result in results]

    def _screen(self, groups: Sequence[Group]) -> dict[str, Case]:
        """Run every group once; where failures end it one by one, each to its verdict."""
        cases: dict[str, Case] = {}
        self._storing.follow(cases, {})
        self.wanted = self._surely_wanted(groups)
        for batch in [[group] for group in groups] if self.maxfail else [groups]:
            self._progress.among(len(cases), len(self._plan))
            found = screen(batch, self.run)
            cases.update(found)
            # With --maxfail a verdict falls before the whole suite was run. It must
            # already share the risk of a false alarm with all tests that may still be
            # judged.
            self.judge.look(cases, self._stored_tests if self.maxfail else 1)
            if self.maxfail and self.settings.update is None:
                again = partial(self._run_again, found)
                self._confirm(batch, again, found)
                self.judge.decide(found)
            self._is_stopped = 0 < self.maxfail <= self._failures(cases)
            if self._is_stopped:
                break
        else:
            self.judge.reconsider()
        self.wanted = {}
        self._progress.among(0, None)
        return cases

    def _surely_wanted(self, groups: Sequence[Group]) -> dict[str, int]:
        """Return the runs that a refresh is sure to take, before any is made."""
        update = self.settings.update
        if update not in {Refresh.MISSING, Refresh.ALL}:
            return {}
        stored = self.baselines.entries if update is Refresh.MISSING else {}
        runs = full_runs(self.environment.hardware.kind)
        chosen = [g for g in groups if not all(test in stored for test in g)]
        return {test: runs for group in chosen for test in group}

    @property
    def _stored_tests(self) -> int:
        """How many tests share the risk of a false alarm, before they were all run."""
        return len(self._plan.keys() & self.baselines.entries.keys())

    def _failures(self, cases: Mapping[str, Case]) -> int:
        """Count the tests that fail the run; what a refresh may accept is no failure."""
        judged = cases if self.settings.update is None else {}
        verdicts = verdicts_of(judged, {}, self.judge.verdict)
        reports = {
            test: report_of(case, verdicts[test], self.settings, lambda _: "")
            for test, case in judged.items()
        }
        return failures_among(cases.values(), reports, self.may_fail)

    @property
    def may_fail(self) -> Collection[str]:
        """The tests that are expected to fail: pytest does not show how."""
        return {test for test, planned in self._plan.items() if planned.may_fail}

    def _settle(self, groups: Sequence[Group], cases: Mapping[str, Case]) -> None:
        """Give each test the runs its verdict or its refresh needs."""
        is_confirmed = self.settings.update is Refresh.IMPROVED
        if is_confirmed:
            self._confirm(groups, self.run, cases)
        entries, judge = self.baselines.entries, self.judge.verdict
        selected = sorted(selected_of(self.settings.update, cases, entries, judge))
        chosen = [cases[test] for test in selected]
        self.wanted = {test: self._recorded_runs(cases[test]) for test in selected}
        self._complete(groups, cases)
        # The first runs say whether counts vary, so the second round can be planned only
        # after the first.
        for case in chosen:
            if any(varies_by_run(calls) for calls in case.calls.values()):
                self.wanted[case.test] = max(FULL_RUNS, self.wanted[case.test])
        self._complete(groups, cases)
        if not is_confirmed:
            rest = [group for group in groups if not set(selected).issuperset(group)]
            again = partial(self._run_again, cases)
            self._confirm(rest, again, cases)
            # The confirming runs show whether the machine is steady.
            self.judge.look(cases)

    def _confirm(
        self, groups: Sequence[Group], run: Run, cases: Mapping[str, Case]
    ) -> None:
        confirm(groups, run, cases, self.judge.verdict, seconds=self.settings.seconds)

    def _recorded_runs(self, case: Case) -> int:
        """Return the runs that the refresh of this test makes."""
        stored = all(call in self.baselines.entries for call in case.calls)
        kind = self.environment.hardware.kind
        return recorded_runs(self.settings.update, kind, stored=stored)

    def _complete(self, groups: Sequence[Group], cases: Mapping[str, Case]) -> None:
        """Store each test when it has as many undisturbed runs as are wanted."""
        self._storing.follow(cases, self.wanted)
        complete(groups, self.run, cases, self.wanted)
        self._storing.flush()

    def _record_memory(
        self, groups: Sequence[Group], cases: Mapping[str, Case]
    ) -> None:
        if self.environment.hardware.kind.has(Capability.ALLOCATOR):
            accepted = {test for test in self.wanted if cases[test].calls}
            rest = [group for group in groups if not accepted.intersection(group)]
            record_memory(rest, self.run, cases, self.judge.verdict)
