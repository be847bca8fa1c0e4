"""The step under measurement and where its arguments come from.

PYTEST_DONT_REWRITE: it runs in timed code.
"""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncGenerator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ..devices.base import Fetch, Step, TimedFetch, timed_by_the_host
from ..errors import ErrorId, StepError
from ..model.budget import shown
from ..model.metrics import SAMPLES_PER_S, TOKENS_PER_S


if TYPE_CHECKING:
    from ..devices.base import MeasuringDevice


# The batches of a loader, epoch after epoch, and how long the host waited for them.

MOST_TOGETHER: Final = 16
"""Most steps that are taken as one because the batches for them arrive together."""

NO_BATCH: Final = object()


class Fetched(NamedTuple):
    """What was fetched so far: batches that followed another one of their epoch.

    ``waited_ns`` is the time that the host spent in ``next`` for them, ``opening_ns``
    what it took to end an epoch, begin another, and have its first batch.
    """

    batches: int = 0
    waited_ns: int = 0
    opening_ns: int = 0


class FetchTimes(Protocol):
    """How long a loop waited for its batches, whoever fetches them."""

    fetched: Fetched
    openings_ns: list[int]

    @property
    def together(self) -> int:
        """Steps to take as one, as their batches arrive in one burst."""

    @property
    def workers_anew(self) -> int:
        """Workers that each epoch starts anew."""

    def time_with(self, timed: Callable[[Fetch], TimedFetch]) -> None:
        """Let *timed* say from now on what a batch takes."""

    def close(self) -> None:
        """Drop the loader."""


class Batches:
    """Takes batch after batch from *loader*, and iterates it again when it ends."""

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

    @property
    def workers_anew(self) -> int:
        """Workers that each epoch starts anew."""
        workers = getattr(self._loader, "num_workers", 0)
        is_kept = getattr(self._loader, "persistent_workers", False)
        return workers if isinstance(workers, int) and not is_kept else 0

    def time_with(self, timed: Callable[[Fetch], TimedFetch]) -> None:
        """Let *timed* say from now on what a batch takes."""
        self._fetch = timed(self._next)

    def take(self) -> object:
        """Return the next batch; raise ``StepError`` if an epoch has none."""
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
        """Drop loader and iterator: the workers of a DataLoader end with them.

        They must not be left to the garbage collector, as this object is part of a
        cycle: the collector closes the queues of a DataLoader before the workers are
        notified through them, and torch then waits five seconds for each worker.
        """
        self._loader, self._iterator = (), iter(())

    def _next(self) -> object:
        batch = next(self._iterator, NO_BATCH)
        return self._first() if batch is NO_BATCH else batch

    def _first(self) -> object:
        # The old iterator first: the workers of one epoch must end before those of the
        # next one start, or both sets would share the cores.
        self._iterator = iter(())
        iterator = iter(self._loader)
        batch = next(iterator, NO_BATCH)
        if batch is NO_BATCH:
            raise StepError(self._why_none(), ErrorId.GP302)
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


Arguments = tuple[object, ...]
Setup = Callable[[], object]

WORK: Final = {SAMPLES_PER_S.name: "samples", TOKENS_PER_S.name: "tokens"}
"""The keyword of a call that says what a step trains on, by the metric of that per second."""

MOST_PREPARED: Final = 32
"""Arguments made ahead of a round: they are alive together, and a batch is large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A step and its ``setup``, which returns the step's positional arguments.

    ``batches`` are those that the step fetches, if it is a loop over a loader.
    ``work`` is what one step trains on, by the metric of that per second.
    ``round_steps`` are the steps per round of the runs that it will be compared with,
    if they are known. A step that ``takes_a_number`` runs that many steps at a call.
    """

    step: Step
    setup: Setup | None = None
    batches: FetchTimes | None = None
    work: Mapping[str, float] = field(default_factory=dict)
    round_steps: int | None = None
    takes_a_number: bool = False

    def prepared(self, device: MeasuringDevice, test: str) -> Subject:
        """Return what *device* runs for *test*; its clock times the batches."""
        if self.batches is not None:
            self.batches.time_with(device.timed_fetch)
        return replace(self, step=device.prepare(self.step, test))

    @property
    def together(self) -> int:
        """Steps to take as one, as their batches arrive in one burst."""
        return 1 if self.batches is None else self.batches.together

    def close(self) -> None:
        """Drop the loader, if there is one."""
        if self.batches is not None:
            self.batches.close()

    def arguments(self) -> Arguments:
        """Fresh arguments: a tuple is spread, ``None`` is none, all else is one."""
        if self.setup is None:
            return ()
        made = self.setup()
        if made is None:
            return ()
        return made if isinstance(made, tuple) else (made,)

    def batch(self, steps: int) -> Iterable[Arguments]:
        """Arguments for *steps* steps, made now and not inside the timed loop."""
        if self.takes_a_number:
            return ((steps,),)
        if self.setup is None:
            return repeat((), steps)
        return [self.arguments() for _ in range(steps)]

    def most_steps(self, steps: int) -> int:
        """How many of *steps* can be prepared at once."""
        return steps if self.setup is None else min(steps, MOST_PREPARED)

    def run_once(self) -> object:
        """Run one step and refuse one that has only been started.

        Raises ``StepError`` for an awaitable or a generator.
        """
        result = self.step(*self.arguments())
        if inspect.isawaitable(result) or isinstance(
            result, (Generator, AsyncGenerator)
        ):
            kind = type(result).__name__
            close = getattr(result, "close", None)
            # A coroutine that is never awaited warns when it is collected; closing it
            # prevents that.
            if close is not None:
                close()
            msg = (
                f"gpuperf(step): the step returned a {kind}, so its work has not been "
                "done when it returns; pass a function that runs the step to its end"
            )
            raise StepError(msg, ErrorId.GP301)
        return result


def subject_of(step: object, setup: object = None) -> Subject:
    """Return the subject; raise ``StepError`` if one of the two cannot be called."""
    _refuse_uncallable("step", step)
    if setup is not None:
        _refuse_uncallable("setup", setup)
    return Subject(step=step, setup=setup)  # type: ignore[arg-type]  # checked above


def _described(value: object) -> str:
    """Describe *value* in a line: no tensor by its numbers, and none as simulated."""
    if hasattr(value, "data_ptr"):
        return "a tensor"
    return f"{shown(value)} of type {type(value).__name__}"


def _refuse_uncallable(name: str, value: object) -> None:
    if not callable(value):
        msg = (
            f"gpuperf({name}): expected a function, found {_described(value)}; pass the "
            "function itself, without calling it"
        )
        raise StepError(msg, ErrorId.GP215)
