"""Which functions that measure are the project's code: a test has put it in their place.

A clock, a wait for the GPU or a count that a test replaces would say what the test wants.
What a library replaces stays: it does so in every run, and not to pass a test.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from collections.abc import Iterator
from operator import attrgetter
from types import ModuleType
from typing import Any
from typing import Final

from ..errors import ErrorId
from ..errors import StepError
from .own_code import is_own


MEASURING: Final = re.compile(
    r"pytest_gpuperf\.(compare_steps|devices|distributed|measure|timers|worker)\b"
)
"""Rooms of this package that run while a step is measured."""

TORCH: Final = (
    *("Tensor.item", "profiler.profile", "cuda.synchronize", "cuda.Event.elapsed_time"),
    *("cuda.memory_stats", "cuda.memory_allocated", "cuda.reset_peak_memory_stats"),
)
"""Functions of torch that times and counts are read by."""


def refuse_replaced() -> None:
    """Raise ``StepError`` if code of the project is in place of what measures."""
    replaced = [*replaced_functions()]
    if replaced:
        names = ", ".join(replaced[:3])
        msg = f"the project's code replaces {names}, which measures: take that away"
        raise StepError(msg, ErrorId.GP312)


def replaced_functions() -> Iterator[str]:
    """Name each measuring function of this process that is code of the project."""
    torch = sys.modules.get("torch")
    # The simulated GPU's stream is torch.cuda.Stream: who replaces a method means torch.
    stand_ins = {id(thing) for thing in vars(torch.cuda).values()} if torch else set()
    for name, module in [*sys.modules.items()]:
        if MEASURING.match(name) and isinstance(module, ModuleType):
            yield from _replaced_in(name, vars(module), stand_ins)
    for path in TORCH if torch else ():
        if _is_foreign(attrgetter(path)(torch)):
            yield f"torch.{path}"


def _replaced_in(
    name: str, members: dict[str, Any], stand_ins: Collection[int]
) -> Iterator[str]:
    for member, value in [*members.items()]:
        if _is_foreign(value):
            yield f"{name}.{member}"
        elif (
            isinstance(value, type)
            and value.__module__ == name
            and id(value) not in stand_ins
        ):
            inside = dict(vars(value))
            yield from _replaced_in(f"{name}.{member}", inside, stand_ins)


def _is_foreign(value: Any) -> bool:
    """Whether calling *value* runs code that the user works on, or a mock."""
    value = getattr(value, "__func__", value)  # of a static or class method
    if type(value).__module__ == "unittest.mock":
        return True
    # Python writes code of a dataclass into a file named <string>.
    file = getattr(getattr(value, "__code__", None), "co_filename", "<string>")
    return not file.startswith("<") and is_own(file, "")
