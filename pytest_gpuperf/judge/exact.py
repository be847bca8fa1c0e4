"""Counts and bytes against the stored baseline: no statistics, both ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final

from ..model.baseline import FULL_RUNS, RunSummary
from ..model.finding import (
    CALLED,
    MOST_LINES_OF_FINDING,
    STORED,
    Finding,
    FindingKind,
    Key,
    StoredLine,
    file_of,
    is_stored,
    key_of,
    key_of_line,
)
from ..model.measurement import FurtherSteps, Measurement, raised_early, shared_steps
from ..model.metrics import Metric, Unit
from ..model.verdict import Outcome, Verdict
from .readings import against, figure, least_values, readings


def compared(
    findings: Sequence[Finding], lines: Sequence[StoredLine] | None
) -> tuple[Finding, ...]:
    """Say of each of *findings* what its line did when *lines* were stored.

    ``None`` for lines that nobody stored: nothing is known to be new. Lines that run
    operations say something where they run more of them than before, and lines that
    call those only where they are new.
    """
    if lines is None:
        return tuple(f for f in findings if f.kind is not FindingKind.WORK)
    return tuple(_compared(findings, lines))


def _compared(
    findings: Sequence[Finding], lines: Sequence[StoredLine]
) -> Iterator[Finding]:
    stored: Counter[tuple[str, Key]] = Counter()
    for line in lines:
        stored[line.file, key_of_line(line)] += line.per_step
    unknown = _unknown(lines)
    now: Counter[tuple[str, Key]] = Counter()
    for finding in findings:
        now[file_of(finding), key_of(finding)] += finding.per_step
    for finding in findings:
        if not is_stored(finding):
            yield finding
            continue
        file, key = file_of(finding), key_of(finding)
        before, after = _stored(stored, file, key), now[file, key]
        is_more = after > (before or unknown.get(key[0], 0))
        # A call that does more may have been left out when it did less.
        is_old_call = finding.op == CALLED and (before or key[0] in unknown)
        if is_more and not is_old_call:
            yield replace(finding, stored=before)
        elif finding.kind is not FindingKind.WORK:
            yield replace(finding, stored=finding.per_step)


def _unknown(lines: Sequence[StoredLine]) -> Mapping[str, float]:
    """Return how often lines did it that were left out, by kind.

    Of the last kind none did more than its last line; of those after it nothing is known.
    How much a call does is not stored.
    """
    if len(lines) < MOST_LINES_OF_FINDING:
        return {}
    kinds, last = [kind.value for kind in STORED], lines[-1]
    behind = kinds[kinds.index(last.kind) + 1 :]
    counts = (ln.per_step for ln in lines if ln.kind == last.kind and ln.op != CALLED)
    return {last.kind: min(counts, default=inf), **dict.fromkeys(behind, inf)}


def _stored(counts: Mapping[tuple[str, Key], int], file: str, key: Key) -> int:
    """Return how often a line did it; where the file has another name, by any file."""
    here = counts.get((file, key), 0)
    others = (count for (_, known), count in counts.items() if known == key)
    return here or max(others, default=0)


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
    varied by themselves is the reference; more runs confirm a change. *torch*
    names its versions then and now where they differ: then nothing is blamed on the
    test.
    """
    values = [reading.value for reading in readings(metric, runs)]
    steady = least_values(metric, runs)
    low, high, lowest, highest = min(steady), max(steady), stored[0], stored[-1]
    beneath = bytes_beneath(metric, runs)
    ignored = margin(metric, highest - beneath, tolerance)
    limit = highest + ignored
    least = lowest - margin(metric, lowest - beneath, tolerance)
    verdict = partial(Verdict, metric=metric.name, baseline=highest, limit=limit)
    if low > limit and torch:
        because = f"environment changed: torch {torch[0]} -> {torch[1]}"
        return verdict(
            outcome=Outcome.INCONCLUSIVE,
            because=because,
            now=low,
            environment_changed=True,
        )
    varied = highest - lowest > ignored
    if low > limit or max(values) < least:
        if varied and len(stored) < PROVING_RUNS:
            return _untold(metric, values, stored, verdict, is_worse=low > limit)
        outcome = Outcome.REGRESSED if low > limit else Outcome.IMPROVED
        return _changed(metric, runs, stored, verdict, outcome)
    if varied:
        because = _ranges(metric, values, stored)
        return verdict(outcome=Outcome.PASS, because=because, now=high)
    if high > limit:
        because = f"{figure(metric, high)} in one run, {figure(metric, low)} in another"
        return verdict(outcome=Outcome.INCONCLUSIVE, because=because, now=low)
    high = max(values)
    because = (
        f"{against(metric, high, highest)} stored{_varying(metric, steady, values)}"
    )
    return verdict(outcome=Outcome.PASS, because=because, now=high)


def judge_further(  # noqa: PLR0913  keywords, each a number of its own
    usual: Metric,
    metric: Metric,
    runs: Sequence[Measurement],
    stored: Sequence[RunSummary],
    *,
    tolerance: float,
    torch: tuple[str, str] | None = None,
) -> Iterator[Verdict]:
    """Judge by *metric* what further steps did beyond the *usual* of each step.

    Only the steps count that all looked at, and only a change is worth a verdict.
    """
    fresh = [(run, run.further) for run in runs if run.further]
    known = [run.further for run in stored if run.further]
    if not fresh or not known:
        return
    steps, beyond = beyond_usual(usual, [*(look for _, look in fresh), *known])
    read = counted_as(metric, [run for run, _ in fresh], beyond)
    before = sorted(beyond[len(fresh) :])
    verdict = judge_exact(metric, read, before, tolerance=tolerance, torch=torch)
    if verdict.outcome is not Outcome.PASS:
        because = (
            f"{verdict.because}, of the {len(steps)} further steps that both looked at"
        )
        yield replace(verdict, because=because)
    elif raised := raised_early([*(look for _, look in fresh), *known]):
        because = f"{raised}, and the baseline has later steps"
        yield replace(verdict, outcome=Outcome.INCONCLUSIVE, because=because)


