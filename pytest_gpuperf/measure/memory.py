"""Memory of single steps: what a step needs at its peak, and what it leaks."""

from __future__ import annotations

import gc
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Final

from ..devices.base import MeasuringDevice, MemoryReading
from ..devices.compile import compile_counters
from ..devices.memory_picture import (
    Collecting,
    Garbage,
    Picture,
    StorageRole,
    graphs_left,
    least_rise,
    remark_on_graphs,
)
from ..devices.source_lines import where_of
from ..errors import ErrorId, UsageError
from ..files import file_name, open_regular
from ..model.finding import Finding, FindingKind, Location, Phase
from ..model.measurement import Measurement
from ..model.metrics import (
    GARBAGE,
    GROWTH,
    MIB,
    PEAK_ALLOCATED,
    PEAK_RESERVED,
    RETAINED_GRAPHS,
    MeasuringPhase,
    read_in,
)
from .plan import COMPILED_NAMES, MEMORY_STEPS, Deadline, Found, PhaseContext
from .profile import Portable, portable_from
from .step import Subject
from .trace import is_blamable


# Turns live memory at the peak of a step into findings.

MOST_HELD: Final = 5
"""Places that are named with what they have in use at the peak."""

UNITS: Final = {"MiB": MIB, "KiB": 2**10}


def findings_of_picture(
    picture: Picture, metrics: tuple[str, ...]
) -> Iterator[Finding]:
    """Say where the peak of *metrics* is and what for, then which places use most."""
    yield peak_of_picture(picture, metrics)
    yield from counting(picture.held, metrics)


def counting(held: Iterable[Finding], metrics: tuple[str, ...]) -> Iterator[Finding]:
    """Let the first of *held*, of which devices know no metric, count in *metrics*."""
    for found in islice(held, MOST_HELD):
        yield replace(found, metrics=metrics)


def findings_of_garbage(
    garbage: Garbage, metrics: tuple[str, ...]
) -> Iterator[Finding]:
    """Say where the memory was taken that only the collector frees, and what keeps it."""
    for found in counting(garbage.held, metrics):
        yield replace(found, reason=garbage.reason)


def peak_of_picture(picture: Picture, metrics: tuple[str, ...]) -> Finding:
    """Say where the peak of *metrics* is, and what the memory there is used for."""
    roles = sorted(picture.by_role.items(), key=lambda item: -item[1])
    reason = ", ".join(
        f"{role.value} {_amount(nbytes)}"
        for role, nbytes in roles
        if role is not StorageRole.WORKSPACES
    )
    return Finding(
        kind=FindingKind.PEAK,
        op=picture.op or None,
        per_step=1,
        metrics=metrics,
        reason=reason,
        held_bytes=sum(picture.by_role.values()),
        held_for=tuple((role.value, nbytes) for role, nbytes in roles),
        course=picture.course,
        **(where_of(picture.site) if picture.site is not None else {}),
    )


def _amount(nbytes: int) -> str:
    """Write at least a tenth of a unit in that unit, with one decimal."""
    for unit, size in UNITS.items():
        if 10 * nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} B"


# Reads a snapshot of torch's CUDA allocator: blocks alive at the peak, and their lines.
#
# The format is that of ``torch.cuda.memory._snapshot`` (torch 2.6 to 2.13): plain
# dicts, lists, strings and numbers. A pickle that names anything else is refused,
# because to load it would be to run it.

FREED: Final = "free_requested"
"""From then on the allocator no longer counts a block as allocated."""


def read_snapshot(path: Path) -> Mapping[str, Any]:
    """Load a snapshot; raise ``UsageError`` if it is none or names a class."""
    try:
        with open_regular(path) as file:
            loaded = _PlainUnpickler(file).load()
    except (OSError, pickle.UnpicklingError, EOFError, ValueError) as error:
        msg = f"{path}: expected a memory snapshot of torch, found {error}"
        raise UsageError(msg, ErrorId.GP525) from None
    if not isinstance(loaded, dict) or "device_traces" not in loaded:
        msg = f"{path}: expected a memory snapshot of torch, found no device_traces"
        raise UsageError(msg, ErrorId.GP525)
    return loaded


def rewrite_snapshot(
    path: Path, snapshot: Mapping[str, Any], portable: Portable
) -> None:
    """Replace the file at *path* by *snapshot*, with *portable* file names."""
    _rename_files(snapshot, portable)
    with path.open("wb") as file:
        pickle.dump(snapshot, file)


