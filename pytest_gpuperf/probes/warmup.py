"""Warm-up: run until compiling, allocating and step times are all quiet."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Final

from ..devices.protocol import Device
from .deadline import Deadline
from .following import Follow
from .following import nobody
from .subject import Subject


WINDOW: Final = 8
"""Samples in a block; two blocks are compared."""

LEAST_STEPS: Final = 3

MOST_STEPS: Final = 200

QUIET_RATIO: Final = 0.01
"""Medians of two neighbouring blocks may differ by this where there is no noise."""

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


def warm_up(
    device: Device, subject: Subject, deadline: Deadline, follow: Follow = nobody
) -> Warmth:
    """Run steps until two blocks in a row are alike and all counters stand still.

    Gives up after ``MOST_STEPS`` samples or at the deadline, and says so.
    """
    first_ms = _sample_ms(device, subject, 1)
    group = max(1, round(SAMPLE_MS / first_ms)) if first_ms > 0 else 1
    group = max(group, subject.together)
    samples: list[float] = []
    counters = [device.settling()]
    while len(samples) < MOST_STEPS:
        if not deadline.leaves(first_ms):
            return _given_up(samples or [first_ms], group, "the time cap was reached")
        follow(f"warm-up, step {1 + len(samples) * group}")
        samples.extend(_block(device, subject, group, deadline))
        counters.append(device.settling())
        if _is_quiet(samples) and len(set(counters[-3:])) == 1:
            return Warmth(step_ms=median(samples[-WINDOW:]), steps=len(samples) * group)
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
    device: Device, subject: Subject, group: int, deadline: Deadline
) -> list[float]:
    samples: list[float] = []
    while len(samples) < WINDOW:
        samples.append(_sample_ms(device, subject, group))
        enough = len(samples) >= LEAST_STEPS
        if enough and not deadline.leaves(samples[-1] * group):
            break
    return samples


def _sample_ms(device: Device, subject: Subject, steps: int) -> float:
    """Time of a step over *steps* of them; the device is waited for at the end.

    A synchronisation a sample costs the overlap of neighbouring steps: that shifts
    every sample alike and these times are compared with each other only.
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
