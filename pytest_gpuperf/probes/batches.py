"""The batches of a loader, epoch after epoch, and how long the host waited for them.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Final
from typing import NamedTuple

from ..devices.fetch_clock import Fetch
from ..devices.fetch_clock import TimedFetch
from ..devices.fetch_clock import timed_by_the_host
from ..errors import StepError


MOST_TOGETHER: Final = 16
"""Most steps that are taken as one because the batches for them arrive together."""

NONE: Final = object()


class Fetched(NamedTuple):
    """What was fetched so far: batches that followed another one of their epoch.

    ``waited_ns`` is the time that the host spent in ``next`` for them, ``opening_ns``
    what it took to end an epoch, begin another, and have its first batch.
    """

    batches: int = 0
    waited_ns: int = 0
    opening_ns: int = 0


class Batches:
    """Takes batch after batch from *loader*, which is iterated anew when it ends."""

    def __init__(self, loader: Iterable[object]) -> None:
        self.fetched = Fetched()
        self.openings_ns: list[int] = []
        self._loader = loader
        self._iterator: Iterator[object] = iter(())
        self._epochs = 0
        self._fetch = timed_by_the_host(self._next)

    @property
    def together(self) -> int:
        """Batches that arrive in one burst: as many as the loader has workers."""
        workers = getattr(self._loader, "num_workers", 0)
        return max(1, min(workers, MOST_TOGETHER)) if isinstance(workers, int) else 1

    def time_with(self, timed: Callable[[Fetch], TimedFetch]) -> None:
        """Let *timed* say from now on what a batch takes."""
        self._fetch = timed(self._next)

    def take(self) -> object:
        """Return the next batch; raise ``StepError`` where an epoch has none."""
        epochs = self._epochs
        batch, took_ns = self._fetch()
        batches, waited_ns, opening_ns = self.fetched
        if self._epochs == epochs:
            self.fetched = Fetched(batches + 1, waited_ns + took_ns, opening_ns)
        else:
            self.openings_ns.append(took_ns)
            self.fetched = Fetched(batches, waited_ns, opening_ns + took_ns)
        return batch

    def close(self) -> None:
        """Let go of loader and iterator: the workers of a DataLoader end with them.

        They are not to be left to the garbage collector, for this object is part of a
        cycle: it ends the queues of a DataLoader before the workers are told by them,
        and torch then waits five seconds for each.
        """
        self._loader, self._iterator = (), iter(())

    def _next(self) -> object:
        batch = next(self._iterator, NONE)
        return self._first() if batch is NONE else batch

    def _first(self) -> object:
        self._iterator = iter(
            ()
        )  # the workers of one epoch end before those of the next one start
        iterator = iter(self._loader)
        batch = next(iterator, NONE)
        if batch is NONE:
            raise StepError(self._why_none())
        self._iterator = iterator
        self._epochs += 1
        return batch

    def _why_none(self) -> str:
        kind = type(self._loader).__name__
        if not self._epochs:
            return f"gpuperf.loader(loader, step): the {kind} gave no batch at all"
        batches = self.fetched.batches + len(self.openings_ns)
        return (
            f"gpuperf.loader(loader, step): the {kind} ended after {batches} "
            f"batch{'es' if batches > 1 else ''} and gave none when it was iterated "
            "again; pass what begins anew, such as a DataLoader or a list, or an "
            "iterator that never ends"
        )
