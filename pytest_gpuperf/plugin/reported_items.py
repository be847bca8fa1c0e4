"""The reports that pytest got of each test, read after all hooks.

A hook may change a report long after it was made, so the reports themselves are kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from unittest import SkipTest

import pytest

from ..judge.readings import WOULD_HAVE_FAILED
from ..marks import RANKS_MARK
from ..model.run import Ending, Report
from ..report.document import painted
from ..report.headline import fitting_headline
from ..report.measured_calls import OUTCOME_PROPERTY, WARNED_PROPERTY, properties_of
from ..report.secrets import masked, secrets_of
from ..visible import visible_text
from .mark_checks import record_warning


class ReportLog:
    """The reports of a run by the node ids of their tests."""

    def __init__(self) -> None:
        self._reports: dict[str, list[pytest.TestReport]] = {}

    def note(self, report: pytest.TestReport) -> None:
        """Keep *report*, but not a skip in set-up: it would hide the test's verdict."""
        if report.when == "call" or report.failed or _is_expected(report):
            self._reports.setdefault(report.nodeid, []).append(report)

    @property
    def tests(self) -> Collection[str]:
        """Tests with at least one report."""
        return self._reports.keys()

    @property
    def passed(self) -> set[str]:
        """Tests that passed, also by the name that they have without a worker's group."""
        passed = {
            test
            for test, reports in self._reports.items()
            if any(report.passed for report in reports)
            and not any(report.failed for report in reports)
        }
        # `--dist loadgroup` appends the group to a node id, as in
        # `test.py::test@group`.
        return passed | {test.rpartition("@")[0] for test in passed if "@" in test}

    def silenced(self, failing: Iterable[str]) -> list[str]:
        """Return those *failing* tests that pytest has reported as something better."""
        return [
            test
            for test in failing
            if test in self._reports
            and not any(r.failed or _is_expected(r) for r in self._reports[test])
        ]

    def has_failed(self, failing: Iterable[str]) -> bool:
        """Whether one of the *failing* tests is known as failed."""
        known = (self._reports.get(test, ()) for test in failing)
        return any(report.failed for reports in known for report in reports)


def _is_expected(report: pytest.TestReport) -> bool:
    """Whether a mark of the test's author forgives its failure."""
    return hasattr(report, "wasxfail")


# Measured tests in the ordinary pytest loop: items that report what a child found.

CHILD_EVALUATES: Final = frozenset({"skip", "skipif", "usefixtures", RANKS_MARK})

NO_REPORT: Final = "gpuperf has no report of this test: a gate may not lose one"

NOT_AGAIN: Final = (
    "rerun: not run or measured again, this is the report of the first time; "
    "start pytest once more to measure again"
)


class GpuperfWarning(UserWarning):
    """A measured test that passed although something about it is inconclusive."""


class ReportedItem(pytest.Item):
    """Replaces a measured item: sets up no fixture, reports what the child found."""

    _find: Callable[[str], Report | None]
    _where: tuple[Any, int | None, str]
    _headline: str = ""
    _tries: int = 0
    verdicts: tuple[str, ...] = ()
    """Those of its calls as JSON, as results.json has them, once it was run."""

    @classmethod
    def standing_for(
        cls, item: pytest.Item, find: Callable[[str], Report | None]
    ) -> ReportedItem:
        """Return the item that reports at *item*'s place what *find* knows of it."""
        assert item.parent is not None  # noqa: S101 - every item has a collector
        new: ReportedItem = cls.from_parent(item.parent, name=item.name)
        new._find = find
        new._where = item.reportinfo()
        new.keywords.update(item.keywords)
        new.own_markers.extend(
            mark for mark in item.own_markers if mark.name not in CHILD_EVALUATES
        )
        return new

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self._where

    def iter_markers_with_node(
        self, name: str | None = None
    ) -> Iterator[tuple[Any, pytest.Mark]]:
        """Leave out what the child has evaluated, of classes and modules as well."""
        for node, mark in super().iter_markers_with_node(name):
            if mark.name not in CHILD_EVALUATES:
                yield node, mark

    def runtest(self) -> None:
        report = self._find(self.nodeid)
        if report is None:
            pytest.fail(NO_REPORT, pytrace=False)
        for title, text in report.sections:
            self.add_report_section("call", *_section(title, text))
        remember(self, report)
        self.verdicts = report.verdicts
        self._headline = _headline(report)
        self._tries += 1
        end_as(report if self._tries == 1 else _replayed(report))

    def teardown(self) -> None:
        """End pytest where the test did so, once its verdict is reported."""
        report = self._find(self.nodeid)
        # In teardown, because pytest has logged the report of the call by then.
        if report is not None and report.stop is not None:
            stop = report.stop
            pytest.exit(f"{self.nodeid}: {stop.reason}", returncode=stop.status)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Shorten the failure to one line for the short summary and JUnit."""
        shown = super().repr_failure(excinfo, style)
        crash = getattr(shown, "reprcrash", None)
        if crash is not None and self._headline:
            crash.message = self._headline
        return shown


class SkipsInChild:
    """Ignores skips of measured tests by hooks of the project in this process.

    The hooks run in the child as well. Here they may see another device, and a skip
    would hide the verdict.
    """

    # The outermost wrapper: it must surround the project's hooks to catch their skips.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        try:
            yield
        except (pytest.skip.Exception, SkipTest):
            if not isinstance(item, ReportedItem):
                raise


def shorten_headlines(reports: Iterable[Any], columns: int) -> None:
    """Shorten headlines to *columns*, so that pytest does not cut them in a number."""
    for report in reports:
        crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
        if crash is not None and OUTCOME_PROPERTY in dict(report.user_properties):
            room = columns - len(f"FAILED {report.nodeid} - ")
            crash.message = fitting_headline(crash.message, room)


class PaintedFailure:
    """A failure in colours, as pytest has them; elsewhere its text is *plain*."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain
        self.reprcrash = plain.reprcrash

    def __str__(self) -> str:
        return str(self._plain)

    def toterminal(self, writer: Any) -> None:
        """Write it line by line."""
        write_painted(writer, str(self._plain).splitlines())


