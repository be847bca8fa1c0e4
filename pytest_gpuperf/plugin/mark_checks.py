"""Refuses wrong marks at collection; the run ends as a usage error."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import pytest

from .. import marks
from ..errors import GpuperfError
from . import options


if TYPE_CHECKING:
    from ..model.budget import Tolerance


# Every pytest run imports this module, so functions import what only a mark needs.


def unknown_kind(pattern: str) -> str:
    """Say what is wrong with an ``on`` that can match nothing; nothing if it may.

    Names of hardware have digits or blanks, and patterns have special characters.
    """
    from ..model.environment import OLD_SIMULATED, DeviceKind

    kinds = [kind.value for kind in DeviceKind]
    is_word = pattern.replace("-", "").replace("_", "").isalpha()
    if not is_word or pattern.lower().partition("-")[0] in {*kinds, OLD_SIMULATED}:
        return ""
    offered = [kind for kind in kinds if kind != DeviceKind.SCRIPTED.value]
    near = get_close_matches(pattern.lower(), offered, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return (
        f"gpuperf.budget(on={pattern!r}) binds nowhere: expected a device kind "
        f'({", ".join(offered)}) or a pattern of a hardware\'s name, such as "*H200*"'
        f"{meant}"
    )


_TAG: Final = "gpuperf_wrong_mark"
"""Attribute of a collection report. It also comes from an xdist worker."""


class WrongMark(pytest.Collector.CollectError):
    """Shown without a traceback: the sentence names the test."""


class MarkInspector:
    """The hooks that check every collected test's marks; one for a run."""

    def __init__(self) -> None:
        self._refused = False

    @pytest.hookimpl(wrapper=True)
    def pytest_pycollect_makeitem(self) -> Generator[None, object, object]:
        made = yield
        for item in made if isinstance(made, list) else [made]:
            if isinstance(item, pytest.Item):
                _check(item)
        return made

    def pytest_exception_interact(
        self,
        call: pytest.CallInfo[Any],
        report: pytest.CollectReport | pytest.TestReport,
    ) -> None:
        error = None if call.excinfo is None else call.excinfo.value
        if isinstance(report, pytest.CollectReport):
            # On the report: xdist sends its attributes to the controller, but no
            # exceptions.
            setattr(report, _TAG, isinstance(error, WrongMark | GpuperfError))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._refused = self._refused or getattr(report, _TAG, False)

    # Last: for pytest an error in collection is an interruption, with a status of its
    # own.
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._refused:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR


def _check(item: pytest.Item) -> None:
    try:
        marks.check(item)
        _refuse_contradictions(item)
    except GpuperfError as error:
        file, line, name = item.location
        place = f"{file}:{(line or 0) + 1} in {name}"
        msg = f"{item.nodeid}: {error}\n  --> {place}"
        raise WrongMark(msg) from None


def _refuse_contradictions(item: pytest.Item) -> None:
    """Check all marks of *item* together, and against the project's settings."""
    if item.get_closest_marker(marks.TOLERANCE_MARK):
        from ..model.budget import refuse_blind

        layers = (*marks.tolerances_of(item), *_of_project(item.config))
        refuse_blind(layers, "gpuperf.tolerance()")
    if item.get_closest_marker(marks.BUDGET_MARK):
        _warn_of_unknown_kinds(item)


def _of_project(config: pytest.Config) -> Iterator[Tolerance]:
    if options.is_enabled(config):
        from .parse_settings import project_tolerance

        yield project_tolerance(config)


def _warn_of_unknown_kinds(item: pytest.Item) -> None:
    """Warn of budgets that apply nowhere: no run on this machine would notice."""
    patterns = [p for budget in marks.budgets_of(item) for p in budget.on or ()]
    if not patterns:
        return
    for doubt in map(unknown_kind, dict.fromkeys(patterns)):
        if doubt:
            record_warning(item, pytest.PytestCollectionWarning(doubt), "collect")


def record_warning(item: pytest.Item, warning: Warning, when: str) -> None:
    """Record a *warning* past the filters: ``error`` there must not fail the test."""
    path, line, _ = item.reportinfo()
    message = warnings.WarningMessage(
        warning, type(warning), str(path), (line or 0) + 1, line=""
    )
    # The hook is called directly: `warnings.warn` would apply the project's filters.
    item.ihook.pytest_warning_recorded.call_historic(
        kwargs={
            "warning_message": message,
            "nodeid": item.nodeid,
            "when": when,
            "location": None,
        }
    )
