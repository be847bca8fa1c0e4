"""Collects or measures one side's own code inside a measuring process."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, Final

import pytest

from ..devices import default_kind, open_device
from ..devices.machine import slots_of
from ..errors import ErrorId, GpuperfError, UsageError
from ..model.ab import Recorded
from ..model.codec import decode, encode
from ..plugin.options import environment
from ..plugin.parse_settings import settings_from
from ..plugin.session import project_of
from ..runner.relocation import Relocation, stranger
from ..runner.request import Planned, RunRequest
from ..worker import child
from ..worker.items import plan_of
from ..worker.measurer import TrainingPass, is_of
from .side_server import Collected, Selection


COLLECTED_CODES: Final = frozenset(
    {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
)


def collect(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the measured tests of a side, or the sentence of why there are none."""
    relocation = decode(Relocation, raw["relocation"])
    selection = decode(Selection, raw["selection"])
    os.chdir(raw["directory"])
    # As ``python -m pytest`` does, which users run.
    sys.path.insert(0, raw["directory"])
    arguments = [*selection.arguments]
    sys.argv = ["pytest", *arguments]
    collector = Collector(selection)
    output = io.StringIO()
    # pytest's output is shown only if collecting fails, and must not mix with the
    # answer.
    with redirect_stdout(output), redirect_stderr(output):
        code = pytest.main(["--collect-only", "-q", *arguments], plugins=[collector])
    if code not in COLLECTED_CODES or collector.errors:
        return {"error": collector.errors or _sentence(output.getvalue())}
    objection = _objection(relocation)
    if objection is not None:
        return {"error": objection}
    try:
        return {"collected": encode(collector.collected())}
    except GpuperfError as error:
        return {"error": str(error)}


def measure(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Measure as a run does, and refuse the results if the code was not this side's."""
    request = decode(RunRequest, raw["request"])
    child.enter(request)
    results = child.run_tests(request, child.measuring_for(request))
    # After the tests: a module that is imported late, inside of a step, may be another
    # version's.
    objection = _objection(decode(Relocation, raw["relocation"]))
    if objection is not None:
        return {"error": objection}
    return {"results": [encode(r) for r in results]}


def train(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Record what the first steps of each call train, and how each test ended.

    A test may fail after its calls: nothing was measured that it could look at.
    """
    request = decode(RunRequest, raw["request"])
    child.enter(request)
    passed = TrainingPass(child.opened(request))
    results = child.run_tests(request, passed)
    objection = _objection(decode(Relocation, raw["relocation"]))
    if objection is not None:
        return {"error": objection}
    failed = {r.test: r.headline or r.text for r in results if r.ending.fails}
    return {"recorded": encode(Recorded(records=passed.records, failed=failed))}


def _objection(relocation: Relocation) -> str | None:
    """Say which module is not this side's own, if one is not."""
    found = stranger(dict(sys.modules), relocation)
    if found is None:
        return None
    name, file = found
    return (
        f"{name} was imported from {file}, which is not the code of this side; expected "
        f"it below {relocation.root}: install the project editable (`pip install -e .`) "
        "or name its folder in pytest's `pythonpath`"
    )


RAISED: Final = "E  "
"""How pytest begins the lines of an exception."""


def _sentence(output: str) -> str:
    """Return the line that says why pytest could not collect, the last one if none does."""
    lines = [line for line in output.splitlines() if line.strip()]
    raised = [line.removeprefix("E") for line in lines if line.startswith(RAISED)]
    errors = [line for line in lines if "error:" in line.lower()]
    said = ["pytest printed nothing", *lines, *errors, *raised]
    return said[-1].strip()


class Collector:
    """The plugin of a process that collects: it keeps what there is to measure."""

    def __init__(self, selection: Selection) -> None:
        self.errors = ""
        self._selection = selection
        self._session: pytest.Session | None = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.errors:
            self.errors = f"{report.nodeid}: {_sentence(report.longreprtext)}"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._session = session

    def collected(self) -> Collected:
        """Return what was collected; raises ``UsageError`` for a wrong setting."""
        if self._session is None:
            msg = "pytest collected nothing"
            raise UsageError(msg, ErrorId.GP708)
        config = self._session.config
        settings = settings_from(config, environment())
        kind = settings.device or default_kind()
        return Collected(
            plan=tuple(self._selected(plan_of(self._session.items))),
            project=project_of(config),
            settings=settings,
            environment=open_device(kind, settings.script).environment(),
            slot=slots_of(kind, settings.script)[0],
        )

    def _selected(self, plan: Iterable[Planned]) -> Iterator[Planned]:
        calls = self._selection.calls
        return (
            planned
            for planned in plan
            if not calls or any(is_of(call, planned.test) for call in calls)
        )
