"""Counts and bytes against the stored baseline: no statistics, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..model.baseline import RunSummary
from ..model.measurement import Measurement
from ..model.metric import Metric
from ..model.verdict import Outcome
from ..model.verdict import Verdict
from .readings import least_values
from .readings import readings
from .wording import against
from .wording import figure


def judge_exact(
    metric: Metric,
    runs: Sequence[Measurement],
    stored: Sequence[float],
    *,
    tolerance: float,
    torch: tuple[str, str] | None = None,
) -> Verdict:
    """Judge a count or size against *stored*, the ascending values of the stored runs.

    At least one of *runs* and one stored run have the metric. What the stored runs
    varied by themselves is the reference; one more run confirms a change. *torch*
    names its versions then and now where they differ: then nothing is blamed on the
    test.
    """
    values = [reading.value for reading in readings(metric, runs)]
    steady = least_values(metric, runs)
    low, high, lowest, highest = min(steady), max(steady), stored[0], stored[-1]
    beneath = bytes_beneath(metric, runs)
    limit = highest + margin(metric, highest - beneath, tolerance)
    verdict = partial(Verdict, metric=metric.name, baseline=highest, limit=limit)
    if low > limit and torch:
        because = f"environment changed: torch {torch[0]} -> {torch[1]}"
        return verdict(
            outcome=Outcome.INCONCLUSIVE,
            because=because,
            now=low,
            environment_changed=True,
        )
    if low > limit:
        because = f"{against(metric, low, highest)} stored, {_in_runs(values)}"
        settled = len(values) > 1
        return verdict(
            outcome=Outcome.REGRESSED, because=because, now=low, settled=settled
        )
    if high > limit:
        because = f"{figure(metric, high)} in one run, {figure(metric, low)} in another"
        return verdict(outcome=Outcome.INCONCLUSIVE, because=because, now=low)
    high = max(values)
    if high < lowest - margin(metric, lowest - beneath, tolerance):
        because = f"{against(metric, high, lowest)} stored, {_in_runs(values)}"
        settled = len(values) > 1
        return verdict(
            outcome=Outcome.IMPROVED, because=because, now=high, settled=settled
        )
    because = (
        f"{against(metric, high, highest)} stored{_varying(metric, steady, values)}"
    )
    return verdict(outcome=Outcome.PASS, because=because, now=high)


def margin(metric: Metric, reference: float, tolerance: float) -> float:
    """Return the change, in the metric's unit, that both tolerance and floor ignore."""
    return max(metric.floor, tolerance * reference)


def bytes_beneath(
    metric: Metric, runs: Sequence[Measurement] | Sequence[RunSummary]
) -> int:
    """Return what of *metric* is not the step's own, of which no tolerance is taken.

    Runs that were stored before it was recorded do not say.
    """
    return max((run.exact.get(metric.beneath, 0) for run in runs), default=0)


def _varying(metric: Metric, steady: Sequence[float], values: Sequence[float]) -> str:
    """Say why a count above the limit passes: not every step has so many."""
    if list(steady) == list(values):
        return ""
    return f", and {figure(metric, min(steady))} in another step"


def _in_runs(values: Sequence[float]) -> str:
    return "in 1 run" if len(values) == 1 else f"in each of {len(values)} runs"
