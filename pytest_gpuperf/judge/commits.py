"""Two versions of one call, judged by runs in pairs of fresh processes."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import replace
from math import exp
from math import log
from statistics import median
from typing import Final

from ..model.budget import Tolerance
from ..model.commit_comparison import CallChange
from ..model.commit_comparison import ExactChange
from ..model.commit_comparison import TimeChange
from ..model.commit_comparison import Turn
from ..model.comparison import Answer
from ..model.comparison import Comparison
from ..model.measurement import Measurement
from ..model.metric import AUDITED
from ..model.metric import METRICS
from ..model.metric import STEP_MS
from ..model.metric import Kind
from ..model.metric import Metric
from ..model.step_metric import COMPILED
from ..model.step_metric import LAUNCHED
from .allowance import DETECT_ABOVE_TOLERANCE
from .allowance import floored
from .allowance import noticed
from .allowance import tolerated
from .exact import margin
from .pairs import LOOKS
from .pairs import judge_pairs
from .pairs import pair_rule
from .reading import impossible
from .reading import readings
from .reference import Limits
from .ruling import Rule
from .ruling import in_words


LEAST_PAIRS: Final = LOOKS[0]
MOST_PAIRS: Final = LOOKS[-1]

CONFIRMED: Final = 2
"""Pairs that must agree on an exact change."""

TOLD: Final = (*AUDITED, *LAUNCHED, *COMPILED)
"""What no baseline gates, and is told of where it changed."""

COMPARED: Final = tuple(
    metric
    for metric in METRICS.values()
    if metric.kind is Kind.EXACT and (metric.gated or metric in TOLD)
)

Pair = tuple[Measurement, Measurement]
"""One run of ``before`` and one of ``after``."""


def judge_call(
    pairs: Sequence[Pair],
    tolerance: Tolerance,
    *,
    last: bool = False,
    together: TimeChange | None = None,
) -> CallChange:
    """Judge one call by its *pairs*, at least one, oldest first.

    ``last`` says that there will be no more. Where both were measured *together*, in
    one process, the pairs count for what is exact alone. Raises ``UsageError`` for a
    tolerance that leaves no room for a verdict.
    """
    before, after = zip(*pairs, strict=True)
    newest = after[-1]
    why, lost = _why_no_time((*before, *after))
    time = None if why else together or _judge_time(pairs, tolerance, last=last)
    exact = tuple(_exact_changes(before, after, tolerance))
    more = len(pairs) < CONFIRMED and any(change.gated for change in exact)
    undecided = time is not None and time.answer is Answer.MORE
    return CallChange(
        test=newest.test,
        pairs=len(pairs),
        time=time,
        no_time=why,
        lost=lost,
        exact=exact,
        findings=newest.findings,
        settled=last or not (more or undecided),
    )


def limits_together(pair: Pair, tolerance: Tolerance) -> Limits | None:
    """Return the limits of a comparison in one process; ``None`` where there is no time.

    The *pair* says how long a step takes: an absolute floor counts in parts of that.
    """
    why, _ = _why_no_time(pair)
    return None if why else _limits(_step_ms(pair[0]), tolerance)


def judge_together(comparison: Comparison, seconds: float) -> TimeChange | None:
    """Return what a *comparison* in one process says, of which a run took *seconds*.

    ``None`` where it has no numbers.
    """
    if comparison.speedup is None:
        return None
    low, high = comparison.low, comparison.high
    return TimeChange(
        answer=comparison.verdict,
        why=comparison.why,
        ratio=1 / comparison.speedup,
        low=None if high is None else 1 / high,
        high=None if low is None else 1 / low,
        smallest=comparison.smallest_slowdown,
        before_ms=comparison.before_ms or 0.0,
        after_ms=comparison.after_ms or 0.0,
        pairs=0,
        steps=comparison.steps,
        seconds=seconds,
    )


def _why_no_time(runs: Sequence[Measurement]) -> tuple[str, bool]:
    """Say why some run has no usable time, and whether another could have had one."""
    for run in runs:
        if STEP_MS.name in run.unmeasured:
            return run.unmeasured[STEP_MS.name], False
        if STEP_MS.name not in run.times:
            return run.missed.get(STEP_MS.name, "no time was measured"), True
    nonsense = impossible(STEP_MS, runs)
    return nonsense or "", nonsense is not None


def _judge_time(
    pairs: Sequence[Pair], tolerance: Tolerance, *, last: bool
) -> TimeChange:
    """Judge by the pairs that nothing disturbed; show all of them if they are too few.

    A neighbour that doubles some times makes three pairs agree by luck: on a busy
    machine it is no evidence that they do.
    """
    clean = [pair for pair in pairs if not (pair[0].dirty or pair[1].dirty)]
    if len(clean) == len(pairs) or len(clean) >= LEAST_PAIRS:
        return _change(clean, tolerance, last=last)
    change = _change(pairs, tolerance, last=False)
    disturbed = ", ".join(
        dict.fromkeys(r for p in pairs for run in p for r in run.dirty)
    )
    return replace(
        change,
        answer=Answer.INCONCLUSIVE if last else Answer.MORE,
        why=f"{len(pairs) - len(clean)} of {len(pairs)} pairs were disturbed: {disturbed}",
    )


def _change(pairs: Sequence[Pair], tolerance: Tolerance, *, last: bool) -> TimeChange:
    times = [(_step_ms(before), _step_ms(after)) for before, after in pairs]
    before_ms = median(before for before, _ in times)
    rule = _rule(before_ms, tolerance)
    ruling = judge_pairs([log(b / a) for a, b in times], rule, last=last)
    return TimeChange(
        answer=ruling.answer,
        why=in_words(ruling, rule),
        ratio=exp(ruling.change),
        low=None if ruling.low is None else exp(ruling.low),
        high=None if ruling.high is None else exp(ruling.high),
        smallest=ruling.smallest,
        before_ms=before_ms,
        after_ms=median(after for _, after in times),
        pairs=len(pairs),
    )


def _step_ms(run: Measurement) -> float:
    return run.times[STEP_MS.name].location(run.environment.hardware.kind)


def _rule(typical_ms: float, tolerance: Tolerance) -> Rule:
    limits = _limits(typical_ms, tolerance)
    return pair_rule(limits.tolerance, limits.detect)


def _limits(typical_ms: float, tolerance: Tolerance) -> Limits:
    """Return the limits of time; an absolute floor counts in parts of the time."""
    limits = Limits.of(
        typical_ms,
        tolerance=tolerated(STEP_MS, tolerance),
        detect=noticed(STEP_MS, tolerance),
        floor=floored(STEP_MS, tolerance).floor,
    )
    detect = limits.detect
    if detect <= limits.tolerance:
        detect = limits.tolerance + DETECT_ABOVE_TOLERANCE
    return replace(limits, detect=detect)


def _exact_changes(
    before: Sequence[Measurement], after: Sequence[Measurement], tolerance: Tolerance
) -> Iterator[ExactChange]:
    for metric in COMPARED:
        then = [reading.value for reading in readings(metric, before)]
        now = [reading.value for reading in readings(metric, after)]
        if then and now:
            yield from _exact_change(metric, then, now, tolerance)


def _exact_change(
    metric: Metric, then: Sequence[float], now: Sequence[float], tolerance: Tolerance
) -> Iterator[ExactChange]:
    """Compare the runs that are closest: what a side varies by itself is no change."""
    ratio, metric = tolerated(metric, tolerance), floored(metric, tolerance)
    limit = max(then) + margin(metric, max(then), ratio)
    least = min(then) - margin(metric, min(then), ratio)
    if min(now) > limit:
        turn, old, new = Turn.WORSE, max(then), min(now)
    elif max(now) < least:
        turn, old, new = Turn.BETTER, min(then), max(now)
    elif max(now) > limit:
        turn, old, new = Turn.VARIES, max(then), max(now)
    else:
        return
    yield ExactChange(
        metric=metric.name, before=old, after=new, turn=turn, gated=metric.gated
    )
