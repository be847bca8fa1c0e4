"""The context of one test's runs: the other tests of the suite, and the machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, inf, isfinite, log, log1p, sqrt
from statistics import median
from typing import Final

from ..model.baseline import RunSummary
from ..model.environment import Capability, DeviceKind
from ..model.measurement import Distribution, Measurement
from ..model.metrics import SENTINELS, STEP_MS
from .readings import readings
from .statistics import ALPHA, Spread, f_sf, scatter


SENTINEL_NOISE: Final = 0.003
"""Smallest spread of a sentinel from run to run that is assumed, in log time."""

NOTHING_STORED: Final = [0.0] * len(SENTINELS)
"""Used as the typical sentinels where no stored run has any."""

MOST_SHARED: Final = log1p(0.25)
"""Log of the largest slowdown that a shared shift excuses without a sentinel."""

FAR_SLOWER: Final = log1p(0.05)
"""Log of how much slower sentinels may be and still say what a machine does to a step.

Up to that, what they show is taken off. Beyond it nobody knows: neighbours on a CPU that
slowed sentinels by half slowed steps by a tenth to two thirds. A run on a CPU then counts
as disturbed. On a GPU no more than this is taken off, for its clocks, throttling and
neighbours are seen, and what else slows the sentinels by far may be the code: a setting
of torch that they follow as well.
"""


LEAST_SEEN: Final = 0.3
"""Share of what a machine moves a step by that its sentinels see, at least.

