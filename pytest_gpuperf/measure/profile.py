"""The profiled steps, fewer if the profiler makes them too long; files of traces.

A test that failed makes a few more: traced, then timed line by line.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import takewhile
from math import isfinite
from pathlib import Path
from types import FrameType
from typing import Any, Final

from ..devices.allow_sync import location_in
from ..devices.base import STEP_RANGE, SYNC_MARKER, MeasuringDevice, Step, TraceEvent
from ..devices.own_code import checkout_of
from ..devices.profiler import saw_device_work
from ..devices.source_lines import blamed_below, location_of, outwards
from ..devices.step_thread import STEPS
from ..files import file_name
from ..model.environment import Capability
from ..model.finding import Finding, FindingKind, Location
from ..model.measurement import Measurement
from ..model.metrics import (
    LATENCY_MS,
    PEAK_ALLOCATED,
    STEP_MS,
    SYNCS,
    MeasuringPhase,
    limited_by,
    read_in,
)
from .dataloader import loader_spans
from .gpu_activity import (
    LEAST_GAP_PERCENT,
    count_launches,
    find_busy,
    least_launches,
    replays_graphs,
    with_busy,
)
from .plan import Deadline, MeasuredStep, MeasurePlan, PhaseContext, UntouchedError
from .step import Arguments, Subject
from .syncs import find_syncs, find_traffic, most_syncs
from .trace import Span, Trace, functions_around, innermost, markers_of, parse
from .warmup import warm_up


# Removes absolute paths from texts that may leave this machine.

FOLDERS: Final = re.compile(r"(?<![\w./\\-])/(?:[^/\s|():\"',;<>\[\]=]+/)+")
"""The folders of an absolute path inside a text."""

SEPARATOR: Final = "|"
"""Between the parts of a marker, of which one is a file."""

Portable = Callable[[str], str]
"""Makes a text portable."""


def portable_from(root: Path) -> Portable:
    """Return a function that shortens paths: from *root*, an import path or home on.

    Of files elsewhere only the name is kept.
    """
    # The longest first: ``re`` takes the first alternative that fits, and home is a
    # prefix of most projects.
    starts = "|".join(map(re.escape, sorted(_starts(root), key=len, reverse=True)))
    known = re.compile(rf"(?<![\w./\\-])(?:{starts})")

    @cache
    def portable(text: str) -> str:
        if os.sep not in text:
            return text
        parts = known.sub("", text).split(SEPARATOR)
        return SEPARATOR.join(map(_bare, parts))

    return portable


def _starts(root: Path) -> Iterator[str]:
    home = str(Path("~").expanduser())
    for place in {str(root), os.path.realpath(root), home, *sys.path}:
        if Path(place).is_absolute() and place.rstrip(os.sep):
            yield f"{place.rstrip(os.sep)}{os.sep}"


def _bare(text: str) -> str:
    if Path(text).is_absolute():
        return text.rpartition(os.sep)[2] or text.strip(os.sep)
    return FOLDERS.sub("", text)


# A profiler's events in a file that ui.perfetto.dev and chrome://tracing open.
#
# The format is "Trace Event Format" of Chromium's catapult project, compressed by gzip.

TRACE_FOLDER: Final = "traces"
"""Folder of traces among the artefacts."""

TRACE_SUFFIX: Final = ".json.gz"

MOST_TRACE_EVENTS: Final = 200_000
"""Events that are kept, the earliest: a few MB compressed, as much as viewers draw."""

METADATA: Final = "M"
COMPLETE: Final = "X"


def write_trace(
    path: Path, test: str, events: Iterable[TraceEvent], portable: Portable
) -> None:
    """Write what of *events* is sound, with *portable* texts, to *path*."""
    sound = [event for event in events if _is_sound(event)]
    kept = _earliest(sound)
    document = {
        "displayTimeUnit": "ms",
        "otherData": {"test": test, "events_left_out": len(sound) - len(kept)},
        "traceEvents": [_plain(event, portable) for event in kept],
    }
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    # "x" fails on a link that somebody puts there in between. No time in the archive:
    # the same events give the same file.
    with path.open("xb") as file:
        file.write(gzip.compress(text.encode(), mtime=0))


def _is_sound(event: TraceEvent) -> bool:
    """Whether a viewer can place *event*: one bad event makes it refuse the file."""
    phase = event.get("ph")
    if phase == METADATA:
        return True
    needed = ("ts", "dur") if phase == COMPLETE else ("ts",)
    return isinstance(phase, str) and all(_is_time(event.get(name)) for name in needed)


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and isfinite(value)


def _earliest(events: Sequence[TraceEvent]) -> list[TraceEvent]:
    about = [event for event in events if event["ph"] == METADATA]
    timed = [event for event in events if event["ph"] != METADATA]
    return [*about, *sorted(timed, key=_start)[:MOST_TRACE_EVENTS]]


def _start(event: TraceEvent) -> float:
    start: float = event["ts"]
    return start


def _plain(value: Any, portable: Portable) -> Any:
    """Return *value* as JSON has it, which knows neither infinity nor NaN."""
    if isinstance(value, str):
        return portable(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item, portable) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, portable) for item in value]
    return value


PROFILED_STEPS: Final = 3

SLOWED: Final = 100
"""Factor by which profiling and reading a step of small operations may slow it down.

