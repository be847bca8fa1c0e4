"""The thread that runs the steps, for what must happen on that thread.

Dispatch modes, profilers and hooks of Python watch one thread. A step that is a function
runs on the thread that measures. A training loop that calls us at the end of each of its
steps has a thread of its own: the loop cannot be left in the middle, so another thread
measures, and one of the two waits at any moment (``trainers/handover``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol, TypeVar, cast


T = TypeVar("T")

PROC_SELF: Final = Path("/proc/self")
THREAD_SELF: Final = Path("/proc/thread-self")


class WaitingThread(Protocol):
    """A thread that waits at the end of a step, and does there what it is asked to."""

    ident: int
    native_id: int

    def call(self, act: Callable[[], object]) -> object:
        """Call *act* on that thread and return what it returns, or raise its error."""

    def step(self) -> object:
        """Let it run a step."""


class StepThread:
    """Where the steps of this process run: on the thread that asks, unless ``lent``."""

    def __init__(self) -> None:
        self._lent: WaitingThread | None = None

    @contextmanager
    def lent(self, thread: WaitingThread) -> Iterator[None]:
        """Let *thread* be the one that runs the steps."""
        before, self._lent = self._lent, thread
        try:
            yield
        finally:
            self._lent = before

    @property
    def ident(self) -> int:
        """Its number, as ``sys._current_frames`` has it."""
        return threading.get_ident() if self._lent is None else self._lent.ident

    @property
    def proc(self) -> Path:
        """Its folder below ``/proc``, which Linux has."""
        if self._lent is None:
            return THREAD_SELF
        return PROC_SELF / "task" / str(self._lent.native_id)

    def call(self, act: Callable[[], T]) -> T:
        """Call *act* there and return what it returns, or raise its error."""
        return act() if self._lent is None else cast("T", self._lent.call(act))

    def leave_ranges(self) -> None:
        """End the profiler's ranges in which a loop waits, by a step of it.

        An optimizer calls its hooks within such a range, and a loop may have its own. A
        range that one session of the profiler began and another one sees end is torch's
        use of freed memory.
        """
        if self._lent is not None:
            self._lent.step()

    @contextmanager
    def inside(self, context: AbstractContextManager[T]) -> Iterator[T]:
        """Enter and leave *context* there."""
        if self._lent is None:
            with context as entered:
                yield entered
            return
        entered = self.call(context.__enter__)
        try:
            yield entered
        except BaseException as error:
            caught = error
            if not self.call(lambda: _leave(context, caught)):
                raise
        else:
            self.call(lambda: context.__exit__(None, None, None))


def _leave(context: AbstractContextManager[object], error: BaseException) -> bool:
    return bool(context.__exit__(type(error), error, error.__traceback__))


STEPS: Final = StepThread()
"""One per process: one test is measured at a time."""
