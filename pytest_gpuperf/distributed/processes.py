"""One process per rank: started together, watched together, ended together.

Ranks are forks of a process that has imported torch. Torch's own launcher would start an
interpreter for each and one for itself: 6.4 s of CPU for two ranks (median of 3), 0.1 s
for forks. It ends the others when one fails, without their stacks, and has no limit by the
time that a rank uses. Each rank that torchrun has started is watched here as well.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import selectors
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Final, NoReturn

from ..devices.process_time import Patience, UsedTime, now_s, patience_for
from ..model.codec import decode
from ..model.run import Ending, TestResult
from ..sharing.processes import death, die_with, kill_group, last_stack, last_words


# The process of a rank: it can be asked for its stack, and ends in time.

Say = Callable[[Mapping[str, Any]], None]
"""Sends JSON from a rank to its watcher."""

Work = Callable[[int, int, Say], None]
"""What a rank does, by its number and by the place where all ranks meet."""


def be_rank(
    work: Work, number: int, parent: int, pipes: tuple[int, int], folder: Path
) -> NoReturn:
    """Do *work* as rank *number* of *parent*, with *pipes* from and to the parent."""
    code = 1
    order, report = pipes
    try:
        os.setsid()
        die_with(parent)
        _write_to(folder, number)
        place = int(os.read(order, 100))
        _follow(order)
        work(number, place, _say_to(report))
        code = 0
    # Everything, also a KeyboardInterrupt: this is a copy of the parent, so an
    # exception must not get to the parent's code. The traceback goes to the output
    # file.
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        # Whatever happens, or there would be a second parent. No exit handler of the
        # parent may run here.
        os._exit(code)


def _follow(order: int) -> None:
    """Die at the end of the parent's orders, on systems without a signal for that."""
    if sys.platform != "linux":
        threading.Thread(target=_die_at_the_end_of, args=(order,), daemon=True).start()


