"""Pairs of fresh processes, one of each version: each pair is a unit.

A process has lasting luck, in memory layout or in the algorithms it settles on, that
no number of steps averages out: the steps of two processes that take turns are not
exchangeable. So each pair gives one number, and the spread is that of these numbers
alone: a spread assumed beforehand blames whoever varies more than that. What a process
draws once, by the system's randomness or by autotuning, is luck as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, expm1, inf, isfinite, log, log1p, sqrt
from statistics import NormalDist, fmean, median, stdev
from typing import Final

from ..errors import ErrorId, RunError, UsageError
from ..model.ab import AbResult, Answer, Comparison, ExactChange, Turn
from ..model.budget import Tolerance
from ..model.finding import stored_lines
from ..model.measurement import Measurement, raised_early, shared_steps
from ..model.metrics import (
    AUDITED,
    COMPILED,
    GRAPH_BREAKS,
    METRICS,
    OCCASIONAL,
    RECOMPILES,
    SPEEDUP,
    STEP_MS,
    Metric,
    MetricKind,
)
from .exact import (
    PROVING_RUNS,
    beyond_usual,
    bytes_beneath,
    compared,
    counted_as,
    is_random,
    margin,
)
from .operations import blamed
from .readings import Limits, despite, impossible, metric_of, percent, readings, signed
from .statistics import Shift
from .verdict import DETECT_ABOVE_TOLERANCE, floored, noticed, tolerated


PAIR_LOOKS: Final = (3, 5, 8)
PAIR_ALPHA: Final = 0.01
PAIR_BETA: Final = 0.05

LEAST_ERROR: Final = 0.001
"""Standard error of a mean that three pairs which agree by luck cannot undercut."""

FEWEST_TO_BLAME: Final = 5
"""A size that is one of two, drawn by each process, is larger in ``after`` in one pair of
four: in five pairs by chance once in a thousand times, which no spread would tell."""

NULL_ALPHA: Final = 0.0005
"""Risk that a change is claimed where processes differ by luck alone."""

_LEAST_PAIRS: Final = 2


def pair_schedule(tolerance: float, detect: float) -> Schedule:
    """Return the schedule of pairs; raise ``UsageError`` for limits that make none."""
    return Schedule(
        tolerance=tolerance,
        detect=detect,
        alpha=PAIR_ALPHA,
        beta=PAIR_BETA,
        looks=PAIR_LOOKS,
    )


def judge_pairs(
    differences: Sequence[float],
    schedule: Schedule,
    *,
    last: bool = False,
) -> AbResult:
    """Judge pairs of fresh processes by Student's t.

    Each difference is the logarithm of a step's lower quartile in ``after`` minus that
    in ``before``. ``last`` says that there will be no more pairs. Raises ``RunError``
    if a difference is not finite or there is none.
    """
    _refuse_unusable(differences)
    pairs, change = len(differences), fmean(differences)
    decided: Decided = (schedule.inconclusive(pairs, last=last), None)
    interval: Interval = (None, None)
    smallest = None
    if pairs >= _LEAST_PAIRS:
        # Three pairs may agree by luck, and Student's t would take that for precision.
        error = max(stdev(differences) / sqrt(pairs), LEAST_ERROR)
        shift = Shift(estimate=change, error=error, nu=pairs - 1)
        risk = (1 - CONFIDENCE) / 2
        interval = (shift.least(risk), shift.most(risk))
        smallest = _smallest(schedule, shift, pairs)
        decided = (Answer.MORE, None)
        if schedule.looks_at(pairs, last=last):
            decided = _decide(shift, pairs, schedule, last=last)
    evidence = f"t-test over {pairs} {'pair' if pairs == 1 else 'pairs'} of processes"
    found = schedule.result(decided, change, interval, smallest, evidence)
    return replace(found, pairs=pairs)


def _decide(shift: Shift, pairs: int, schedule: Schedule, *, last: bool) -> Decided:
    inconclusive = schedule.inconclusive(pairs, last=last)
    size = replace(shift, estimate=abs(shift.estimate))
    beyond = size.p_above(schedule.tolerated)
    if beyond < schedule.alpha_a_look:
        is_luck = pairs < FEWEST_TO_BLAME or size.p_above(0.0) >= NULL_ALPHA
        blamed = Answer.SLOWER if shift.estimate > 0 else Answer.FASTER
        return (inconclusive, None) if is_luck else (blamed, beyond)
    # An equivalence test: `same` must be proven, as not rejecting a change proves
    # nothing.
    far = replace(size, estimate=-size.estimate).p_above(-schedule.detected)
    return (Answer.SAME, far) if far < schedule.beta else (inconclusive, None)


def _smallest(schedule: Schedule, shift: Shift, pairs: int) -> float:
    """Slowdown that this spread would have shown; it informs and decides nothing.

    The power's quantile is the normal one: the spread is that of these pairs, known.
    """
    needed = schedule.tolerated + shift.margin(schedule.alpha_a_look)
    # Fewer pairs that show a change are followed by others.
    if pairs >= FEWEST_TO_BLAME:
        needed = max(needed, shift.margin(NULL_ALPHA))
    return expm1(needed + NormalDist().inv_cdf(AB_POWER) * shift.error)


def _refuse_unusable(differences: Sequence[float]) -> None:
    if not differences:
        msg = "nothing to compare: expected at least one pair of processes, found none"
        raise RunError(msg, ErrorId.GP715)
    for number, difference in enumerate(differences, start=1):
        if not isfinite(difference):
            msg = (
                f"pair {number} of {len(differences)}: expected the logarithm of a "
                f"ratio of times, found {difference}; a time that is zero, negative "
                "or no number cannot be compared"
            )
            raise RunError(msg, ErrorId.GP715)


# Two versions of one call, judged by runs in pairs of fresh processes.

LEAST_PAIRS: Final = PAIR_LOOKS[0]
MOST_PAIRS: Final = PAIR_LOOKS[-1]

CONFIRMED: Final = 2
"""Pairs that must agree on an exact change."""

REPORTED_IF_CHANGED: Final = (*AUDITED, *COMPILED)
"""What is reported if it changed, whether or not a baseline gates it."""

COMPARED: Final = tuple(
    metric
    for metric in METRICS.values()
    if metric.kind is MetricKind.EXACT
    and (metric.gated or metric in REPORTED_IF_CHANGED)
)

ASKED_OF_COMPILERS: Final = frozenset(metric.name for metric in COMPILED)
"""What is said not to be judged: only code that is compiled has no number of it."""

BLAMED: Final = frozenset(m.name for m in (GRAPH_BREAKS, *OCCASIONAL.values()))
"""Worse where it is new, though no number of a baseline gates it.