def beyond_usual(
    usual: Metric, looks: Sequence[FurtherSteps]
) -> tuple[range, list[int]]:
    """Return the steps that all *looks* share, and what each saw there beyond the *usual*."""
    steps = shared_steps(looks)
    most = max(look.usual.get(usual.name, 0) for look in looks)
    return steps, [look.beyond(usual.name, most, steps) for look in looks]


def counted_as(
    metric: Metric, runs: Sequence[Measurement], counts: Sequence[int]
) -> list[Measurement]:
    """Return the *runs* with the first of *counts* as all that was counted in them."""
    return [
        replace(run, exact={metric.name: count}, least={})
        for run, count in zip(runs, counts, strict=False)
    ]


PROVING_RUNS: Final = FULL_RUNS
"""Runs that prove a change of what varies: that those of now all lie beyond all stored
ones, eight of the same code, has a chance of 1 in C(16, 8), 12870."""


def _changed(
    metric: Metric,
    runs: Sequence[Measurement],
    stored: Sequence[float],
    verdict: partial[Verdict],
    outcome: Outcome,
) -> Verdict:
    """Judge runs that all lie beyond the stored ones: those of one value need few."""
    values = [reading.value for reading in readings(metric, runs)]
    is_worse = outcome is Outcome.REGRESSED
    now, nearest = (min(values), stored[-1]) if is_worse else (max(values), stored[0])
    is_drawn = is_random(metric, runs, stored, values)
    because = f"{against(metric, now, nearest)} stored, {in_runs(values)}"
    if _differ(stored, values):
        because = f"{_ranges(metric, values, stored)}, {in_runs(values)}{OWN_DRAWS}"
    elif is_drawn:
        because += by_chance(runs)
    settled = len(values) >= (PROVING_RUNS if is_drawn else 2)
    proving = is_worse and is_drawn and not settled
    return verdict(
        outcome=outcome, because=because, now=now, settled=settled, proving=proving
    )


def is_random(
    metric: Metric, runs: Sequence[Measurement], *values: Sequence[float]
) -> bool:
    """Whether *values* that runs of the same code gave differ, or others could.

    What one of *runs* drew from the operating system may differ in the next, and so may
    the memory of a convolution where cuDNN chooses the fastest plan each time.
    """
    by_time = metric.unit is Unit.BYTES and any(
        run.environment.software.get("cudnn.benchmark") == "True" for run in runs
    )
    return by_time or any(run.unseeded for run in runs) or _differ(*values)


def _differ(*values: Sequence[float]) -> bool:
    return any(len({*each}) > 1 for each in values)


OWN_DRAWS: Final = ", each with random numbers of its own"

BY_CHANCE: Final = ", as unseeded random numbers or a clock may change them"


def by_chance(runs: Sequence[Measurement]) -> str:
    """Say what lets the *runs* choose, and that fewer would do without it."""
    where = next((run.unseeded for run in runs if run.unseeded), "")
    why = f": {where}, without which two runs are enough" if where else ""
    return f"{BY_CHANCE}{why}"


def _untold(
    metric: Metric,
    values: Sequence[float],
    stored: Sequence[float],
    verdict: partial[Verdict],
    *,
    is_worse: bool,
) -> Verdict:
    """Say that too few runs were stored of what varies."""
    because = (
        f"{_ranges(metric, values, stored)}; {len(stored)} stored runs do not tell, a "
        f"refresh takes {PROVING_RUNS}"
    )
    if is_worse:
        return verdict(outcome=Outcome.INCONCLUSIVE, because=because, now=min(values))
    return verdict(outcome=Outcome.PASS, because=because, now=max(values))


def _ranges(metric: Metric, values: Sequence[float], stored: Sequence[float]) -> str:
    return (
        f"it varies from run to run: {_range(metric, stored)} stored, "
        f"{_range(metric, values)} now"
    )


def _range(metric: Metric, values: Sequence[float]) -> str:
    low, high = figure(metric, min(values)), figure(metric, max(values))
    return low if low == high else f"{low} to {high}"


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


def without_beneath(metric: Metric, runs: Sequence[Measurement]) -> list[Measurement]:
    """Return the *runs* that have *metric* with the step's own part of it alone."""
    beneath, known = (
        bytes_beneath(metric, runs),
        [r for r in runs if metric.name in r.exact],
    )
    return counted_as(metric, known, [r.exact[metric.name] - beneath for r in known])


def _varying(metric: Metric, steady: Sequence[float], values: Sequence[float]) -> str:
    """Say why a count above the limit passes: not every step has so many."""
    if list(steady) == list(values):
        return ""
    return f", and {figure(metric, min(steady))} in another step"


def in_runs(values: Sequence[object]) -> str:
    """Say in how many runs: each gave one of *values*."""
    return "in 1 run" if len(values) == 1 else f"in each of {len(values)} runs"
