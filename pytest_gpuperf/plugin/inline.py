"""``--gpuperf-inline``: measure in this process, for a debugger.

One run is no evidence for a slowdown: exact metrics are judged, time is only screened.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import replace
from datetime import datetime
from datetime import timezone
from typing import Any
from typing import Final
from unittest import SkipTest

import pytest

from ..baselines.store import read
from ..devices import default_kind
from ..devices import open_device
from ..devices.base import Device
from ..devices.pretend import NeedsGpuError
from ..errors import GpuperfError
from ..judge.calls import counted
from ..judge.calls import judge_calls
from ..judge.calls import occasions_prior_of
from ..judge.calls import prior_of
from ..judge.calls import stored_round_steps
from ..judge.context import SuiteContext
from ..judge.early_end import stored_steps
from ..model.baseline import occasion_id
from ..model.environment import PRETEND_GIB
from ..model.environment import DeviceKind
from ..model.measurement import Samples
from ..model.metric import MetricKind
from ..model.metrics import METRICS
from ..model.run import Ending
from ..model.run import Report
from ..model.run import TestResult
from ..model.verdict import TestVerdict
from ..model.verdict import Verdict
from ..report.json.results import to_json
from ..report.secrets import masked
from ..report.secrets import secrets_of
from ..runner.evaluation import RunResult
from ..runner.outcome import Reporter
from ..runner.request import RunRequest
from ..runner.screening import Case
from ..runner.screening import left_open
from ..runner.screening import samples_of
from ..runner.verdicts import compared
from ..runner.verdicts import unjudged
from ..settings import Settings
from ..worker.fixture import measurer_key
from ..worker.items import asks
from ..worker.items import is_measured
from ..worker.items import params_of
from ..worker.items import recorded
from ..worker.measurer import Measuring
from ..worker.unmeasured import chosen_key
from .collection import SELECTION
from .options import early_value
from .parse_settings import positive_gib
from .reported_items import end_as
from .reported_items import remember
from .session import ReportedRun
from .terminal import write_nothing
from .terminal import write_rest
from .terminal import write_summary


_pretending: Final[pytest.StashKey[Device]] = pytest.StashKey()


def pretend_if_asked(config: pytest.Config) -> None:
    """Activate the pretend GPU until the end of the session, if it is the device."""
    named = early_value(config, "gpuperf_device") or default_kind().value
    if named == DeviceKind.PRETEND.value:
        device = open_device(
            DeviceKind.PRETEND,
            root=str(config.rootpath),
            pretend_gib=_pretend_gib(config),
        )
        device.enter()
        config.add_cleanup(device.leave)
        config.stash[_pretending] = device


def _pretend_gib(config: pytest.Config) -> float:
    """Return the size asked for; a wrong one is refused later, with the settings."""
    asked = early_value(config, "gpuperf_pretend_gb")
    try:
        return PRETEND_GIB if asked is None else positive_gib(str(asked))
    except ValueError:
        return PRETEND_GIB


class InlineSession(ReportedRun):
    """Judges each measured test when its call has ended; none can get lost."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        super().__init__(config, settings)
        try:
            device = _device(config, settings)
            self._hardware = device.environment().hardware
            self._baselines = read(settings.baselines, self._hardware)
        except GpuperfError as error:
            raise pytest.UsageError(str(error)) from None
        entries, kind = self._baselines.entries.values(), self._hardware.kind
        self._suite_context = SuiteContext(
            prior=prior_of(entries, kind),
            occasions=occasions_prior_of(entries, kind),
            now=occasion_id(datetime.now(timezone.utc)),
        )
        self._reporter = Reporter(
            settings=settings,
            hardware=self._hardware,
            rootdir=config.rootpath,
            directory=config.invocation_params.dir,
        )
        self._verdicts: list[TestVerdict] = []
        self._reports: dict[str, Report] = {}
        self._samples: dict[str, tuple[Samples, ...]] = {}
        request = RunRequest(
            tests=(),
            device=kind,
            settings=settings,
            stored=counted(self._baselines.entries),
            round_steps=stored_round_steps(self._baselines.entries),
            stored_steps=(
                {} if settings.update else stored_steps(self._baselines.entries, kind)
            ),
        )
        self._measuring = Measuring(device, request)
        config.stash[measurer_key] = self._measuring
        config.stash[chosen_key] = self._chosen = set[str]()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in filter(is_measured, session.items):
            self._chosen.add(item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        if item.nodeid not in self._chosen:
            return (yield)
        try:
            yield
        # pytest's own outcomes, such as a skip, derive from BaseException.
        except BaseException as error:
            self._end(item, error)
            raise
        passed = TestResult(test=item.nodeid, ending=Ending.PASSED)
        self._judge(item, self._case(item, passed))

    def _end(self, item: pytest.Item, error: BaseException) -> None:
        """Judge a skipped test if it would hide a failure that was measured before."""
        ended = _ended(item, error)
        case = self._case(item, ended)
        if ended.ending is Ending.SKIPPED and self._verdicts_on(case):
            self._judge(item, case)
        else:
            self._remember_end(item, ended)

    def _remember_end(self, item: pytest.Item, result: TestResult) -> None:
        verdicts = unjudged(result)
        self._verdicts.extend(verdicts.values())
        self._reports[item.nodeid] = Report(
            test=item.nodeid,
            ending=result.ending,
            verdicts=tuple(map(to_json, verdicts.values())),
        )

    def _case(self, item: pytest.Item, ended: TestResult) -> Case:
        """Return the one run of *item*, and what was measured in it."""
        measured = replace(
            self._measuring.added_to(ended, item.nodeid),
            properties=recorded(item),
            asked=asks(item),
        )
        return Case(item.nodeid, [measured])

    def _judge(self, item: pytest.Item, case: Case) -> None:
        self._samples |= samples_of([case])
        self.params = {**self.params, item.nodeid: params_of(item)}
        verdicts = self._verdicts_on(case)
        self._verdicts.extend(verdicts.values())
        report = self._reporter.report(case, verdicts)
        self._reports[item.nodeid] = report
        remember(item, report)
        end_as(report)

    def _verdicts_on(self, case: Case) -> dict[str, TestVerdict]:
        """Judge what was measured; after a skip keep only failures."""
        entries, tolerance = self._baselines.entries, self._settings.tolerance
        judged = {
            key: judge_calls(calls, entries.get(key), self._suite_context, tolerance)
            for key, calls in case.judged.items()
        }
        why = "inline, time is only screened"
        found = {
            key: left_open(verdict, _is_open, why)
            for key, verdict in {**judged, **compared(case)}.items()
        }
        if case.last.ending is Ending.PASSED:
            return found
        return {key: verdict for key, verdict in found.items() if verdict.outcome.fails}

    @property
    def run_result(self) -> RunResult:
        """What came of the tests so far."""
        return RunResult(
            hardware=self._hardware,
            baseline_file=self._reporter.baseline_file,
            reports=self._reports,
            verdicts=tuple(self._verdicts),
            samples=self._samples,
            stored=tuple(self._baselines.entries),
            explained=self._settings.explain,
            invocation=self._reporter.invocation,
            note=self._reporter.note,
            warns=self._settings.warns,
        )

    # The outermost wrapper: behind the yield every other plugin has set its status.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session
    ) -> Generator[None, None, None]:
        ended = yield
        red = self.unseen.fails or self._heard.has_failed(self._failing)
        if red and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return ended

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._reports:
            write_summary(terminalreporter, self.run_result, self.unseen)
            return
        selection = terminalreporter.config.stash[SELECTION]
        write_rest(terminalreporter, self.run_result, self.unseen)
        write_nothing(terminalreporter, self.unseen, selection.nothing_because)


def _ended(item: pytest.Item, error: BaseException) -> TestResult:
    skipped = isinstance(error, (pytest.skip.Exception, SkipTest))
    return TestResult(
        test=item.nodeid,
        ending=Ending.SKIPPED if skipped else Ending.FAILED,
        text=masked(str(error), secrets_of(os.environ)),
        needs_gpu=isinstance(error, NeedsGpuError),
    )


def _device(config: pytest.Config, settings: Settings) -> Device:
    pretending = config.stash.get(_pretending, None)
    if pretending is not None:
        return pretending
    return open_device(
        settings.device or default_kind(),
        settings.script,
        root=str(config.rootpath),
        peak_tflops=settings.peak_tflops,
    )


def _is_open(verdict: Verdict) -> bool:
    """Whether it is of a time that could still fail in a process of its own."""
    is_exact = METRICS[verdict.metric].kind is MetricKind.EXACT
    return not is_exact and (not verdict.settled or verdict.outcome.fails)