Of graph breaks both sides compile alike; of some steps' syncs both looked at the same.
"""

BLAMED_IF_NEW: Final = frozenset({RECOMPILES.name})
"""Worse where there were none. How often a compiler gives up after the first recompile
depends on its limits and on what it compiled before."""

Pair = tuple[Measurement, Measurement]
"""One run of ``before`` and one of ``after``."""


def judge_call(
    pairs: Sequence[Pair],
    tolerance: Tolerance,
    *,
    last: bool = False,
    timed: bool = True,
) -> Comparison:
    """Judge one call by its *pairs*, at least one, oldest first.

    ``last`` says that there will be no more. Their times count if they are *timed*.
    Raises ``UsageError`` for a tolerance that leaves no room for a verdict.
    """
    before, after = zip(*pairs, strict=True)
    newest = after[-1]
    why, lost = _why_no_time((*before, *after))
    time = _judge_time(pairs, tolerance, last=last) if timed and not why else None
    exact = tuple(_exact_changes(before, after, tolerance))
    more = any(c.gated and (c.proving or len(pairs) < CONFIRMED) for c in exact)
    inconclusive = time is not None and time.answer is Answer.MORE
    return Comparison(
        test=newest.test,
        pairs=len(pairs),
        time=time,
        unmeasured={
            **({SPEEDUP.name: why} if why else {}),
            **{n: w for n, w in newest.unmeasured.items() if n in ASKED_OF_COMPILERS},
            **dict(_beyond_looks((*before, *after))),
        },
        lost=lost,
        exact=exact,
        findings=compared(newest.findings, stored_lines(before[-1].findings)),
        operations=blamed(*([r.operations for r in side] for side in (before, after))),
        settled=last or not (more or inconclusive),
    )


def _why_no_time(runs: Sequence[Measurement]) -> tuple[str, bool]:
    """Say why some run has no usable time, and whether another could have had one."""
    for run in runs:
        is_missed = STEP_MS.name not in run.unmeasured
        if STEP_MS.name not in run.times or not is_missed:
            return run.why_none(STEP_MS.name) or "no time was measured", is_missed
    nonsense = impossible(STEP_MS, runs)
    return nonsense or "", nonsense is not None


def _judge_time(pairs: Sequence[Pair], tolerance: Tolerance, *, last: bool) -> AbResult:
    """Judge by the pairs that nothing disturbed; show all pairs if those are too few.

    A neighbour that doubles some times can make three pairs agree by luck. So on a busy
    machine their agreement is no evidence, unless more is left than it may have added.
    """
    clean = [pair for pair in pairs if not (pair[0].dirty or pair[1].dirty)]
    if len(clean) == len(pairs) or len(clean) >= LEAST_PAIRS:
        return _change(_times(clean), tolerance, last=last)
    change = _change(_times(pairs), tolerance, last=False)
    proven = _proven_times(pairs)
    if proven and _change(proven, tolerance, last=last).answer is Answer.SLOWER:
        seen = readings(STEP_MS, [after for _, after in pairs if after.dirty])
        return replace(change, answer=Answer.SLOWER, why=f"{change.why}{despite(seen)}")
    disturbed = ", ".join(
        dict.fromkeys(r for p in pairs for run in p for r in run.dirty)
    )
    return replace(
        change,
        answer=Answer.INCONCLUSIVE if last else Answer.MORE,
        why=f"{len(pairs) - len(clean)} of {len(pairs)} pairs were disturbed: {disturbed}",
    )


Times = tuple[float, float]
"""Milliseconds per step of ``before`` and of ``after``, of one pair."""


def _times(pairs: Sequence[Pair]) -> list[Times]:
    return [(_step_ms(before), _step_ms(after)) for before, after in pairs]


def _proven_times(pairs: Sequence[Pair]) -> list[Times]:
    """Return the least that ``after`` takes without its disturbances; empty if unknown.

    A disturbance of ``before`` makes the difference smaller already.
    """
    befores, afters = (readings(STEP_MS, side) for side in zip(*pairs, strict=True))
    proven = [after.proven or 0.0 for after in afters]
    if not any(a.dirty for a in afters) or min(proven) <= 0.0:
        return []
    return [(b.value, a) for b, a in zip(befores, proven, strict=True)]


def _change(times: Sequence[Times], tolerance: Tolerance, *, last: bool) -> AbResult:
    before_ms = median(before for before, _ in times)
    schedule = _schedule(before_ms, tolerance)
    judged = judge_pairs([log(b / a) for a, b in times], schedule, last=last)
    after_ms = median(after for _, after in times)
    return replace(judged, before_ms=before_ms, after_ms=after_ms)


def _step_ms(run: Measurement) -> float:
    return run.times[STEP_MS.name].location(run.environment.hardware.kind)


def _schedule(typical_ms: float, tolerance: Tolerance) -> Schedule:
    """Return the schedule of pairs; an absolute floor counts in parts of the time."""
    limits = Limits.of(
        typical_ms,
        tolerance=tolerated(STEP_MS, tolerance),
        detect=noticed(STEP_MS, tolerance),
        floor=floored(STEP_MS, tolerance).floor,
    )
    detect = limits.detect
    if detect <= limits.tolerance:
        # A schedule needs room between both limits, or no number of pairs could ever
        # decide.
        detect = limits.tolerance + DETECT_ABOVE_TOLERANCE
    return pair_schedule(limits.tolerance, detect)


def _exact_changes(
    before: Sequence[Measurement], after: Sequence[Measurement], tolerance: Tolerance
) -> Iterator[ExactChange]:
    """Compare each step, and what only some did of the further ones that every run saw."""
    for metric in COMPARED:
        yield from _exact_change(metric, before, after, tolerance)
    looks = [run.further for run in (*before, *after) if run.further]
    if len(looks) < len(before) + len(after):
        return
    for usual, metric in OCCASIONAL.items():
        _, counts = beyond_usual(METRICS[usual], looks)
        then = counted_as(metric, before, counts)
        now = counted_as(metric, after, counts[len(before) :])
        yield from _exact_change(metric, then, now, tolerance)


def _beyond_looks(runs: Sequence[Measurement]) -> Iterator[tuple[str, str]]:
    """Yield what a run saw in such steps alone as some run has not looked at, and why."""
    looks = [run.further for run in runs if run.further]
    seen_by_all = shared_steps(looks) if len(looks) == len(runs) else range(0)
    for usual, metric in OCCASIONAL.items():
        numbers = [[n for n, _ in look.counts.get(usual, ())] for look in looks]
        unseen = [each[0] for each in numbers if each and not {*each} & {*seen_by_all}]
        if unseen:
            seen = f"step {min(unseen)} has more of them, and not every run got as far"
            yield metric.name, f"{seen}; raise --gpuperf-seconds"
        elif raised := raised_early(looks):
            yield metric.name, f"{raised}, and the other side got further"


def _exact_change(
    metric: Metric,
    before: Sequence[Measurement],
    after: Sequence[Measurement],
    tolerance: Tolerance,
) -> Iterator[ExactChange]:
    """Compare the closest runs of both sides: variation within a side is no change.

    What varies, or may in another run, takes the pairs that prove a change of it.
    """
    metric = metric_of(before[0].environment.hardware.kind, metric.name)
    then = [reading.value for reading in readings(metric, before)]
    now = [reading.value for reading in readings(metric, after)]
    if not then or not now:
        return
    beneath = bytes_beneath(metric, before)
    ratio, metric = tolerated(metric, tolerance), floored(metric, tolerance)
    limit = max(then) + margin(metric, max(then) - beneath, ratio)
    least = min(then) - margin(metric, min(then) - beneath, ratio)
    if min(now) > limit:
        turn, old, new = Turn.WORSE, max(then), min(now)
    elif max(now) < least:
        turn, old, new = Turn.BETTER, min(then), max(now)
    elif max(now) > limit:
        turn, old, new = Turn.VARIES, max(then), max(now)
    else:
        return
    is_drawn = is_random(metric, (*before, *after), then, now)
    is_apart = turn is not Turn.VARIES
    proving = is_apart and is_drawn and len(now) < PROVING_RUNS
    yield ExactChange(
        metric=metric.name,
        before=old,
        after=new,
        turn=Turn.VARIES if proving else turn,
        gated=metric.gated
        or metric.name in BLAMED
        or (metric.name in BLAMED_IF_NEW and old == 0),
        proving=proving,
        workspace_bytes=beneath if beneath == bytes_beneath(metric, after) else 0,
    )


# When an A/B is judged, and what its numbers say.

CONFIDENCE: Final = 0.95

AB_POWER: Final = 0.9
"""Share of runs in which the smallest detectable slowdown would be called slower."""

SLOWER_OR_FASTER: Final = frozenset({Answer.SLOWER, Answer.FASTER})
OPEN: Final = frozenset({Answer.MORE, Answer.INCONCLUSIVE})

Decided = tuple[Answer, float | None]
"""An answer and the p-value of the hypothesis it rejects, if it rejects one."""

Interval = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The numbers of units at which the judge looks, between two limits, at two risks.

    A slowdown up to ``tolerance`` is called slower with probability ``alpha`` at most,
    over all ``looks``; one of ``detect`` or more is called same with ``beta`` at most,
    at each look. All are ratios.
    """

    tolerance: float
    detect: float
    alpha: float
    beta: float
    looks: tuple[int, ...]

    def __post_init__(self) -> None:
        """Raise ``UsageError`` if no verdict could follow the two limits."""
        if not 0 <= self.tolerance < 1:
            msg = (
                f"tolerance={self.tolerance!r}: expected a ratio from 0 up to 1, "
                "such as 0.01 for 1 %"
            )
            raise UsageError(msg, ErrorId.GP221)
        if not self.tolerance < self.detect < inf:
            msg = (
                f"detect={self.detect!r}: expected a ratio above the tolerance, "
                f"{self.tolerance!r}"
            )
            raise UsageError(msg, ErrorId.GP221)

    @property
    def tolerated(self) -> float:
        """Logarithm of the largest ratio of times that is tolerated."""
        return log1p(self.tolerance)

    @property
    def detected(self) -> float:
        """Logarithm of the ratio of times that must not pass for the same."""
        return log1p(self.detect)

    @property
    def alpha_a_look(self) -> float:
        """Bonferroni's share of ``alpha``: looks at growing data are dependent."""
        return self.alpha / len(self.looks)

    def looks_at(self, units: int, *, last: bool) -> bool:
        """Whether an answer is due after *units*.

        Where the evidence ends early, the rest of ``alpha`` pays for one look at
        all of it: that it ended does not depend on which label is which.
        """
        return units in self.looks or last

    def inconclusive(self, units: int, *, last: bool) -> Answer:
        ended = last or units >= self.looks[-1]
        return Answer.INCONCLUSIVE if ended else Answer.MORE

    def result(
        self,
        decided: Decided,
        change: float,
        interval: Interval,
        smallest: float | None,
        evidence: str,
    ) -> AbResult:
        """Return what was *decided*, in words and numbers.

        The *change* and the *interval* that contains it with ``CONFIDENCE`` are logarithms
        of time after divided by time before. *smallest* is the slowdown, a ratio, that
        would be called slower with probability ``AB_POWER``. ``None`` if there are too
        few units to say. *evidence* names the test.
        """
        answer, p_value = decided
        low, high = interval
        numbers = (
            f"time {signed(expm1(change))}, {_interval_in_words(low, high)}; {evidence}"
        )
        sight = _sight(smallest) if answer in OPEN else ""
        return AbResult(
            answer=answer,
            why=f"{self._said(answer)}: {numbers}{sight}",
            ratio=exp(change),
            low=None if low is None else exp(low),
            high=None if high is None else exp(high),
            smallest=smallest,
            p_value=p_value,
        )

    def _said(self, answer: Answer) -> str:
        tolerance, detect = percent(self.tolerance), percent(self.detect)
        if answer in SLOWER_OR_FASTER:
            return f"after is {answer.value} by more than {tolerance}"
        if answer is Answer.SAME:
            return f"a change of {detect} or more is ruled out"
        return f"neither at most {tolerance} nor {detect} or more is ruled out"


def _interval_in_words(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "too few for an interval"
    return f"95 % interval {signed(expm1(low))} to {signed(expm1(high))}"


def _sight(smallest: float | None) -> str:
    if smallest is None:
        return ", too few to blame"
    return f"; the smallest slowdown these could have shown is {100 * smallest:.1f} %"
