"""pytest-xdist: the controller measures, the workers only report.

Each worker writes the measured tests it collected into a folder of the run; when the
last has collected, the controller measures them all, writes the reports next to them
and lets the workers start. What crosses processes is JSON text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from ..baselines.store import stored_keys
from ..devices.machine import VISIBLE_DEVICES, seeing, visible_gpu_count
from ..files import scratch_folder
from ..model.codec import decode, encode
from ..model.environment import Capability, DeviceKind, DeviceSlot
from ..model.run import Report
from ..runner.evaluation import RunEvaluator
from ..runner.fork_server import EarlyServer
from ..runner.request import Planned
from ..settings import Settings
from ..sharing.processes import write_json
from ..worker.items import plan_of
from .session import SELECTION, GpuperfSession, replace_measured


FOLDER_KEY: Final = "gpuperf_folder"
"""Key of the worker's input with the folder of plans and reports."""

"""Key of the worker's input with the devices that its ordinary tests use."""

REPORTS: Final = "reports.json"

SELECTION_NAMES: Final = ("collected", "others", "files", "skipped")
"""What a worker says of its selection, by attribute."""

auto_key = pytest.StashKey[str]()


def auto_workers(config: pytest.Config, environ: Mapping[str, str]) -> int:
    """Return what ``-n auto`` means: the number of visible GPUs, and at least 1."""
    gpus = visible_gpu_count(environ.get(VISIBLE_DEVICES))
    config.stash[auto_key] = (
        f"gpuperf: -n auto is {gpus} workers, one a visible GPU"
        if gpus > 1
        else "gpuperf: -n auto is 1 worker: more would share its device"
    )
    return max(gpus, 1)


class XdistController(GpuperfSession):
    """Measures when every worker has collected, before any test is handed out."""

    def __init__(
        self,
        config: pytest.Config,
        settings: Settings,
        early: EarlyServer,
    ) -> None:
        super().__init__(config, settings, early)
        self._folder = scratch_folder()
        self._opened: RunEvaluator | None = None
        self._has_measured = False
        self._slots: tuple[DeviceSlot, ...] = ()
        self._workers = 0
        self._collecting: set[str] = set()
        self._collections = 0
        self._is_broken = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: Sequence[Any]) -> None:
        self._workers = len(specs)
        if self._shares_devices():
            self._opened = self._evaluator()
            self._slots = self._opened.slots
        for number, spec in enumerate(specs if self._slots else ()):
            slot = self._slots[number % len(self._slots)]
            # A user's `--tx` may name the devices of a worker.
            if slot.visible is not None and VISIBLE_DEVICES not in spec.env:
                spec.env.update(seeing(slot.visible, os.environ))

    def _shares_devices(self) -> bool:
        """Whether workers share what only the server knows, or it is needed for sure.

        A project that has stored baselines has tests to measure, and the server imports
        torch while the workers collect. Without a GPU there is nothing to share out.
        """
        kind = self._settings.device
        if kind is None:
            may_be_gpus = visible_gpu_count(os.environ.get(VISIBLE_DEVICES)) > 0
        else:
            may_be_gpus = kind.has(Capability.QUEUES) or kind is DeviceKind.SCRIPTED
        return may_be_gpus or bool(stored_keys(self._settings.baselines))

    def pytest_report_header(self, config: pytest.Config) -> str | None:
        return config.stash.get(auto_key, None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give a worker its input, also one that replaces a crashed worker."""
        self._collecting.add(str(node.gateway.id))
        node.sendcommand = partial(_tell, node.sendcommand)
        node.workerinput[FOLDER_KEY] = self._folder.name

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Wait no longer for a worker; pytest_configure_node has announced another."""
        self._collecting.discard(str(node.gateway.id))

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Assign a crash to its test: xdist names the test with its group."""
        test, _, _ = crashitem.rpartition("@")
        if test in self._config.stash[SELECTION].selected:
            report.nodeid = test

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any) -> None:
        """Measure when nobody collects, or when the first tests are handed out.

        xdist hands tests out when it has as many collections as there were workers,
        even if some of them are of workers that crashed.
        """
        self._collecting.discard(str(node.gateway.id))
        self._collections += 1
        is_due = not self._collecting or self._collections >= self._workers
        if is_due and not self._has_measured:
            self._has_measured = True
            self._measure()

    def _measure(self) -> None:
        plan = self._note_selection()
        others = self._config.stash[SELECTION].others
        if self._opened is not None or self._has_work(plan, others):
            self._opened = self._opened or self._evaluator()
            self._evaluate(self._opened, plan)
            # The devices must be free before the workers run ordinary tests on them.
            self._opened.close()
            self._opened = None
        reports = self._run_result.all_reports if self._run_result else {}
        write_json(Path(self._folder.name, REPORTS), encode(reports))

    def _note_selection(self) -> Sequence[Planned]:
        """Remember what the workers selected, which is what is to be measured."""
        found = [
            json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(Path(self._folder.name).glob("collected-*.json"))
        ]
        # Under ``--dist each`` workers may differ.
        raw = {planned["test"]: planned for each in found for planned in each["plan"]}
        plan = [decode(Planned, planned) for planned in raw.values()]
        selection = self._config.stash[SELECTION]
        for kind in SELECTION_NAMES:
            names = dict.fromkeys(name for each in found for name in each[kind])
            setattr(selection, kind, tuple(names))
        selection.selected = tuple(planned.test for planned in plan)
        selection.where = {planned.test: planned.where for planned in plan}
        return plan

    def pytest_internalerror(self) -> None:
        """Remember the error: xdist prints that of a worker and goes on."""
        self._is_broken = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session
    ) -> Generator[None, None, None]:
        if not self._has_measured:
            self._note_selection()
        return (yield from self._finish(session))

    def _red(self) -> pytest.ExitCode | None:
        broken = pytest.ExitCode.INTERNAL_ERROR if self._is_broken else None
        return super()._red() or broken

    def pytest_unconfigure(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._folder.cleanup()


class XdistWorker:
    """Hands its collection to the controller and reports what the controller found."""

    def __init__(self, workerinput: Mapping[str, str], settings: Settings) -> None:
        self._folder = Path(workerinput[FOLDER_KEY])
        self._worker = workerinput["workerid"]
        self._settings = settings
        self._reports: Mapping[str, Report] | None = None

    # Before xdist's own hook, with which the worker reports its collection: the
    # controller reads the files when it gets that.
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        selection = session.config.stash[SELECTION]
        names = {kind: getattr(selection, kind) for kind in SELECTION_NAMES}
        found = {**names, "plan": encode(plan_of(session.items))}
        write_json(self._folder / f"collected-{self._worker}.json", found)

    # Before xdist's loop, which runs all tests and ends the hook with its result.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        replace_measured(session, self._find)

    def _find(self, test: str) -> Report | None:
        if self._reports is None:
            self._reports = _read_reports(self._folder)
        return self._reports.get(test)


def _tell(tell: Callable[..., None], *arguments: object, **order: object) -> None:
    """Send a worker what to run, even if it has died and xdist does not know it yet.

    xdist handles no events while the controller measures, and sending to a dead worker
    would end the run. Its tests go to other workers as soon as xdist notices.
    """
    with suppress(OSError):
        tell(*arguments, **order)


def _read_reports(folder: Path) -> Mapping[str, Report]:
    path = folder / REPORTS
    raw = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {test: decode(Report, report) for test, report in raw.items()}
