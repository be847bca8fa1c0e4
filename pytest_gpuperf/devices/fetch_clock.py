"""What fetching a batch takes, on the clock of this process.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import time
from collections.abc import Callable


Fetch = Callable[[], object]
"""Returns the next batch of a loader."""

TimedFetch = Callable[[], tuple[object, int]]
"""Returns it and the nanoseconds that the host was in there."""


def timed_by_the_host(fetch: Fetch) -> TimedFetch:
    """Read the host's clock before and after each *fetch*."""

    def timed() -> tuple[object, int]:
        start_ns = time.perf_counter_ns()
        batch = fetch()
        return batch, time.perf_counter_ns() - start_ns

    return timed