def write_painted(writer: Any, lines: Iterable[str]) -> None:
    """Write *lines* of source, causes and fixes; *writer* knows whether there are colours."""
    for line in lines:
        for text, markup in painted(line):
            writer.write(text, **markup)
        writer.write("\n")


class PaintsFailures:
    """Colours the failures of measured tests just before pytest writes them."""

    # Outside of pytest's own wrapper, which writes the failures before its yield.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(
        self, terminalreporter: Any
    ) -> Generator[None, None, None]:
        for report in terminalreporter.stats.get("failed", ()):
            ours = OUTCOME_PROPERTY in dict(report.user_properties)
            if ours and getattr(report.longrepr, "reprcrash", None) is not None:
                report.longrepr = PaintedFailure(report.longrepr)
        return (yield)


_warned_key: Final[pytest.StashKey[Report]] = pytest.StashKey()

IS_WARNING: Final = "gpuperf_warned"
"""Attribute of pytest's report of a failure that is a warning; xdist sends it."""


class WarnsOfFailures:
    """Turns failures that are warnings into passes that pytest counts apart."""

    # The outermost wrapper: an `xfail` of the author comes first.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        made = yield
        report = item.stash.get(_warned_key, None)
        if report is None or call.excinfo is None or not made.failed:
            return made
        said = _said(report.text)
        # What another plugin raises instead is not ours to forgive.
        if str(call.excinfo.value).startswith(said):
            # Without the exception no debugger opens, and no plugin runs the test again.
            made.outcome, made.longrepr, call.excinfo = "passed", None, None
            setattr(made, IS_WARNING, True)
            item.user_properties.append((WARNED_PROPERTY, said))
            _warn(item, report.text)
        return made

    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, tuple[str, Mapping[str, bool]]] | None:
        if not hasattr(report, IS_WARNING):
            return None
        return WOULD_HAVE_FAILED, "w", ("WARNED", {"yellow": True})


def _replayed(report: Report) -> Report:
    """Return *report* as a rerun by another plugin says it, which measures nothing."""
    return replace(report, text=f"{report.text}\n{NOT_AGAIN}")


def _headline(report: Report) -> str:
    first, *_ = report.text.splitlines() or [""]
    return _said(report.headline or first)


def remember(item: pytest.Item, report: Report) -> None:
    """Keep the verdicts as properties of *item* and its warning for the summary."""
    item.user_properties[:] = report.properties
    if report.verdicts:
        item.user_properties += properties_of(report.test, report.verdicts)
    if report.warning:
        _warn(item, report.warning)
    if report.ending is Ending.WARNED:
        item.stash[_warned_key] = report


def _warn(item: pytest.Item, text: str) -> None:
    record_warning(item, GpuperfWarning(_said(text)), "runtest")


def _said(text: str) -> str:
    """Return *text* for a log: visible, and without secrets."""
    return visible_text(masked(text, secrets_of(os.environ))) if text else ""


def failing(reports: Mapping[str, Report]) -> set[str]:
    """Return the tests that failed or died by their *reports*."""
    return {test for test, report in reports.items() if report.ending.fails}


def _section(title: str, text: str) -> tuple[str, str]:
    """Name a captured section as pytest's own loop will name it again."""
    return title.removeprefix("Captured ").removesuffix(" call"), text


def end_as(report: Report) -> None:
    """End the running test as *report* says."""
    text = _said(report.text)
    if report.ending is Ending.SKIPPED:
        # or pytest names this line as the place, and sums up all such skips as one
        raise pytest.skip.Exception(text, _use_item_location=True)
    if report.ending is Ending.XFAILED:
        pytest.xfail(text)
    if report.ending is not Ending.PASSED:
        pytest.fail(text, pytrace=False)