def _die_at_the_end_of(order: int) -> None:
    while os.read(order, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def _write_to(folder: Path, number: int) -> None:
    output = os.open(output_of(folder, number), os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    stack = stack_file(folder, number).open("w", encoding="utf-8")
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True, chain=False)


def output_of(folder: Path, number: int) -> Path:
    """File of what a rank prints."""
    return folder / f"rank{number}.txt"


def stack_file(folder: Path, number: int) -> Path:
    """File in which a rank says where it is when SIGUSR1 asks it."""
    return folder / f"rank{number}.stack"


def _say_to(report: int) -> Say:
    def say(message: Mapping[str, Any]) -> None:
        left = json.dumps({**message, "at": time.monotonic()}).encode() + b"\n"
        while left:
            left = left[os.write(report, left) :]

    return say


GRACE_SECONDS: Final = 1.0
"""Time after the first failure for the other ranks to fail as well and say why."""

STACK_SECONDS: Final = 1.0
"""Most that a rank may take of its own time to write its stack."""

RANKS_PAUSE_SECONDS: Final = 0.02

ELSEWHERE_SECONDS: Final = 0.25
"""Interval at which other watchers are asked whether one of their ranks failed."""


class Elsewhere:
    """Ranks of the same test that other processes watch: here there are none."""

    def have_failed(self) -> bool:
        """Whether one of them has failed."""
        return False

    def hear_of_failure(self) -> None:
        """Learn that one has failed that is watched here."""

    def hear_of(self, pids: Sequence[int]) -> None:
        """Learn which processes are watched here."""

    def pids(self) -> Sequence[int]:
        """Return those of this machine that are watched there."""
        return ()


NOWHERE: Final = Elsewhere()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """How one rank ended: all it said, and its exit code, ``None`` if it was killed.

    ``ended_at`` is on the monotonic clock. ``stack`` is where it was when it was killed
    or died of a fatal error, ``output`` the end of what it printed. ``used`` is what the
    ranks had used that were killed because their time was over.
    """

    said: tuple[Mapping[str, Any], ...]
    code: int | None
    ended_at: float
    stack: str
    output: str
    used: UsedTime | None = None


@dataclass(slots=True, kw_only=True)
class _Process:
    pid: int
    order: int
    report: int
    folder: Path
    number: int
    buffered: bytes = b""
    said: list[Mapping[str, Any]] = field(default_factory=list)
    code: int | None = None
    ended_at: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.code is not None

    @property
    def failed(self) -> bool:
        return bool(self.code) or any(message.get("failed") for message in self.said)


def run_ranks(  # noqa: PLR0913  who they are, what they do, where and for how long
    work: Work,
    numbers: Sequence[int],
    *,
    meet: Callable[[], int],
    folder: Path,
    timeout_s: float,
    elsewhere: Elsewhere = NOWHERE,
) -> tuple[RankEnd, ...]:
    """Fork a process for each of *numbers* that does *work*; return how each ended.

    *meet* is called once all are forked, as what it starts need not survive a fork. Its
    result is sent to all of them. They have *timeout_s* to end, of the time of the rank
    that has used least: the others may wait for it. When one fails, here or *elsewhere*,
    the others have ``GRACE_SECONDS``. Those left then are asked for their stacks and
    killed, with all they started. Output and stacks are written to *folder*. No process
    outlives the caller.
    """
    processes = _forked(work, numbers, folder)
    try:
        place = meet()
        for process in processes:
            # A rank may have died at once; the watch will report it.
            with suppress(BrokenPipeError):
                os.write(process.order, f"{place}\n".encode())
        used = _watch(processes, patience_for(timeout_s), elsewhere)
        _ask_for_stacks(processes)
        return tuple(_end(process, used) for process in processes)
    finally:
        for process in processes:
            _kill(process)
            os.close(process.order)
            os.close(process.report)


def _forked(work: Work, numbers: Sequence[int], folder: Path) -> list[_Process]:
    # Or each fork would print what is still in the buffers once more.
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    processes: list[_Process] = []
    for number in numbers:
        order, order_end = os.pipe()
        report, report_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            # The fork copied the ends of earlier ranks' pipes. Left open here, a rank
            # would not see the end of its parent's orders.
            for other in processes:
                os.close(other.order)
                os.close(other.report)
            os.close(order_end)
            os.close(report)
            be_rank(work, number, parent, (order, report_end), folder)
        os.close(order)
        os.close(report_end)
        processes.append(
            _Process(
                pid=pid, order=order_end, report=report, folder=folder, number=number
            )
        )
    return processes


def _watch(
    processes: Sequence[_Process], patience: Patience, elsewhere: Elsewhere
) -> UsedTime | None:
    """Listen until all have ended, time is up, or grace is; return what they then used."""
    pause = None if elsewhere is NOWHERE else ELSEWHERE_SECONDS
    with selectors.DefaultSelector() as selector, _woken_by_deaths() as woken:
        selector.register(woken, selectors.EVENT_READ)
        elsewhere.hear_of(_living(processes))
        for process in processes:
            os.set_blocking(process.report, False)
            selector.register(process.report, selectors.EVENT_READ)
        failed = False
        while True:
            for process in processes:
                if not _look_after(process) and process.report in selector.get_map():
                    selector.unregister(process.report)
            if not failed and _has_failed(processes, elsewhere):
                failed = True
                patience = patience_for(GRACE_SECONDS, *_living(processes))
            now, living = now_s(), _living(processes)
            if not living:
                return None
            if now >= patience.due and (
                used := patience.over(now, [*living, *elsewhere.pids()])
            ):
                return used
            left = max(0.0, patience.due - now)
            selector.select(left if pause is None else min(left, pause))
            _heard(woken)


def _living(processes: Sequence[_Process]) -> list[int]:
    return [process.pid for process in processes if not process.is_over]


def _has_failed(processes: Sequence[_Process], elsewhere: Elsewhere) -> bool:
    if any(process.failed for process in processes):
        elsewhere.hear_of_failure()
        return True
    return elsewhere.have_failed()


@contextmanager
def _woken_by_deaths() -> Iterator[int]:
    """Lend a pipe that becomes readable when a child has died.

    The end of a rank's own pipe does not show its death: what the rank forks keeps that
    pipe open.
    """
    # A wakeup descriptor needs a Python handler for the signal, even one that does
    # nothing. Both ends do not block: the interpreter must never wait in a handler.
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    before = signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)
        os.close(woken)
        os.close(wake)


def _look_after(process: _Process) -> bool:
    """Read what a rank has sent, and its death; false once nothing more will come."""
    if process.is_over:
        return False
    # First the death, then the pipe: what a rank wrote before it died is then read for
    # sure.
    pid, status = os.waitpid(process.pid, os.WNOHANG)
    received, is_open = _heard(process.report)
    *lines, process.buffered = (process.buffered + received).split(b"\n")
    process.said += [json.loads(line) for line in lines]
    if pid:
        process.code = os.waitstatus_to_exitcode(status)
        process.ended_at = time.monotonic()
    return is_open and not pid


