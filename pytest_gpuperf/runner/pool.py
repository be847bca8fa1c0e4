"""The measuring processes of one enabled run: started, asked and ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import isfinite
from typing import Any, Final

from ..baselines.format import LARGEST
from ..errors import ErrorId, QuotedError, RunError
from ..measure.plan import MOST_CAPS, longest_run, time_limit
from ..model.budget import Ranks
from ..model.codec import decode, encode
from ..model.environment import DeviceKind, DeviceSlot, Environment, Launch
from ..model.measurement import Measurement
from ..model.run import Ending, KnownCalls, RunMode, TestResult
from ..report.screen.summary import duration, progress_text
from ..settings import Settings
from ..sharing.device_lock import Queue, identity_of, lock_folder, queue_at
from .fork_server import EarlyServer, Job
from .request import Planned, Project, RunRequest
from .screening import Group


# What a measuring process answers, validated. Tests run there and may have replaced what
# the answer is made with. What one of them spoils is its own verdict, and never
# arithmetic on the numbers of all.


def results_of(group: Group, answer: Any) -> Sequence[TestResult]:
    """Return the results in *answer*; if it is none, each test of *group* has died."""
    if isinstance(answer, RunError):
        return _died(group, str(answer))
    try:
        return [_believed(decode(TestResult, result)) for result in answer]
    # All that `decode` raises for JSON of another shape.
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        msg = (
            f"the measuring process left a result of another shape ({error}); does the "
            "test replace what json, dataclasses or pytest are made of?"
        )
        return _died(group, str(RunError(msg, ErrorId.GP603)))


def _died(group: Group, text: str) -> Sequence[TestResult]:
    return [TestResult(test=test, ending=Ending.DIED, text=text) for test in group]


def _believed(result: TestResult) -> TestResult:
    """Return *result*, failed where it has a number that no step can show."""
    wrong = next((w for m in _measurements(result) for w in _wrong(m)), None)
    if wrong is None:
        return result
    text = (
        f"{wrong}, which no step shows: does the test replace the clock or what counts?"
    )
    if result.ending is Ending.PASSED:
        result = replace(result, ending=Ending.FAILED, text=text)
    return replace(result, calls=(), comparisons=())


def _measurements(result: TestResult) -> Iterator[Measurement]:
    yield from (call.measurement for call in result.calls)
    yield from (compared.after for compared in result.comparisons)


def _wrong(measurement: Measurement) -> Iterator[str]:
    for name, count in measurement.exact.items():
        if not 0 <= count <= LARGEST:
            yield f"{name} is {_short(count)}"
    for name, times in measurement.times.items():
        for number in (times.q10, times.q25, times.q50, times.mean):
            if not isfinite(number):
                yield f"{name} is {number}"


def _short(count: int) -> str:
    return str(count) if abs(count) < LARGEST else f"about 2**{count.bit_length()}"


ON_ITS_OWN: Final = "pytest_gpuperf.worker.child:measure"
"""What measures the tests of one process."""

IN_RANKS: Final = "pytest_gpuperf.worker.ranks_child:measure"
"""What measures ranks, and says why what is none cannot be measured."""


class WorkerPool:
    """Owns the fork server of the measuring processes, and their locks."""

    def __init__(
        self,
        settings: Settings,
        project: Project,
        announce: Callable[[str], None],
        progress: Progress,
        early: EarlyServer | None = None,
    ) -> None:
        """*early* is a server that was started before the tests were collected."""
        self._settings = settings
        self._project = project
        self._announce = announce
        self._progress = progress
        self.slots: tuple[DeviceSlot, ...] = ()
        self._queues: tuple[Queue, ...] = ()
        self._boards = KnownCalls[str]({})
        self._stored = KnownCalls[tuple[str, ...]]({})
        self._round_steps = KnownCalls[int]({})
        self._server = (early or EarlyServer(settings.device)).take()
        self._server.send_progress_to(progress.arrived)

    def close(self) -> None:
        """End the server and its children."""
        self._server.close()
        for queue in self._queues:
            queue.close()

    def environment(self) -> Environment:
        """Where the tests will be measured; raise ``UsageError`` if they cannot be."""
        self._server.wait_until_ready()
        kind = self._settings.device
        request = {
            "kind": kind.value if kind else None,
            "script": self._settings.script,
        }
        job = Job(entry="pytest_gpuperf.worker.child:describe", request=request)
        answer = self._server.run(job, seconds=60)
        if "error" in answer:
            raise QuotedError(answer["error"], ErrorId.GP401)
        self.slots = tuple(decode(DeviceSlot, slot) for slot in answer["slots"])
        self._queues = tuple(queue_at(slot, self._announce) for slot in self.slots)
        return decode(Environment, answer["environment"])

    def learn(
        self,
        boards: Mapping[str, str],
        stored: Mapping[str, tuple[str, ...]],
        round_steps: Mapping[str, int],
    ) -> None:
        """Take what the baselines say of each call.

        *boards* has the GPU that it was recorded on, *stored* its exact metrics,
        *round_steps* the steps per round of its runs. A call without any keeps those of
        its first run.
        """
        self._boards = KnownCalls(boards)
        self._stored = KnownCalls(stored)
        self._round_steps = KnownCalls(round_steps)

    def run(  # noqa: PLR0913  what is run, and who hears of it
        self,
        kind: DeviceKind,
        plan: Mapping[str, Planned],
        groups: Sequence[Group],
        number: int,
        *,
        mode: RunMode = RunMode.MEASURE,
        timed: Collection[str] = (),
        arrived: Callable[[Sequence[TestResult]], None] = lambda _: None,
    ) -> Sequence[TestResult]:
        """Measure *groups*, each in a fresh process or one a rank; *plan* has the tests.

        One group is measured at a time. Of the calls *timed* nothing but times is read.
        *arrived* gets the results of each group as soon as it has ended.
        """
        request = RunRequest(
            tests=(),
            device=kind,
            project=self._project,
            settings=self._settings,
            number=number,
            mode=mode,
        )
        only_times = KnownCalls(dict.fromkeys(timed, True))
        self._progress.begin(groups, None if mode is RunMode.TRACE else number)
        found: list[TestResult] = []
        for index, group in enumerate(groups):
            asked = replace(request, timed=tuple(only_times.of(group)))
            answer = self._measured(group, plan, asked, index)
            results = results_of(group, answer)
            self._progress.ended(index)
            found += results
            arrived(results)
        for result in found:
            for call, steps in result.round_steps.items():
                self._round_steps.learn(call, steps)
        return found

    def renew(self, number: int) -> None:
        """Begin run *number* with processes that have nothing in common with others."""
        self._server.renew(number)

    def _measured(
        self, group: Group, plan: Mapping[str, Planned], request: RunRequest, index: int
    ) -> Any:
        """Return what the processes of *group* answer, or how they died."""
        slots: tuple[int, ...]
        launch, ranks = request.settings.launch, plan[group[0]].ranks
        request = replace(
            request,
            tests=tuple(plan[test].argument for test in group),
            names=group,
            stored=self._stored.of(group),
            round_steps=self._round_steps.of(group),
        )
        limited_by = time_limit(self._settings.seconds)
        if ranks is None:
            slots = (self._slot_of(group),)
            request = replace(request, visible=self.slots[slots[0]].visible)
            seconds = longest_run(len(group), self._settings.seconds)
        else:
            if ranks.timeout_s is not None:
                limited_by = f"gpuperf.ranks(timeout_s={ranks.timeout_s:g})"
            ranks = with_timeout(ranks, self._settings.seconds)
            locks = self.locks if launch else ()
            request = replace(request, ranks=ranks, locks=locks)
            seconds = _most_seconds(ranks, launch)
            slots = self._all_slots
        job = Job(
            entry=IN_RANKS if launch or ranks else ON_ITS_OWN,
            request=encode(request),
            limited_by=limited_by,
        )
        try:
            return self._asked(job, seconds, slots, index)
        except RunError as error:
            return error

    def _asked(
        self, job: Job, seconds: float, slots: Sequence[int], index: int | None = None
    ) -> Any:
        """Return what *job* answers, which has the devices at *slots* alone.

        Raises ``RunError`` if it dies, and ``UsageError`` if a device does not come free.
        """
        with ExitStack() as held:
            for slot in slots:
                held.enter_context(self._queues[slot].alone())
            if index is not None:
                self._progress.started(index)
            return self._server.run(job, seconds, self._progress.waiting)

    def _slot_of(self, group: Group) -> int:
        """Return the GPU of the baseline: two GPUs of one model differ by several percent."""
        boards = [slot.board for slot in self.slots]
        known = (b for b in self._boards.of(group).values() if b in boards)
        return boards.index(next(known, boards[0]))

    @property
    def _all_slots(self) -> tuple[int, ...]:
        """All GPUs, as ranks choose among them: in the order in which every run locks them."""
        numbers = range(len(self.slots))
        return tuple(sorted(numbers, key=lambda slot: self.slots[slot].lock or ""))

    @property
    def locks(self) -> tuple[str, ...]:
        """Identities of the slots' locks, the same for others who have the same ones."""
        return tuple(map(self._identity, range(len(self.slots))))

    def _identity(self, slot: int) -> str:
        name = self.slots[slot].lock
        return "" if name is None else identity_of(lock_folder(), name)

    def follow(
        self, order: RunRequest, run: int, planned: Planned, held: Collection[str]
    ) -> None:
        """Be one of torchrun's ranks in this *run*, for which rank 0 gave the *order*.

        The locks *held* are those of ranks before this one. Raises ``RunError`` if
        the run is called off, and ``UsageError`` where a device does not come free.
        """
        launch = self._settings.launch
        assert launch is not None  # noqa: S101 - somebody gave an order
        assert order.ranks is not None  # noqa: S101 - it is one for ranks
        request = replace(
            order,
            tests=(planned.argument,),
            project=self._project,
            settings=replace(
                order.settings, script=self._settings.script, launch=launch
            ),
        )
        job = Job(
            entry="pytest_gpuperf.worker.ranks_child:follow",
            request={"request": encode(request), "run": run},
        )
        slots = [s for s in self._all_slots if self._identity(s) not in held]
        self._asked(job, _most_seconds(order.ranks, launch), slots)


