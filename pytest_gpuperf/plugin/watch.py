"""``--gpuperf-watch``: ordinary tests on a GPU or the simulated one, and what they do."""

from __future__ import annotations

import json
import linecache
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from ..baselines.refresh import takes
from ..baselines.store import path_of, read, update
from ..devices.own_code import checkout_of, name_of
from ..errors import ErrorId, UsageError
from ..judge.readings import WOULD_HAVE_FAILED
from ..judge.watch import (
    Objection,
    entry_of,
    objections,
    outcomes_of,
    parse_gates,
    worse_than,
)
from ..model.baseline import Entry, Refresh
from ..model.codec import decode, encode
from ..model.environment import SIMULATED_GIB, SIMULATED_GPU, Capability, DeviceKind
from ..model.finding import A_MOVE, FindingKind, WatchedTest, is_test_code
from ..model.metrics import counted
from ..report.ci.github import watch_commands
from ..report.document import terminal
from ..report.line_syntax import with_context
from ..report.remedies import moves_module
from ..report.screen.watch import watch_blocks
from ..settings import ARTEFACTS, MissingBaseline, Settings, refuse_in_ci
from ..visible import visible_line
from .options import early_value, environment, is_device_typed
from .outputs import RunPlace
from .parse_settings import missing_baseline, narrowed_by, positive_gib, resolver, today
from .reported_items import write_painted


if TYPE_CHECKING:
    from ..devices.simulated import SimulatedSuite
    from ..model.finding import Finding


OUTPUT_KEY: Final = "gpuperf_watch"
"""Key of a worker's output with what its tests did."""

FOLDER: Final = "watch"
"""Below the folder of the baselines: what each test may do."""

OLD_COUNTS: Final = "counts.json"
"""The file of 0.2.0."""

NOT_CHECKED: Final = (
    "there is no baseline, so nothing is judged; to store one: "
    "pytest --gpuperf-watch --gpuperf-update=missing"
)

_suite_key: Final[pytest.StashKey[SimulatedSuite]] = pytest.StashKey()


def watch(config: pytest.Config) -> None:
    """Watch from now to the end of the session: conftest files may ask for a GPU."""
    from ..devices.simulated import unrecorded, watching_suite
    from ..worker.fixture import PlainRun, measurer_key

    try:
        check_device(config)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    stack = ExitStack()
    root = str(checkout_of(config.rootpath))
    config.stash[_suite_key] = stack.enter_context(watching_suite(root, _gib(config)))
    config.stash[measurer_key] = run = PlainRun()
    run.unseen = unrecorded
    config.add_cleanup(stack.close)


def check_device(config: pytest.Config) -> None:
    """Raise ``UsageError`` if another device than the simulated GPU was typed.

    A project's own choice is about measuring.
    """
    asked = str(early_value(config, "gpuperf_device") or "")
    watching = [kind.value for kind in DeviceKind if kind.has(Capability.FORECAST)]
    if is_device_typed(config) and asked not in watching:
        msg = (
            f"--gpuperf-device: found {asked}, expected {watching[0]} with "
            "--gpuperf-watch, which counts on the simulated GPU"
        )
        raise UsageError(msg, ErrorId.GP101)


def _gib(config: pytest.Config) -> float:
    asked = early_value(config, "gpuperf_simulated_gb")
    try:
        return SIMULATED_GIB if asked is None else positive_gib(str(asked))
    except ValueError as error:
        msg = f"gpuperf_simulated_gb: found {asked!r}, {error}"
        raise pytest.UsageError(str(UsageError(msg, ErrorId.GP101))) from None


def _update(asked: object) -> Refresh | None:
    if not asked:
        return None
    known = (Refresh.MISSING, Refresh.IMPROVED, Refresh.ALL)
    if asked not in {kind.value for kind in known}:
        msg = (
            f"--gpuperf-update: found {asked!r}, expected missing, improved or all "
            "with --gpuperf-watch"
        )
        raise UsageError(msg, ErrorId.GP101)
    verb = "run with --gpuperf-watch --gpuperf-update"
    refuse_in_ci("--gpuperf-update", verb, environment())
    return Refresh(asked)


# What a process does that runs tests.


ABOUT_GPUS: Final = re.compile(
    r"cuda|[cg]pu|accelerator|device|hardware", re.IGNORECASE
)
"""Reason of a skip that a GPU may have caused."""


class WatchedRun:
    """Records what each test does; one that fails on the simulated GPU is not checked."""

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        self._suite = config.stash[_suite_key]
        self.records: dict[str, WatchedTest] = {}
        self._is_red = False
        self._unchecked = ""

    # The outermost wrapper: what other plugins do with a test is a part of it.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item
    ) -> Generator[None, object, object]:
        self._is_red, self._unchecked = False, ""
        self._suite.begin_test()
        result = yield
        found = self._suite.end_test(passed=not self._is_red)
        record = _record(item.nodeid, found, self._root)
        self.records[item.nodeid] = replace(record, unchecked=self._unchecked)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        with self._suite.excused():
            return (yield)

    # The outermost wrapper: what pytest makes of xfail and skips is known.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self,
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        self._is_red = self._is_red or not report.passed
        if report.failed or _is_skipped_for_gpu(report):
            self._unchecked = f"{report.outcome}: {_last_words(report)}"
        if report.failed:
            file, line, _ = report.location
            report.outcome = "skipped"
            why = f"Skipped: not checked on the simulated GPU, {self._unchecked}"
            report.longrepr = (file, line or 0, why)
        return report


