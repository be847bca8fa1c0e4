"""Reads a snapshot of torch's CUDA allocator: what was alive at the peak, and whose.

The format is that of ``torch.cuda.memory._snapshot`` (torch 2.6 to 2.13): plain dicts,
lists, strings and numbers. A pickle that names anything else is refused, because to
load it would be to run it.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any
from typing import Final

from ..errors import UsageError
from ..model.finding import Location
from ..model.finding import Phase
from .portable import Portable
from .python_frame import is_blamable


FREED: Final = "free_requested"
"""From then on the allocator no longer counts a block as allocated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Blocks alive at a step's peak that one line asked for.

    Without a line they are from before the step, or, with a ``phase``, were asked for
    where no Python ran: by a thread of autograd. Sizes are those that were asked for,
    before the allocator rounds them.
    """

    location: Location | None
    requested_bytes: int
    blocks: int
    phase: Phase | None = None


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


def rewrite_snapshot(
    path: Path, snapshot: Mapping[str, Any], portable: Portable
) -> None:
    """Replace the file at *path* by *snapshot*, whose files are made *portable*."""
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
    phase: Phase | None = None


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
            alive[address] = _born(int(event["size"]), event["frames"])
        elif event["action"] == FREED:
            alive.pop(address, None)
    return alive


def _born(size: int, frames: Sequence[Mapping[str, Any]]) -> _Block:
    phase = None if frames else Phase.BACKWARD
    return _Block(requested_bytes=size, location=_line(frames), phase=phase)


def _events_to_peak(trace: Iterable[Mapping[str, Any]]) -> int:
    """Number of events after which most was alive; the first time, of several."""
    signs = {"alloc": 1, FREED: -1}
    changes = (signs.get(e["action"], 0) * int(e.get("size", 0)) for e in trace)
    totals = list(accumulate(changes, initial=0))
    return totals.index(max(totals))


def _line(frames: Sequence[Mapping[str, Any]]) -> Location | None:
    """The innermost line outside torch, this package and the standard library, if any."""
    blamable = [frame for frame in frames if is_blamable(frame["filename"])]
    for frame in blamable or frames:
        return Location(
            file=frame["filename"], line=int(frame["line"]), function=frame["name"]
        )
    return None


def _by_line(blocks: Iterable[_Block]) -> Iterator[Held]:
    sizes: Counter[tuple[Location | None, Phase | None]] = Counter()
    counts: Counter[tuple[Location | None, Phase | None]] = Counter()
    for block in blocks:
        sizes[block.location, block.phase] += block.requested_bytes
        counts[block.location, block.phase] += 1
    for (location, phase), size in sizes.most_common():
        yield Held(
            location=location,
            requested_bytes=size,
            blocks=counts[location, phase],
            phase=phase,
        )
