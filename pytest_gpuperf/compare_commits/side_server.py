"""What runs one side of a comparison: a fork server with processes of its code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..errors import ErrorId, QuotedError, RunError
from ..measure.plan import longest_run, time_limit
from ..model.ab import Recorded
from ..model.codec import decode, encode
from ..model.environment import DeviceKind, DeviceSlot, Environment
from ..model.run import Ending, RunMode, TestResult
from ..runner.fork_server import ForkServer, Job, preloaded_for, variables_for
from ..runner.request import Planned, Project, RunRequest
from ..runner.screening import Group
from ..settings import Settings
from ..sharing.device_lock import Queue, queue_at
from .sides import Side, unbuilt


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What both sides are to collect: what pytest selects with ``arguments``.

    If ``calls`` are named, only the tests that make them. Times are left out where what is
    exact is ``exact_alone`` is asked for.
    ``asks_training`` says that whether both train the same is asked, too.
    """

    arguments: tuple[str, ...]
    calls: tuple[str, ...] = ()
    exact_alone: bool = False
    asks_training: bool = False

    def moved(self, to: Callable[[str], str]) -> Selection:
        """Name what is meant in another folder: each text as it is *to* be."""
        return replace(self, arguments=tuple(map(to, self.arguments)))

    @property
    def kind(self) -> DeviceKind | None:
        """The device that these arguments of pytest name."""
        given = self.arguments
        named = (k for k in DeviceKind if f"--gpuperf-device={k.value}" in given)
        return next(named, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The measured tests of a side, its settings, and how a child must be started."""

    plan: tuple[Planned, ...]
    project: Project
    settings: Settings
    environment: Environment
    slot: DeviceSlot


AskProcess = Callable[[Job, float], Any]
"""Returns what a job answers, or raises ``RunError``."""

COLLECT_SECONDS: Final = 300.0


class SideServer:
    """Collects and measures one side, each time in a fresh process."""

    def __init__(
        self,
        side: Side,
        selection: Selection,
        announce: Callable[[str], None],
        round_steps: dict[str, int],
    ) -> None:
        """Both sides of a comparison share *round_steps*: by call, the steps per round
        that the first run chose."""
        self.side = side
        self.relocation = side.relocation
        self.announce = announce
        self._directory = side.directory()
        self._selection = selection
        self._round_steps = round_steps
        self._found: Collected | None = None
        self._queue = Queue()
        self._server = ForkServer(
            preloaded_for(selection.kind),
            "pytest_gpuperf.worker.child:warm_pytest",
            side.relocation,
            packages=side.packages,
            variables=variables_for(selection.kind),
        )

    def close(self) -> None:
        """End the fork server and its children."""
        self._server.close()
        self._queue.close()

    def collect(self) -> Collected:
        """Return what pytest selects; raises ``UsageError`` if it cannot collect."""
        entry = "pytest_gpuperf.compare_commits.side_process:collect"
        request = {
            "relocation": encode(self.relocation),
            "directory": str(self._directory),
            "selection": encode(self._selection.moved(self.relocation.replaced)),
        }
        try:
            self._server.wait_until_ready()
            answer = self._server.run(
                Job(entry=entry, request=request), COLLECT_SECONDS
            )
        except RunError as error:
            answer = {"error": str(error)}
        if "error" in answer:
            why = f"{answer['error']}{self._lacking(answer['error'])}"
            msg = f"{self.side.label}: cannot collect its tests: {why}"
            raise QuotedError(msg, ErrorId.GP708)
        self._found = found = decode(Collected, answer["collected"])
        # What only counts waits for nobody who times.
        if not self._selection.exact_alone:
            self._queue = queue_at(found.slot, self.announce)
        return found

    def _lacking(self, error: str) -> str:
        """Say which file of the working tree this side lacks, if *error* misses it."""
        relocation = self.relocation
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

    def train(self, group: Group) -> Recorded:
        """Record what *group* trains, in a fresh process."""
        # Nothing is timed, so others may time meanwhile.
        answer = self._asked(self._server.run, "train", group, self.request(group, 0))
        if "error" in answer:
            return Recorded(failed=dict.fromkeys(group, answer["error"]))
        return decode(Recorded, answer["recorded"])

    def _asked(self, ask: AskProcess, what: str, group: Group, run: RunRequest) -> Any:
        entry = f"pytest_gpuperf.compare_commits.side_process:{what}"
        request = {"request": encode(run), "relocation": encode(self.relocation)}
        cap = run.settings.seconds
        job = Job(entry=entry, request=request, limited_by=time_limit(cap))
        try:
            return ask(job, longest_run(len(group), cap))
        except RunError as error:
            return {"error": str(error)}

    def _answer(self, group: Group, run: RunRequest) -> Sequence[TestResult]:
        answer = self._asked(self.ask, "measure", group, run)
        if "error" in answer:
            died, why = Ending.DIED, answer["error"]
            return [TestResult(test=test, ending=died, text=why) for test in group]
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
        found = self.collected
        arguments = {planned.test: planned.argument for planned in found.plan}
        return RunRequest(
            tests=tuple(arguments[test] for test in group),
            device=found.environment.hardware.kind,
            project=found.project,
            settings=found.settings,
            visible=found.slot.visible,
            number=number,
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
        with self._queue.alone():
            return self._server.run(job, seconds)