def _is_skipped_for_gpu(report: pytest.TestReport) -> bool:
    if not report.skipped or hasattr(report, "wasxfail"):
        return False
    return ABOUT_GPUS.search(str(report.longrepr)) is not None


def _last_words(report: pytest.TestReport) -> str:
    """Return what a failure or a skip says, in a line."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = getattr(crash, "message", None) or str(report.longrepr)
    return str(text).strip().partition("\n")[0]


# From what was recorded to what is judged.


def _record(test: str, found: WatchedTest, root: Path) -> WatchedTest:
    """Name the lines of what was *found* of a *test*."""
    return replace(
        found,
        test=test,
        lines=tuple(_placed(done, root) for done in found.lines),
        left=tuple(_placed(left, root) for left in found.left),
        garbage=tuple(
            _placed(freed, root)
            for freed in found.garbage
            if not any(name in freed.reason for name in NOT_THE_PROJECTS)
        ),
    )


A_COPY: Final = "a copy from ordinary memory"

NOT_THE_PROJECTS: Final = ("ExceptionInfo.", "currentframe of wrap")
"""In cycles that ``with pytest.raises(...) as error`` makes, and an import of torch."""


def _placed(found: Finding, root: Path) -> Finding:
    """Name the project's line alone, of a backward its forward's; a library's under a test."""
    at = found.forward or found.location
    if at is not None and is_test_code(_shown(at.file, root)):
        at = found.forward or found.inner
    source = "" if at is None else linecache.getline(at.file, at.line).strip()
    found = with_context(replace(found, location=at))
    at = at and replace(at, file=_shown(at.file, root))
    # A line of torch changes with its version.
    reason = A_MOVE if moves_module(found) else found.reason
    if found.kind is FindingKind.TRANSFER:
        # Without its direction: what fits any copy to the GPU is not advised.
        reason = A_COPY
    nowhere = replace(found, innermost=None, forward=None, torch=None)
    return replace(nowhere, location=at, source=source, reason=reason)


PACKAGES: Final = re.compile(r"^.*[/\\](?:site|dist)-packages[/\\]")


def _shown(file: str, root: Path) -> str:
    return PACKAGES.sub("", name_of(file, str(root))).replace(os.sep, "/")


# The end of the run: what all processes recorded, as one.


