"""What runs inside a measuring process: pytest on the tests of one run."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import Final
from typing import Protocol

import pytest

from .devices import default_kind
from .devices import open_device
from .devices.cuda_memory import out_of_memory_summary
from .devices.pretend.device import PretendDevice
from .devices.pretend.refusal import NeedsGpuError
from .devices.protocol import Device
from .devices.seats import VISIBLE
from .devices.seats import seats_of
from .errors import GpuperfError
from .errors import RunError
from .fixture import Measurer
from .fixture import measurer_key
from .measured_call import Artefacts
from .measuring import Measuring
from .model.codec import decode
from .model.codec import encode
from .model.environment import DeviceKind
from .model.run import Call
from .model.run import ComparedCall
from .model.run import Ending
from .model.run import RunRequest
from .model.run import TestResult
from .reported import recorded
from .runs.saying import say
from .runs.saying import say_seldom


AnyDevice = Device | PretendDevice

QUIET: Final = (
    "-q",
    "-o",
    "addopts=",
    *(f"-pno:{name}" for name in ("lfplugin", "nfplugin", "stepwiseplugin")),
    "-pno:rerunfailures",
)
"""A child reports to its parent alone: it leaves no trace in the cache that
``--lf``, ``--nf`` and ``--stepwise`` read, and does not rerun on its own."""


def warm_pytest() -> None:
    """Import pytest's plugins and the phases here, in the server, not in each child."""
    importlib.import_module("pytest_gpuperf.probes.phases")
    with tempfile.TemporaryDirectory() as folder:
        pytest.main(["--collect-only", f"--rootdir={folder}", *QUIET, folder])


def describe(request: Mapping[str, Any]) -> dict[str, Any]:
    """Name the environment and where to measure; a usage error is an answer too."""
    try:
        kind = DeviceKind(request["kind"]) if request["kind"] else default_kind()
        device = open_device(kind, request["script"])
        seats = [encode(seat) for seat in seats_of(kind, request["script"])]
        return {"environment": encode(device.environment()), "seats": seats}
    except GpuperfError as error:
        return {"error": str(error)}


def measure(raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Run pytest on the tests of one run and return a result a test."""
    request = decode(RunRequest, raw)
    enter(request)
    measuring = measuring_for(request, arriving=say, follow=say_seldom)
    return [encode(result) for result in run_tests(request, measuring)]


def enter(request: RunRequest) -> None:
    """Let code find what it finds where the project's tests are run."""
    if request.visible is not None:
        os.environ[VISIBLE] = request.visible  # CUDA reads it when it is first used
    os.chdir(request.directory)
    sys.path[:] = request.search_path
    sys.argv = ["pytest", *request.tests]


def measuring_for(
    request: RunRequest,
    watch: Callable[[AnyDevice], AnyDevice] = lambda device: device,
    arriving: Callable[[str], None] = lambda _: None,
    follow: Callable[[str, str], object] = lambda _, __: None,
) -> Measuring:
    """Open the device, and measure on the one that *watch* makes of it.

    What pretends does so from before collection on, to the end. *arriving* is told the
    key of each call before it is measured, *follow* the key and what is done to it.
    """
    device = open_device(
        request.device,
        request.script,
        request.number,
        root=request.root,
        disposable=True,
        pretend_gib=request.pretend_gib,
    )
    if isinstance(device, PretendDevice):
        device.enter()
    return Measuring(
        watch(device),
        request.seconds,
        Artefacts(
            recordings=_folder(request.recordings), traces=_folder(request.traces)
        ),
        project=request.tolerance,
        arriving=arriving,
        follow=follow,
    )


def _folder(named: str | None) -> Path | None:
    return None if named is None else Path(named)


def run_tests(
    request: RunRequest,
    keeper: Keeper,
    *,
    failed: Callable[[TestResult], None] = lambda _: None,
) -> Sequence[TestResult]:
    """Run pytest with *keeper* behind the fixture; raise ``RunError`` if nothing ran.

    *failed* is called when a test has failed, before it is torn down.
    """
    child = MeasuringProcess(request, keeper, failed)
    code = pytest.main([*QUIET, *request.arguments, *request.tests], plugins=[child])
    results = child.results()
    if not results:
        msg = f"pytest exited with {int(code)} there and ran no test"
        raise RunError(msg)
    return results


class Keeper(Measurer, Protocol):
    """What stands behind the fixture, and keeps what it measured by test."""

    def calls_of(self, test: str) -> tuple[Call, ...]:
        """Return what was measured."""

    def comparisons_of(self, test: str) -> tuple[ComparedCall, ...]:
        """Return what was compared."""

    def foresaw(self, test: str) -> bool:
        """Whether it asked what a step would need."""


class MeasuringProcess:
    """The plugin of a measuring process: the fixture measures, the reports are kept."""

    def __init__(
        self,
        request: RunRequest,
        keeper: Keeper,
        failed: Callable[[TestResult], None],
    ) -> None:
        self._request = request
        self._failed = failed
        self._measuring = keeper
        self._results: dict[str, TestResult] = {}
        self._started: dict[str, float] = {}

    def results(self) -> Sequence[TestResult]:
        return list(self._results.values())

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[measurer_key] = self._measuring
        for name, value in self._request.options.items():
            setattr(config.option, name, value)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._started[nodeid] = time.monotonic()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        error = None if call.excinfo is None else call.excinfo.value
        if error is not None:
            _add_memory_summary(item, call.when, error)
        report = yield
        # An unexpected pass is for the controlling process to see: a verdict is due.
        ended = TestResult(test=item.nodeid, ending=Ending.PASSED)
        if error is not None:
            needs_gpu = isinstance(error, NeedsGpuError)
            ended = replace(_ended(report), needs_gpu=needs_gpu)
        self._keep(item, report, ended)
        kept = self._results[item.nodeid]
        if kept.ending is Ending.FAILED:
            self._failed(kept)
        return report

    def _keep(
        self, item: pytest.Item, report: pytest.TestReport, ended: TestResult
    ) -> None:
        known = self._results.get(item.nodeid)
        if known and known.ending is not Ending.PASSED:
            ended = known
        self._results[item.nodeid] = replace(
            ended,
            sections=tuple(report.sections),
            properties=recorded(item),
            calls=self._measuring.calls_of(item.nodeid),
            foresaw=self._measuring.foresaw(item.nodeid),
            comparisons=self._measuring.comparisons_of(item.nodeid),
            seconds=time.monotonic() - self._started[item.nodeid],
        )


def _add_memory_summary(item: pytest.Item, when: str, error: BaseException) -> None:
    summary = out_of_memory_summary(error)
    if summary is not None:
        item.add_report_section(when, "CUDA memory", summary)


def _ended(report: pytest.TestReport) -> TestResult:
    result = TestResult(test=report.nodeid, ending=Ending.FAILED)
    if hasattr(report, "wasxfail"):
        return replace(result, ending=Ending.XFAILED, text=str(report.wasxfail))
    if report.skipped:
        return replace(result, ending=Ending.SKIPPED, text=_skip_reason(report))
    return replace(result, text=report.longreprtext, headline=_headline(report))


def _headline(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    first, *_ = str(getattr(crash, "message", "")).splitlines() or [""]
    return first


def _skip_reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return report.longreprtext
