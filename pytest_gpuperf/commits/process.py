"""What a measuring process does for one side: collect, or measure, its own code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import redirect_stderr
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from typing import Final

import pytest

from .. import child
from ..devices import default_kind
from ..devices import open_device
from ..devices.global_state import process_settings
from ..devices.scripted import ScriptedDevice
from ..devices.seats import seats_of
from ..errors import GpuperfError
from ..errors import UsageError
from ..model.codec import decode
from ..model.codec import encode
from ..model.environment import DeviceKind
from ..model.run import RunRequest
from ..options import environment
from ..options import settings_from
from ..plan import Planned
from ..plan import shown_path
from ..runs.relocation import Relocation
from ..runs.relocation import stranger
from ..session import plan_of
from ..session import project_of
from .collected import Collected
from .collected import CollectRequest
from .collected import Selection


LAST_LINES: Final = 15
"""Lines of pytest's output that are shown where it could not collect."""

COLLECTED: Final = frozenset({pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED})


def collect(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the measured tests of a side, or the sentence of why there are none."""
    request = decode(CollectRequest, raw)
    os.chdir(request.directory)
    sys.path.insert(0, request.directory)  # as `python -m pytest` does
    try:
        arguments = [*request.selection.arguments, *_files(request)]
    except UsageError as error:
        return {"error": str(error)}
    sys.argv = ["pytest", *arguments]
    collector = Collector(request.selection)
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        code = pytest.main(["--collect-only", "-q", *arguments], plugins=[collector])
    if code not in COLLECTED or collector.errors:
        return {"error": collector.errors or _last(output.getvalue())}
    objection = _objection(request.relocation)
    if objection is not None:
        return {"error": objection}
    try:
        return {"collected": encode(collector.collected())}
    except GpuperfError as error:
        return {"error": str(error)}


def measure(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Measure as a run does, and refuse the results where the code was another's."""
    request = decode(RunRequest, raw["request"])
    child.enter(request)
    settings: dict[str, Mapping[str, str]] = {}

    def note(call: str) -> None:
        settings[call] = process_settings()

    results = child.run_tests(request, child.measuring_for(request, arriving=note))
    objection = _objection(decode(Relocation, raw["relocation"]))
    if objection is not None:
        return {"error": objection}
    return {"results": [encode(r) for r in results], "settings": settings}


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


def _files(request: CollectRequest) -> list[str]:
    """Return the files of the tests that are named, if any are, as far as they exist."""
    files = list(dict.fromkeys(planned.module for planned in request.selection.tests))
    known = [file for file in files if Path(file).is_file()]
    if files and not known:
        root = Path(request.relocation.root)
        names = ", ".join(shown_path(Path(file), root) for file in files)
        msg = f"it has no {names}"
        raise UsageError(msg)
    return known


def _last(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return "\n".join(lines[-LAST_LINES:]) or "pytest printed nothing"


class Collector:
    """The plugin of a process that collects: it keeps what there is to measure."""

    def __init__(self, selection: Selection) -> None:
        self.errors = ""
        self._selection = selection
        self._session: pytest.Session | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        for name, value in self._selection.options.items():
            setattr(config.option, name, value)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.errors:
            self.errors = f"{report.nodeid}: {report.longreprtext}"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._session = session

    def collected(self) -> Collected:
        """Return what was collected; raises ``UsageError`` for a wrong setting."""
        if self._session is None:
            msg = "pytest collected nothing"
            raise UsageError(msg)
        config = self._session.config
        settings = settings_from(config, environment())
        kind = settings.device or default_kind()
        project = project_of(config)
        return Collected(
            plan=tuple(self._selected(plan_of(self._session.items))),
            rootdir=str(project.rootdir),
            directory=project.directory,
            search_path=project.search_path,
            arguments=project.arguments,
            options=project.options,
            environment=open_device(kind, settings.script).environment(),
            isolation=settings.isolation,
            tolerance=settings.tolerance,
            seconds=settings.seconds,
            script=settings.script,
            can_share=_can_share(kind, settings.script),
            seat=seats_of(kind, settings.script)[0],
            lock_seconds=settings.lock_seconds,
            pretend_gib=settings.pretend_gib,
        )

    def _selected(self, plan: Iterable[Planned]) -> Iterator[Planned]:
        named = {planned.test for planned in self._selection.tests}
        return (planned for planned in plan if not named or planned.test in named)


def _can_share(kind: DeviceKind, script: str | None) -> bool:
    """Whether a process can time both versions of a project on this device."""
    if kind is DeviceKind.SCRIPTED:
        return ScriptedDevice.read(str(script), 0).can_share
    return kind is not DeviceKind.PRETEND
