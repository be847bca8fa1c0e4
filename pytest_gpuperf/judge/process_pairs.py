"""Fresh processes of both versions: each pair, or each process that has both, is a unit.

A process has lasting luck, in memory layout or in the algorithms it settles on, that
no number of steps averages out: the steps of two processes that take turns are not
exchangeable. So each pair gives one number, and the spread is that of these numbers
alone: a spread assumed beforehand blames whoever varies more than that. What a process
draws once, by the system's randomness or by autotuning, is luck as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import replace
from math import exp
from math import expm1
from math import isfinite
from math import log
from math import sqrt
from statistics import NormalDist
from statistics import fmean
from statistics import median
from statistics import stdev
from typing import Final

from ..errors import ErrorId
from ..errors import RunError
from ..model.ab import AbResult
from ..model.ab import Answer
from ..model.ab import CallChange
from ..model.ab import ExactChange
from ..model.ab import Turn
from ..model.budget import Tolerance
from ..model.finding import stored_lines
from ..model.measurement import Measurement
from ..model.metric import Metric
from ..model.metric import MetricKind
from ..model.metrics import AUDITED
from ..model.metrics import COMPILED
from ..model.metrics import LAUNCHED
from ..model.metrics import METRICS
from ..model.metrics import STEP_MS
from .ab import AB_POWER
from .ab import CONFIDENCE
from .ab import AbRule
from .ab import Decision
from .ab import Ruling
from .ab import in_words
from .ab import signed
from .exact import PROVING_RUNS
from .exact import bytes_beneath
from .exact import is_random
from .exact import margin
from .new_lines import compared
from .readings import Limits
from .readings import impossible
from .readings import readings
from .tails import t_isf
from .tails import t_sf
from .verdict import DETECT_ABOVE_TOLERANCE
from .verdict import floored
from .verdict import noticed
from .verdict import tolerated


PAIR_LOOKS: Final = (3, 5, 8)
PAIR_ALPHA: Final = 0.01
PAIR_BETA: Final = 0.05

INSTANCE_LOOKS: Final = (6, 10)
"""Processes that had both versions, when the judge looks."""

LEAST_ERROR: Final = 0.001
"""Standard error of a mean that three pairs which agree by luck cannot undercut."""

FEWEST_TO_BLAME: Final = 5
"""A size that is one of two, drawn by each process, is larger in ``after`` in one pair of
four: in five pairs by chance once in a thousand times, which no spread would tell."""

NULL_ALPHA: Final = 0.0005
"""Risk that a change is claimed where processes differ by luck alone."""

_LEAST_PAIRS: Final = 2


def pair_rule(tolerance: float, detect: float) -> AbRule:
    """Return the rule for pairs; raise ``UsageError`` for limits that make none."""
    return AbRule(
        tolerance=tolerance,
        detect=detect,
        alpha=PAIR_ALPHA,
        beta=PAIR_BETA,
        looks=PAIR_LOOKS,
    )


def judge_pairs(
    differences: Sequence[float],
    rule: AbRule,
    *,
    last: bool = False,
) -> Ruling:
    """Judge pairs of fresh processes, or what *rule* has as units, by Student's t.

    Each difference is the logarithm of a step's lower quartile in ``after`` minus that
    in ``before``. ``last`` says that there will be no more pairs. Raises ``RunError``
    if a difference is not finite or there is none.
    """
    _refuse_unusable(differences)
    pairs, change = len(differences), fmean(differences)
    if pairs < _LEAST_PAIRS:
        answer = rule.undecided(pairs, last=last)
        return _ruling(Decision(answer=answer), differences, rule)
    # Three pairs may agree by luck, and Student's t would take that for precision.
    error = max(stdev(differences) / sqrt(pairs), LEAST_ERROR)
    decision = Decision(answer=Answer.MORE)
    if rule.looks_at(pairs, last=last):
        decision = _decide(change, error, pairs, rule, last=last)
    reach = t_isf((1 - CONFIDENCE) / 2, pairs - 1) * error
    smallest = _smallest(rule, error, pairs)
    return _ruling(decision, differences, rule, reach=reach, smallest=smallest)


def _ruling(
    decision: Decision,
    differences: Sequence[float],
    rule: AbRule,
    *,
    reach: float | None = None,
    smallest: float | None = None,
) -> Ruling:
    change, pairs = fmean(differences), len(differences)
    units = rule.unit if pairs == 1 else rule.units
    return Ruling(
        decision=decision,
        change=change,
        low=None if reach is None else change - reach,
        high=None if reach is None else change + reach,
        smallest=smallest,
        units=pairs,
        evidence=f"t-test over {pairs} {units}",
    )


def _decide(
    change: float, error: float, pairs: int, rule: AbRule, *, last: bool
) -> Decision:
    beyond = t_sf((abs(change) - rule.tolerated) / error, pairs - 1)
    is_luck = (
        pairs < FEWEST_TO_BLAME or t_sf(abs(change) / error, pairs - 1) >= NULL_ALPHA
    )
    if beyond < rule.alpha_a_look:
        blamed = Answer.SLOWER if change > 0 else Answer.FASTER
        answer = rule.undecided(pairs, last=last) if is_luck else blamed
        return Decision(answer=answer, p_value=None if is_luck else beyond)
    # An equivalence test: `same` must be proven, as not rejecting a change proves
    # nothing.
    far = t_sf((rule.detected - abs(change)) / error, pairs - 1)
    if far < rule.beta:
        return Decision(answer=Answer.SAME, p_value=far)
    return Decision(answer=rule.undecided(pairs, last=last))


def _smallest(rule: AbRule, error: float, pairs: int) -> float:
    """Slowdown that this spread would have shown; it informs and decides nothing.

    The power's quantile is the normal one: the spread is that of these pairs, known.
    """
    needed = rule.tolerated + t_isf(rule.alpha_a_look, pairs - 1) * error
    # Fewer pairs that show a change are followed by others.
    if pairs >= FEWEST_TO_BLAME:
        needed = max(needed, t_isf(NULL_ALPHA, pairs - 1) * error)
    return expm1(needed + NormalDist().inv_cdf(AB_POWER) * error)


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

REPORTED_IF_CHANGED: Final = (*AUDITED, *LAUNCHED, *COMPILED)
"""What is reported if it changed, whether or not a baseline gates it."""

COMPARED: Final = tuple(
    metric
    for metric in METRICS.values()
    if metric.kind is MetricKind.EXACT
    and (metric.gated or metric in REPORTED_IF_CHANGED)
)

Pair = tuple[Measurement, Measurement]
"""One run of ``before`` and one of ``after``."""


def judge_call(
    pairs: Sequence[Pair],
    tolerance: Tolerance,
    *,
    last: bool = False,
    together: AbResult | None = None,
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
    more = any(c.gated and (c.proving or len(pairs) < CONFIRMED) for c in exact)
    undecided = time is not None and time.answer is Answer.MORE
    return CallChange(
        test=newest.test,
        pairs=len(pairs),
        time=time,
        no_time=why,
        lost=lost,
        exact=exact,
        findings=compared(newest.findings, stored_lines(before[-1].findings)),
        settled=last or not (more or undecided),
    )


def limits_together(pair: Pair, tolerance: Tolerance) -> Limits | None:
    """Return the limits of a comparison in one process; ``None`` if there is no time.

    The *pair* says how long a step takes: an absolute floor counts in parts of that.
    """
    why, _ = _why_no_time(pair)
    return None if why else _limits(_step_ms(pair[0]), tolerance)


def judge_together(
    found: Sequence[AbResult], limits: Limits, *, last: bool = False
) -> AbResult:
    """Judge comparisons of one call, each in a process of its own with both versions.

    The first one is believed if it found no change. A change needs others, as all of its
    steps are of one instance of each version; processes that differ in which version is
    faster end that. Each has a ratio. ``last`` says that there will be no more.
    """
    newest = found[-1]
    if len(found) == 1 and newest.answer not in {Answer.SLOWER, Answer.FASTER}:
        return newest
    changes = [log(each.ratio) for each in found if each.ratio is not None]
    whole = replace(
        newest,
        before_ms=median(each.before_ms or 0.0 for each in found),
        after_ms=median(each.after_ms or 0.0 for each in found),
        quads=sum(each.quads for each in found),
        steps=sum(each.steps for each in found),
        seconds=sum(each.seconds for each in found),
        processes=len(found),
    )
    if min(changes) < 0 < max(changes):
        why = (
            f"it varies from process to process: time {signed(min(changes))} to "
            f"{signed(max(changes))} in {len(found)}"
        )
        return replace(
            whole,
            answer=Answer.INCONCLUSIVE,
            why=why,
            ratio=exp(fmean(changes)),
            low=None,
            high=None,
            smallest=None,
            p_value=None,
        )
    rule = replace(
        pair_rule(limits.tolerance, limits.detect),
        looks=INSTANCE_LOOKS,
        unit="process with both versions",
        units="processes with both versions",
    )
    return _as_result(whole, judge_pairs(changes, rule, last=last), rule)


def _as_result(whole: AbResult, ruling: Ruling, rule: AbRule) -> AbResult:
    """Return *whole* with what *ruling* says by *rule*."""
    return replace(
        whole,
        answer=ruling.answer,
        why=in_words(ruling, rule),
        ratio=exp(ruling.change),
        low=None if ruling.low is None else exp(ruling.low),
        high=None if ruling.high is None else exp(ruling.high),
        smallest=ruling.smallest,
        p_value=ruling.decision.p_value,
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
    machine their agreement is no evidence.
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


def _change(pairs: Sequence[Pair], tolerance: Tolerance, *, last: bool) -> AbResult:
    times = [(_step_ms(before), _step_ms(after)) for before, after in pairs]
    before_ms = median(before for before, _ in times)
    rule = _rule(before_ms, tolerance)
    ruling = judge_pairs([log(b / a) for a, b in times], rule, last=last)
    whole = AbResult(
        answer=ruling.answer,
        why="",
        before_ms=before_ms,
        after_ms=median(after for _, after in times),
        pairs=len(pairs),
    )
    return _as_result(whole, ruling, rule)


def _step_ms(run: Measurement) -> float:
    return run.times[STEP_MS.name].location(run.environment.hardware.kind)


def _rule(typical_ms: float, tolerance: Tolerance) -> AbRule:
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
        # A rule needs room between both limits, or no number of pairs could ever
        # decide.
        detect = limits.tolerance + DETECT_ABOVE_TOLERANCE
    return replace(limits, detect=detect)


def _exact_changes(
    before: Sequence[Measurement], after: Sequence[Measurement], tolerance: Tolerance
) -> Iterator[ExactChange]:
    for metric in COMPARED:
        yield from _exact_change(metric, before, after, tolerance)


def _exact_change(
    metric: Metric,
    before: Sequence[Measurement],
    after: Sequence[Measurement],
    tolerance: Tolerance,
) -> Iterator[ExactChange]:
    """Compare the closest runs of both sides: variation within a side is no change.

    What varies, or may in another run, takes the pairs that prove a change of it.
    """
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
        gated=metric.gated,
        proving=proving,
    )
