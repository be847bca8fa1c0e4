"""Warm-up: run until compiling, allocating, step times and a GPU's clock are quiet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Final

from ..devices.base import MeasuringDevice
from ..model.environment import Capability
from .plan import Deadline, Follow, nobody
from .step import Subject


WINDOW: Final = 8
"""Samples in a block; two blocks are compared."""

LEAST_WARMUP_STEPS: Final = 3

MOST_WARMUP_STEPS: Final = 200

QUIET_RATIO: Final = 0.01
"""Medians of two neighbouring blocks may differ by this even without noise."""

SPIKE_RATIO: Final = 1.5
"""A block with two samples above this multiple of its median is not quiet."""

SAMPLE_MS: Final = 0.2
"""Shorter steps are grouped into samples of this length: below it, a clock reading
and a passing interrupt are larger than the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmth:
    """How a warm-up ended. ``step_ms`` is the median of its last block.

    One that did not end has ``samples``, each over ``group`` steps.
    """

    step_ms: float
    steps: int
    unsteady: str | None = None
    samples: tuple[float, ...] = ()
    group: int = 1

    @property
    def slowest_ms(self) -> float:
        """What the next step may take: the slowest of the last, if they were unsteady."""
        return max((self.step_ms, *self.samples[-WINDOW:]))


def warm_up(
    device: MeasuringDevice,
    subject: Subject,
    deadline: Deadline | Callable[[float], Deadline],
    follow: Follow = nobody,
) -> Warmth:
    """Run steps until two blocks in a row are alike and no counter changes.

    Where steps are enqueued, they then run in queues for a while, and a block after it
    must be like the last one before.

    Gives up after ``MOST_WARMUP_STEPS`` samples or at the *deadline*, and says so. The
    deadline may depend on the milliseconds that a step takes.
    """
    until = (lambda _: deadline) if isinstance(deadline, Deadline) else deadline
    first_ms = _sample_ms(device, subject, 1)
    group = max(1, round(SAMPLE_MS / first_ms)) if first_ms > 0 else 1
    group = max(group, subject.together)
    samples: list[float] = []
    counters = [device.settling()]
    is_heated = False
    while len(samples) < MOST_WARMUP_STEPS:
        step_ms = max(samples[-WINDOW:], default=first_ms)
        if not until(step_ms).leaves(step_ms):
            return _given_up(samples or [first_ms], group, "the time cap was reached")
        follow(f"warm-up, step {1 + len(samples) * group}")
        samples.extend(_block(device, subject, group, until))
        counters.append(device.settling())
        # The counters before, between and after the two blocks.
        if _is_quiet(samples) and len(set(counters[-3:])) == 1:
            warm_ms = median(samples[-WINDOW:])
            enough = until(warm_ms).reserving(2 * WINDOW * group * warm_ms)
            if is_heated or not _heat(device, subject, warm_ms, enough):
                return Warmth(step_ms=warm_ms, steps=len(samples) * group)
            is_heated = True
    return _given_up(samples, group, f"after {len(samples) * group} steps of warm-up")


def _given_up(samples: list[float], group: int, when: str) -> Warmth:
    return Warmth(
        step_ms=median(samples[-WINDOW:]),
        steps=len(samples) * group,
        unsteady=f"the step never became steady: {when}",
        samples=tuple(samples),
        group=group,
    )


def _block(
    device: MeasuringDevice,
    subject: Subject,
    group: int,
    until: Callable[[float], Deadline],
) -> list[float]:
    samples: list[float] = []
    while len(samples) < WINDOW:
        samples.append(_sample_ms(device, subject, group))
        enough = len(samples) >= LEAST_WARMUP_STEPS
        slowest_ms = max(samples)
        if enough and not until(slowest_ms).leaves(slowest_ms * group):
            break
    return samples


def _sample_ms(device: MeasuringDevice, subject: Subject, steps: int) -> float:
    """Time of a step over *steps* of them; the device is waited for at the end.

    The synchronisation prevents neighbouring steps from overlapping. That shifts every
    sample alike, and these times are compared only with each other.
    """
    batch = subject.batch(subject.most_steps(steps))
    device.synchronize()
    start_ns = device.now_ns()
    for arguments in batch:
        subject.step(*arguments)
    device.synchronize()
    return (device.now_ns() - start_ns) / subject.most_steps(steps) / 1e6


def _is_quiet(samples: list[float]) -> bool:
    if len(samples) < 2 * WINDOW:
        return False
    before, last = samples[-2 * WINDOW : -WINDOW], samples[-WINDOW:]
    middle = median(last)
    # One spike in a block may be an interrupt; two are a habit.
    second_largest = sorted(last)[-2]
    return (
        abs(middle - median(before)) <= _allowed(before, last) * middle
        and second_largest <= SPIKE_RATIO * middle
    )


def _allowed(before: list[float], last: list[float]) -> float:
    """Relative difference of two medians that noise alone explains.

    The standard error of a normal sample's median is 1.253 sigma / sqrt(n), sigma is
    estimated by 1.483 x the median absolute deviation; two standard errors of the
    difference of two medians of ``WINDOW`` samples are 1.86 x that deviation.
    """
    middle = median(last)
    deviations = [abs(s - median(block)) for block in (before, last) for s in block]
    noise = 1.86 * median(deviations) / middle if middle > 0 else 0.0
    return max(QUIET_RATIO, noise)


# Work that is enqueued with no sync in between, as in training: a GPU's clock, power and
# heat settle under it, and not under steps that are waited for one by one.

HEATING_MS: Final = 1000.0
"""Time of such work before a GPU is timed."""

QUEUE_MS: Final = 100.0
"""Time of the steps between two looks at the clock of the host."""


def _heat(
    device: MeasuringDevice, subject: Subject, step_ms: float, deadline: Deadline
) -> bool:
    """Run queues of steps for ``HEATING_MS``; return whether there was any.

    None where a step is done when it returns, and none beyond the *deadline*.
    """
    if not device.kind.has(Capability.QUEUES):
        return False
    left_ms = HEATING_MS
    while left_ms > 0 and step_ms > 0:
        steps = subject.most_steps(ceil(min(left_ms, QUEUE_MS) / step_ms))
        if not deadline.leaves(steps * step_ms):
            break
        left_ms -= steps * _sample_ms(device, subject, steps)
    return left_ms < HEATING_MS