def _rename_files(node: Any, portable: Portable) -> None:
    """Change the frames in place: many stacks share each of them."""
    waiting, seen = [node], set()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, (dict, list)) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, dict) and isinstance(node.get("filename"), str):
            node["filename"] = portable(node["filename"])
        waiting.extend(node.values() if isinstance(node, dict) else node)


class _PlainUnpickler(pickle.Unpickler):
    """Builds dicts, lists, strings and numbers, and nothing that runs code."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        msg = f"a reference to {module_name}.{global_name}"
        raise pickle.UnpicklingError(msg)


def held_at_peak(snapshot: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return what was alive at the peak of the busiest device, the most bytes first.

    Without a line it is from before the step. With a phase and no line, a thread of
    autograd asked for it, in which no Python runs. Sizes are those that were asked for,
    before the allocator rounds them.
    """
    traces: Sequence[Sequence[Mapping[str, Any]]] = snapshot["device_traces"]
    busiest = max(range(len(traces)), key=lambda index: len(traces[index]), default=0)
    if not traces or not traces[busiest]:
        return ()
    alive = _peak(_before(snapshot, busiest), traces[busiest])
    return tuple(_by_line(alive.values()))


_Place = tuple[Location | None, Phase | None]

_Block = tuple[int, _Place]
"""The requested bytes of a block that is allocated, and where that was."""

_UNSEEN: Final[_Place] = (None, None)
"""The place of a block that is older than the trace."""


def _before(snapshot: Mapping[str, Any], device: int) -> dict[int, _Block]:
    """Blocks that were there before the trace began: alive at its end or freed in it."""
    blocks = {
        address: (size, _UNSEEN)
        for address, size in _alive_at_end(snapshot["segments"], device)
    }
    # From the end backwards: what was freed was there before, and what was allocated
    # was not.
    for event in reversed(snapshot["device_traces"][device]):
        if event["action"] == FREED:
            size = int(event["size"])
            blocks[event["addr"]] = (size, _UNSEEN)
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
            # Older snapshots have no address per block; blocks follow each other
            # without gaps.
            address += block["size"]


def _peak(
    before: Mapping[int, _Block], trace: Sequence[Mapping[str, Any]]
) -> Mapping[int, _Block]:
    alive = dict(before)
    for event in trace[: _events_to_peak(trace)]:
        address = event.get("addr", 0)
        if event["action"] == "alloc":
            alive[address] = _born(int(event["size"]), event["frames"])
        elif event["action"] == FREED:
            alive.pop(address, None)
    return alive


def _born(size: int, frames: Sequence[Mapping[str, Any]]) -> _Block:
    phase = None if frames else Phase.BACKWARD
    return size, (_line(frames), phase)


def _events_to_peak(trace: Iterable[Mapping[str, Any]]) -> int:
    """Number of events after which most was alive; the first time, of several."""
    signs = {"alloc": 1, FREED: -1}
    changes = (signs.get(e["action"], 0) * int(e.get("size", 0)) for e in trace)
    totals = list(accumulate(changes, initial=0))
    return totals.index(max(totals))


def _line(frames: Sequence[Mapping[str, Any]]) -> Location | None:
    """The innermost line outside torch, this package and the standard library, if any."""
    # A stack may have only frames of torch: the innermost of those is better than none.
    blamable = [frame for frame in frames if is_blamable(frame["filename"])]
    for frame in blamable or frames:
        return Location(
            file=frame["filename"], line=int(frame["line"]), function=frame["name"]
        )
    return None


def _by_line(blocks: Iterable[_Block]) -> Iterator[Finding]:
    sizes: Counter[_Place] = Counter()
    counts: Counter[_Place] = Counter()
    for nbytes, place in blocks:
        sizes[place] += nbytes
        counts[place] += 1
    for (location, phase), size in sizes.most_common():
        yield Finding(
            kind=FindingKind.MEMORY,
            op=None,
            per_step=counts[location, phase],
            location=location,
            metrics=EXPLAINED_PEAKS,
            phase=phase,
            held_bytes=size,
        )


# Records the allocator in a few more steps, to explain a failure for memory.

UNCOMPILED: Final = "looked at in eager code, without torch.compile"

MOST_MEMORY_LINES: Final = 8
"""Most lines that are named for their memory at the peak."""

EXPLAINED_PEAKS: Final = (PEAK_ALLOCATED.name, PEAK_RESERVED.name)


