"""What is recorded of ordinary tests on a device: waits, copies and memory, test by test."""

from __future__ import annotations

import gc
import sys
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import FrameType
from types import ModuleType
from typing import Any
from typing import Final
from typing import Protocol
from typing import TypeGuard

from ..model.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class TestAudit:
    """What one test did: certain waits, copies, and memory.

    ``left`` outlived it, and Python's garbage collector alone freed ``garbage``: their
    reasons say what kept it.
    """

    waits: tuple[Finding, ...] = ()
    copies: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    garbage: tuple[Finding, ...] = ()
    peak_bytes: int = 0
    used: bool = False
    unjudged: int = 0


MOST_OBJECTS_OF_TEST: Final = 1_000_000
"""New objects of a test from which on the collector runs in it: memory ends at some time."""


class SuiteWatch(Protocol):
    """Tells the tests of a process apart, which run one after the other on a device."""

    simulates: bool
    """Whether tests may end otherwise, or run only here, as the GPU is simulated."""

    def begin_test(self) -> None:
        """Forget what was recorded, but for what is alive."""

    def listening(self) -> AbstractContextManager[object]:
        """Return what the test runs inside of, below pytest's own handling of warnings."""

    def excused(self) -> AbstractContextManager[object]:
        """Take what is born inside for a shared fixture's, which outlives the test."""

    def end_test(self, *, passed: bool) -> TestAudit:
        """Return what was recorded; a test that failed is kept alive by its traceback."""


MOST_KEEPERS: Final = 20
"""Tests for which it is found out what keeps their tensors: each costs a second."""


# What keeps a tensor alive, by name.

MOST_LINKS: Final = 6
MOST_LOOKED_AT: Final = 12
"""Each asks the collector for all that refers to one object."""


def keeper_of(thing: object) -> str:
    """Name the variable or attribute of a module that leads to *thing*; else nothing."""
    waiting: deque[tuple[object, str, int]] = deque([(thing, "", 0)])
    seen = {id(thing)}
    for _ in range(MOST_LOOKED_AT):
        if not waiting:
            break
        looked_at, path, links = waiting.popleft()
        for owner in gc.get_referrers(looked_at):
            if id(owner) in seen or _is_passing(owner, waiting):
                continue
            seen.add(id(owner))
            name = _module_name(owner)
            if name is not None:
                return f"{name}.{_key_of(owner, looked_at)}{path}"
            if links < MOST_LINKS:
                waiting.append((owner, _link(owner, looked_at) + path, links + 1))
    return ""


def _is_passing(owner: object, waiting: object) -> bool:
    """Whether *owner* is part of the search, or of the code that runs it."""
    if owner is waiting or isinstance(owner, FrameType):
        return True
    return type(owner).__name__ in {"list_iterator", "cell", "generator"}


def _module_name(owner: object) -> str | None:
    if not _is_dict(owner):
        return None
    name = owner.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    is_it = isinstance(module, ModuleType) and vars(module) is owner
    return name if is_it else None


def _is_dict(owner: object) -> TypeGuard[dict[Any, Any]]:
    return type(owner) is dict


def _key_of(owner: dict[Any, Any], value: object) -> str:
    return next((str(k) for k, v in owner.items() if v is value), "?")


def _is_of_object(names: dict[Any, Any]) -> bool:
    """Whether *names* are the attributes of an object, and no dictionary of its own."""
    owners = gc.get_referrers(names)
    return any(getattr(owner, "__dict__", None) is names for owner in owners)


def _link(owner: object, value: object) -> str:
    """Write the way from *owner* to *value*; containers show their brackets."""
    if _is_dict(owner):
        key = _key_of(owner, value)
        of_object = key.isidentifier() and _is_of_object(owner)
        return f".{key}" if of_object else f"[{key!r}]"
    if isinstance(owner, (list, tuple, set, deque)):
        return "[...]"
    attributes = getattr(owner, "__dict__", None)
    if isinstance(attributes, dict):
        found = next((k for k, v in attributes.items() if v is value), None)
        # The way may lead from an object to its ``__dict__`` and so be named there.
        return "" if found is None else f".{found}"
    return ""
