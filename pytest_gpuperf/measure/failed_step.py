"""A few more steps of a test that failed: traced, then timed line by line."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile
from types import FrameType
from typing import Any, Final

from ..devices.base import MeasuringDevice, Step
from ..devices.own_code import checkout_of
from ..devices.source_lines import blamed_below, location_of, outwards
from ..devices.step_thread import STEPS
from ..files import file_name
from ..model.environment import Capability
from ..model.finding import Finding, FindingKind, Location
from ..model.measurement import Measurement
from ..model.metrics import LATENCY_MS, STEP_MS
from .plan import Deadline, MeasuredStep, MeasurePlan
from .profile import (
    PROFILED_STEPS,
    TRACE_FOLDER,
    TRACE_SUFFIX,
    portable_from,
    profile_steps,
    write_trace,
)
from .step import Arguments, Subject
from .warmup import warm_up


def traced(
    device: MeasuringDevice, subject: Subject, plan: MeasurePlan
) -> MeasuredStep:
    """Write a trace of *subject* below the artefacts of *plan*.

    The measurement contains only the trace's path and the lines that take the time, or
    nothing if the cap leaves no time for it. Raises what ``measure`` raises.
    """
    test, root = plan.test, plan.root
    device.preflight()
    subject = subject.prepared(device, test)
    deadline = Deadline.after(plan.seconds, device.now_ns)
    result = subject.run_once()
    device.synchronize()
    step_ms = warm_up(device, subject, deadline).step_ms
    measurement = Measurement(test=test, environment=device.environment())
    if deadline.leaves(step_ms * PROFILED_STEPS):
        path = plan.artefacts / TRACE_FOLDER / f"{file_name(test)}{TRACE_SUFFIX}"
        events = profile_steps(device, subject, step_ms, deadline)
        write_trace(path, test, events, portable_from(root))
        measurement = replace(measurement, trace=str(path))
    # Last, as it may disturb what comes after it; and a step that fails while it is
    # watched must not lose the trace of those that did not.
    with suppress(Exception):
        lines = slowest_lines(
            device, subject, str(checkout_of(root)), step_ms, deadline
        )
        measurement = replace(measurement, findings=lines)
    return MeasuredStep(measurement=measurement, result=result)


# The lines of the project that a step spends its time on.

SAMPLED_SECONDS: Final = 2.0
"""Most time for the looks: a line that does not release Python's lock is seen seldom."""

PERIOD_SECONDS: Final = 0.001
"""Time between two looks at the line that runs."""

AT_ONCE_MS: Final = 50.0
"""Steps that take so long are watched without a break."""

ENOUGH_SAMPLES: Final = 500
LEAST_SAMPLES: Final = 100
"""Looks that show a share of a third to a tenth of a step."""

IDLE_NS: Final = 20_000
"""Time that waiting for a GPU without work takes at most; about 5 us are usual."""

LEAST_SEEN_PERCENT: Final = 2.0
"""Share of a step's time below which a line is not worth a word."""

MOST_TIMED_LINES: Final = 8

TIMES: Final = (
    STEP_MS.name,
    LATENCY_MS.name,
)
"""Metrics that a slow line makes worse."""


def slowest_lines(
    device: MeasuringDevice,
    subject: Subject,
    root: str,
    step_ms: float,
    deadline: Deadline,
) -> tuple[Finding, ...]:
    """Return the lines below *root* that take most of a step, the slowest first.

    A line has the time of all that it calls outside of the project, and of the kernels
    that it launches. Nothing if too little was seen in the time there is, or if a
    device has kernels and a debugger keeps them from being waited for.
    """
    if not _can_be_watched(device):
        return ()
    until = Deadline.after(SAMPLED_SECONDS, device.now_ns)
    at_once = subject.most_steps(max(1, round(AT_ONCE_MS / max(step_ms, 1e-3))))
    sampler = LineSampler(root)
    has_kernels = device.kind.has(Capability.KERNELS)
    waiter = LineWaiter(device, sampler) if has_kernels else nullcontext()
    while sampler.wants_more and until.leaves(0.0) and deadline.leaves(step_ms):
        batch = subject.batch(at_once)
        with sampler.looking(), waiter:
            _run(subject.step, batch, until)
            device.synchronize()
    return tuple(findings_of(sampler.seen))


