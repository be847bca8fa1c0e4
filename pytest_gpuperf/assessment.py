"""Measure the planned tests in children, judge them, refresh their baselines."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from .assessed import Assessment
from .baselines.refresh import selects
from .baselines.store import path_of
from .baselines.store import read
from .children import Children
from .ending import refused
from .ending import report_of
from .gate import Case
from .gate import Group
from .gate import Judge
from .gate import Run
from .gate import complete
from .gate import first_runs
from .gate import samples_of
from .gate import screen
from .judge.climate import Climate
from .judge.referred import referred
from .judging import climate_of
from .judging import judge_calls
from .judging import settle_together
from .judging import suite_of
from .memory_evidence import RECORDING
from .memory_evidence import Recording
from .memory_evidence import record_memory
from .model.baseline import full_runs
from .model.environment import DeviceKind
from .model.leftovers import Leftovers
from .model.refresh import Refresh
from .model.run import Call
from .model.seat import Seat
from .model.settlement import Settlement
from .model.verdict import TestVerdict
from .outlook import Outlook
from .plan import Planned
from .plan import Project
from .plan import groups_of
from .plan import repeated_options
from .plan import shown_path
from .progress import Progress
from .pruning import Seen
from .pruning import leftovers
from .recording import Recorder
from .recording import Refreshed
from .referring import Referee
from .referring import doubts_of
from .report.drift import drift_text
from .report.failure import failure_text
from .settings import Settings
from .trace_evidence import TRACED
from .trace_evidence import forget_traces
from .trace_evidence import with_traces
from .verdicts import verdicts_of


class Assessor:
    """Owns the measuring processes, the baselines and the settings of one enabled run."""

    def __init__(
        self,
        settings: Settings,
        project: Project,
        announce: Callable[[str], None],
        referee: Referee | None = None,
        show: Callable[[str], None] | None = None,
    ) -> None:
        """*show* is told how far it is, all the time, *announce* what must stay."""
        self._settings = settings
        self._progress = Progress(show)
        self._referee = referee
        self._settlements: Mapping[str, Settlement] = {}
        self._project = project
        self._announce = announce
        self._children = Children(settings, project, announce, self._progress)
        try:
            self._environment = self._children.environment()
            self._baselines = read(settings.baselines, self._environment.hardware)
            self._outlook = Outlook(settings, self._baselines, announce)
        except BaseException:
            self._children.close()
            raise

    @property
    def seats(self) -> tuple[Seat, ...]:
        """Where tests are measured side by side."""
        return self._children.seats

    def close(self) -> None:
        """End the measuring processes."""
        self._children.close()

    def assess(self, plan: Sequence[Planned], seen: Seen) -> Assessment:
        """Measure, judge and, if asked, refresh; every planned test gets a report.

        *seen* are the tests that there are, beside those of *plan*.
        """
        forget_traces(self._settings.artefacts)
        groups = groups_of(plan, self._settings.isolation)
        kind = self._environment.hardware.kind
        self._children.assign(groups, self._board_of)
        run = partial(
            self._children.run,
            kind,
            {planned.test: planned for planned in plan},
        )
        origin = self._referee.origin() if self._referee else None
        cases = screen(groups, run)
        first, entries = first_runs(cases), self._baselines.entries
        climate = climate_of(first, entries, self._settings.precision)
        self._refer(plan, cases, climate)
        selected = self._settle(groups, run, cases, climate)
        self._record_memory(groups, run, cases, climate, selected)
        recorder = Recorder(self._settings, self._baselines, self._announce, origin)
        judge = partial(self._judge_last, climate)
        verdicts = verdicts_of(cases, {}, judge)
        pending = recorder.write_pending(list(cases.values()), verdicts)
        gone = self._leftovers(cases, seen)
        chosen = [cases[test] for test in sorted(selected)]
        refreshed = recorder.store(chosen, pending, gone.removed)
        if refreshed.taken:
            verdicts = verdicts_of(cases, refreshed.taken, judge)
        if kind in TRACED:
            folder = self._settings.artefacts
            verdicts = with_traces(verdicts, plan, cases, run, folder)
        reports = {
            test: report_of(
                case, verdicts[test], self._settings, partial(self._explain, test)
            )
            for test, case in cases.items()
        }
        for test in selected:
            text = self._refusal(cases[test], refreshed)
            reports[test] = refused(reports[test], text) if text else reports[test]
        return Assessment(
            hardware=self._environment.hardware,
            baseline_file=self._baseline_file,
            software=self._environment.software,
            origin=origin,
            reports=reports,
            verdicts=tuple(v for test in cases for v in verdicts[test].values()),
            samples=samples_of(cases.values()),
            suite=suite_of(first, entries),
            refreshed=refreshed.changes,
            kept=refreshed.kept,
            drifts=refreshed.drifts,
            drifted_tests=tuple(
                test for test in cases if refreshed.drifts_of(cases[test].calls)
            ),
            leftovers=gone,
            skipped_files=seen.skipped if kind is DeviceKind.PRETEND else (),
            acuity=self._outlook.acuity(cases.values(), refreshed.taken),
            options=repeated_options(self._settings),
            explained=self._settings.explain,
            note=self._settings.note_on(kind),
        )

    def _refer(
        self, plan: Sequence[Planned], cases: Mapping[str, Case], climate: Climate
    ) -> None:
        """Let other code settle the times that their baselines do not pass."""
        judge = partial(self._judge, climate)
        doubts = doubts_of(plan, cases, self._baselines.entries, judge)
        if self._referee and doubts:
            self._settlements = self._referee.settle(
                doubts, self._project, self._environment.hardware, self._announce
            )

    def _settle(
        self,
        groups: Sequence[Group],
        run: Run,
        cases: Mapping[str, Case],
        climate: Climate,
    ) -> set[str]:
        """Give each test the runs its verdict or its refresh needs; return the latter."""
        judge = partial(self._judge, climate)
        is_confirmed = self._settings.update is Refresh.IMPROVED
        if is_confirmed:
            self._outlook.confirm(groups, run, cases, judge, climate)
        selected = self._selected(cases, judge)
        chosen = [cases[test] for test in sorted(selected)]
        self._outlook.announce_refresh(chosen)
        runs = full_runs(self._environment.hardware.kind)
        self._progress.expect(runs)
        complete(groups, run, cases, dict.fromkeys(selected, runs))
        self._progress.expect(None)
        complete(groups, run, cases, self._outlook.stored_runs(chosen))
        if not is_confirmed:
            rest = [group for group in groups if not selected.issuperset(group)]
            self._outlook.confirm(rest, run, cases, judge, climate)
        return {test for test in selected if cases[test].calls}

    def _record_memory(
        self,
        groups: Sequence[Group],
        run: Recording,
        cases: Mapping[str, Case],
        climate: Climate,
        accepted: Collection[str],
    ) -> None:
        if self._environment.hardware.kind in RECORDING:
            rest = [group for group in groups if not set(group).intersection(accepted)]
            judge = partial(self._judge, climate)
            record_memory(rest, run, cases, judge, self._settings.artefacts)

    def _leftovers(self, cases: Mapping[str, Case], seen: Seen) -> Leftovers:
        """Find stored entries whose tests are gone, or do not make that call any more."""
        return leftovers(
            self._baselines.entries,
            seen,
            {test: case.calls for test, case in cases.items() if case.calls},
            lambda file: (self._project.rootdir / file).exists(),
            prune=self._settings.prune,
        )

    def _board_of(self, group: Group) -> str | None:
        """Return the GPU that a baseline of *group* was last recorded on."""
        entries = (self._baselines.entries.get(test) for test in group)
        runs = (entry.runs[-1] for entry in entries if entry and entry.runs)
        return next((run.board.gpu for run in runs if run.board.gpu), None)

    def _selected(self, cases: Mapping[str, Case], judge: Judge) -> set[str]:
        kind = self._settings.update
        if kind is None:
            return set()
        verdicts = settle_together(
            {
                test: {key: judge(calls) for key, calls in case.calls.items()}
                for test, case in cases.items()
            }
        )
        return {
            test
            for test, case in cases.items()
            for key, runs in case.measurements.items()
            if selects(
                kind, verdicts[test][key], self._baselines.entries.get(key), runs
            )
        }

    def _judge(self, climate: Climate, calls: Sequence[Call]) -> TestVerdict:
        key = calls[-1].measurement.test
        entry = self._baselines.entries.get(key)
        judged = judge_calls(calls, entry, climate, self._settings.tolerance)
        return referred(judged, self._settlements.get(key))

    def _judge_last(self, climate: Climate, calls: Sequence[Call]) -> TestVerdict:
        """Judge by the usual runs what had no time for those of a precision."""
        verdict = self._judge(climate, calls)
        if verdict.settled:
            return verdict
        return self._judge(replace(climate, precision=None), calls)

    def _refusal(self, case: Case, refreshed: Refreshed) -> str:
        """Say why the refresh did not take *case* as it should; nothing if it did."""
        drifts = refreshed.drifts_of(case.calls)
        if drifts:
            return drift_text(
                drifts,
                nodeid=case.test,
                baseline_file=self._baseline_file,
                options=repeated_options(self._settings),
            )
        return "" if refreshed.taken.keys() >= case.calls.keys() else refreshed.failure

    @property
    def _baseline_file(self) -> str:
        path = path_of(self._settings.baselines, self._environment.hardware)
        return shown_path(path, self._project.rootdir)

    def _explain(self, nodeid: str, verdict: TestVerdict) -> str:
        return failure_text(
            verdict,
            nodeid=nodeid,
            baseline_file=self._baseline_file,
            options=repeated_options(self._settings),
        )
