"""Errors after which the simulated GPU cannot go on."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from unittest import SkipTest

from ...errors import StepError
from ..own_code import OWN
from .patches import Patch


# Tracebacks as they would be on a GPU, where this package has no frames.
#
# A frame that an exception passes cannot leave itself out of the traceback, so the
# frames are cut out by whoever shows it: here what ``traceback`` and ``logging`` show
# to users who catch the exception, and what leaves the context uncaught.


def traceback_patches() -> Iterator[Patch]:
    """What shows an exception: ``print_exc`` and ``logging.exception`` come by here."""
    shown = traceback.TracebackException
    yield Patch(shown, "__init__", _without_frames(shown.__init__, position=3))
    for name in ("extract_tb", "format_tb", "print_tb"):
        show = _without_frames(getattr(traceback, name), position=0)
        yield Patch(traceback, name, show)


def _without_frames(show: Callable[..., Any], *, position: int) -> Callable[..., Any]:
    """Wrap *show*: the traceback at *position* loses this package's frames."""

    @functools.wraps(show)
    def shown(*args: Any, **options: Any) -> Any:
        values = list(args)
        if position < len(values) and isinstance(values[position], TracebackType):
            # pytest also formats single entries, and those are shown even if they are
            # ours.
            values[position] = _without_own(values[position]) or values[position]
        return show(*values, **options)

    return shown


def without_own_frames(error: BaseException) -> None:
    """Cut this package's frames out of the traceback of *error* and of its causes."""
    # Causes can form a cycle.
    seen: set[int] = set()
    chain: BaseException | None = error
    while chain is not None and id(chain) not in seen:
        seen.add(id(chain))
        chain.__traceback__ = _without_own(chain.__traceback__)
        chain = chain.__cause__ or chain.__context__


def _without_own(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and _is_own(traceback):
        traceback = traceback.tb_next
    entry = traceback
    while entry is not None:
        while entry.tb_next is not None and _is_own(entry.tb_next):
            entry.tb_next = entry.tb_next.tb_next
        entry = entry.tb_next
    return traceback


def _is_own(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_code.co_filename.startswith(OWN)


# Failures of the simulation itself, which must not pass for the user's.

BUGS: Final = (AssertionError, AttributeError, KeyError, NameError, TypeError)
"""What code that is wrong raises; torch's kernels raise other errors for wrong input."""


def own_failure(error: Exception) -> str:
    """Say that the simulation failed by *error*, and where."""
    end = _end_of(error)
    place = f" at {Path(_file_of(end)).name}:{end.tb_lineno}" if end else ""
    return (
        f"the simulated GPU failed here by a bug of its own, not of your code: please "
        f"report {type(error).__name__}{place} ({error})"
    )


def is_own_bug(error: Exception, *besides: str) -> bool:
    """Whether *error* was raised by a file of this package that is none of *besides*."""
    end = _end_of(error)
    return end is not None and _is_own(end) and _file_of(end) not in besides


def _end_of(error: Exception) -> TracebackType | None:
    end = error.__traceback__
    while end is not None and end.tb_next is not None:
        end = end.tb_next
    return end


def _file_of(traceback: TracebackType) -> str:
    return traceback.tb_frame.f_code.co_filename


class NeedsGpuError(StepError, SkipTest):
    """Code that only a GPU can run: pytest skips the test with this as the reason."""
