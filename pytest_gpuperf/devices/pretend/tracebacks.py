"""Tracebacks as they would be on a GPU, where this package has no frames.

A frame that an exception passes cannot leave itself out of the traceback, so the frames
are cut out by whoever shows it: here what ``traceback`` and ``logging`` show to users who
catch the exception, and what leaves the context uncaught.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from ..call_site import OWN
from .patches import Patch


def traceback_patches() -> Iterator[Patch]:
    """What shows an exception: ``print_exc`` and ``logging.exception`` come by here."""
    shown = traceback.TracebackException
    yield Patch(shown, "__init__", _without_frames(shown.__init__, position=3))
    for name in ("extract_tb", "format_tb", "print_tb"):
        show = _without_frames(getattr(traceback, name), position=0)
        yield Patch(traceback, name, show)


def _without_frames(show: Callable[..., Any], *, position: int) -> Callable[..., Any]:
    """*show*, whose traceback at *position* comes without this package's frames."""

    @functools.wraps(show)
    def shown(*args: Any, **options: Any) -> Any:
        values = list(args)
        if position < len(values) and isinstance(values[position], TracebackType):
            # an entry that pytest shows by itself is shown, whoever's it is
            values[position] = _without_own(values[position]) or values[position]
        return show(*values, **options)

    return shown


def without_own_frames(error: BaseException) -> None:
    """Cut this package's frames out of the traceback of *error* and of its causes."""
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