def explained(
    device: MeasuringDevice,
    subject: Subject,
    measurement: Measurement,
    folder: Path,
    *,
    root: Path,
) -> Measurement:
    """Record one more step of *subject* in *folder* and name where most memory is.

    The recording names files from *root* on.
    """
    path = folder / f"memory-{file_name(measurement.test)}.pickle"
    # torch would write through a link that somebody put there.
    path.unlink(missing_ok=True)
    if not device.record_allocations(subject.step, subject.arguments(), path):
        return measurement
    snapshot = read_snapshot(path)
    found = replace(
        measurement,
        findings=(
            *measurement.findings,
            *_purposes(device, subject, measurement),
            *held_at_peak(snapshot)[:MOST_MEMORY_LINES],
        ),
        snapshot=str(path),
    )
    rewrite_snapshot(path, snapshot, portable_from(root))
    return found


def _purposes(
    device: MeasuringDevice, subject: Subject, measurement: Measurement
) -> Iterator[Finding]:
    """Say what the peak is for, if the step can be watched: it failed before."""
    # Broad on purpose: a compiled step runs as eager code here, and may run out of
    # memory or fail in other ways. The failure that is being explained must still be
    # reported.
    try:
        picture = device.picture_memory(subject.step, iter(subject.arguments, None))
    except Exception:  # noqa: BLE001
        return
    if picture is None:
        return
    if any(compile_counters()):
        peak = peak_of_picture(picture, EXPLAINED_PEAKS)
        yield replace(peak, reason=f"{peak.reason}; {UNCOMPILED}")
    else:
        yield peak_of_picture(_with_unseen(picture, measurement), EXPLAINED_PEAKS)


def _with_unseen(picture: Picture, measurement: Measurement) -> Picture:
    """Add what was measured beyond the bytes of tensors."""
    seen = sum(picture.by_role.values())
    unseen = measurement.exact.get(PEAK_ALLOCATED.name, 0) - seen
    if unseen <= 0:
        return picture
    return replace(picture, by_role={**picture.by_role, StorageRole.UNSEEN: unseen})


MEMORY_NAMES: Final = read_in(MeasuringPhase.MEMORY)

MOST_MEMORY_STEPS: Final = 8
"""Most steps, if each ends with more than the one before: that eight batches happen to
grow in size is true for one of 40,320 orders."""

LEAKS: Final = (GROWTH.name, RETAINED_GRAPHS.name)


def memory_of_steps(at: PhaseContext) -> Measurement:
    """Add the memory of a few steps, and what is alive at the peak, if that is known."""
    # The trace takes one step, and the compiler's question another.
    others = 1 + at.share.asks_for(COMPILED_NAMES)
    until = at.share.until(MEMORY_NAMES).reserving(others * at.step_ms)
    found, at.saw_graphs = measure_memory(
        at.device, at.subject, at.step_ms, until, at.share.cap
    )
    return found.added_to(at.measurement)


def measure_memory(
    device: MeasuringDevice,
    subject: Subject,
    step_ms: float,
    deadline: Deadline,
    further: Deadline | None = None,
) -> tuple[Found, bool]:
    """Measure the memory of a few steps, and whether they were seen to replay CUDA graphs.

    They are as many as fit before the *deadline*. Steps that only confirm what is left
    behind have until *further*.
    """
    # What earlier phases left is no part of the peak, even where nobody collects.
    gc.collect()
    readings: list[MemoryReading] = []
    while len(readings) < MEMORY_STEPS or (
        len(readings) < MOST_MEMORY_STEPS and (_growth(readings) or _graphs(readings))
    ):
        if len(readings) >= MEMORY_STEPS and further is not None:
            deadline = further
        if readings and not deadline.leaves(step_ms):
            break
        start_ns = device.own_now_ns()
        readings.append(device.measure_memory(subject.step, subject.arguments()))
        # A watched step of small operations takes many times as long, so the last one
        # is the estimate for the next.
        step_ms = (device.own_now_ns() - start_ns) / 1e6
    exact = {name: max(r.exact[name] for r in readings) for name in readings[0].exact}
    if len(readings) >= MEMORY_STEPS:
        exact |= _leaked(readings)
    found: list[Finding] = []
    uncollected = any(r.collecting is Collecting.NEVER for r in readings)
    if (uncollected or exact.get(GARBAGE.name)) and deadline.leaves(2 * step_ms):
        garbage = device.garbage_of_step(subject.step, iter(subject.arguments, None))
        if garbage is not None:
            exact[GARBAGE.name] = exact.get(GARBAGE.name) or garbage.nbytes
            found.extend(findings_of_garbage(garbage, (GARBAGE.name,)))
    if any(exact.get(name) for name in LEAKS) and deadline.leaves(2 * step_ms):
        left = device.leaked(subject.step, iter(subject.arguments, None))
        found.extend(counting(left, LEAKS))
    replayed = [r.graph_bytes for r in readings if r.graph_bytes is not None]
    memory = Found(
        exact=exact,
        findings=tuple(found),
        cut=_missed(readings),
        remarks=(
            *remarks_on(exact),
            *_remark_on_garbage(exact, len(readings) if uncollected else 0),
            *_remark_on_graphs(max(replayed, default=0)),
        ),
    )
    return memory, bool(replayed)


