"""What is asked of a measurement, the time that it has, and what a phase of it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ..devices.base import Device, MeasuringDevice
from ..model.finding import Finding
from ..model.measurement import Distribution, Measurement, Samples, thinned
from ..model.metrics import (
    COLLECTIVE_BYTES,
    COLLECTIVES,
    LOADER_WAIT,
    METRICS,
    PEAK_ALLOCATED,
    RANK_PEAK,
    RANKED,
    SYNCS,
    MeasuringPhase,
    Metric,
    read_in,
)
from ..model.run import RunMode
from .step import Subject


# The cap on what measuring one test may cost.


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """A point on a clock of the device."""

    now_ns: Callable[[], int]
    at_ns: int

    @classmethod
    def after(cls, seconds: float, now_ns: Callable[[], int]) -> Deadline:
        return cls(now_ns=now_ns, at_ns=now_ns() + round(seconds * 1e9))

    def leaves(self, ms: float) -> bool:
        """Whether *ms* milliseconds of work still fit."""
        return self.now_ns() + ms * 1e6 <= self.at_ns

    def reserving(self, ms: float) -> Deadline:
        """Return the point *ms* milliseconds earlier: what comes later has them."""
        return replace(self, at_ns=self.at_ns - round(ms * 1e6))


# The progress callback of a measurement: called between steps, never in a timed round.

Follow = Callable[[str], object]
"""Takes what is being done, as ``round 12/20``; it returns in microseconds."""


def nobody(doing: str) -> None:
    """Follow nothing."""
    del doing


# What is asked.


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePlan:
    """What is to be measured of a call, and what that may cost.

    ``seconds`` caps the cost on the device's clocks. Metrics that are ``asked`` for by
    a budget or a baseline, by name, have up to ``MOST_CAPS`` times as long, and those that
    a budget of the test ``limited`` are said to be missing where the call leaves them out.
    With ``only_times`` the phases after the timed rounds are left out. Files go below
    ``artefacts`` and are named from ``root`` on. ``follow`` is called with the progress.
    """

    test: str
    seconds: float
    asked: Collection[str] = ()
    limited: Collection[str] = ()
    only_times: bool = False
    mode: RunMode = RunMode.MEASURE
    artefacts: Path = Path()
    root: Path = Path()
    follow: Follow = nobody

    def begun(self, device: Device, subject: Subject) -> Measurement:
        """Return what is known before a step: the metrics without a number, and why.

        That the call that made *subject* leaves it out is said of limited metrics only.
        """
        left_out = dict(_left_out(device, subject))
        why = {name: left_out[name] for name in left_out if name in self.limited}
        return Measurement(
            test=self.test,
            environment=device.environment(),
            unmeasured={**device.unmeasurable, **why},
        )


def _left_out(device: Device, subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield what *subject* cannot have, by metric, and how its author could ask for it."""
    if subject.batches is None:
        why = "gpuperf(step) fetches no batches: measure it with gpuperf.loader(loader, step)"
        yield LOADER_WAIT.name, why
    if not device.is_ranked:
        why = "this test has no ranks to compare: mark it with gpuperf.ranks(n)"
        yield from ((metric.name, why) for metric in RANKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A measurement and what the last step returned."""

    measurement: Measurement
    result: object


# The share of the time cap that is reserved for counts and sizes.

LEAST_ROUNDS: Final = 5
"""Rounds that a run times at least."""

MEMORY_STEPS: Final = 3

LATER_STEPS: Final = 1 + MEMORY_STEPS + 1 + 1
"""Steps that the phases after the timed rounds need: an isolated one, those watched for
memory, a profiled one and one for the compiler."""

COUNTING_STEPS: Final = 2
"""Steps that counts and sizes need at least: one for memory, one for the trace."""

MOST_RESERVED: Final = 0.5
"""Share of the cap beyond which nothing is reserved: times need the rest."""

ROUNDS_SHARE: Final = 0.25
"""Share of the cap that a warm-up leaves to the timed rounds at most."""

MOST_CAPS: Final = 3
"""Multiple of the cap that phases have if a budget or a baseline asks for them.

A step as long as the cap runs once first, once for memory and once for the trace.
"""

PREPARING_SECONDS: Final = 15.0
MOST_PREPARING_SECONDS: Final = 60.0
"""What set-up, imports and warm-up may take: the cap bounds measured steps alone.

As much as the steps, and the first of these more; but never more than the second.
"""


def longest_run(tests: int, seconds: float) -> float:
    """Return after how many seconds a run of *tests* is killed, of *seconds* each."""
    steps = MOST_CAPS * seconds
    return tests * (steps + min(steps + PREPARING_SECONDS, MOST_PREPARING_SECONDS))


def time_limit(seconds: float) -> str:
    """Return the option with which a user gives a test so many *seconds*."""
    return f"--gpuperf-seconds={seconds:g}"


LATER: Final = read_in(
    MeasuringPhase.ISOLATED,
    MeasuringPhase.MEMORY,
    MeasuringPhase.COMPILER,
    MeasuringPhase.TRACE,
)
"""Metrics that are not read off timed rounds."""

COMPILED_NAMES: Final = read_in(MeasuringPhase.COMPILER)

OF_ONE_RANK: Final = {
    RANK_PEAK.name: PEAK_ALLOCATED.name,
    COLLECTIVES.name: SYNCS.name,
    COLLECTIVE_BYTES.name: SYNCS.name,
}
"""The metric of each rank that is read in the same phase as a metric of all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShare:
    """The points in time at which the phases of a measurement must end.

    ``cap`` is the end for all. A phase may go on to ``limit`` if one of its metrics is
    ``asked`` for by a budget or a baseline, by name. Both are on the clock of the process,
    so that no other program decides what is counted. What is timed ends by the wall clock
    as well, at ``wall``.
    """

    cap: Deadline
    limit: Deadline
    wall: Deadline
    asked: frozenset[str] = frozenset()
    seconds: float = 0.0

    @classmethod
    def of(cls, plan: MeasurePlan, device: Device) -> TimeShare:
        """Return what a measurement on *device* has by *plan* from now on."""
        cap = Deadline.after(plan.seconds, device.own_now_ns)
        return cls(
            cap=cap,
            wall=Deadline.after(plan.seconds, device.now_ns),
            # A negative reserve moves the point later.
            limit=cap.reserving(-1e3 * (MOST_CAPS - 1) * plan.seconds),
            asked=frozenset(OF_ONE_RANK.get(name, name) for name in plan.asked),
            seconds=plan.seconds,
        )

    def timed(self, step_ms: float) -> Deadline:
        """Return when timing ends, so that later phases of such a step have time."""
        most_ms = 1e3 * MOST_RESERVED * self.seconds
        return self.wall.reserving(min(LATER_STEPS * step_ms, most_ms))

    def warm(self, step_ms: float) -> Deadline:
        """Return when a warm-up ends, so that rounds of such a step have time."""
        most_ms = 1e3 * ROUNDS_SHARE * self.seconds
        return self.timed(step_ms).reserving(min(LEAST_ROUNDS * step_ms, most_ms))

    def own_ms(self, step_ms: float) -> float:
        """Return what a step takes by the clock of the process, at its pace so far."""
        wall_ns, own_ns = (
            end.now_ns() - end.at_ns + self.seconds * 1e9
            for end in (self.wall, self.cap)
        )
        return step_ms * min(1.0, own_ns / wall_ns) if wall_ns > 0 else step_ms

    def asks_for(self, metrics: Collection[str]) -> bool:
        """Whether a budget or a baseline asks for one of *metrics*."""
        return not self.asked.isdisjoint(metrics)

    def until(self, metrics: Collection[str]) -> Deadline:
        """Return when a phase ends that reads *metrics*."""
        return self.limit if self.asks_for(metrics) else self.cap


# A phase, and what it finds.


@dataclass(slots=True, kw_only=True)
class PhaseContext:
    """A step on its device, its time, and the ``measurement`` so far.

    ``step_ms`` is what a step may take. Before the first later phase it ``has_room`` if
    some steps are left. From one phase for another is whether it ``saw_graphs`` of CUDA
    at work.
    """

    device: MeasuringDevice
    subject: Subject
    share: TimeShare
    measurement: Measurement
    step_ms: float
    has_room: bool = True
    saw_graphs: bool = False

    def leaves_room(self, metrics: Collection[str]) -> bool:
        """Whether the time that is left is enough for a phase that reads *metrics*."""
        may_overrun = self.share.asks_for(metrics)
        return self.has_room or (may_overrun and self.share.limit.leaves(self.step_ms))


class UntouchedError(Exception):
    """The step ran only on the host, so that nothing of what was read is that of a GPU."""


def untouched(measurement: Measurement) -> Measurement:
    """Remove all numbers: a step that ran only on the host must not look clean."""
    reason = "the step never touched the GPU"
    return replace(
        measurement,
        times={},
        samples={},
        exact={},
        unmeasured=dict.fromkeys(METRICS, reason),
    )


CUT_SHORT: Final = "the time cap was reached before this phase; raise --gpuperf-seconds"


def cut_short(
    measurement: Measurement, metrics: Collection[str] = LATER
) -> Measurement:
    """Say of *metrics*, those of all later phases, that the time cap left no room."""
    names = (n for n in METRICS if n in metrics and not measurement.why_none(n))
    return measurement.missing(dict.fromkeys(names, CUT_SHORT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a phase found, by metric name, why it did not, and the causes.

    As in a ``Measurement``; for what is ``cut`` it had too little time.
    """

    times: Mapping[str, Distribution] = field(default_factory=dict)
    samples: Samples = field(default_factory=dict)
    unwaited: Mapping[str, float] = field(default_factory=dict)
    exact: Mapping[str, int] = field(default_factory=dict)
    at_most: Mapping[str, str] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    missed: Mapping[str, str] = field(default_factory=dict)
    cut: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()
    remarks: tuple[str, ...] = ()

    @classmethod
    def of_samples(cls, metric: Metric, values: Sequence[float]) -> Found:
        """Return the *values* of a run of *metric*, and how they are spread."""
        times = {metric.name: Distribution.of(values)}
        return cls(times=times, samples={metric.name: thinned(values)})

    def added_to(self, measurement: Measurement) -> Measurement:
        """Return *measurement* with all of it."""
        added = replace(
            measurement.lacking(self.unmeasured).missing(self.missed),
            times={**measurement.times, **self.times},
            samples={**measurement.samples, **self.samples},
            unwaited={**measurement.unwaited, **self.unwaited},
            exact={**measurement.exact, **self.exact},
            at_most={**measurement.at_most, **self.at_most},
            findings=(*measurement.findings, *self.findings),
            remarks=(*measurement.remarks, *self.remarks),
        )
        return cut_short(added, self.cut)
