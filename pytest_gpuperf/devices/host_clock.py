"""The clocks of this process, as they were before any test could replace them.

A test that freezes time must not freeze what it is measured by. Attributes of ``time``
and of modules are what monkeypatch and freezegun replace; those of a class they leave
alone, so the functions are kept in one. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar


class HostClock:
    """Reads the clocks of the host in nanoseconds."""

    wall_ns: ClassVar[Callable[[], int]] = staticmethod(time.perf_counter_ns)
    """The monotonic clock with the finest ticks."""

    process_ns: ClassVar[Callable[[], int]] = staticmethod(time.process_time_ns)
    """CPU time of this process, all threads."""

    thread_ns: ClassVar[Callable[[], int]] = staticmethod(time.thread_time_ns)
    """CPU time of this thread."""
