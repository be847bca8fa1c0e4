"""Evaluates one run: measures the planned tests, judges them, refreshes their
baselines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from ..baselines.refresh import Seen, leftovers
from ..baselines.store import read_operations
from ..judge.calls import suite_of
from ..judge.operations import blamed
from ..model.baseline import BaselineChange, Drift, Kept, Leftovers
from ..model.environment import Capability, DeviceSlot, Hardware
from ..model.measurement import Samples
from ..model.run import Ending, Report
from ..model.verdict import SuiteAcuity, SuiteVerdict, TestVerdict
from ..report.command import DEFAULT_INVOCATION, Invocation
from ..report.screen.findings import SharedCauses
from ..report.screen.summary import Interrupted, interruption_lines
from .baseline_writer import (
    BaselineWriter,
    Refreshed,
    acuity_of_refresh,
    command_for_the_rest,
    interrupted,
)
from .evidence import RecordedCode, forget_traces, with_traces
from .git import short
from .outcome import Reporter, Verdicts, refused, verdicts_of
from .request import Planned
from .rounds import Rounds
from .screening import Case, first_runs, samples_of


NOT_DECIDED_INTERRUPTED: Final = "not decided (interrupted)"


def stopped_after(failures: int) -> str:
    """Say why tests were not measured after as many failures as ``--maxfail`` allows."""
    which = "the first failure" if failures == 1 else f"{failures} failures"
    return f"not measured (stopped after {which})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What came of the planned tests; ``stored`` are the calls that have a baseline.

    ``stopped`` says why the ``unmeasured`` tests were not measured. One that only ``warns``
    does not fail as a whole by what moved.
    """

    hardware: Hardware
    baseline_file: str
    has_commits: bool = False
    reports: Mapping[str, Report] = field(default_factory=dict)
    verdicts: tuple[TestVerdict, ...] = ()
    samples: Mapping[str, tuple[Samples, ...]] = field(default_factory=dict)
    suite: SuiteVerdict | None = None
    refreshed: tuple[BaselineChange, ...] = ()
    acuity: SuiteAcuity | None = None
    kept: tuple[Kept, ...] = ()
    drifts: tuple[Drift, ...] = ()
    drifted_tests: tuple[str, ...] = ()
    not_refreshed: tuple[str, ...] = ()
    leftovers: Leftovers = field(default_factory=Leftovers)
    stored: tuple[str, ...] = ()
    skipped_files: tuple[str, ...] = ()
    invocation: Invocation = DEFAULT_INVOCATION
    explained: bool = False
    note: str = ""
    unmeasured: tuple[str, ...] = ()
    stopped: str = ""
    warns: bool = False

    @property
    def moved_with_the_environment(self) -> tuple[TestVerdict, ...]:
        """Tests with exact metrics that moved together with torch's version.

        They are one verdict for the run, not a failure a test.
        """
        return tuple(
            test
            for test in self.verdicts
            if any(verdict.environment_changed for verdict in test.verdicts)
        )

    @property
    def all_reports(self) -> Mapping[str, Report]:
        """The report of each test, also of those that were not measured."""
        skipped = {
            test: Report(test=test, ending=Ending.SKIPPED, text=self.stopped)
            for test in self.unmeasured
        }
        return {**skipped, **self.reports}


