"""Measured tests in the ordinary pytest loop: items that report what a child found."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterator
from typing import Any
from typing import Final
from unittest import SkipTest

import pytest

from .marks import AUTO_MARK
from .marks import BUDGET_MARK
from .marks import RANKS_MARK
from .model.run import Ending
from .model.run import Report
from .report.junit_properties import PREFIX
from .report.junit_properties import properties_of


PROPERTY: Final = "gpuperf"
"""Name of the JUnit property and user property that holds the verdicts as JSON."""

CHILD_EVALUATES: Final = frozenset({"skip", "skipif", "usefixtures", RANKS_MARK})

NO_REPORT: Final = "gpuperf has no report of this test: a gate may not lose one"


class GpuperfWarning(UserWarning):
    """A measured test that passed although something about it is undecided."""


def is_measured(item: pytest.Item) -> bool:
    """Whether *item* takes the fixture or carries a budget."""
    return (
        item.get_closest_marker(AUTO_MARK) is not None
        or item.get_closest_marker(BUDGET_MARK) is not None
    )


def node_id(item: pytest.Item) -> str:
    """Name the test of *item*, without the group that ``--dist loadgroup`` appends."""
    assert item.parent is not None  # noqa: S101 - every item has a collector
    return f"{item.parent.nodeid}::{item.name}"


class ReportedItem(pytest.Item):
    """Stands in for a measured item: sets up no fixture, says what the child found."""

    _find: Callable[[str], Report | None]
    _where: tuple[Any, int | None, str]
    _headline: str = ""

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
        self._headline = _headline(report)
        end_as(report)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Give the short summary and JUnit one line, and not the whole screen."""
        shown = super().repr_failure(excinfo, style)
        crash = getattr(shown, "reprcrash", None)
        if crash is not None and self._headline:
            crash.message = self._headline
        return shown


class SkipsInChild:
    """Lets a hook of the project skip a measured test in its child alone.

    Both run it; here it may see another device, and a skip would hide the verdict.
    """

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        try:
            yield
        except (pytest.skip.Exception, SkipTest):
            if not isinstance(item, ReportedItem):
                raise


def _headline(report: Report) -> str:
    first, *_ = report.text.splitlines() or [""]
    return report.headline or first


def recorded(item: pytest.Item) -> tuple[tuple[str, str], ...]:
    """Return what ``record_property`` noted of *item*, as text."""
    return tuple(
        (name, str(value))
        for name, value in item.user_properties
        if name != PROPERTY and not name.startswith(PREFIX)
    )


def remember(item: pytest.Item, report: Report) -> None:
    """Keep the verdicts as properties of *item* and its warning for the summary."""
    item.user_properties[:] = report.properties
    if report.verdicts:
        text = "[" + ", ".join(report.verdicts) + "]"
        item.user_properties.append((PROPERTY, text))
        item.user_properties += properties_of(report.test, report.verdicts)
    if report.warning:
        _warn(item, report.warning)


def _warn(item: pytest.Item, text: str) -> None:
    """Record a warning past the filters: ``error`` there must not fail the test."""
    path, line, _ = item.reportinfo()
    message = warnings.WarningMessage(
        GpuperfWarning(text), GpuperfWarning, str(path), (line or 0) + 1, line=""
    )
    item.ihook.pytest_warning_recorded.call_historic(
        kwargs={
            "warning_message": message,
            "nodeid": item.nodeid,
            "when": "runtest",
            "location": None,
        }
    )


def _section(title: str, text: str) -> tuple[str, str]:
    """Name a captured section as pytest's own loop will name it again."""
    return title.removeprefix("Captured ").removesuffix(" call"), text


def end_as(report: Report) -> None:
    """End the running test as *report* says."""
    if report.ending is Ending.SKIPPED:
        # or pytest names this line as the place, and sums up all such skips as one
        raise pytest.skip.Exception(report.text, _use_item_location=True)
    if report.ending is Ending.XFAILED:
        pytest.xfail(report.text)
    if report.ending is not Ending.PASSED:
        pytest.fail(report.text, pytrace=False)