A loader's own work in Python took 65 and 35 times as long, on a CPU.
"""


Record = Callable[[Step, Sequence[Sequence[object]]], Sequence[TraceEvent]]
"""Runs a step per batch under the profiler."""


def profile_steps(
    device: MeasuringDevice,
    subject: Subject,
    step_ms: float,
    deadline: Deadline,
    record: Record | None = None,
) -> Sequence[TraceEvent]:
    """Return the trace of three steps, or of one if three do not fit into the cap.

    If three might not fit, one is tried first. They are recorded by *record*, or else
    with their lines. Raises whatever the step raises.
    """
    record = record or device.profile
    if not deadline.leaves(SLOWED * step_ms * PROFILED_STEPS):
        start_ns = device.own_now_ns()
        events = _profile(record, subject, steps=1)
        took_ms = (device.own_now_ns() - start_ns) / 1e6
        if not deadline.leaves(took_ms * PROFILED_STEPS):
            return events
    return _profile(record, subject, steps=PROFILED_STEPS)


def _profile(record: Record, subject: Subject, *, steps: int) -> Sequence[TraceEvent]:
    # Made before the profiler starts, or the user's ``setup`` would be in the trace.
    batches = [subject.arguments() for _ in range(steps)]
    return record(subject.step, batches)


TRACE_NAMES: Final = read_in(MeasuringPhase.TRACE)

PEAKS: Final = frozenset(m.name for m in limited_by(str(PEAK_ALLOCATED.budget)))

UNSEEN_GRAPHS: Final = (
    "a CUDA graph is replayed by other means than torch.cuda.CUDAGraph, "
    "and what its replays use is in no peak"
)


def traced_steps(at: PhaseContext) -> Measurement:
    """Add the syncs, copies, launches and idle times that a trace of a few steps shows.

    Raises ``UntouchedError`` if the device has kernels and the step ran none.
    """
    deadlines = (at.share.cap, at.share.until(TRACE_NAMES))
    profiled = profile_with_lines(at.device, at.subject, at.step_ms, deadlines)
    events = profiled.events
    has_kernels = at.device.kind.has(Capability.KERNELS)
    if has_kernels and not saw_device_work(events):
        raise UntouchedError
    found = at.measurement
    if SYNCS.name not in at.device.unmeasurable:
        found = _with_syncs(found, profiled)
    if has_kernels:
        launched = {**found.exact, **count_launches(events)}
        found = replace(found, exact=launched, least=least_launches(events))
        found = find_traffic(events).added_to(found)
    found = with_busy(found, events)
    unseen = replays_graphs(events) and not at.saw_graphs
    return _without_peaks(found) if unseen else found


def _with_syncs(measurement: Measurement, profiled: Profiled) -> Measurement:
    syncs = find_syncs(profiled.events)
    measurement = replace(
        measurement,
        findings=(*syncs.findings, *measurement.findings),
        remarks=(*measurement.remarks, *filter(None, [profiled.remark])),
    )
    if profiled.may_be_allowed:
        return measurement.missing({SYNCS.name: UNKNOWN_ALLOWANCES})
    exact = {**measurement.exact, SYNCS.name: syncs.per_step}
    return replace(measurement, exact=exact)


def _without_peaks(measurement: Measurement) -> Measurement:
    """Take out the peaks of a step with graphs that use memory which no peak counts."""
    kept = {n: v for n, v in measurement.exact.items() if n not in PEAKS}
    lost = {n: UNSEEN_GRAPHS for n in measurement.exact if n in PEAKS}
    return replace(measurement, exact=kept).missing(lost)


def needs_lines(events: Sequence[TraceEvent]) -> bool:
    """Whether anything in the trace of a profile asks for the line that causes it."""
    if find_syncs(events).findings or find_traffic(events).findings:
        return True
    busy = find_busy(events)
    return busy is not None and 100 * (1 - busy[0]) > LEAST_GAP_PERCENT


# Two profiles where lines take time: a plain one for numbers, another for lines.

SLOWED_BY_LINES: Final = 3
"""Factor by which naming lines may slow a profile down, and reading it."""

NO_ROOM: Final = (
    "the time cap left no room for a second profile, which names the lines of syncs, "
    "copies and launches; raise --gpuperf-seconds"
)

UNKNOWN_ALLOWANCES: Final = f"a comment on its line may allow a sync, and {NO_ROOM}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """The events of profiled steps, and what must be known to read them.

    Waits ``may_be_allowed`` by comments on their lines where those are not known.
    """

    events: Sequence[TraceEvent]
    may_be_allowed: bool = False
    remark: str = ""


def profile_with_lines(
    device: MeasuringDevice,
    subject: Subject,
    step_ms: float,
    deadlines: tuple[Deadline, Deadline],
) -> Profiled:
    """Profile the step without what slows it down, then for its lines if it needs any.

    The first of *deadlines* is that of the numbers, the second that of the lines. All
    ranks take the same decisions, as each runs the step.
    """
    if not device.lines_take_time:
        return Profiled(events=profile_steps(device, subject, step_ms, deadlines[0]))
    start_ns = device.own_now_ns()
    plain = profile_steps(device, subject, step_ms, deadlines[0], device.plain_profile)
    took_ms = (device.own_now_ns() - start_ns) / 1e6
    if not device.any_rank(needs_lines(plain)):
        return Profiled(events=plain)
    steps = sum(event.get("name") == STEP_RANGE for event in plain)
    for fewer in sorted({steps, 1}, reverse=True):
        if deadlines[1].leaves(SLOWED_BY_LINES * took_ms * fewer / steps):
            marked = _profile(device.profile, subject, steps=fewer)
            return _joined(plain, marked)
    syncs = device.any_rank(most_syncs(plain) > 0)
    return Profiled(events=plain, may_be_allowed=syncs, remark=f"no lines: {NO_ROOM}")


def _joined(plain: Sequence[TraceEvent], marked: Sequence[TraceEvent]) -> Profiled:
    counted, named = most_syncs(plain), most_syncs(marked)
    remark = (
        f"a step waits {counted} times in the profile that counts and {named} times in "
        "the one that names lines: the former is right, and lines may be missing"
    )
    return Profiled(
        events=with_lines(plain, marked), remark=remark if counted != named else ""
    )


# The lines of one trace for the same calls of another.

Alike = tuple[str, str]
"""The names of a call and of the operation that makes it."""

Occurrences = Mapping[Alike, Mapping[int, Sequence[Span]]]
"""Calls that are alike, by step and in the order of time."""


def with_lines(
    plain: Sequence[TraceEvent], marked: Sequence[TraceEvent]
) -> list[TraceEvent]:
    """Return *plain* with the markers and functions that *marked* has for its calls.

    The first of the calls that are alike in a step is the first of those in the other
    trace, and so on. A step that differs from its counterpart in their number takes
    those of the step that is nearest to it in that.
    """
    trace = parse(marked)
    known = occurrences(trace, marked)
    spans = [s for steps in known.values() for found in steps.values() for s in found]
    markers = markers_of(trace, sorted(spans, key=_start_of))
    functions = dict(zip(spans, functions_around(trace, spans), strict=True))
    return [
        *plain,
        *(
            event
            for alike, steps in occurrences(parse(plain), plain).items()
            for step, calls in steps.items()
            for call, twin in _pairs(calls, step, known.get(alike, {}))
            for event in _named(call, markers.get(twin, ""), functions[twin])
        ),
    ]


def occurrences(trace: Trace, events: Sequence[TraceEvent]) -> Occurrences:
    """Group the calls inside the steps of *trace*, and the waits for a loader."""
    spans = sorted([*trace.calls, *loader_spans(events)], key=_start_of)
    found: dict[Alike, dict[int, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for span, op in zip(spans, innermost(trace, spans), strict=True):
        step = trace.step_at(span.start_us)
        if step is not None:
            found[span.name, op.name if op else ""][step].append(span)
    return found


def _start_of(span: Span) -> float:
    return span.start_us


def _pairs(
    calls: Sequence[Span], step: int, known: Mapping[int, Sequence[Span]]
) -> Iterator[tuple[Span, Span]]:
    def distance(other: int) -> tuple[int, int]:
        return abs(len(known[other]) - len(calls)), abs(other - step)

    if known:
        yield from zip(calls, known[min(known, key=distance)], strict=False)


def _named(call: Span, marker: str, function: Location | None) -> Iterator[TraceEvent]:
    """Yield ranges around *call* as a trace with lines has them."""
    if location_in(marker) is not None:
        _, _, lines = marker.partition("|")
        yield _around(call, "user_annotation", f"{SYNC_MARKER}{lines}")
    if function is not None:
        name = f"{function.file}({function.line}): {function.function}"
        yield _around(call, "python_function", name)


def _around(call: Span, category: str, name: str) -> TraceEvent:
    process, thread = call.thread
    return {
        "ph": COMPLETE,
        "cat": category,
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": call.start_us,
        "dur": call.end_us - call.start_us,
    }


# A few more steps of a test that failed: traced, then timed line by line.


def traced(
    device: MeasuringDevice, subject: Subject, plan: MeasurePlan
) -> MeasuredStep:
    """Write a trace of *subject* below the artefacts of *plan*.

    The measurement contains only the trace's path and the lines that take the time, or
    nothing if the cap leaves no time for it. Raises what ``measure`` raises.
    """
    test, root = plan.test, plan.root
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

    Python says that a line begins, so a wait is of the one before it.
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