def _can_be_watched(device: MeasuringDevice) -> bool:
    if device.kind.has(Capability.KERNELS):
        return sys.gettrace() is None
    return device.kind.has(Capability.HOST_WORK)


def _run(step: Step, batch: Iterable[Arguments], until: Deadline) -> None:
    """Run a step per batch: what this function calls is the user's."""
    for arguments in batch:
        step(*arguments)
        if not until.leaves(0.0):
            return


def findings_of(seen: Counter[Location]) -> Iterator[Finding]:
    """Yield the lines with most of what was *seen*; nothing if that is too little."""
    total = seen.total()
    if total < LEAST_SAMPLES:
        return
    for at, count in seen.most_common(MOST_TIMED_LINES):
        if 100 * count >= LEAST_SEEN_PERCENT * total:
            yield Finding(
                kind=FindingKind.TIME,
                op=None,
                per_step=1,
                percent=100 * count / total,
                location=at,
                metrics=TIMES,
            )


class LineSampler:
    """Looks now and then which line below *root* the step of this thread is at.

    Tracing each line would cost short lines many times what they take, and a step's
    Python would seem to be all that it does.
    """

    def __init__(self, root: str) -> None:
        self.seen: Counter[Location] = Counter()
        self.is_paused = False
        """Whether this thread is at no line of the step, but at work for us."""
        self.looks_in_pauses = 0
        self._root = root

    @property
    def wants_more(self) -> bool:
        return self.seen.total() < ENOUGH_SAMPLES

    def line_of(self, frame: FrameType | None) -> Location | None:
        """Return the innermost line of the project, from *frame* out to the step."""
        return blamed_below(self._root, takewhile(_is_inside_step, outwards(frame)))

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look until the end of the block; a thread of its own does it."""
        stop = threading.Event()
        looker = threading.Thread(
            target=self._look, args=(STEPS.ident, stop), daemon=True
        )
        # A look must not wait for the end of a loop that computes in Python.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(PERIOD_SECONDS / 100)
        looker.start()
        try:
            yield
        finally:
            stop.set()
            looker.join()
            sys.setswitchinterval(interval)

    def _look(self, thread: int, stop: threading.Event) -> None:
        while not stop.wait(PERIOD_SECONDS):
            if self.is_paused:
                self.looks_in_pauses += 1
                continue
            frame = sys._current_frames().get(thread)  # noqa: SLF001  the documented way
            at = self.line_of(frame)
            if at is not None:
                self.seen[at] += 1


def _is_inside_step(frame: FrameType) -> bool:
    return frame.f_code is not _run.__code__


class LineWaiter(AbstractContextManager[None]):
    """Waits for the device after each line of this thread, on behalf of that line.

    Python says that a line begins, so what is waited for is of the one before it.
    """

    def __init__(self, device: MeasuringDevice, sampler: LineSampler) -> None:
        self._device = device
        self._sampler = sampler

    def __enter__(self) -> None:
        STEPS.call(partial(sys.settrace, self._called))

    def __exit__(self, *error: object) -> None:
        STEPS.call(partial(sys.settrace, None))

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ARG002
        line = self._sampler.line_of(frame)
        if line is None or line.file != frame.f_code.co_filename:
            return None
        self._wait(self._sampler.line_of(frame.f_back))
        return self._follow(line)

    def _follow(self, line: Location) -> Callable[[FrameType, str, Any], Any]:
        def follow(frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ARG001
            nonlocal line
            self._wait(line)
            line = location_of(frame)
            return follow

        return follow

    def _wait(self, line: Location | None) -> None:
        """Wait for the kernels of *line*; if there were any, it gets the looks meanwhile."""
        sampler, start_ns = self._sampler, self._device.now_ns()
        looks = sampler.looks_in_pauses
        sampler.is_paused = True
        self._device.synchronize()
        sampler.is_paused = False
        if line is not None and self._device.now_ns() - start_ns >= IDLE_NS:
            sampler.seen[line] += sampler.looks_in_pauses - looks
