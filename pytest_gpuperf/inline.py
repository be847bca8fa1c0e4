"""``--gpuperf-inline``: measure in this process, for a debugger.

One run is no evidence for a slowdown: exact metrics are judged, time is only screened.
"""

from __future__ import annotations

from collections.abc import Generator
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from typing import Final
from unittest import SkipTest

import pytest

from .assessed import Assessment
from .baselines.store import path_of
from .baselines.store import read
from .devices import default_kind
from .devices import open_device
from .devices.pretend.device import PretendDevice
from .devices.pretend.refusal import NeedsGpuError
from .devices.protocol import Device
from .ending import report_of
from .errors import GpuperfError
from .fixture import measurer_key
from .gate import Case
from .gate import samples_of
from .judge.climate import Climate
from .judging import judge_calls
from .judging import prior_of
from .measuring import Measuring
from .model.environment import PRETEND_GIB
from .model.environment import DeviceKind
from .model.measurement import Samples
from .model.metric import METRICS
from .model.metric import Kind
from .model.run import Ending
from .model.run import Report
from .model.run import TestResult
from .model.verdict import Outcome
from .model.verdict import TestVerdict
from .model.verdict import Verdict
from .options import early_value
from .parametrized import params_of
from .plan import repeated_options
from .plan import shown_path
from .report.failure import failure_text
from .report.verdict_json import to_json
from .reported import end_as
from .reported import is_measured
from .reported import recorded
from .reported import remember
from .resolving import positive_gib
from .settings import Settings
from .summary import write_summary
from .verdicts import compared
from .verdicts import unjudged


_pretending: Final[pytest.StashKey[PretendDevice]] = pytest.StashKey()


def pretend_if_asked(config: pytest.Config) -> None:
    """Have a pretend GPU from here to the end of the session, if it is the device."""
    named = early_value(config, "gpuperf_device") or default_kind().value
    if named == DeviceKind.PRETEND.value:
        device = PretendDevice(str(config.rootpath), _pretend_gib(config))
        device.enter()
        config.add_cleanup(device.leave)
        config.stash[_pretending] = device


def _pretend_gib(config: pytest.Config) -> float:
    """Return what was asked for; what cannot be read is refused with the settings."""
    asked = early_value(config, "gpuperf_pretend_gb")
    try:
        return PRETEND_GIB if asked is None else positive_gib(str(asked))
    except ValueError:
        return PRETEND_GIB


class InlineSession:
    """Judges each measured test when its call has ended."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        try:
            device = _device(config, settings)
            self._hardware = device.environment().hardware
            self._baselines = read(settings.baselines, self._hardware)
        except GpuperfError as error:
            raise pytest.UsageError(str(error)) from None
        self._settings = settings
        self._climate = Climate(
            prior=prior_of(self._baselines.entries.values(), self._hardware.kind)
        )
        self._root = config.rootpath
        self._verdicts: list[TestVerdict] = []
        self._reports: dict[str, Report] = {}
        self._samples: dict[str, tuple[Samples, ...]] = {}
        self.params: dict[str, Mapping[str, object]] = {}
        self._measuring = Measuring(
            device, settings.seconds, project=settings.tolerance
        )
        config.stash[measurer_key] = self._measuring

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        if not is_measured(item):
            return (yield)
        try:
            yield
        except BaseException as error:
            self._remember_end(item, error)
            raise
        self._judge(item)

    def _remember_end(self, item: pytest.Item, error: BaseException) -> None:
        skipped = isinstance(error, (pytest.skip.Exception, SkipTest))
        result = TestResult(
            test=item.nodeid,
            ending=Ending.SKIPPED if skipped else Ending.FAILED,
            text=str(error),
            needs_gpu=isinstance(error, NeedsGpuError),
        )
        verdicts = unjudged(result)
        self._verdicts.extend(verdicts.values())
        self._reports[item.nodeid] = Report(
            test=item.nodeid,
            ending=result.ending,
            verdicts=tuple(map(to_json, verdicts.values())),
        )

    def _judge(self, item: pytest.Item) -> None:
        case = Case(item.nodeid)
        case.results.append(
            TestResult(
                test=item.nodeid,
                ending=Ending.PASSED,
                properties=recorded(item),
                calls=self._measuring.calls_of(item.nodeid),
                comparisons=self._measuring.comparisons_of(item.nodeid),
            )
        )
        self._samples |= samples_of([case])
        self.params[item.nodeid] = params_of(item)
        entries = self._baselines.entries
        verdicts = {
            key: _screened(
                judge_calls(
                    by_run, entries.get(key), self._climate, self._settings.tolerance
                )
            )
            for key, by_run in case.calls.items()
        }
        verdicts |= {key: _screened(v) for key, v in compared(case).items()}
        self._verdicts.extend(verdicts.values())
        report = report_of(
            case, verdicts, self._settings, partial(self._explain, item.nodeid)
        )
        self._reports[item.nodeid] = report
        remember(item, report)
        end_as(report)

    def _explain(self, nodeid: str, verdict: TestVerdict) -> str:
        return failure_text(
            verdict,
            nodeid=nodeid,
            baseline_file=self._baseline_file,
            options=repeated_options(self._settings),
        )

    @property
    def _baseline_file(self) -> str:
        path = path_of(self._settings.baselines, self._hardware)
        return shown_path(path, self._root)

    lost: Final[list[str]] = []
    """What was judged here was reported here."""

    @property
    def assessment(self) -> Assessment:
        """What came of the tests so far."""
        return Assessment(
            hardware=self._hardware,
            baseline_file=self._baseline_file,
            reports=self._reports,
            verdicts=tuple(self._verdicts),
            samples=self._samples,
            explained=self._settings.explain,
            note=self._settings.note_on(self._hardware.kind),
        )

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._reports:
            write_summary(terminalreporter, self.assessment, self.lost)


def _device(config: pytest.Config, settings: Settings) -> Device | PretendDevice:
    pretending = config.stash.get(_pretending, None)
    if pretending is not None:
        return pretending
    return open_device(
        settings.device or default_kind(), settings.script, root=str(config.rootpath)
    )


def _is_open(verdict: Verdict) -> bool:
    """Whether a time could still fail in a process of its own."""
    return not verdict.settled or verdict.outcome.fails


def _screened(verdict: TestVerdict) -> TestVerdict:
    """Keep exact verdicts as they are; leave open what only more runs could decide."""
    return replace(
        verdict,
        verdicts=tuple(
            v
            if METRICS[v.metric].kind is Kind.EXACT or not _is_open(v)
            else replace(
                v,
                outcome=Outcome.INCONCLUSIVE,
                because=f"{v.because}; inline, time is only screened",
                settled=True,
            )
            for v in verdict.verdicts
        ),
    )
