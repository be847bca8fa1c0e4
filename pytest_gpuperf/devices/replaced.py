"""Which values that measure are no longer those of this package: a test has replaced them.

A clock, a sync with the GPU or a count that a test replaces would say what the test wants.
What a library replaces stays: it does so in every run, and not to pass a test.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from copy import copy
from operator import attrgetter
from types import ModuleType
from typing import Any, Final

from ..errors import ErrorId, StepError
from .own_code import OWN, is_installed, is_own


MEASURING: Final = re.compile(
    r"pytest_gpuperf\.(compare_steps|devices|distributed|measure|timers|worker)\b"
)
"""Rooms of this package that run while a step is measured."""

TABLES: Final = (dict, list, set)

TORCH: Final = (
    *("Tensor.item", "profiler.profile", "cuda.synchronize", "cuda.Event.elapsed_time"),
    *("cuda.memory_stats", "cuda.memory_allocated", "cuda.reset_peak_memory_stats"),
)
"""Functions of torch that times and counts are read by."""


class Held:
    """What measures, as it was before any code of the project ran."""

    def __init__(self) -> None:
        self._before = {
            name: {member: _kept(member, value) for member, value in [*members.items()]}
            for name, members in _scopes()
        }

    def refuse_replaced(self) -> None:
        """Raise ``StepError`` if code of the project is in place of what measures."""
        replaced = [*self.replaced()]
        if replaced:
            names = ", ".join(replaced[:3])
            msg = f"the project's code replaces {names}, which measures: take that away"
            raise StepError(msg, ErrorId.GP312)

    def replaced(self) -> Iterator[str]:
        """Name each value that was replaced, and each foreign one in a later import."""
        for name, members in _scopes():
            before = self._before.get(name)
            for member, value in [*members.items()]:
                if before is None:
                    is_other = _is_foreign(value)
                else:
                    is_other = _is_other(member, value, before.get(member))
                if is_other and not member.startswith("__"):
                    yield f"{name}.{member}"


def _scopes() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the modules and classes that measure, and what each of them has."""
    torch = sys.modules.get("torch")
    # The simulated GPU's stream is torch.cuda.Stream: who replaces a method means torch.
    stand_ins = {id(thing) for thing in vars(torch.cuda).values()} if torch else set()
    for name, module in [*sys.modules.items()]:
        if MEASURING.match(name) and isinstance(module, ModuleType):
            yield name, vars(module)
            for member, value in [*vars(module).items()]:
                if (
                    isinstance(value, type)
                    and value.__module__ == name
                    and id(value) not in stand_ins
                ):
                    yield f"{name}.{member}", vars(value)
    if torch:
        yield "torch", {path: attrgetter(path)(torch) for path in TORCH}


def _kept(member: str, value: Any) -> Any:
    """Return a copy of a constant table, which a test can change in place."""
    return copy(value) if _is_table(member, value) else value


def _is_table(member: str, value: Any) -> bool:
    return member.isupper() and type(value) in TABLES


def _is_other(member: str, value: Any, before: Any) -> bool:
    if _is_table(member, value):
        return bool(value != before)
    # A package has each of its modules once that is imported.
    is_same = value is before or isinstance(value, ModuleType)
    return not is_same and not _is_of_library(value)


def _is_of_library(value: Any) -> bool:
    file = _file_of(value)
    return is_installed(file) and not file.startswith(OWN)


def _is_foreign(value: Any) -> bool:
    """Whether calling *value* runs code that the user works on, or a mock."""
    if type(value).__module__ == "unittest.mock":
        return True
    file = _file_of(value)
    # Python writes code of a dataclass into a file named <string>.
    return not file.startswith("<") and is_own(file, "")


def _file_of(value: Any) -> str:
    """Return the file with the code of a function, or of a static or class method."""
    value = getattr(value, "__func__", value)
    return str(getattr(getattr(value, "__code__", None), "co_filename", "<string>"))
