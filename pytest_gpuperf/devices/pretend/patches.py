"""Names that stand for something else while pretending, each put back on leaving."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from collections.abc import Iterator
from contextlib import ExitStack
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from typing import Final
from typing import NamedTuple


class Patch(NamedTuple):
    """``owner.name`` is to be ``value``."""

    owner: Any
    name: str
    value: Any


ABSENT: Final = object()


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """Apply *patches* all over the process; on leaving undo them, last one first.

    Modules that took a function out of torch by ``from torch import zeros`` before get
    its stand-in as well.
    """
    with ExitStack() as undo:
        replaced: dict[int, tuple[Any, Any]] = {}
        for patch in patches:
            previous = vars(patch.owner).get(patch.name, ABSENT)
            undo.callback(_put_back, patch.owner, patch.name, previous)
            setattr(patch.owner, patch.name, patch.value)
            if isinstance(patch.owner, ModuleType) and callable(previous):
                replaced[id(previous)] = (previous, patch.value)
        for module, name, value in _taken_out(replaced):
            undo.callback(_put_back, module, name, vars(module)[name])
            setattr(module, name, value)
        yield


def _put_back(owner: Any, name: str, previous: Any) -> None:
    if previous is ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, previous)


def _taken_out(replaced: dict[int, tuple[Any, Any]]) -> Iterator[Patch]:
    """Names in loaded modules that still hold what was replaced."""
    own = __name__.rpartition(".")[0]
    loaded: list[Any] = list(sys.modules.values())
    for module in loaded:
        if not isinstance(module, ModuleType) or module.__name__.startswith(own):
            continue
        for name, value in list(vars(module).items()):
            previous, stand_in = replaced.get(id(value), (None, None))
            if previous is not None and previous is value:
                yield Patch(module, name, stand_in)
