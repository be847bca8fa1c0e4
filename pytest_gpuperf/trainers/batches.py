"""How long a loop waits for its batches, by what its framework says of them.

PYTEST_DONT_REWRITE: it runs in timed code.
"""

from __future__ import annotations

from collections.abc import Callable

from ..devices.base import Fetch
from ..devices.base import TimedFetch
from ..devices.host_clock import HostClock
from ..measure.step import MOST_TOGETHER
from ..measure.step import Fetched


class StepBatches:
    """Counts the waits for a loop's batches: one wait per step, however many batches.

    The framework says when it begins to fetch, and when it has what it fetched. What is
    between the end of an epoch and the first step of the next counts as an opening.
    """

    def __init__(self, now_ns: Callable[[], int] = HostClock.wall_ns) -> None:
        self.fetched = Fetched()
        self.openings_ns: list[int] = []
        self.together = 1
        self._now_ns = now_ns
        self._since_ns = now_ns()
        self._waited_ns = 0
        self._is_opening = True

    def has_workers(self, number: object) -> None:
        """Batches arrive in bursts of *number*, as that many workers load them."""
        if isinstance(number, int):
            self.together = max(1, min(number, MOST_TOGETHER))

    def epoch(self) -> None:
        """An epoch begins: workers start, and its first batch is waited for."""
        self._is_opening = True

    def fetch(self) -> None:
        """The loop asks for a batch from now on."""
        self._since_ns = self._now_ns()

    def came(self) -> None:
        """The batch is there."""
        self._waited_ns += self._now_ns() - self._since_ns

    def step(self) -> None:
        """A step ends: count what it waited."""
        batches, waited_ns, opening_ns = self.fetched
        if self._is_opening:
            self.openings_ns.append(self._waited_ns)
            self.fetched = Fetched(batches, waited_ns, opening_ns + self._waited_ns)
        else:
            self.fetched = Fetched(batches + 1, waited_ns + self._waited_ns, opening_ns)
        self._waited_ns, self._is_opening = 0, False

    def time_with(self, timed: Callable[[Fetch], TimedFetch]) -> None:
        """Leave *timed* alone: the framework fetches, so the host's clock is read."""

    def close(self) -> None:
        """Do nothing: the loader is the framework's."""
