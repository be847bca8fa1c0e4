"""The result of one run for one call of a test, of each of its ranks, or as predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from operator import attrgetter
from statistics import fmean
from typing import Final

from .codec import RARELY
from .environment import DeviceKind, Environment
from .finding import Finding, LineWork
from .metrics import Metric, Unit


MOST_SAMPLES: Final = 50
"""Samples of a metric that are kept of one run: enough for a picture."""

Samples = Mapping[str, tuple[float, ...]]
"""What a run read of its noisy metrics, by metric name and in the metric's unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Summary of a noisy metric's samples in one run, in the metric's unit."""

    q10: float
    q25: float
    q50: float
    mean: float
    samples: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Distribution:
        """Summarise *samples*, at least one.

        Quantiles interpolate linearly between order statistics (Hyndman and Fan's
        type 7, the default of numpy).
        """
        ordered = sorted(samples)
        return cls(
            q10=_quantile(ordered, 0.10),
            q25=_quantile(ordered, 0.25),
            q50=_quantile(ordered, 0.50),
            mean=fmean(ordered),
            samples=len(ordered),
        )

    def location(self, kind: DeviceKind) -> float:
        """Lower quartile of a run's times; their first decile on the cpu device.

        Disturbances only ever add time, so low quantiles vary least from run to run;
        a CPU shared with other work needs the lower one.
        """
        return self.q10 if kind is DeviceKind.CPU else self.q25


def _quantile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def location(metric: Metric, found: Distribution, kind: DeviceKind) -> float:
    """Return what a run on a device of this *kind* says of the noisy *metric*.

    Of a share it is the mean: batches come in bursts, and a low quantile is that of
    rounds that had no need to wait.
    """
    return locating(metric, kind)(found)


def locating(metric: Metric, kind: DeviceKind) -> Callable[[Distribution], float]:
    """Return what reads that of a run, for those who read many."""
    if metric.unit is Unit.PERCENT:
        return _MEAN
    return _FIRST_DECILE if kind is DeviceKind.CPU else _LOWER_QUARTILE


_MEAN: Final = attrgetter("mean")
_FIRST_DECILE: Final = attrgetter("q10")
_LOWER_QUARTILE: Final = attrgetter("q25")


