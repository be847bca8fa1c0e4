"""Runs that torchrun started: rank 0 judges and reports, the others do as it says.

The pytest of each rank watches that rank. Ordinary tests run on all ranks, as torchrun
has it: a test that communicates by itself needs them all.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import closing
from contextlib import suppress
from typing import Final

import pytest

from .beside import use_beside_others
from .children import Children
from .errors import GpuperfError
from .errors import RunError
from .model.codec import decode
from .model.launch import Launch
from .model.run import RunRequest
from .plan import Planned
from .progress import Progress
from .ranked.meeting import MEASURED
from .ranked.meeting import OVER
from .ranked.meeting import Meeting
from .ranked.party import locks_name
from .ranked.party import order_name
from .ranked.party import ready_name
from .reported import is_measured
from .session import plan_of
from .session import project_of
from .settings import Settings


FIRST_SECONDS: Final = 5.0
"""For rank 0 to be the first that torchrun sees fail: it ends all others then."""

CACHES: Final = ("lfplugin", "nfplugin", "stepwiseplugin")
"""Plugins that write at the end what rank 0 writes."""


def be_quiet(config: pytest.Config) -> None:
    """Have rank 0 alone print and write reports, as pytest-xdist has its controller."""
    config.pluginmanager.unregister(name="terminal")


class Leader:
    """Tells the other ranks when all is measured, and how the run of rank 0 ended."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._status = int(pytest.ExitCode.INTERNAL_ERROR)

    def pytest_runtestloop(self) -> None:
        """Come behind the measuring and before the first ordinary test."""
        _post(self._launch, MEASURED)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session
    ) -> Generator[None, None, None]:
        ended = yield
        self._status = int(session.exitstatus)
        return ended

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Let torchrun end the others once everything is written."""
        sys.stdout.flush()
        _post(self._launch, OVER, str(self._status))


def _post(launch: Launch, name: str, text: str = "") -> None:
    """Post what the others wait for, unless they know it by the end of the store."""
    with suppress(RunError):
        Meeting(launch).post(name, text)


class Follower:
    """Executes what rank 0 orders, and ends as rank 0 does."""

    def __init__(
        self, config: pytest.Config, settings: Settings, launch: Launch
    ) -> None:
        self._config = config
        self._settings = settings
        self._launch = launch
        self._meeting: Meeting | None = None
        self._orders_heard = 0
        self._failures: list[str] = []
        self._has_told_locks = False
        self._complaint = ""
        config.option.xmlpath = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        plan = {planned.test: planned for planned in plan_of(session.items)}
        if plan and not session.testsfailed:
            try:
                self._serve(plan)
            except GpuperfError as error:
                self._complaint = str(error)
                raise pytest.UsageError(self._complaint) from None
        session.items[:] = [item for item in session.items if not is_measured(item)]
        for name in CACHES:
            self._config.pluginmanager.unregister(name=name)

    def _serve(self, plan: Mapping[str, Planned]) -> None:
        """Take part in each run until rank 0 has measured all."""
        project = project_of(self._config)
        with closing(
            Children(self._settings, project, self._say, Progress(None))
        ) as children:
            children.environment()
            self._tell_locks(children.locks)
            for run, order in self._orders(MEASURED, OVER):
                held = {*order.locks, *self._locks_before()}
                planned = plan.get(order.names[0])
                if planned is None:
                    self._refuse(run, f"it has not collected {order.names[0]}")
                    continue
                try:
                    children.follow(order, run, planned, held)
                except GpuperfError as error:
                    self._refuse(run, str(error))
            names = [seat.lock for seat in children.seats if seat.lock]
        use_beside_others(self._config, names, self._settings)

    def _tell_locks(self, locks: Sequence[str]) -> None:
        """Tell what this rank takes; the ranks behind it leave that alone."""
        self._has_told_locks = True
        self._met().post(locks_name(self._launch.rank), json.dumps(locks))

    def _locks_before(self) -> Iterator[str]:
        """Give what the ranks between rank 0 and this one take."""
        for rank in range(1, self._launch.rank):
            told = self._met().awaited(locks_name(rank), self._launch.patience_s)
            yield from json.loads(told or "[]")

    def _orders(self, *ends: str) -> Iterator[tuple[int, RunRequest]]:
        """Give the number and the request of each order, until one of *ends* comes."""
        meeting = self._met()
        while True:
            name = order_name(self._orders_heard + 1)
            if meeting.first_of(name, *ends) != name:
                return
            self._orders_heard += 1
            order = decode(RunRequest, json.loads(meeting.read(name)))
            yield self._orders_heard, order

    def _refuse(self, run: int, why: str) -> None:
        self._met().post(ready_name(run, self._launch.rank), why)

    def _met(self) -> Meeting:
        if self._meeting is None:
            self._meeting = Meeting(self._launch)
        return self._meeting

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._keep_failure(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._keep_failure(report)

    def _keep_failure(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            self._failures.append(f"{report.nodeid} failed\n{report.longreprtext}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session
    ) -> Generator[None, None, None]:
        """Wait for the end of rank 0: torchrun ends it when another rank ends badly."""
        ended = yield
        for failure in self._failures:
            self._say(failure)
        try:
            status = self._status_of_rank_0()
        except RunError as error:
            if not self._complaint:
                self._say(str(error))
            status = int(pytest.ExitCode.INTERNAL_ERROR)
        none = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
        if session.exitstatus in none:
            session.exitstatus = status
        if session.exitstatus != pytest.ExitCode.OK:
            time.sleep(FIRST_SECONDS)
        return ended

    def _status_of_rank_0(self) -> int:
        if not self._has_told_locks:
            self._tell_locks(())
        why = "its tests could not be collected" if self._failures else "it has ended"
        for run, _ in self._orders(OVER):
            self._refuse(run, why)
        return int(self._met().read(OVER))

    def _say(self, text: str) -> None:
        """Say on the error output what nobody else would."""
        print(f"rank {self._launch.rank}: {text}", file=sys.stderr, flush=True)  # noqa: T201