def _heard(pipe: int) -> tuple[bytes, bool]:
    """Return all that can be read without waiting, and whether more may come."""
    read: list[bytes] = []
    with suppress(BlockingIOError):
        while received := os.read(pipe, 65536):
            read.append(received)
        return b"".join(read), False
    return b"".join(read), True


def _ask_for_stacks(processes: Sequence[_Process]) -> None:
    stuck = [process for process in processes if not process.is_over]
    for process in stuck:
        os.kill(process.pid, signal.SIGUSR1)
    pids = _living(stuck)
    patience, before = patience_for(STACK_SECONDS, *pids), list[int]()
    while not patience.over(now_s(), pids):
        # faulthandler does not say when it is done: a file that no longer grows is
        # taken for complete.
        sizes = [len(_stack_of(process)) for process in stuck]
        if sizes == before and all(sizes):
            return
        before = sizes
        time.sleep(RANKS_PAUSE_SECONDS)


def _stack_of(process: _Process) -> str:
    try:
        path = stack_file(process.folder, process.number)
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _end(process: _Process, used: UsedTime | None) -> RankEnd:
    is_over = process.is_over
    output = output_of(process.folder, process.number)
    _kill(process)
    return RankEnd(
        said=tuple(process.said),
        code=process.code if is_over else None,
        ended_at=process.ended_at,
        stack=_stack_of(process) or last_stack(output),
        output=last_words(output),
        used=None if is_over else used,
    )


def _kill(process: _Process) -> None:
    """End a rank and all it started, if it has not ended; leave no zombie."""
    kill_group(process.pid)
    if not process.is_over:
        # It may be killed before ``setsid``, and then has no group of its own yet.
        os.kill(process.pid, signal.SIGKILL)
        _, status = os.waitpid(process.pid, 0)
        process.code = os.waitstatus_to_exitcode(status)


# One result of a test out of what became of its ranks.

OWN_FOLDER: Final = str(Path(__file__).parents[1])

FRAME: Final = re.compile(
    r'  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>.+)'
)

ENTRY: Final = re.compile(r"(?P<where>[^\s>:][^:]*:\d+):(?P<name> in \S+)?(?: ?\w*)")
"""Entries of pytest's traceback: ``test_it.py:12: ValueError``, ``it.py:3: in step``."""

RUNNERS: Final = re.compile(r"[/\\](_pytest|pluggy|pytest)[/\\]")

MOST_FRAMES: Final = 12