def thinned(samples: Sequence[float]) -> tuple[float, ...]:
    """Return at most ``MOST_SAMPLES`` of *samples*, evenly spread, in their order."""
    count = len(samples)
    if count <= MOST_SAMPLES:
        return tuple(samples)
    # The first and the last sample are always among them.
    last = MOST_SAMPLES - 1
    return tuple(samples[round(i * (count - 1) / last)] for i in range(MOST_SAMPLES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The very GPU that a run was measured on, as far as it can be seen.

    ``gpu`` is a fingerprint that no two GPUs of a model share, ``sm_mhz`` its clock
    while it worked on steps right after the timed rounds.
    """

    gpu: str | None = None
    sm_mhz: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherSteps:
    """A look at the steps from ``first`` to ``last``, and what those did that did more.

    Steps are numbered from the first that the process ran, so that what comes every
    seventh step does so in each run. ``counts`` has, by the metric of a step, the number of
    each of those and its count, and ``usual`` what each step does, if that is not nothing.
    ``raised`` says which step ended the look by an error.
    """

    first: int
    last: int
    usual: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    raised: str = ""

    def beyond(self, metric: str, usual: int, steps: range) -> int:
        """Sum up what *steps* did beyond a *usual* one."""
        found = (count for n, count in self.counts.get(metric, ()) if n in steps)
        return sum(max(0, count - usual) for count in found)


def raised_early(looks: Sequence[FurtherSteps]) -> str:
    """Say which step of a look raised that another one got beyond; empty if none did."""
    last = max((look.last for look in looks), default=0)
    return next((look.raised for look in looks if look.raised and look.last < last), "")


def shared_steps(looks: Sequence[FurtherSteps]) -> range:
    """Return the steps that all *looks*, at least one, looked at."""
    first, last = max(k.first for k in looks), min(k.last for k in looks)
    return range(first, last + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Everything one run measured about one call of ``gpuperf(step)``.

    ``times`` and ``exact`` are keyed by metric name, and so are ``samples``, what the
    times that a budget can limit were summed up from. ``unmeasured`` says per metric why
    the device has no number, ``missed`` why this run has none that another could have
    had. ``least`` has the count of the step with the least, where the steps of the run
    differ in a count that chance may move. ``dirty`` has reasons not to blame code for
    this run's times: contention, throttling, a step that never became steady; ``at_most``
    says why a number is a bound, and the true one mostly smaller; ``unwaited`` is what is
    left of a time, in ms, without what threads waited for a core. ``round_steps`` are the
    steps between two synchronisations, if the device queues steps: times of other numbers
    of steps are not comparable. ``remarks`` say what else must be known to read the
    numbers. ``snapshot`` is the file that says what the allocator did, if that was
    recorded, ``trace`` the one of a traced step. ``by_rank`` is what the ranks showed
    that ran the step together, ``further`` is the look at further steps, if no period was
    named. ``unseeded`` says that its process drew random numbers from the operating
    system, or could have asked a clock: the next one may draw or choose otherwise.
    ``operations`` are those of one step.
    """

    test: str
    environment: Environment
    times: Mapping[str, Distribution] = field(default_factory=dict)
    exact: Mapping[str, int] = field(default_factory=dict)
    samples: Samples = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    missed: Mapping[str, str] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    dirty: tuple[str, ...] = ()
    at_most: Mapping[str, str] = field(default_factory=dict)
    unwaited: Mapping[str, float] = field(default_factory=dict)
    board: Board = field(default_factory=Board)
    round_steps: int | None = None
    remarks: tuple[str, ...] = ()
    snapshot: str = ""
    trace: str = ""
    by_rank: ByRank | None = None
    further: FurtherSteps | None = None
    unseeded: str = ""
    operations: tuple[LineWork, ...] = field(default=(), metadata=RARELY)

    def lacking(self, reasons: Mapping[str, str]) -> Measurement:
        """Return it with the *reasons*, by metric, why the device has no number."""
        return replace(self, unmeasured={**self.unmeasured, **reasons})

    def missing(self, reasons: Mapping[str, str]) -> Measurement:
        """Return it with the *reasons* why this run has no number, if another could."""
        return replace(self, missed={**self.missed, **reasons})

    def explained_by(self, seen: Measurement) -> Measurement:
        """Return it with what *seen* says of the same step, but for the times.

        Nothing if this run has read counts or sizes itself.
        """
        if self.exact:
            return self
        return replace(
            self,
            exact=seen.exact,
            least=seen.least,
            unmeasured=seen.unmeasured,
            missed={**seen.missed, **self.missed},
            findings=seen.findings,
            further=seen.further,
            remarks=seen.remarks,
            snapshot=seen.snapshot,
            operations=seen.operations,
        )

    def why_none(self, metric: str) -> str:
        """Return why there is no number of *metric*; nothing if nobody said."""
        return self.unmeasured.get(metric) or self.missed.get(metric, "")


# The predicted memory of a program on a GPU.


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Peaks over the ``steps`` that were run, and the use of memory at the larger one.

    ``not_checked`` says what of the program only a GPU can tell; then every number is
    a guess. ``notes`` say what else must be known to read the numbers. ``as_eager`` says
    that the program compiles code, and the numbers are those of eager code. Only Python's
    garbage collector frees ``garbage_bytes`` of each step, and where it does not run all
    steps need ``uncollected_bytes``. Each step leaves ``growth_bytes``, if steps do alike;
    the program would have gone on where it ``was_ended``.
    """

    allocated_bytes: int
    reserved_bytes: int
    steps: int
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    as_eager: bool = False
    garbage_bytes: int = 0
    uncollected_bytes: int = 0
    growth_bytes: int = 0
    was_ended: bool = False


class Fit(Enum):
    """Whether a program fits a GPU."""

    FITS = "fits"
    TOO_LARGE = "does not fit"
    TOO_CLOSE = "is too close to tell"
    UNKNOWN = "cannot be judged"
    """Only a GPU can judge what the program does."""


class Saving(Enum):
    """A known way to need less memory, in the words of who would write it."""

    EARLY_ZERO_GRAD = "zero_grad(set_to_none=True) before the forward"
    FOR_LOOP = "foreach=False in the optimizer"
    FUSED = "fused=True in the optimizer"
    CHECKPOINT = "checkpointing of the repeated blocks"
    HALF_BATCH = "half the batch, accumulated over two"


# Ranks: how many a test asks for, and what each of them showed.


# A launcher's ranks: which of them a process is, and where their store is.


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One kind of collective operation in a step: ``calls`` and the bytes of them all.

    The bytes of one are those of its larger side, as NCCL's own tests count them: what
    an all-gather gives, what a reduce-scatter takes.
    """

    kind: str
    calls: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ByRank:
    """What the ranks of one step showed, by rank: median times, and memory at the peak.

    ``collectives`` are those of the rank that starts most of them. In a profiled step
    collectives ran for ``communication_ms``, of which computation hid all but
    ``exposed_ms``; both are empty if no trace shows them.
    """

    step_ms: tuple[float, ...] = ()
    peak_bytes: tuple[int, ...] = ()
    collectives: tuple[Collective, ...] = ()
    communication_ms: tuple[float, ...] = ()
    exposed_ms: tuple[float, ...] = ()

    @property
    def slowest(self) -> int:
        """Rank with the longest median step; the first of them."""
        return self.step_ms.index(max(self.step_ms))

    @property
    def skew(self) -> float | None:
        """Slowest median over the fastest; ``None`` if a time is missing."""
        if not self.step_ms or min(self.step_ms) <= 0:
            return None
        return max(self.step_ms) / min(self.step_ms)
