"""Marks that cannot be meant: refused at collection, and the run is a usage error."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from typing import Final

import pytest

from . import marks
from .errors import GpuperfError


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
            setattr(report, _TAG, isinstance(error, WrongMark | GpuperfError))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._refused = self._refused or getattr(report, _TAG, False)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._refused:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR


def _check(item: pytest.Item) -> None:
    try:
        marks.check(item)
    except GpuperfError as error:
        msg = f"{item.nodeid}: {error}"
        raise WrongMark(msg) from None
