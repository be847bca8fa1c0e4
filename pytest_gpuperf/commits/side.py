"""One side: a fork server whose processes import one version of the project."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Any
from typing import Final

from ..errors import RunError
from ..errors import UsageError
from ..gate import Group
from ..model.codec import decode
from ..model.codec import encode
from ..model.run import Ending
from ..model.run import RunRequest
from ..model.run import TestResult
from ..runs.fork_server import ForkServer
from ..runs.fork_server import Job
from ..runs.relocation import Relocation
from ..sharing.reservation import Turns
from ..sharing.reservation import Unlocked
from ..sharing.reservation import alone
from ..sharing.reservation import turns_at
from .collected import Collected
from .collected import CollectRequest
from .collected import Selection
from .unbuilt import unbuilt


COLLECT_SECONDS: Final = 300.0

PATIENCE: Final = 2
PATIENCE_SECONDS = 60.0
"""Multiple of its cap, and what is added, after which a process is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a side's code stands, and what it is called."""

    label: str
    relocation: Relocation
    directory: str


class Side:
    """Collects and measures one version, each time in a fresh process.

    ``settings`` are those of torch at each call, by its name, in the newest run.
    """

    def __init__(
        self, place: Place, preload: Sequence[str], announce: Callable[[str], None]
    ) -> None:
        self.label = place.label
        self.relocation = place.relocation
        self.settings: dict[str, Mapping[str, str]] = {}
        self._place = place
        self._announce = announce
        self._collected: Collected | None = None
        self._turns: Turns = Unlocked()
        self._server = ForkServer(
            preload, "pytest_gpuperf.child:warm_pytest", place.relocation
        )

    def close(self) -> None:
        """End the fork server and its children."""
        self._server.close()
        self._turns.close()

    def collect(self, selection: Selection) -> Collected:
        """Return what pytest selects; raises ``UsageError`` where it cannot collect."""
        relocation = self._place.relocation
        request = CollectRequest(
            relocation=relocation,
            directory=self._place.directory,
            selection=_moved(selection, relocation),
        )
        try:
            self._server.wait_until_ready()
            answer = self._server.run(
                Job(
                    entry="pytest_gpuperf.commits.process:collect",
                    request=encode(request),
                ),
                COLLECT_SECONDS,
            )
        except RunError as error:
            answer = {"error": str(error)}
        if "error" in answer:
            why = f"{answer['error']}{self._lacking(answer['error'])}"
            msg = f"{self.label}: cannot collect its tests: {why}"
            raise UsageError(msg)
        self._collected = found = decode(Collected, answer["collected"])
        self._turns = turns_at(found.seat, found.lock_seconds, self._announce)
        return found

    def _lacking(self, error: str) -> str:
        """Say what of the working tree this side has not, where *error* misses it."""
        relocation = self._place.relocation
        is_elsewhere = relocation.root != relocation.origin
        return unbuilt(error, relocation.origin) if is_elsewhere else ""

    def run(self, group: Group, number: int) -> Sequence[TestResult]:
        """Measure *group* in a fresh process; a death is a result a test."""
        run = self.request(group, number)
        request = {"request": encode(run), "relocation": encode(self.relocation)}
        job = Job(entry="pytest_gpuperf.commits.process:measure", request=request)
        try:
            answer = self.ask(job, len(group) * patience(run.seconds))
        except RunError as error:
            return [_died(test, str(error)) for test in group]
        if "error" in answer:
            return [_died(test, answer["error"]) for test in group]
        self.settings.update(answer["settings"])
        return [decode(TestResult, result) for result in answer["results"]]

    def request(self, group: Group, number: int) -> RunRequest:
        """Return how *group* is measured, once the side has been collected."""
        assert self._collected is not None  # noqa: S101 - it was asked for first
        return _request(self._collected, group, number)

    def ask(self, job: Job, seconds: float) -> Any:
        """Return what *job* answers in a fresh process, which has the device alone.

        Raises ``RunError`` where it answers nothing, and ``UsageError`` where the device
        never comes free.
        """
        with alone(self._turns):
            return self._server.run(job, seconds)


def _moved(selection: Selection, relocation: Relocation) -> Selection:
    """Name what is meant in the project of this side."""
    return Selection(
        arguments=tuple(relocation.replaced(a) for a in selection.arguments),
        tests=tuple(
            replace(
                planned,
                argument=relocation.replaced(planned.argument),
                module=relocation.replaced(planned.module),
            )
            for planned in selection.tests
        ),
        options={
            name: relocation.replaced(value) if isinstance(value, str) else value
            for name, value in selection.options.items()
        },
    )


def _request(collected: Collected, group: Group, number: int) -> RunRequest:
    arguments = {planned.test: planned.argument for planned in collected.plan}
    return RunRequest(
        tests=tuple(arguments[test] for test in group),
        device=collected.environment.hardware.kind,
        directory=collected.directory,
        root=collected.rootdir,
        search_path=collected.search_path,
        arguments=collected.arguments,
        options=collected.options,
        visible=collected.seat.visible,
        pretend_gib=collected.pretend_gib,
        seconds=collected.seconds,
        tolerance=collected.tolerance,
        number=number,
        script=collected.script,
    )


def patience(seconds: float) -> float:
    """Return how long a process may take for a test that is capped at *seconds*."""
    return PATIENCE * seconds + PATIENCE_SECONDS


def _died(test: str, text: str) -> TestResult:
    return TestResult(test=test, ending=Ending.DIED, text=text)