UNKNOWN_END: Final = RankEnd(said=(), code=None, ended_at=0.0, stack="", output="")
"""The end of a rank that reported nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RankReport:
    """What one rank reported: its newest result, and when it failed, if ever."""

    number: int
    end: RankEnd
    result: TestResult | None
    failed_at: float

    @property
    def has_died(self) -> bool:
        return bool(self.end.code) and self.result is None


def result_of(test: str, ends: Sequence[RankEnd], timeout_s: float) -> TestResult:
    """Say how *test* ended, by the *ends* of its ranks.

    If all ended alike it is rank 0's result. Otherwise the text says why the first one
    failed and where the others were. *timeout_s* is what they had.
    """
    reports = [_report(number, end) for number, end in enumerate(ends)]
    # The first failure is the cause: the peers of a rank that is gone fail as well, a
    # moment later.
    first = min(reports, key=lambda one: one.failed_at)
    if first.failed_at < inf:
        return _failure(test, first, reports)
    if any(one.end.code is None for one in reports):
        return _hang(test, reports, timeout_s)
    return _together(test, reports)


def result_of_launched(
    test: str, ends: Sequence[RankEnd | None], timeout_s: float
) -> TestResult:
    """Say how *test* ended if each rank has a pytest; some may have no end."""
    lost = [str(number) for number, end in enumerate(ends) if end is None]
    result = result_of(test, [end or UNKNOWN_END for end in ends], timeout_s)
    if not lost:
        return result
    text = (
        f"no word came of how rank {', '.join(lost)} ended: did its pytest die, or is "
        f"its machine cut off?\n\n{result.text}"
    )
    return replace(result, ending=Ending.DIED, text=text, headline="", calls=())


def _report(number: int, end: RankEnd) -> _RankReport:
    for message in end.said:
        if message.get("failed"):
            result = decode(TestResult, message["result"])
            return _RankReport(
                number=number, end=end, result=result, failed_at=message["at"]
            )
    results = [decode(TestResult, message["result"]) for message in end.said]
    return _RankReport(
        number=number,
        end=end,
        result=results[-1] if results else None,
        failed_at=end.ended_at if end.code else inf,
    )


def _together(test: str, reports: Sequence[_RankReport]) -> TestResult:
    """All have ended by themselves, and none of them failed."""
    results = [
        one.result or TestResult(test=test, ending=Ending.DIED) for one in reports
    ]
    first, *_ = results
    if len({result.ending for result in results}) > 1:
        did = ", ".join(f"rank {i} {r.ending.value}" for i, r in enumerate(results))
        text = f"the ranks of a test must end alike: {did}"
        return TestResult(test=test, ending=Ending.FAILED, text=text)
    others = enumerate(results[1:], start=1)
    sections = ((f"{t} (rank {i})", s) for i, r in others for t, s in r.sections)
    return replace(first, sections=(*first.sections, *sections))


def _failure(
    test: str, first: _RankReport, reports: Sequence[_RankReport]
) -> TestResult:
    name = f"rank {first.number} of {len(reports)}"
    peers = [line for one in reports if one is not first for line in _peer(one)]
    if first.has_died or first.result is None:
        text = "\n".join(_death(name, first.end))
        ending, headline = Ending.DIED, ""
    else:
        text = f"{name} failed first:\n\n{first.result.text}"
        ending, headline = Ending.FAILED, f"rank {first.number}: {_headline(first)}"
    return TestResult(
        test=test,
        ending=ending,
        text="\n".join((text, "", *peers)).rstrip(),
        headline=headline,
        sections=first.result.sections if first.result else (),
    )


def _headline(one: _RankReport) -> str:
    result = one.result
    first, *_ = (result.text.splitlines() if result else []) or ["it failed"]
    return (result.headline if result else "") or first


def _hang(test: str, reports: Sequence[_RankReport], timeout_s: float) -> TestResult:
    used = next((u for one in reports if (u := one.end.used)), None)
    used = used or UsedTime(wall_s=timeout_s)
    asked = "wait for what another never does" if used.idle else "loop for ever"
    text = (
        f"the {len(reports)} ranks gave no result and were killed: they {used}; does one of "
        f"them {asked}? If they only need longer, raise timeout_s of gpuperf.ranks"
    )
    lines = [line for one in reports for line in _peer(one)]
    text = "\n".join((text, "", *lines))
    return TestResult(test=test, ending=Ending.DIED, text=text)


def _peer(one: _RankReport) -> Iterator[str]:
    if one.failed_at < inf and not one.has_died:
        yield f"rank {one.number} failed then: {_headline(one)}"
        yield from _entries(one.result.text if one.result else "")
    elif one.end.code:
        yield from _death(f"rank {one.number}", one.end)
    elif one.end.code == 0:
        yield f"rank {one.number} had ended"
    else:
        frames = list(_frames(one.end.stack))
        yield f"rank {one.number} was at" + ("" if frames else " an unknown place")
        yield from frames


def _death(name: str, end: RankEnd) -> Iterator[str]:
    """Describe a death by the stack that it left, else by the last printed lines."""
    frames = list(_frames(end.stack))
    words = end.output.splitlines()[:1] if frames else end.output.splitlines()
    yield f"{name} {death(end.code or 0)}: " + "\n".join(words)
    yield from frames


def _entries(traceback: str) -> Iterator[str]:
    """Yield the places that a *traceback* of pytest names, innermost first."""
    places = [found for found in map(ENTRY.fullmatch, traceback.splitlines()) if found]
    for place in reversed(places[-MOST_FRAMES:]):
        yield f"  {place['where']}{place['name'] or ''}"


def _frames(stack: str) -> Iterator[str]:
    """Yield the frames of a test that faulthandler wrote, innermost first.

    They end where those of pytest begin, in the thread that has such frames.
    """
    for thread in stack.split("\n\n"):
        frames = [found for found in map(FRAME.fullmatch, thread.splitlines()) if found]
        runner = (i for i, f in enumerate(frames) if RUNNERS.search(f["file"]))
        last = next(runner, None)
        if last is None:
            continue
        shown = [f for f in frames[:last] if not f["file"].startswith(OWN_FOLDER)]
        for frame in shown[:MOST_FRAMES]:
            yield f"  {frame['file']}:{frame['line']} in {frame['name']}"
        return
