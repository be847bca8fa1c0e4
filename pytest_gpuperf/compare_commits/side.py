"""One side of a comparison: a fork server with processes of one version."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import Final

from ..errors import ErrorId
from ..errors import QuotedError
from ..errors import RunError
from ..model.codec import decode
from ..model.codec import encode
from ..model.environment import DeviceKind
from ..model.environment import DeviceSlot
from ..model.environment import Environment
from ..model.run import Ending
from ..model.run import RunMode
from ..model.run import TestResult
from ..runner.fork_server import HEAVY_MODULES
from ..runner.fork_server import ForkServer
from ..runner.fork_server import Job
from ..runner.plan import Planned
from ..runner.plan import Project
from ..runner.plan import RunRequest
from ..runner.relocation import Relocation
from ..runner.reservation import Turns
from ..runner.reservation import Unlocked
from ..runner.reservation import alone
from ..runner.reservation import turns_at
from ..runner.screening import Group
from ..settings import Settings
from .versions import unbuilt


# The description of one side, known before anything is measured.


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What both sides are to collect: what pytest selects with ``arguments``.

    If ``tests`` are named, these alone, as far as a side has them. ``options`` are
    values of options as a ``RunRequest`` has them.
    """

    arguments: tuple[str, ...]
    tests: tuple[Planned, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The measured tests of a side, its settings, and how a child must be started.

    ``can_share`` says that its device, at ``slot``, can time both versions in one
    process.
    """

    plan: tuple[Planned, ...]
    project: Project
    settings: Settings
    environment: Environment
    can_share: bool
    slot: DeviceSlot


# Modules that the fork servers of a comparison import before they fork.


def preload(given: Sequence[str]) -> tuple[str, ...]:
    """Return the modules that every process for these arguments of pytest needs."""
    scripted = f"--gpuperf-device={DeviceKind.SCRIPTED.value}" in given
    return () if scripted else HEAVY_MODULES


COLLECT_SECONDS: Final = 300.0

PATIENCE: Final = 2
SIDE_PATIENCE_SECONDS = 60.0
"""Multiple of its cap, and what is added, after which a process is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidePlace:
    """Where a side's code is, and what the side is called."""

    label: str
    relocation: Relocation
    directory: str


class Side:
    """Collects and measures one version, each time in a fresh process.

    ``settings`` are those of torch at each call, by its name, in the newest run.
    """

    def __init__(
        self,
        place: SidePlace,
        preload: Sequence[str],
        announce: Callable[[str], None],
        round_steps: dict[str, int] | None = None,
    ) -> None:
        """Both sides of a comparison share *round_steps*: by call, the steps per round
        that the first run chose."""
        self.label = place.label
        self.relocation = place.relocation
        self.settings: dict[str, Mapping[str, str]] = {}
        self._round_steps = {} if round_steps is None else round_steps
        self._place = place
        self._announce = announce
        self._found: Collected | None = None
        self._turns: Turns = Unlocked()
        self._server = ForkServer(
            preload, "pytest_gpuperf.worker.child:warm_pytest", place.relocation
        )

    def close(self) -> None:
        """End the fork server and its children."""
        self._server.close()
        self._turns.close()

    def collect(self, selection: Selection) -> Collected:
        """Return what pytest selects; raises ``UsageError`` if it cannot collect."""
        moved = _moved(selection, self.relocation)
        request = {"place": encode(self._place), "selection": encode(moved)}
        try:
            self._server.wait_until_ready()
            answer = self._server.run(
                Job(
                    entry="pytest_gpuperf.compare_commits.side_process:collect",
                    request=request,
                ),
                COLLECT_SECONDS,
            )
        except RunError as error:
            answer = {"error": str(error)}
        if "error" in answer:
            why = f"{answer['error']}{self._lacking(answer['error'])}"
            msg = f"{self.label}: cannot collect its tests: {why}"
            raise QuotedError(msg, ErrorId.GP708)
        self._found = found = decode(Collected, answer["collected"])
        self._turns = turns_at(found.slot, found.settings.lock_seconds, self._announce)
        return found

    def _lacking(self, error: str) -> str:
        """Say which file of the working tree this side lacks, if *error* misses it."""
        relocation = self._place.relocation
        is_elsewhere = relocation.root != relocation.origin
        return unbuilt(error, relocation.origin) if is_elsewhere else ""

    def run(self, group: Group, number: int) -> Sequence[TestResult]:
        """Measure *group* in a fresh process; a death is the result of each test."""
        return self._answer(group, self.request(group, number))

    def trace(self, test: str, folder: Path) -> Sequence[TestResult]:
        """Find the lines of *test* that take its time, with a trace below *folder*."""
        run = self.request((test,), 0)
        settings = replace(run.settings, artefacts=folder)
        return self._answer(
            (test,), replace(run, mode=RunMode.TRACE, settings=settings)
        )

    def _answer(self, group: Group, run: RunRequest) -> Sequence[TestResult]:
        request = {"request": encode(run), "relocation": encode(self.relocation)}
        job = Job(
            entry="pytest_gpuperf.compare_commits.side_process:measure", request=request
        )
        try:
            answer = self.ask(job, len(group) * patience(run.settings.seconds))
        except RunError as error:
            return [_died(test, str(error)) for test in group]
        if "error" in answer:
            return [_died(test, answer["error"]) for test in group]
        self.settings.update(answer["settings"])
        results = [decode(TestResult, result) for result in answer["results"]]
        for result in results:
            for call, steps in result.round_steps.items():
                self._round_steps.setdefault(call, steps)
        return results

    @property
    def collected(self) -> Collected:
        """What this side has, once it was asked for."""
        assert self._found is not None  # noqa: S101 - it was asked for first
        return self._found

    def request(self, group: Group, number: int) -> RunRequest:
        """Return how *group* is measured, once the side has been collected."""
        return replace(
            _request(self.collected, group, number),
            round_steps=dict(self._round_steps),
        )

    def renew(self, number: int) -> None:
        """Begin run *number* with processes that have nothing in common with others."""
        self._server.renew(number)

    def ask(self, job: Job, seconds: float) -> Any:
        """Return what *job* answers in a fresh process, which has the device alone.

        Raises ``RunError`` if it answers nothing, and ``UsageError`` if the device
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
        project=collected.project,
        settings=collected.settings,
        visible=collected.slot.visible,
        number=number,
    )


def patience(seconds: float) -> float:
    """Return how long a process may take for a test that is capped at *seconds*."""
    return PATIENCE * seconds + SIDE_PATIENCE_SECONDS


def _died(test: str, text: str) -> TestResult:
    return TestResult(test=test, ending=Ending.DIED, text=text)
