"""The measuring processes of one enabled run: started, asked and ended."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .errors import RunError
from .errors import UsageError
from .gate import Group
from .model.codec import decode
from .model.codec import encode
from .model.environment import DeviceKind
from .model.environment import Environment
from .model.ranks import Ranks
from .model.run import Ending
from .model.run import RunRequest
from .model.run import TestResult
from .plan import Planned
from .plan import Project
from .runs.fork_server import HEAVY_MODULES
from .runs.fork_server import ForkServer
from .runs.fork_server import Job
from .settings import Settings


class Children:
    """Owns the fork server that each of them is a copy of."""

    def __init__(self, settings: Settings, project: Project) -> None:
        self._settings = settings
        self._project = project
        scripted = settings.device is DeviceKind.SCRIPTED
        self._server = ForkServer(
            () if scripted else HEAVY_MODULES, warm="pytest_gpuperf.child:warm_pytest"
        )

    def close(self) -> None:
        """End the server and its children."""
        self._server.close()

    def environment(self) -> Environment:
        """Where the tests will be measured; raise ``UsageError`` if they cannot be."""
        self._server.wait_until_ready()
        kind = self._settings.device
        request = {
            "kind": kind.value if kind else None,
            "script": self._settings.script,
        }
        job = Job(entry="pytest_gpuperf.child:describe", request=request)
        answer = self._server.run(job, seconds=60)
        if "error" in answer:
            raise UsageError(answer["error"])
        return decode(Environment, answer["environment"])

    def run(
        self,
        kind: DeviceKind,
        plan: Mapping[str, Planned],
        group: Group,
        number: int,
        *,
        recordings: Path | None = None,
    ) -> Sequence[TestResult]:
        """Measure *group* in a fresh process, or one a rank; *plan* has its tests by name.

        What the allocator did is recorded in the folder *recordings*, if one is named.
        """
        asked = plan[group[0]].ranks
        ranks = with_timeout(asked, self._settings.seconds) if asked else None
        request = RunRequest(
            tests=tuple(plan[test].argument for test in group),
            device=kind,
            directory=self._project.directory,
            root=str(self._project.rootdir),
            search_path=self._project.search_path,
            arguments=self._project.arguments,
            options=self._project.options,
            seconds=self._settings.seconds,
            number=number,
            script=self._settings.script,
            recordings=None if recordings is None else str(recordings),
            ranks=ranks,
            names=group,
        )
        entry = f"pytest_gpuperf.{'in_ranks' if ranks else 'child'}:measure"
        job = Job(entry=entry, request=encode(request))
        patience_seconds = len(group) * (2 * self._settings.seconds + 60)
        if ranks is not None and ranks.timeout_s is not None:
            patience_seconds = ranks.timeout_s + 30
        try:
            raw = self._server.run(job, patience_seconds)
        except RunError as error:
            return [
                TestResult(test=test, ending=Ending.DIED, text=str(error))
                for test in group
            ]
        return [decode(TestResult, result) for result in raw]


def with_timeout(ranks: Ranks, seconds: float) -> Ranks:
    """Give *ranks* that name no timeout one for a test that may cost so many *seconds*."""
    if ranks.timeout_s is not None:
        return ranks
    return replace(ranks, timeout_s=2 * seconds + 30)
