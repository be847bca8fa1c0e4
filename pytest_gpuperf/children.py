"""The measuring processes of one enabled run: started, asked and ended."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import Final

from .errors import RunError
from .errors import UsageError
from .gate import Group
from .model.codec import decode
from .model.codec import encode
from .model.environment import DeviceKind
from .model.environment import Environment
from .model.launch import Launch
from .model.ranks import Ranks
from .model.run import Ending
from .model.run import RunRequest
from .model.run import TestResult
from .model.seat import Seat
from .plan import Planned
from .plan import Project
from .progress import Progress
from .runs.fork_server import HEAVY_MODULES
from .runs.fork_server import ForkServer
from .runs.fork_server import Job
from .runs.seating import SeatedJob
from .runs.seating import SideBySide
from .runs.seating import assigned
from .settings import Settings
from .sharing.device_lock import lock_folder
from .sharing.lock_identity import identity_of
from .sharing.reservation import Turns
from .sharing.reservation import turns_at


IN_RANKS: Final = "pytest_gpuperf.in_ranks:measure"
"""What measures ranks, and says why what is none cannot be measured."""


class Children:
    """Owns the fork server that each of them is a copy of, and the locks they hold."""

    def __init__(
        self,
        settings: Settings,
        project: Project,
        announce: Callable[[str], None],
        progress: Progress,
    ) -> None:
        self._settings = settings
        self._project = project
        self._announce = announce
        self._progress = progress
        self.seats: tuple[Seat, ...] = ()
        self._turns: tuple[Turns, ...] = ()
        self._seat_of: dict[str, int] = {}
        scripted = settings.device is DeviceKind.SCRIPTED
        self._server = ForkServer(
            () if scripted else HEAVY_MODULES,
            warm="pytest_gpuperf.child:warm_pytest",
            hear=progress.arrived if progress.is_shown else None,
        )

    def close(self) -> None:
        """End the server and its children."""
        self._server.close()
        for turns in self._turns:
            turns.close()

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
        self.seats = tuple(decode(Seat, seat) for seat in answer["seats"])
        self._turns = tuple(
            turns_at(seat, self._settings.lock_seconds, self._announce)
            for seat in self.seats
        )
        return decode(Environment, answer["environment"])

    def assign(
        self, groups: Sequence[Group], board_of: Callable[[Group], str | None]
    ) -> None:
        """Decide where each group is measured: *board_of* its baseline, if it has one."""
        seat_of = assigned(groups, self.seats, board_of)
        self._seat_of = {test: seat_of[group] for group in groups for test in group}

    def run(  # noqa: PLR0913  what is run, and two folders for what is recorded
        self,
        kind: DeviceKind,
        plan: Mapping[str, Planned],
        groups: Sequence[Group],
        number: int,
        *,
        recordings: Path | None = None,
        traces: Path | None = None,
    ) -> Sequence[TestResult]:
        """Measure *groups*, each in a fresh process or one a rank; *plan* has the tests.

        A device measures one group at a time. What the allocator did is recorded in the
        folder *recordings*, if one is named; one for *traces* has steps only traced.
        """
        request = replace(
            self._request(kind, number),
            recordings=None if recordings is None else str(recordings),
            traces=None if traces is None else str(traces),
        )
        jobs = [self._seated(group, plan, request) for group in groups]
        self._progress.begin(
            groups,
            number if traces is None else None,
            side_by_side=min(len(self.seats), len(groups)),
        )
        side_by_side = SideBySide(self._server, self._turns, watch=self._progress)
        return [
            result
            for group, answer in zip(groups, side_by_side.run(jobs), strict=True)
            for result in _results(group, answer)
        ]

    def _request(self, kind: DeviceKind, number: int) -> RunRequest:
        return RunRequest(
            tests=(),
            device=kind,
            directory=self._project.directory,
            root=str(self._project.rootdir),
            search_path=self._project.search_path,
            arguments=self._project.arguments,
            options=self._project.options,
            seconds=self._settings.seconds,
            tolerance=self._settings.tolerance,
            number=number,
            script=self._settings.script,
            pretend_gib=self._settings.pretend_gib,
            launch=self._settings.launch,
        )

    def _seated(
        self, group: Group, plan: Mapping[str, Planned], request: RunRequest
    ) -> SeatedJob:
        tests = tuple(plan[test].argument for test in group)
        request = replace(request, tests=tests, names=group)
        asked = plan[group[0]].ranks
        if asked is not None:
            return self._on_all_seats(replace(request, ranks=asked))
        seat = self._seat_of[group[0]]
        request = replace(request, visible=self.seats[seat].visible)
        entry = IN_RANKS if request.launch else "pytest_gpuperf.child:measure"
        return SeatedJob(
            job=Job(entry=entry, request=encode(request)),
            seconds=len(group) * (2 * self._settings.seconds + 60),
            seats=(seat,),
        )

    def _on_all_seats(self, request: RunRequest) -> SeatedJob:
        """Ranks choose among all GPUs, so nobody else is to be measured meanwhile.

        The locks are taken in the order of their names, as by every other run.
        """
        assert request.ranks is not None  # noqa: S101 - the caller looked
        ranks = with_timeout(request.ranks, self._settings.seconds)
        locks = self.locks if request.launch else ()
        request = replace(request, ranks=ranks, locks=locks)
        return SeatedJob(
            job=Job(entry=IN_RANKS, request=encode(request)),
            seconds=_most_seconds(ranks, request.launch),
            seats=self._all_seats,
        )

    @property
    def _all_seats(self) -> tuple[int, ...]:
        numbers = range(len(self.seats))
        return tuple(sorted(numbers, key=lambda seat: self.seats[seat].lock or ""))

    @property
    def locks(self) -> tuple[str, ...]:
        """Identities of the seats' locks, the same for others who have the same ones."""
        return tuple(map(self._identity, range(len(self.seats))))

    def _identity(self, seat: int) -> str:
        name = self.seats[seat].lock
        return "" if name is None else identity_of(lock_folder(), name)

    def follow(
        self, order: RunRequest, run: int, planned: Planned, held: Collection[str]
    ) -> None:
        """Be one of torchrun's ranks in this *run*, for which rank 0 gave the *order*.

        The locks *held* are those of ranks before this one. Raises ``RunError`` where
        the run is called off, and ``UsageError`` where a device does not come free.
        """
        launch = self._settings.launch
        assert launch is not None  # noqa: S101 - somebody gave an order
        assert order.ranks is not None  # noqa: S101 - it is one for ranks
        request = replace(
            order,
            tests=(planned.argument,),
            directory=self._project.directory,
            root=str(self._project.rootdir),
            search_path=self._project.search_path,
            arguments=self._project.arguments,
            options=self._project.options,
            script=self._settings.script,
            launch=launch,
        )
        job = Job(
            entry="pytest_gpuperf.in_ranks:follow",
            request={"request": encode(request), "run": run},
        )
        seated = SeatedJob(
            job=job,
            seconds=_most_seconds(order.ranks, launch),
            seats=tuple(s for s in self._all_seats if self._identity(s) not in held),
        )
        (answer,) = SideBySide(self._server, self._turns).run([seated])
        if isinstance(answer, RunError):
            raise answer


def _most_seconds(ranks: Ranks, launch: Launch | None) -> float:
    """What *ranks* may take, and what they may wait for those of other processes."""
    others = 2 * launch.patience_s if launch else 0.0
    return (ranks.timeout_s or 0.0) + 30 + others


def with_timeout(ranks: Ranks, seconds: float) -> Ranks:
    """Give *ranks* that name no timeout one for a test that may cost so many *seconds*."""
    if ranks.timeout_s is not None:
        return ranks
    return replace(ranks, timeout_s=2 * seconds + 30)


def _results(group: Group, answer: Any) -> Sequence[TestResult]:
    if isinstance(answer, RunError):
        return [
            TestResult(test=test, ending=Ending.DIED, text=str(answer))
            for test in group
        ]
    return [decode(TestResult, result) for result in answer]
