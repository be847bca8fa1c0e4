"""A loop over a loader as one step: fetch a batch, train on it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from ..devices.base import Step, TraceEvent
from ..errors import ErrorId, StepError
from ..model.measurement import Measurement
from ..model.metrics import LOADER_WAIT, STEP_MS, counted
from .plan import Found
from .step import Batches, Fetched, FetchTimes, Subject
from .trace import ANNOTATIONS, Span, number


# The share of a loop that the host waits for its loader, from its timed rounds.

SINGLE: Final = (
    "every epoch of this loader is a single batch, and the first batch of an epoch is "
    "not counted; give it more of them"
)

LONG_OPENING: Final = 2.0
"""Steps that the first batch of an epoch may take before that is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderWait:
    """Time of a loop that the host was in ``next`` for so many *batches*.

    The openings of epochs, with their first batches, are in neither.
    """

    batches: int
    waited_ms: float
    loop_ms: float

    @property
    def percent(self) -> float:
        return 100 * self.waited_ms / self.loop_ms

    def without_fill(self, alone_ms: float, steps: int) -> LoaderWait:
        """Leave out the end of a round of *steps*, in which the GPU works on.

        One step alone, between two synchronisations, takes *alone_ms*.
        """
        # As if the first batch of each epoch had been like the others.
        first_ms = (steps - self.batches) * self.waited_ms / self.batches
        step_ms = (self.loop_ms + first_ms - alone_ms) / (steps - 1)
        fill_ms = max(0.0, alone_ms - step_ms)
        left_ms = max(self.waited_ms, self.loop_ms - fill_ms)
        return replace(self, loop_ms=left_ms) if left_ms > 0 else self


def loader_wait(before: Fetched, after: Fetched, wall_ns: int) -> LoaderWait | None:
    """Return how long of *wall_ns* the host was in ``next``.

    Opening an epoch is left out of both. ``None`` if nothing else is left.
    """
    # The start of an epoch starts workers, which takes far longer than a batch and
    # happens in few rounds.
    loop_ns = wall_ns - (after.opening_ns - before.opening_ns)
    if after.batches == before.batches or loop_ns <= 0:
        return None
    waited_ns = after.waited_ns - before.waited_ns
    return LoaderWait(
        batches=after.batches - before.batches,
        waited_ms=waited_ns / 1e6,
        loop_ms=loop_ns / 1e6,
    )


def with_loader_wait(
    measurement: Measurement,
    batches: FetchTimes | None,
    waits: Sequence[LoaderWait | None],
) -> Measurement:
    """Add the share of each round in which a loop waited for *batches*, or why none."""
    if batches is None:
        return measurement
    name, shares = LOADER_WAIT.name, [w.percent for w in waits if w is not None]
    remarks = tuple(_on_openings(batches, measurement))
    if not shares:
        return Found(unmeasured={name: SINGLE}, remarks=remarks).added_to(measurement)
    found = Found.of_samples(LOADER_WAIT, shares)
    return replace(found, remarks=remarks).added_to(measurement)


def _on_openings(batches: FetchTimes, measurement: Measurement) -> Iterator[str]:
    took_ms = median(batches.openings_ns) / 1e6
    step_ms = measurement.times[STEP_MS.name].q50
    if took_ms > LONG_OPENING * step_ms:
        yield (
            f"the first batch of an epoch takes {took_ms:.3g} ms, which is not counted "
            f"in {LOADER_WAIT.name}{_on_workers(batches, step_ms)}"
        )


def _on_workers(batches: FetchTimes, step_ms: float) -> str:
    """Say how much of the loop goes by while workers start anew, if they do."""
    if not batches.workers_anew or len(batches.openings_ns) == 1:
        return ""
    openings_ms = sum(batches.openings_ns) / 1e6
    percent = 100 * openings_ms / (openings_ms + step_ms * batches.fetched.batches)
    return (
        f": each starts {counted(batches.workers_anew, 'worker')} anew, {percent:.0f} % of "
        "the loop's time; "
        "persistent_workers=True keeps them"
    )


# Waits for the loader, from the profiler ranges of torch's DataLoader.

LOADER: Final = re.compile(r"enumerate\(DataLoader\)#.*__next__")
"""Name of torch's profiler range around each batch of a ``DataLoader``."""


def loader_spans(events: Iterable[TraceEvent]) -> Iterator[Span]:
    """Yield the ranges of waits for a batch; broken events are left out."""
    for event in events:
        if str(event.get("cat")).lower() not in ANNOTATIONS or event.get("ph") != "X":
            continue
        name = str(event.get("name"))
        start_us, duration_us = number(event.get("ts")), number(event.get("dur"))
        if LOADER.fullmatch(name) and start_us is not None and duration_us:
            thread = (str(event.get("pid")), str(event.get("tid")))
            yield Span(name, thread, start_us, start_us + max(0.0, duration_us))


def loop_over(loader: object, step: object) -> Subject:
    """Return *step* on the batches of *loader*, one argument each, epoch after epoch.

    Raises ``StepError`` if the one cannot be iterated or the other cannot be called
    with a batch.
    """
    batches = Batches(_iterable(loader))
    train = _of_one_batch(step)

    def fetch_and_train() -> object:
        return train(batches.take())

    return Subject(step=fetch_and_train, batches=batches)


def _iterable(loader: object) -> Iterable[object]:
    if isinstance(loader, Iterable):
        return loader
    if hasattr(type(loader), "__getitem__"):
        return loader  # type: ignore[return-value]  # iter() takes a sequence as well
    msg = (
        "gpuperf.loader(loader, step): expected a loader that can be iterated, such as "
        f"a DataLoader, found one of type {type(loader).__name__}; the loader comes "
        "first, then the step"
    )
    raise StepError(msg, ErrorId.GP218)


def _of_one_batch(step: object) -> Step:
    if not callable(step):
        msg = (
            "gpuperf.loader(loader, step): expected a function of one batch as the step, "
            f"found {step!r} of type {type(step).__name__}; pass the function itself, "
            "without calling it"
        )
        raise StepError(msg, ErrorId.GP219)
    parameters = _wrong_parameters(step)
    if parameters:
        msg = (
            f"gpuperf.loader(loader, step): the step takes {parameters}, expected one "
            "argument: the batch as the loader gives it; unpack it inside the step, or "
            "pass lambda batch: step(*batch)"
        )
        raise StepError(msg, ErrorId.GP219)
    return step


def _wrong_parameters(step: Callable[..., object]) -> str:
    """Return the signature of *step* if it cannot take one argument, else nothing."""
    try:
        signature = inspect.signature(step)
    except (TypeError, ValueError):
        # Some built-in functions have no signature: calling them will show.
        return ""
    try:
        signature.bind(None)
    except TypeError:
        return str(signature)
    return ""