# A run goes through stages, each from one state of it to the next:
#
#     measure (screen, then confirm) -> judge -> store -> trace -> locate -> report
#
# An interrupted run enters at `judge`, with what it has.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What is known of the measured tests after a stage.

    ``leftovers`` are the baselines of tests that are gone.
    """

    cases: Mapping[str, Case]
    verdicts: Verdicts = field(default_factory=dict)
    refreshed: Refreshed = field(default_factory=Refreshed)
    leftovers: Leftovers = field(default_factory=Leftovers)
    reports: Mapping[str, Report] = field(default_factory=dict)
    not_refreshed: tuple[str, ...] = ()


class RunEvaluator:
    """Owns the measuring processes, the baselines and the settings of one enabled run."""

    def __init__(self, rounds: Rounds) -> None:
        """Say on which device *rounds* refresh, if nobody named it."""
        self._rounds = rounds
        self._settings = rounds.settings
        self._announce = rounds.announce
        self.interrupted: RunResult | None = None
        """What an interrupted run had come to."""
        self._baselines = rounds.baselines
        self._environment = rounds.environment
        self._kind = self._environment.hardware.kind
        self._recorded = RecordedCode(
            Path(rounds.project.rootdir),
            self._settings.baselines,
            self._environment.hardware,
        )
        self._judge = rounds.judge
        self._recorder = BaselineWriter(self._settings, self._baselines, self._announce)
        self._reporter = Reporter(
            settings=self._settings,
            hardware=self._environment.hardware,
            rootdir=rounds.project.rootdir,
            directory=Path(rounds.project.directory),
        )
        if rounds.stored_device:
            self._announce(rounds.stored_device)

    @property
    def slots(self) -> tuple[DeviceSlot, ...]:
        """Devices of one model that this run may use."""
        return self._rounds.slots

    def close(self) -> None:
        """End the measuring processes."""
        self._rounds.close()

    def evaluate(self, plan: Sequence[Planned], seen: Seen) -> RunResult:
        """Measure, judge and, if asked, refresh; every planned test gets a report.

        *seen* are the tests that there are, besides those of *plan*. An interrupted run
        leaves what it had come to as ``interrupted``.
        """
        # First, so that no verdict of this run can be read with a trace of an earlier
        # one.
        forget_traces(self._settings.artefacts)
        try:
            return self._evaluate(plan, seen)
        except KeyboardInterrupt:
            self.interrupted = self._interrupted()
            raise

    def _evaluate(self, plan: Sequence[Planned], seen: Seen) -> RunResult:
        measured = self._measured(plan)
        judged = self._judged(measured)
        stored = self._stored(judged, seen)
        traced = self._traced(stored, plan)
        reported = self._reported(self._located(traced))
        return replace(
            self._run_result(reported, stopped=stopped_after(self._rounds.maxfail)),
            suite=suite_of(first_runs(reported.cases), self._baselines.entries),
            skipped_files=seen.skipped if self._kind.has(Capability.FORECAST) else (),
            acuity=acuity_of_refresh(
                reported.cases.values(),
                reported.refreshed.taken,
                self._settings,
                self._environment.hardware,
            ),
        )

    def _interrupted(self) -> RunResult:
        """Store what has enough runs, and report the verdicts that are final."""
        cases, wanted = self._rounds.so_far(), self._rounds.wanted
        found = interrupted(cases, wanted, self._kind)
        stored = (*found.complete, *found.thin)
        refreshed = self._stored_early([cases[test] for test in stored])
        if self._settings.update is not None:
            self._announce_interruption(replace(found, failure=refreshed.failure))
        decided = {
            test: case
            for test, case in cases.items()
            if test in stored or (test not in wanted and self._judge.has_settled(case))
        }
        judged = self._judged(RunState(cases=decided, refreshed=refreshed))
        reported = replace(judged, reports=self._reports(judged))
        return self._run_result(reported, stopped=NOT_DECIDED_INTERRUPTED)

    def _announce_interruption(self, found: Interrupted) -> None:
        rest = command_for_the_rest(
            found.lost,
            self._settings.update,
            self._baselines.entries,
            self._reporter.invocation,
        )
        for line in interruption_lines(found, self._reporter.baseline_file, rest):
            self._announce(line)

    # The stages.

    def _measured(self, plan: Sequence[Planned]) -> RunState:
        """Screen every test once, and give each the runs that its verdict needs."""
        return RunState(
            cases=self._rounds.measure(
                plan, lambda done: not self._stored_early(done).failure
            )
        )

    def _judged(self, state: RunState) -> RunState:
        """Judge every call; what a refresh has taken is accepted."""
        taken = state.refreshed.taken
        verdicts = verdicts_of(state.cases, taken, self._judge.verdict)
        return replace(state, verdicts=verdicts)

    def _stored(self, state: RunState, seen: Seen) -> RunState:
        """Keep what was measured: all of it as pending, what was asked as baselines."""
        # Before the baselines: if they cannot be written, what was measured is not
        # lost.
        cases = list(state.cases.values())
        pending = self._recorder.write_pending(cases, state.verdicts)
        gone = self._leftovers(state.cases, seen)
        chosen = self._chosen(state)
        found = self._recorder.store(chosen, state.verdicts, pending, gone.removed)
        stored = replace(state, refreshed=found, leftovers=gone)
        return self._judged(stored) if found.taken else stored

    def _traced(self, state: RunState, plan: Sequence[Planned]) -> RunState:
        """Run the worst failures once more to trace them, on a device that can."""
        # After the refresh: what was just accepted as the new baseline does not fail,
        # so it needs no trace.
        if not self._kind.has(Capability.PROFILER):
            return state
        folder, run = self._settings.artefacts, self._rounds.run
        verdicts = with_traces(state.verdicts, plan, state.cases, run, folder)
        return replace(state, verdicts=verdicts)

    def _located(self, state: RunState) -> RunState:
        """Say which lines of what failed are not as they were at the baseline's commit."""
        return replace(
            state,
            verdicts={
                test: {
                    key: self._with_operations(self._with_changes(v), state.cases[test])
                    for key, v in calls.items()
                }
                for test, calls in state.verdicts.items()
            },
        )

    def _with_changes(self, verdict: TestVerdict) -> TestVerdict:
        entry = self._baselines.entries.get(verdict.test)
        if verdict.has_open_time:
            commit = self._recorded.commit_of(verdict.test, entry)
            verdict = replace(verdict, recorded=short(commit))
        if not verdict.outcome.fails:
            return verdict
        found = self._recorded.with_changes(verdict.findings, verdict.test, entry)
        return replace(verdict, findings=found)

    def _with_operations(self, verdict: TestVerdict, case: Case) -> TestVerdict:
        """Say which lines run other operations than when the baseline was recorded."""
        if not verdict.outcome.fails:
            return verdict
        entry = self._baselines.entries.get(verdict.test)
        folder, hardware = self._settings.baselines, self._environment.hardware
        stored = read_operations(folder, hardware, verdict.test, entry)
        runs = case.measurements.get(verdict.test, ())
        found = blamed([stored], [run.operations for run in runs])
        return replace(verdict, operations=found)

    def _reported(self, state: RunState) -> RunState:
        """Report every test; it fails if its baseline was not refreshed as asked."""
        reports = self._reports(state)
        chosen = self._chosen(state)
        refusal, refreshed = self._reporter.refusal, state.refreshed
        why = {
            # Its own failure says how far it drifted.
            c.test: refusal(c, refreshed, state.verdicts[c.test])
            if reports[c.test].ending.fails
            else refusal(c, refreshed)
            for c in chosen
        }
        not_refreshed = tuple(test for test in why if why[test])
        for test in not_refreshed:
            reports[test] = refused(reports[test], why[test])
        return replace(state, reports=reports, not_refreshed=not_refreshed)

    def _reports(self, state: RunState) -> dict[str, Report]:
        report, isolation = self._reporter.report, self._rounds.isolation
        shared = self._shared(state)
        reports: dict[str, Report] = {}
        for test, case in state.cases.items():
            # pytest does not show why a test fails that may.
            seen = SharedCauses() if test in self._rounds.may_fail else shared
            made = partial(report, case, state.verdicts[test], seen)
            reports[test] = isolation.reported(case, made)
        return reports

    def _shared(self, state: RunState) -> SharedCauses:
        """Return why tests fail, before any of them is reported."""
        shared = SharedCauses()
        for test in state.cases:
            for verdict in state.verdicts[test].values():
                if verdict.outcome.fails and test not in self._rounds.may_fail:
                    shared.add(test, verdict)
        return shared

    def _chosen(self, state: RunState) -> list[Case]:
        """Return the cases that a refresh takes over."""
        wanted = sorted(self._rounds.wanted)
        return [state.cases[test] for test in wanted if state.cases[test].calls]

    def _stored_early(self, cases: Sequence[Case]) -> Refreshed:
        """Store *cases* before all have been measured."""
        judged = self._judged(RunState(cases={case.test: case for case in cases}))
        return self._recorder.store(cases, judged.verdicts, None)

    def _leftovers(self, cases: Mapping[str, Case], seen: Seen) -> Leftovers:
        """Find stored entries of tests that are gone or make that call no more."""
        return leftovers(
            self._baselines.entries,
            seen,
            {test: case.calls for test, case in cases.items() if case.knows_its_calls},
            lambda file: (self._rounds.project.rootdir / file).exists(),
            prune=self._settings.prunes,
        )

    def _run_result(self, state: RunState, stopped: str) -> RunResult:
        cases, refreshed, reporter = state.cases, state.refreshed, self._reporter
        return RunResult(
            hardware=self._environment.hardware,
            baseline_file=reporter.baseline_file,
            has_commits=self._recorded.has_commits,
            reports=state.reports,
            verdicts=tuple(v for test in cases for v in state.verdicts[test].values()),
            samples=samples_of(cases.values()),
            refreshed=refreshed.changes,
            kept=refreshed.kept,
            drifts=refreshed.drifts,
            drifted_tests=tuple(
                test for test in cases if refreshed.drifts_of(cases[test].calls)
            ),
            not_refreshed=state.not_refreshed,
            leftovers=state.leftovers,
            stored=tuple(self._baselines.entries.keys() - state.leftovers.removed),
            unmeasured=tuple(test for test in self._rounds.tests if test not in cases),
            stopped=stopped,
            invocation=reporter.invocation,
            explained=self._settings.explain,
            note=reporter.note,
            warns=self._settings.warns,
        )
