"""Reads a snapshot of torch's CUDA allocator: what was alive at the peak, and whose.

The format is that of ``torch.cuda.memory._snapshot`` (torch 2.6 to 2.13): plain dicts,
lists, strings and numbers. A pickle that names anything else is refused, because to
load it would be to run it.
"""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any
from typing import Final

from ..devices.compile_counters import compile_counters
from ..devices.memory_picture import Picture
from ..devices.memory_picture import Role
from ..devices.protocol import Device
from ..errors import UsageError
from ..model.finding import Finding
from ..model.finding import FindingKind
from ..model.finding import Location
from ..model.measurement import Measurement
from ..model.memory_metric import PEAK_ALLOCATED
from ..model.memory_metric import PEAK_REQUESTED
from ..model.memory_metric import PEAK_RESERVED
from .pictured import peak_of_picture
from .python_frame import is_blamable
from .subject import Subject


FREED: Final = "free_requested"
"""From then on the allocator no longer counts a block as allocated."""


UNCOMPILED: Final = "looked at in eager code, without torch.compile"

MOST_LINES: Final = 8
"""Lines that are named of all that hold memory at the peak."""

EXPLAINED: Final = (PEAK_ALLOCATED.name, PEAK_REQUESTED.name, PEAK_RESERVED.name)


def explained(
    device: Device, subject: Subject, measurement: Measurement, folder: Path
) -> Measurement:
    """Record one more step of *subject* in *folder* and name what holds most memory."""
    path = folder / f"memory-{_file_name(measurement.test)}.pickle"
    if not device.record_allocations(subject.step, subject.arguments(), path):
        return measurement
    held = held_at_peak(read_snapshot(path))
    lines = map(_finding, held[:MOST_LINES])
    return replace(
        measurement,
        findings=(
            *measurement.findings,
            *_purposes(device, subject, measurement),
            *lines,
        ),
        snapshot=str(path),
    )


def _purposes(
    device: Device, subject: Subject, measurement: Measurement
) -> Iterator[Finding]:
    """Say what the peak is for, if the step lets itself be looked at: it failed before."""
    try:
        picture = device.picture_memory(subject.step, iter(subject.arguments, None))
    except Exception:  # noqa: BLE001, whatever eager code makes of the step or its memory
        return
    if picture is None:
        return
    if any(compile_counters()):
        peak = peak_of_picture(picture, EXPLAINED)
        yield replace(peak, reason=f"{peak.reason}; {UNCOMPILED}")
    else:
        yield peak_of_picture(_with_unseen(picture, measurement), EXPLAINED)


def _with_unseen(picture: Picture, measurement: Measurement) -> Picture:
    """Add what was measured beyond the bytes of tensors."""
    seen = sum(picture.by_role.values())
    unseen = measurement.exact.get(PEAK_REQUESTED.name, 0) - seen
    if unseen <= 0:
        return picture
    return replace(picture, by_role={**picture.by_role, Role.UNSEEN: unseen})


def _file_name(test: str) -> str:
    """Make a file's name of a test's, its end where it is long."""
    return re.sub(r"[^\w.-]+", "-", test)[-100:].strip("-")


def _finding(held: Held) -> Finding:
    return Finding(
        kind=FindingKind.MEMORY,
        op=None,
        api=None,
        per_step=held.blocks,
        blocked_ms=0.0,
        location=held.location,
        metrics=EXPLAINED,
        held_bytes=held.requested_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Blocks alive at a step's peak that one line asked for; ``None``: before the step.

    Sizes are those that were asked for, before the allocator rounds them.
    """

    location: Location | None
    requested_bytes: int
    blocks: int


def read_snapshot(path: Path) -> Mapping[str, Any]:
    """Load a snapshot; raise ``UsageError`` where it is none or names a class."""
    try:
        with path.open("rb") as file:
            loaded = _PlainUnpickler(file).load()
    except (OSError, pickle.UnpicklingError, EOFError, ValueError) as error:
        msg = f"{path}: expected a memory snapshot of torch, found {error}"
        raise UsageError(msg) from None
    if not isinstance(loaded, dict) or "device_traces" not in loaded:
        msg = f"{path}: expected a memory snapshot of torch, found no device_traces"
        raise UsageError(msg)
    return loaded


class _PlainUnpickler(pickle.Unpickler):
    """Builds dicts, lists, strings and numbers, and nothing that runs code."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        msg = f"a reference to {module_name}.{global_name}"
        raise pickle.UnpicklingError(msg)


def held_at_peak(snapshot: Mapping[str, Any]) -> tuple[Held, ...]:
    """What was alive when most was, the most bytes first, on the busiest device."""
    traces: Sequence[Sequence[Mapping[str, Any]]] = snapshot["device_traces"]
    busiest = max(range(len(traces)), key=lambda index: len(traces[index]), default=0)
    if not traces or not traces[busiest]:
        return ()
    alive = _peak(_before(snapshot, busiest), traces[busiest])
    return tuple(_by_line(alive.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """A block that is allocated."""

    requested_bytes: int
    location: Location | None


def _before(snapshot: Mapping[str, Any], device: int) -> dict[int, _Block]:
    """Blocks that were there before the trace began: alive at its end or freed in it."""
    blocks = {
        address: _Block(requested_bytes=size, location=None)
        for address, size in _alive_at_end(snapshot["segments"], device)
    }
    for event in reversed(snapshot["device_traces"][device]):
        if event["action"] == FREED:
            size = int(event["size"])
            blocks[event["addr"]] = _Block(requested_bytes=size, location=None)
        elif event["action"] == "alloc":
            blocks.pop(event["addr"], None)
    return blocks


def _alive_at_end(
    segments: Iterable[Mapping[str, Any]], device: int
) -> Iterator[tuple[int, int]]:
    for segment in segments:
        if segment.get("device", device) != device:
            continue
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                at = block.get("address", address)
                yield at, int(block.get("requested_size", block["size"]))
            address += block["size"]


def _peak(
    before: Mapping[int, _Block], trace: Sequence[Mapping[str, Any]]
) -> Mapping[int, _Block]:
    alive = dict(before)
    for event in trace[: _events_to_peak(trace)]:
        address = event.get("addr", 0)
        if event["action"] == "alloc":
            size, line = int(event["size"]), _line(event["frames"])
            alive[address] = _Block(requested_bytes=size, location=line)
        elif event["action"] == FREED:
            alive.pop(address, None)
    return alive


def _events_to_peak(trace: Iterable[Mapping[str, Any]]) -> int:
    """Number of events after which most was alive; the first time, of several."""
    signs = {"alloc": 1, FREED: -1}
    changes = (signs.get(e["action"], 0) * int(e.get("size", 0)) for e in trace)
    totals = list(accumulate(changes, initial=0))
    return totals.index(max(totals))


def _line(frames: Iterable[Mapping[str, Any]]) -> Location | None:
    """The innermost line outside torch, this package and the standard library."""
    for frame in frames:
        if is_blamable(frame["filename"]):
            return Location(
                file=frame["filename"],
                line=int(frame["line"]),
                function=frame["name"],
            )
    return None


def _by_line(blocks: Iterable[_Block]) -> Iterator[Held]:
    sizes: Counter[Location | None] = Counter()
    counts: Counter[Location | None] = Counter()
    for block in blocks:
        sizes[block.location] += block.requested_bytes
        counts[block.location] += 1
    for location, size in sizes.most_common():
        yield Held(location=location, requested_bytes=size, blocks=counts[location])