def _missed(readings: Sequence[MemoryReading]) -> frozenset[str]:
    """Name what too few *readings* cannot show: whether a step leaks."""
    if len(readings) >= MEMORY_STEPS:
        return frozenset()
    seen = {
        GROWTH.name: any(reading.end_bytes is not None for reading in readings),
        GARBAGE.name: any(reading.collecting is not None for reading in readings),
        RETAINED_GRAPHS.name: any(reading.graphs is not None for reading in readings),
    }
    return frozenset(name for name, is_seen in seen.items() if is_seen)


def _leaked(readings: Sequence[MemoryReading]) -> dict[str, int]:
    """Return what every step leaks, by metric name, if it was looked for."""
    garbage = _garbage(readings)
    found = {
        GROWTH.name: _growth(readings),
        GARBAGE.name: garbage,
        RETAINED_GRAPHS.name: _graphs(readings),
    }
    return {name: value for name, value in found.items() if value is not None}


def _garbage(readings: Sequence[MemoryReading]) -> int | None:
    """Return what each step leaves to Python's collector; ``None`` if that never runs."""
    collecting = {reading.collecting for reading in readings}
    if not collecting or collecting & {None, Collecting.NEVER}:
        return None
    left = [r.garbage_bytes for r in readings if r.garbage_bytes is not None]
    return min(left, default=0)


def _growth(readings: Sequence[MemoryReading]) -> int | None:
    return least_rise([r.end_bytes for r in readings if r.end_bytes is not None])


def _graphs(readings: Sequence[MemoryReading]) -> int | None:
    counted = [(r.graphs, r.nodes) for r in readings if r.graphs is not None]
    return graphs_left(counted)


def _remark_on_garbage(exact: Mapping[str, int], uncollected: int) -> Iterator[str]:
    """Say what the peaks have of it: in *uncollected* steps nothing was collected."""
    garbage = exact.get(GARBAGE.name, 0)
    peak = exact.get(PEAK_ALLOCATED.name)
    if uncollected:
        yield COLLECTOR_OFF.format(uncollected)
    elif garbage > GARBAGE.floor and peak:
        yield garbage_remark(garbage, peak)


def _remark_on_graphs(graph_bytes: int) -> Iterator[str]:
    if graph_bytes:
        kept = _size(graph_bytes)
        yield f"{kept} of the peak are kept by CUDA graphs for their replays"


UNCOLLECTED_STEPS: Final = 100

COLLECTOR_OFF: Final = "Python's garbage collector is switched off: the peak is that of {} steps without it"


def garbage_remark(garbage: int, peak: int) -> str:
    """Say what steps need if the collector does not run in them."""
    steps = UNCOLLECTED_STEPS
    return (
        f"each step leaves {_size(garbage)} that only Python's garbage collector frees: "
        f"{steps} steps without it need {_size(peak + (steps - 1) * garbage)}"
    )


def remarks_on(memory: Mapping[str, int]) -> Iterator[str]:
    """Say what should not be, whether or not a baseline has it."""
    growth = memory.get(GROWTH.name, 0)
    if growth > GROWTH.floor:
        yield f"every step leaves {_size(growth)} allocated: is that a leak?"
    kept = memory.get(RETAINED_GRAPHS.name, 0)
    if kept:
        yield remark_on_graphs(kept)


def _size(nbytes: int) -> str:
    """Write a size in the unit that it has enough of."""
    for symbol, size in UNITS.items():
        if nbytes >= size:
            return f"{nbytes / size:.3g} {symbol}"
    return f"{nbytes} B"
