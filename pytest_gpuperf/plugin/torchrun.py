"""Runs started by torchrun: rank 0 judges and reports, the others follow it.

The pytest of each rank watches that rank. Ordinary tests run on all ranks, as usual
under torchrun: a test that communicates by itself needs them all.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Final

import pytest

from ..distributed.torchrun import (
    MEASURED,
    OVER,
    LaunchStore,
    locks_name,
    order_name,
    ready_name,
)
from ..errors import GpuperfError, RunError
from ..model.codec import decode
from ..model.environment import Launch
from ..report.secrets import masked, secrets_of
from ..runner.pool import Progress, WorkerPool
from ..runner.request import Planned, RunRequest
from ..settings import Settings
from ..visible import visible_text
from ..worker.items import is_measured, plan_of
from .session import project_of


FIRST_SECONDS: Final = 5.0
"""Head start of rank 0: torchrun ends all ranks when it sees the first one fail."""

CACHES: Final = ("lfplugin", "nfplugin", "stepwiseplugin")
"""Plugins that write a file at the end which rank 0 writes already."""


def be_quiet(config: pytest.Config) -> None:
    """Let only rank 0 print and write reports, like the controller of pytest-xdist."""
    config.pluginmanager.unregister(name="terminal")


class Leader:
    """Notifies the other ranks that all is measured, and how rank 0 ended."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._session: pytest.Session | None = None

    def pytest_runtestloop(self) -> None:
        """Notify the others after the measuring and before the first ordinary test."""
        _post(self._launch, MEASURED)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Let torchrun end the others once everything is written."""
        sys.stdout.flush()
        status = pytest.ExitCode.INTERNAL_ERROR
        ended = self._session.exitstatus if self._session else status
        _post(self._launch, OVER, str(int(ended)))


def _post(launch: Launch, name: str, text: str = "") -> None:
    """Post what the others wait for, unless they know it by the end of the store."""
    with suppress(RunError):
        LaunchStore(launch).post(name, text)


class Follower:
    """Executes what rank 0 orders, and ends as rank 0 does."""

    def __init__(
        self, config: pytest.Config, settings: Settings, launch: Launch
    ) -> None:
        self._config = config
        self._settings = settings
        self._launch = launch
        self._store: LaunchStore | None = None
        self._orders_heard = 0
        self._failures: list[str] = []
        self._has_posted_locks = False
        self._complaint = ""
        # Every rank would write the same file. pytest's own plugin reads the option
        # after this hook, as plugins registered later are called first.
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
        # Rank 0 reports the measured tests. Here pytest's loop would set their fixtures
        # up again.
        session.items[:] = [item for item in session.items if not is_measured(item)]
        for name in CACHES:
            self._config.pluginmanager.unregister(name=name)

    def _serve(self, plan: Mapping[str, Planned]) -> None:
        """Take part in each run until rank 0 has measured all."""
        project = project_of(self._config)
        with closing(
            WorkerPool(self._settings, project, self._say, Progress(None))
        ) as children:
            children.environment()
            self._post_locks(children.locks)
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

    def _post_locks(self, locks: Sequence[str]) -> None:
        """Post the locks that this rank takes; later ranks do not take them again."""
        self._has_posted_locks = True
        self._launch_store().post(locks_name(self._launch.rank), json.dumps(locks))

    def _locks_before(self) -> Iterator[str]:
        """Yield the locks that the ranks between rank 0 and this one take."""
        for rank in range(1, self._launch.rank):
            posted = self._launch_store().awaited(
                locks_name(rank), self._launch.patience_s
            )
            yield from json.loads(posted or "[]")

    def _orders(self, *ends: str) -> Iterator[tuple[int, RunRequest]]:
        """Yield the number and the request of each order, until one of *ends* comes."""
        store = self._launch_store()
        while True:
            name = order_name(self._orders_heard + 1)
            if store.first_of(name, *ends) != name:
                return
            self._orders_heard += 1
            order = decode(RunRequest, json.loads(store.read(name)))
            yield self._orders_heard, order

    def _refuse(self, run: int, why: str) -> None:
        self._launch_store().post(ready_name(run, self._launch.rank), why)

    def _launch_store(self) -> LaunchStore:
        if self._store is None:
            self._store = LaunchStore(self._launch)
        return self._store

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
        # This rank has left the measured tests out, so having run none is no failure of
        # its own.
        none = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
        if session.exitstatus in none:
            session.exitstatus = status
        if session.exitstatus != pytest.ExitCode.OK:
            # torchrun reports the rank that failed first, and only rank 0 has a full
            # report.
            time.sleep(FIRST_SECONDS)
        return ended

    def _status_of_rank_0(self) -> int:
        # Later ranks wait for this entry, also if this one never came to measure.
        if not self._has_posted_locks:
            self._post_locks(())
        why = "its tests could not be collected" if self._failures else "it has ended"
        for run, _ in self._orders(OVER):
            self._refuse(run, why)
        return int(self._launch_store().read(OVER))

    def _say(self, text: str) -> None:
        """Print to the error output: this rank has no terminal reporter."""
        said = masked(f"rank {self._launch.rank}: {text}", secrets_of(os.environ))
        shown = visible_text(said)
        print(shown, file=sys.stderr, flush=True)  # noqa: T201
