"""The profiled steps, fewer if the profiler makes them too long; files of traces."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, Final

from ..devices.allow_sync import location_in
from ..devices.base import STEP_RANGE, SYNC_MARKER, MeasuringDevice, Step, TraceEvent
from ..devices.profiler import saw_device_work
from ..model.environment import Capability
from ..model.finding import Location
from ..model.measurement import Measurement
from ..model.metric import MeasuringPhase
from ..model.metrics import PEAK_ALLOCATED, SYNCS, limited_by, read_in
from .copies import find_traffic
from .dataloader import loader_spans
from .gpu_activity import (
    LEAST_GAP_PERCENT,
    count_launches,
    find_busy,
    least_launches,
    replays_graphs,
    with_busy,
)
from .plan import Deadline, PhaseContext, UntouchedError
from .step import Subject
from .syncs import find_syncs, most_syncs
from .trace import Span, Trace, functions_around, innermost, markers_of, parse


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
    """Add what a trace of a few steps shows: syncs, copies, launches, and what is idle.

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
