"""A profiler's events in a file that ui.perfetto.dev and chrome://tracing open.

The format is "Trace Event Format" of Chromium's catapult project, compressed by gzip.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any
from typing import Final

from ..devices.protocol import TraceEvent
from .portable import Portable


SUFFIX: Final = ".json.gz"

MOST_EVENTS: Final = 200_000
"""Those that begin first are kept: a few MB compressed, and what a viewer draws at once."""

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
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


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
    return [*about, *sorted(timed, key=_start)[:MOST_EVENTS]]


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
