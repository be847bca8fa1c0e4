"""The runs of one time: what was sampled in each, or what was kept of it."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...model.baseline import Entry
from ...model.environment import DeviceKind
from ...model.measurement import Distribution
from ...model.measurement import location
from ...model.verdict import Verdict
from ..numbers import metric_named


MOST_RUNS: Final = 20
"""Runs of one test that are drawn, the newest."""

SHOWN_SHARE: Final = 0.9
"""Share of a run's samples that the picture is made wide enough for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One run: where it lies, and what the picture must reach to show most of it."""

    location: float
    low: float
    high: float
    samples: tuple[float, ...] = ()


def strips_of(
    metric: str,
    entry: Entry | None,
    samples: Sequence[Mapping[str, Sequence[float]]],
    kind: DeviceKind,
) -> list[Strip]:
    """Return the runs of one call: from their *samples*, else from what *entry* keeps."""
    sampled = [tuple(sorted(run[metric])) for run in samples if run.get(metric)]
    if sampled:
        return [_sampled(metric, values, kind) for values in sampled][-MOST_RUNS:]
    runs = entry.runs if entry else ()
    kept = [run.times[metric] for run in runs if metric in run.times]
    return [
        Strip(location=_said(metric, times, kind), low=times.q10, high=times.q50)
        for times in kept
    ][-MOST_RUNS:]


def interval_of(judged: Sequence[Verdict]) -> tuple[float, float] | None:
    """Return the bounds of the first verdict that has any, in the metric's unit."""
    for verdict in judged:
        reference = verdict.limit if verdict.baseline is None else verdict.baseline
        if verdict.evidence is not None and reference is not None:
            evidence = verdict.evidence
            return reference * (1 + evidence.low), reference * (1 + evidence.high)
    return None


def _said(metric: str, found: Distribution, kind: DeviceKind) -> float:
    return location(metric_named(metric), found, kind)


def _sampled(metric: str, values: tuple[float, ...], kind: DeviceKind) -> Strip:
    """Sum up *values*, which ascend."""
    return Strip(
        location=_said(metric, Distribution.of(values), kind),
        low=values[0],
        high=values[int(SHOWN_SHARE * (len(values) - 1))],
        samples=values,
    )
