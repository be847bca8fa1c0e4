"""The processes that a program starts: the simulated GPU is in none but its own."""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import wraps
from multiprocessing.process import BaseProcess, active_children
from pathlib import Path
from signal import SIGKILL, SIGTERM
from subprocess import Popen
from types import FrameType
from typing import Any, Final

from ..devices.source_lines import site_of_caller
from ..model.finding import Location, Phase
from ..model.metric import counted
from . import RANK_LAUNCHERS


Child = BaseProcess | Popen[Any]

OF_LIBRARIES: Final = (
    "torch.utils.data.",
    "torch._inductor.",
    "multiprocessing.managers.",
)
"""Modules whose processes load batches, compile, or keep the objects of a manager."""

ENDED_WELL: Final = (None, 0, -SIGTERM, -SIGKILL)
"""Exit codes of a process that ran on, has done its work, or was ended by the program."""

TO_CHECK: Final = "to check it, call it in the script's own process"


class ChildProcesses:
    """Remembers which processes the program starts, and whether they need a GPU.

    A new Python has none. A fork has a copy of the simulated one, and counts its operations
    in *forked*.
    """

    def __init__(self, root: str, forked: memoryview[int]) -> None:
        self._root = root
        self._forked = forked
        self._started: defaultdict[Location | None, list[Child]] = defaultdict(list)

    def watch(self) -> None:
        """Remember each process that is started from now on."""
        for kind, name in ((BaseProcess, "start"), (Popen, "__init__")):
            setattr(kind, name, self._remembering(getattr(kind, name)))

    def notes(self) -> Iterator[str]:
        """Say which lines started a Python that may have chosen the CPU."""
        for place, children in self._started.items():
            if not any(map(_has_failed, children)):
                count = counted(len(children), "process")
                yield f"{_at(place)} started {count} without a GPU: what they do is not counted"

    def unchecked(self) -> Iterator[str]:
        """Say what was not checked although it needs a GPU."""
        for place, children in self._started.items():
            failed = sum(map(_has_failed, children))
            if failed:
                count = counted(failed, "process")
                what = f"{_at(place)} started {count} that failed without a GPU"
                yield f"{what}: what they do was not checked; {TO_CHECK}"
        if self._forked[1]:
            count = counted(self._forked[1], "operation")
            yield f"{count} of forked processes went unchecked; {TO_CHECK}"

    def _remembering(self, start: Callable[..., None]) -> Callable[..., None]:
        @wraps(start)
        def remembered(child: Child, *arguments: Any, **options: Any) -> None:
            caller = sys._getframe(1)  # noqa: SLF001, inspect.stack() reads sources
            start(child, *arguments, **options)
            if _may_train(child, caller):
                site = site_of_caller(self._root, phase=Phase.FORWARD, caller=caller)
                self._started[site.location].append(child)

        return remembered


def join_children() -> None:
    """Wait for children, as multiprocessing does when a program ends."""
    for child in active_children():
        if not child.daemon:
            child.join()


def _has_failed(child: Child) -> bool:
    code = child.poll() if isinstance(child, Popen) else child.exitcode
    return code not in ENDED_WELL


def _may_train(child: Child, caller: FrameType) -> bool:
    """Whether it is a new Python, and *caller* no library that needs no GPU there."""
    if f"{caller.f_globals.get('__name__')}.".startswith(OF_LIBRARIES):
        return False
    if isinstance(child, Popen):
        return _is_python(child.args)
    return bool(getattr(child, "_popen").method != "fork")  # noqa: B009, private


def _is_python(command: Any) -> bool:
    """Whether *command*, as ``Popen`` takes it, starts a Python or ranks."""
    words = command if isinstance(command, (list, tuple)) else [command]
    text = " ".join(os.fsdecode(word) for word in words)
    names = [Path(word).name for word in text.split()]
    return any(
        name in RANK_LAUNCHERS or re.fullmatch(r"python[\d.]*", name) for name in names
    )


def _at(place: Location | None) -> str:
    if place is None:
        return "the script"
    return f"{place.file.removeprefix(f'{Path.cwd()}{os.sep}')}:{place.line}"
