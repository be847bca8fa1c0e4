"""What one run found out about one test."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from statistics import fmean
from typing import Final

from .diagnosis import Diagnosis
from .environment import DeviceKind
from .environment import Environment
from .finding import Finding
from .quantity import Metric
from .quantity import Unit
from .ranks import ByRank


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
    return found.mean if metric.unit is Unit.PERCENT else found.location(kind)


def thinned(samples: Sequence[float]) -> tuple[float, ...]:
    """Return at most ``MOST_SAMPLES`` of *samples*, evenly spread, in their order."""
    count = len(samples)
    if count <= MOST_SAMPLES:
        return tuple(samples)
    last = MOST_SAMPLES - 1
    return tuple(samples[round(i * (count - 1) / last)] for i in range(MOST_SAMPLES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The very GPU that a run was measured on, as far as it can be seen.

    ``gpu`` is a fingerprint that no two GPUs of a model share, ``sm_mhz`` the clock
    right after the timed rounds.
    """

    gpu: str | None = None
    sm_mhz: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Everything one run measured about one call of ``gpuperf(step)``.

    ``times`` and ``exact`` are keyed by metric name, and so are ``samples``, what the
    times that a budget can limit were summed up from. ``unmeasured`` says per metric
    why the device has no number, ``missed`` why this run has none that another could
    have had. ``dirty`` holds reasons not to blame code for this run's
    times: contention, throttling, a step that never became steady. ``remarks`` say
    what else must be known to read the numbers. ``snapshot`` is the file that says what
    the allocator did, if that was recorded, ``trace`` the one of a traced step.
    ``by_rank`` is what the ranks showed that ran the step together, ``diagnosis`` what
    the step waits for.
    """

    test: str
    environment: Environment
    times: Mapping[str, Distribution] = field(default_factory=dict)
    exact: Mapping[str, int] = field(default_factory=dict)
    samples: Samples = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    missed: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    dirty: tuple[str, ...] = ()
    board: Board = field(default_factory=Board)
    remarks: tuple[str, ...] = ()
    snapshot: str = ""
    trace: str = ""
    by_rank: ByRank | None = None
    diagnosis: Diagnosis | None = None
