"""What only Python's garbage collector frees: when it runs, and what such a cycle is."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType, FunctionType, TracebackType
from typing import Any, Final

import torch

from .memory_picture import Collecting


# The collector runs where a step is over, and at no other time but by the step's own call.

NO_STEP_REACHES: Final = 2**31 - 1
"""Threshold that no step reaches. ``gc.disable`` would hide whether the step calls it."""


class HeldCollector:
    """The garbage collector while its automatic runs are held off.

    ``was_run`` says that the code in between has run it, since ``begin_step``.
    """

    def __init__(self, threshold: int = NO_STEP_REACHES) -> None:
        self.was_run = False
        self._is_ours = False
        self._held = threshold
        self._threshold = gc.get_threshold()

    @property
    def is_off(self) -> bool:
        """Whether the measured code has switched it off, and so lets garbage pile up."""
        first = gc.get_threshold()[0]
        return not gc.isenabled() or 0 in {first, self._threshold[0]}

    @property
    def collecting(self) -> Collecting:
        """Who ran it in the step that is over, or will."""
        if self.was_run:
            return Collecting.BY_STEP
        return Collecting.NEVER if self.is_off else Collecting.BY_PYTHON

    def begin_step(self) -> None:
        """Notice from now on who runs it; a step may have set its thresholds."""
        self.was_run = False
        if gc.get_threshold()[0] not in {0, self._held}:
            self._threshold = gc.get_threshold()
            gc.set_threshold(self._held)

    def free(self, now_bytes: Callable[[], int]) -> int | None:
        """Collect, as Python would at some time; return by how much *now_bytes* falls.

        ``None`` if the step has done it, or has switched it off: then nothing is freed.
        """
        who, before = self.collecting, now_bytes()
        if not self.is_off:
            self.collect()
        return before - now_bytes() if who is Collecting.BY_PYTHON else None

    def collect(self) -> None:
        """Free all garbage, which is no run of the code in between."""
        self._is_ours = True
        try:
            gc.collect()
        finally:
            self._is_ours = False

    def uncollected(self) -> list[Any]:
        """Return the garbage alive, to be looked at; ``collect`` frees it."""
        flags, known = gc.get_debug(), len(gc.garbage)
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            self.collect()
        finally:
            gc.set_debug(flags)
        found = gc.garbage[known:]
        del gc.garbage[known:]
        return found

    def release(self) -> None:
        """Let it run by itself again, as often as it did."""
        if gc.get_threshold()[0] == self._held:
            gc.set_threshold(*self._threshold)

    def notice(self, phase: str, _: object) -> None:
        """Note each run, as one of ``gc.callbacks``."""
        if phase == "start" and not self._is_ours:
            self.was_run = True


@contextmanager
def held_collector(threshold: int = NO_STEP_REACHES) -> Iterator[HeldCollector]:
    """Run the collector inside only where somebody asks, or *threshold* objects are new."""
    collector = HeldCollector(threshold)
    gc.callbacks.append(collector.notice)
    collector.begin_step()
    try:
        yield collector
    finally:
        gc.callbacks.remove(collector.notice)
        collector.release()


def described_cycle(collector: HeldCollector, size_of: Callable[[Any], int]) -> str:
    """Collect, and describe what kept alive that part of the garbage which is largest."""
    found = collector.uncollected()
    largest = max(found, key=size_of, default=None)
    cycle = cycle_of(found, largest) if found and size_of(largest) else ""
    # What was found is garbage again only if nothing here refers to it.
    del found, largest
    collector.collect()
    return cycle


def least_left(left: Sequence[int | None]) -> int:
    """Return the least bytes of steps that leave the collecting to Python.

    ``None`` stands for one that collects by itself, after which nothing piles up.
    """
    return min((nbytes for nbytes in left if nbytes is not None), default=0)


# A cycle in words.

MOST_GARBAGE: Final = 20_000
"""Garbage of a step of which a cycle is looked for: compilers leave more."""

MOST_TRIED: Final = 200


def cycle_of(garbage: Sequence[Any], kept: Any) -> str:
    """Describe the shortest cycle near *kept*, one of the *garbage*, that keeps it alive."""
    if len(garbage) > MOST_GARBAGE:
        return ""
    members = {id(thing): thing for thing in garbage}
    owned = {
        number: [id(x) for x in gc.get_referents(thing) if id(x) in members]
        for number, thing in members.items()
    }
    ring = next(filter(None, (_ring(n, owned) for n in _owners(id(kept), owned))), ())
    return " -> ".join(_labels([members[number] for number in ring]))


def _owners(start: int, owned: Mapping[int, Sequence[int]]) -> Iterator[int]:
    """Yield *start* and what leads to it, the nearest first."""
    owners: dict[int, list[int]] = {}
    for owner, things in owned.items():
        for thing in things:
            owners.setdefault(thing, []).append(owner)
    seen, waiting = {start}, deque([start])
    while waiting and len(seen) < MOST_TRIED:
        number = waiting.popleft()
        yield number
        new = [owner for owner in owners.get(number, ()) if owner not in seen]
        seen.update(new)
        waiting.extend(new)


def _ring(start: int, owned: Mapping[int, Sequence[int]]) -> Sequence[int]:
    """Return the shortest way from *start* back to it; nothing if there is none."""
    ways: dict[int, tuple[int, ...]] = {start: (start,)}
    waiting = deque([start])
    while waiting:
        number = waiting.popleft()
        for thing in owned[number]:
            if thing == start:
                return ways[number]
            if thing not in ways:
                ways[thing] = (*ways[number], thing)
                waiting.append(thing)
    return ()


def _labels(ring: Sequence[Any]) -> Iterator[str]:
    """Name what people know: attributes, variables, functions, and not what is between."""
    size = len(ring)
    for place, owner in enumerate(ring):
        value = ring[(place + 1) % size]
        if value is _attributes(owner):
            value = ring[(place + 2) % size]
        label = _label(owner, value)
        if label:
            yield label


def _label(owner: Any, value: Any) -> str:
    # By type: to ask an object for its class may run code of others.
    kind = type(owner)
    if kind is FunctionType:
        return f"function {owner.__qualname__}"
    if kind is FrameType:
        names = owner.f_locals.items()
        name = next((name for name, local in names if local is value), "?")
        return f"variable {name} of {owner.f_code.co_name}"
    if kind is TracebackType:
        return "its traceback"
    if issubclass(kind, BaseException):
        return kind.__qualname__
    if kind.__module__ == "builtins":
        return ""
    return f"{_name_of(kind)}{_attribute(owner, value)}"


def _name_of(kind: type) -> str:
    if issubclass(kind, torch.Tensor):
        return "Tensor"
    of_torch = kind.__module__.partition(".")[0] == "torch"
    return f"{'torch ' if of_torch else ''}{kind.__qualname__}"


def _attribute(owner: Any, value: Any) -> str:
    names = _attributes(owner).items()
    name = next((name for name, thing in names if thing is value), "")
    return f".{name}" if name else ""


def _attributes(owner: Any) -> Mapping[str, Any]:
    try:
        # Not the class's own way, which may run code of others.
        names = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return {}
    return names if type(names) is dict else {}