class WatchReport:
    """Judges and shows what was recorded here and by the workers of pytest-xdist."""

    def __init__(self, config: pytest.Config, run: WatchedRun | None) -> None:
        """Raise ``UsageError`` for a wrong option, or counts that cannot be read."""
        self._config = config
        self._run = run
        check_device(config)
        asked = str(early_value(config, "gpuperf_watch") or "")
        self._gates = parse_gates("" if asked == "true" else asked, "--gpuperf-watch")
        folder = str(early_value(config, "gpuperf_baselines") or "baselines")
        self._folder = config.rootpath / folder / FOLDER
        self._update = _update(early_value(config, "gpuperf_update"))
        self._stored = self._read()
        value = resolver(config)
        settings = Settings(warn=value("gpuperf_warn", ""), today=today())
        self._warns = settings.warns
        self._warning_note = settings.warning_note
        self._missing = missing_baseline(value, environment())
        self._records: dict[str, WatchedTest] = {}
        self._objections: tuple[Objection, ...] = ()
        self._note = ""
        self._lost: list[str] = []
        self._deselected = 0
        self._is_concluded = False

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._deselected += len(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker recorded; a worker that crashed has no output."""
        text = getattr(node, "workeroutput", {}).get(OUTPUT_KEY)
        if text is None:
            worker = node.gateway.id
            self._lost.append(f"{worker} ended early: its tests are missing here")
            return
        for raw in json.loads(text):
            record = decode(WatchedTest, raw)
            self._records[record.test] = record

    # The outermost wrapper: behind the yield every other plugin has set its status.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session
    ) -> Generator[None, object, object]:
        ended = yield
        self._conclude(session.exitstatus)
        fails = self._objections and not self._warns
        if fails and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return ended

    def _conclude(self, status: int) -> None:
        """Judge, once: the terminal's summary comes before the end of the session."""
        if self._is_concluded:
            return
        self._is_concluded = True
        if self._run is not None:
            self._records = dict(self._run.records)
        self._objections = tuple(self._judged())
        if self._update is not None:
            self._store(status, self._update)
        elif not self._objections or self._stored:
            self._note = self._remark()

    def _judged(self) -> Iterator[Objection]:
        records = [*self._records.values()]
        yield from objections(self._gates, records)
        if self._stored and self._update is not Refresh.ALL:
            yield from worse_than(self._stored, records)
        if self._judges_nothing() and self._missing is not MissingBaseline.WARN:
            yield Objection(test=self._place, what=NOT_CHECKED)

    def _judges_nothing(self) -> bool:
        """Whether nothing can fail, where it looks as if all were well."""
        asked = self._gates or self._update or self._stored
        return not asked and any(record.used for record in self._records.values())

    def _remark(self) -> str:
        """Say of a run that stores nothing what else is to be known."""
        if self._stored:
            better = self._taken(Refresh.IMPROVED)
            tests = counted(len(better), "test")
            said = f"better than stored: {tests}; --gpuperf-update=improved"
            return said if better else ""
        return f"{self._place}: {NOT_CHECKED}" if self._judges_nothing() else ""

    def _taken(self, *kinds: Refresh) -> dict[str, Entry]:
        """Return the new entries that a refresh of one of these *kinds* takes."""
        checked = (r for r in self._records.values() if r.used and not r.unchecked)
        return {
            record.test: new
            for record in checked
            for old, new in [(self._stored.get(record.test), entry_of(record))]
            for outcomes in [outcomes_of(record, old)]
            if any(takes(kind, outcomes, old, new.runs) for kind in kinds)
        }

    def _store(self, status: int, kind: Refresh) -> None:
        """Write the counts, unless tests failed: they may have done less than they do."""
        if status != pytest.ExitCode.OK:
            self._note = "counts were not stored: the run failed"
            return
        (self._folder / OLD_COUNTS).unlink(missing_ok=True)
        new = update(
            self._folder,
            SIMULATED_GPU,
            self._taken(kind, Refresh.MISSING),
            [test for test in self._stored if self._is_gone(test)],
            lock_folder=self._config.rootpath / ARTEFACTS,
        ).entries
        tests = {*self._stored, *new}
        changed = sum(self._stored.get(test) != new.get(test) for test in tests)
        self._note = (
            f"stored counts in {self._place}: {counted(changed, 'test')} changed"
        )

    def _is_gone(self, test: str) -> bool:
        """Whether a test that did not run is no more: its file ran, or is not there."""
        if self._deselected or test in self._records or narrowed_by(self._config):
            return False
        file = test.partition("::")[0]
        ran = {record.partition("::")[0] for record in self._records}
        return file in ran or not (self._config.rootpath / file).exists()

    def _read(self) -> Mapping[str, Entry]:
        if (self._folder / OLD_COUNTS).exists() and self._update is None:
            msg = (
                f"{self._folder / OLD_COUNTS}: found counts of version 0.2.0, expected "
                f"{self._place}; store it with --gpuperf-watch --gpuperf-update=missing"
            )
            raise UsageError(msg, ErrorId.GP115)
        return read(self._folder, SIMULATED_GPU).entries

    @property
    def _place(self) -> str:
        path = path_of(self._folder, SIMULATED_GPU)
        return path.relative_to(self._config.rootpath).as_posix()

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        self._conclude(exitstatus)
        terminalreporter.section("gpuperf: tests on the simulated GPU")
        records = [*self._records.values()]
        blocks = watch_blocks(
            records,
            self._objections,
            notes=[*self._lost, *filter(None, [self._note, self._warning_note])],
            stored=None if self._update is Refresh.ALL else self._stored,
            most=None if terminalreporter.verbosity > 0 else 10,
            warns=self._warns,
        )
        if self._objections:
            # In pytest's last line, which is green where all tests passed.
            noun = "count" if len(self._objections) == 1 else "counts"
            key = f"{noun} {WOULD_HAVE_FAILED if self._warns else 'failed'}"
            terminalreporter.stats[key] = [*self._objections]
        write_painted(terminalreporter, map(visible_line, terminal(blocks)))
        for line in self._annotations():
            terminalreporter.write_line(line)

    def _annotations(self) -> tuple[str, ...]:
        """Return what GitHub reads on standard output, where it does."""
        root = self._config.rootpath
        place = RunPlace(root=root, artefacts=root, environ=environment())
        if not place.is_annotated:
            return ()
        sources = place.sources(None)
        return watch_commands(self._objections, sources, warns=self._warns)


class WatchedWorker:
    """Hands what a worker of pytest-xdist recorded to its controller."""

    def __init__(self, config: pytest.Config, run: WatchedRun) -> None:
        self._config = config
        self._run = run

    def pytest_sessionfinish(self) -> None:
        records = [encode(record) for record in self._run.records.values()]
        self._config.workeroutput[OUTPUT_KEY] = json.dumps(records)  # type: ignore[attr-defined]


def enable(config: pytest.Config) -> None:
    """Register what watches here, and what reports."""
    run = None
    if _suite_key in config.stash:
        run = WatchedRun(config)
        config.pluginmanager.register(run, "gpuperf-watched-run")
    if hasattr(config, "workerinput") and run is not None:
        worker = WatchedWorker(config, run)
        config.pluginmanager.register(worker, "gpuperf-watched-worker")
    else:
        report = WatchReport(config, run)
        config.pluginmanager.register(report, "gpuperf-watch-report")
