"""The profiled steps, fewer if the profiler makes them too long; files of traces."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from math import isfinite
from pathlib import Path
from typing import Any
from typing import Final

from ..devices.base import MeasuringDevice
from ..devices.base import TraceEvent
from .step import Deadline
from .step import Subject


# The name of a file that keeps what was seen of a test.

READABLE: Final = 75
"""Characters of the test's own name: with digest and suffix there are less than 100."""


def file_name(test: str) -> str:
    """Return a unique name for every file system: the test's end, then a digest."""
    readable = re.sub(r"[^\w.-]+", "-", test, flags=re.ASCII)[-READABLE:].strip("-.")
    encoded = test.encode("utf-8", "surrogatepass")
    return "-".join(
        filter(None, (readable, blake2b(encoded, digest_size=4).hexdigest()))
    )


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


def profile_steps(
    device: MeasuringDevice, subject: Subject, step_ms: float, deadline: Deadline
) -> Sequence[TraceEvent]:
    """Return the trace of three steps, or of one if three do not fit into the cap.

    If three might not fit, one is tried first. Raises whatever the step raises.
    """
    if not deadline.leaves(SLOWED * step_ms * PROFILED_STEPS):
        start_ns = device.now_ns()
        events = _profile(device, subject, steps=1)
        took_ms = (device.now_ns() - start_ns) / 1e6
        if not deadline.leaves(took_ms * PROFILED_STEPS):
            return events
    return _profile(device, subject, steps=PROFILED_STEPS)


def _profile(
    device: MeasuringDevice, subject: Subject, *, steps: int
) -> Sequence[TraceEvent]:
    # Made before the profiler starts, or the user's ``setup`` would be in the trace.
    batches = [subject.arguments() for _ in range(steps)]
    return device.profile(subject.step, batches)