It is assumed: a step that waits for memory follows a clock less than one that computes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteContext:
    """What the suite says about each of its tests.

    ``shift`` is the median change of the suite's first runs, in log time, ``burst`` how far
    others move each run beyond what stored runs scatter, a standard deviation. ``tests``
    are judged together at the risk ``ALPHA``.
    ``sessions`` is what the suite shifts by from one to another, ``now`` the session of
    the fresh runs; empty if nobody knows.
    """

    prior: Spread | None = None
    sessions: Spread | None = None
    now: str = ""
    shift: float = 0.0
    burst: float = 0.0
    tests: int = 1

    @property
    def risk(self) -> float:
        """The share of ``ALPHA`` that one of the tests has."""
        return ALPHA / max(1, self.tests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentinels:
    """What the fixed kernels that show the machine's speed took, in log time.

    ``fresh`` has one number for each fresh run, or ``None``; ``stored`` those of the
    stored runs that have one. ``most`` is the largest slowdown that they excuse.
    """

    fresh: tuple[float | None, ...] = ()
    stored: tuple[float, ...] = ()
    most: float = inf

    @classmethod
    def of(
        cls, runs: Sequence[Measurement], entry_runs: Sequence[RunSummary]
    ) -> Sentinels:
        """Take each run that has all sentinels by the median of their changes.

        So one of them that follows the code, and not the machine, moves nothing.
        """
        kind = runs[-1].environment.hardware.kind
        found = (_sentinel_times(run.times, kind) for run in entry_runs)
        stored = [times for times in found if times is not None]
        typical = [median(one) for one in zip(*stored, strict=True)] or NOTHING_STORED
        return cls(
            fresh=tuple(
                None if seen is None else _pace(seen, typical)
                for seen in (_sentinel_times(run.times, kind) for run in runs)
            ),
            stored=tuple(_pace(times, typical) for times in stored),
            most=FAR_SLOWER if kind.has(Capability.GPU_TIMES) else inf,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Discount:
    """What a machine seems to have moved in one run, in log time, both at least 0.

    ``slower`` is taken off before code is blamed, ``faster`` added before it passes, and
    so is ``unseen``, which a machine that is clearly faster may be beyond that.
    """

    slower: float = 0.0
    faster: float = 0.0
    unseen: float = 0.0


def discounts(
    runs: int,
    sentinels: Sentinels | None,
    suite_context: SuiteContext,
    noticed: float = inf,
) -> tuple[Discount, ...]:
    """Return the discount of each of so many *runs*.

    *noticed* is the slowdown, in log time, that must not pass: a machine that is faster
    by more hides it, however little of that its sentinels see.

    Sentinels are evidence, times are never divided by them: a machine that looks slower takes
    evidence from blame, one that looks faster from a pass. What slows all tests alike
    may be code that they share: without a sentinel it excuses little. Raises
    ``ValueError`` if *sentinels* do not cover every run.
    """
    shared = min(suite_context.shift, MOST_SHARED)
    most = inf if sentinels is None else sentinels.most
    shifts = [0.0] * runs if sentinels is None else sentinel_shifts(runs, sentinels)
    noise = SENTINEL_NOISE if sentinels is None else _noise(_finite(sentinels.stored))
    return tuple(
        Discount(
            # Not the sum: a slow machine shows in its sentinels and in all tests.
            slower=max(0.0, min(shift - noise, most), shared),
            # Without the cap of a slower one: here caution keeps a slowdown from
            # passing.
            faster=max(0.0, -shift - noise, -suite_context.shift),
            unseen=_unseen(-shift - noise, noticed),
        )
        for shift in shifts
    )


def _unseen(faster: float, noticed: float) -> float:
    return faster * (1 / LEAST_SEEN - 1) if faster > noticed else 0.0


def sentinel_shifts(runs: int, sentinels: Sentinels) -> list[float]:
    """Return each run's sentinel against the median stored one; 0 if there is none."""
    if len(sentinels.fresh) != runs:
        msg = f"{len(sentinels.fresh)} sentinels for {runs} runs, one each is needed"
        raise ValueError(msg)
    stored = _finite(sentinels.stored)
    if not stored:
        return [0.0] * runs
    typical = median(stored)
    return [
        fresh - typical if fresh is not None and isfinite(fresh) else 0.0
        for fresh in sentinels.fresh
    ]


def _sentinel_times(
    times: Mapping[str, Distribution], kind: DeviceKind
) -> list[float] | None:
    """Return the log time of each of a run's sentinels; low quantiles, as of steps."""
    if SENTINELS[0].name not in times:
        return None  # as of most devices, and a suite has many runs
    found = [times[m.name].location(kind) for m in SENTINELS if m.name in times]
    if len(found) < len(SENTINELS) or min(found) <= 0:
        return None
    return [log(ms) for ms in found]


def _pace(times: Sequence[float], typical: Sequence[float]) -> float:
    """Return the median change of *times* against the *typical* ones."""
    return median(now - then for now, then in zip(times, typical, strict=True))


def _noise(stored: Sequence[float]) -> float:
    if len(stored) < 2:  # noqa: PLR2004  one value has no spread
        return SENTINEL_NOISE
    return max(SENTINEL_NOISE, sqrt(scatter(stored) / (len(stored) - 1)))


def _finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if isfinite(value)]


# Whether the machine is as steady as it was when the baselines were recorded.
#
# What others do on a machine slows it for seconds or minutes: each run of that time is
# slow, and no number of them averages that out. It shows in how much the runs of one
# test differ, which code that is slower does not change.

FEWEST_CONFIRMED: Final = 3
"""Tests with several confirming runs below which they say nothing about the machine."""

ADDED: Final = 2.5
"""What others may add to a run over how much that differs from run to run.

On 2 cores of a shared machine it was 12 % of a step, give or take 4.5 %, for 30 s.
"""

UNSTEADY_RISK: Final = 0.05
"""Risk to take a machine for unsteady that is as steady as with the stored runs."""


def burst(runs: Iterable[Sequence[Measurement]], stored: Spread | None) -> float:
    """Return how far others may move a run, as a standard deviation in log time.

    *runs* are those of each call, oldest first, *stored* says how far stored ones scatter.
    0 if the runs scatter no further, by the F test of two variances, or nobody knows.
    """
    found = sorted(
        (scatter(logs), len(logs) - 1) for logs in map(_confirming, runs) if logs[1:]
    )
    # A test with runs that have become erratic must not excuse all others.
    common = found[:-1]
    nu = sum(freedom for _, freedom in common)
    if stored is None or len(common) < FEWEST_CONFIRMED:
        return 0.0
    variance = fsum(squares for squares, _ in common) / nu
    if f_sf(variance / stored.sigma**2, nu, stored.nu) >= UNSTEADY_RISK:
        return 0.0
    return ADDED * sqrt(variance - stored.sigma**2)


def _confirming(runs: Sequence[Measurement]) -> list[float]:
    """Return the logs of the clean step times after the first: that one was slow by choice."""
    found = readings(STEP_MS, [run for run in runs[1:] if not run.dirty])
    return [log(reading.value) for reading in found if reading.value > 0]