def _most_seconds(ranks: Ranks, launch: Launch | None) -> float:
    """What *ranks* may take, and what they may wait for those of other processes.

    Twice their time: it is their watcher that ends them, which knows where each one is.
    """
    others = 2 * launch.patience_s if launch else 0.0
    return 2 * (ranks.timeout_s or 0.0) + 60 + others


def with_timeout(ranks: Ranks, seconds: float) -> Ranks:
    """Give *ranks* that name no timeout one for a test that may cost so many *seconds*."""
    if ranks.timeout_s is not None:
        return ranks
    return replace(ranks, timeout_s=MOST_CAPS * seconds + 30)


# The progress of a run: it is shown when a process starts, when a step arrives to be measured,
# between the parts of its warm-up and its rounds (at most once a second), and when nothing has
# happened for some seconds.


class Progress:
    """Counts the tests and the time, and passes them in a line to *show*."""

    def __init__(
        self,
        show: Callable[[str], None] | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show = show
        self._now = now
        self._start = now()
        self._groups: Sequence[Group] = ()
        self._left: set[int] = set()
        self._number: int | None = None
        self._done_before = 0
        self._total: int | None = None
        self._last = ("", "")

    def among(self, done: int, total: int | None) -> None:
        """Say of what begins next that so many of *total* tests are *done* before it."""
        self._done_before, self._total = done, total

    def begin(self, groups: Sequence[Group], number: int | None) -> None:
        """Follow run *number* of *groups*; one without a number traces."""
        self._groups, self._number = groups, number
        self._left = set(range(len(groups)))

    def started(self, index: int) -> None:
        """Say that the group with this *index* is next."""
        self._tell(self._groups[index][0])

    def arrived(self, call: str, doing: str = "") -> None:
        """Say that a step is there to be measured: its fixtures are set up."""
        self._tell(call, doing)

    def waiting(self) -> None:
        """Say again what is done, as nothing new was heard for a while."""
        self._tell(*self._last)

    def ended(self, index: int) -> None:
        """Count the group with this *index* as done."""
        self._left.discard(index)

    def _tell(self, test: str, part: str = "") -> None:
        self._last = (test, part)
        if self._show is not None:
            self._show(progress_text(self._counts(), part, test))

    def _counts(self) -> str:
        left = sum(len(self._groups[index]) for index in self._left)
        here = sum(map(len, self._groups))
        done = self._done_before + here - left
        total = here if self._total is None else self._total
        seconds = duration(self._now() - self._start)
        if self._number is None:
            return f"gpuperf: tracing {done}/{total} tests, {seconds}"
        run = f"run {self._number + 1}"
        return f"gpuperf: measuring {done}/{total} tests, {run}, {seconds}"
