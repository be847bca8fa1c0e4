"""Which of many did it: the smallest bad set of changes.

It asks a judge about as few as it can. What cannot be judged, such as packages that do
not install, is skipped, and is never named as if it were. A comparison is judged by what
got worse, or trains otherwise, with all changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import Final

from ..model.ab import AbRun, Comparison, Turn
from ..model.metrics import STEP_MS
from ..model.run import nodeid_of
from ..model.training import TrainingAnswer
from ..report.numbers import format_apart, metric_named


class Mark(Enum):
    """What is known of a candidate; one that cannot be judged is skipped."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"


Changes = frozenset[str]


def smallest_bad(
    changes: Sequence[str], judge: Callable[[Changes], Mark]
) -> tuple[str, ...]:
    """Return a bad set of *changes*, all of them bad, from which none can be left out.

    That is ddmin of Zeller and Hildebrandt. *judge* is asked once about a set.
    """
    known: dict[Changes, Mark] = {frozenset(changes): Mark.BAD, frozenset(): Mark.GOOD}

    def is_bad(part: Sequence[str]) -> bool:
        key = frozenset(part)
        if key not in known:
            known[key] = judge(key)
        return known[key] is Mark.BAD

    left, parts = list(changes), 2
    while len(left) > 1:
        pieces = _cut(left, parts)
        rests = [[c for c in left if c not in piece] for piece in pieces]
        if piece := next(filter(is_bad, pieces), None):
            left, parts = piece, 2
        elif rest := next(filter(is_bad, rests), None):
            left, parts = rest, max(parts - 1, 2)
        elif parts < len(left):
            parts = min(2 * parts, len(left))
        else:
            break
    return tuple(left)


def _cut(items: Sequence[str], parts: int) -> list[list[str]]:
    ends = [len(items) * n // parts for n in range(parts + 1)]
    return [list(items[a:b]) for a, b in pairwise(ends)]


# What a comparison says of what is sought.

Sought = tuple[str, str]
"""A call, and the metric of it that got worse."""

Worse = Mapping[Sought, str]
"""The numbers, before and after, of what got worse or trains otherwise."""

BROKEN: Final = "the test"
"""What got worse where a test fails: it has no metric."""

TRAINING: Final = "training"
"""The name of a training that differs, where others are those of metrics."""


def worse_of(found: AbRun) -> Worse:
    """Return what got worse or trains otherwise, with its numbers."""
    return {
        (call.test, metric): moved
        for call in (*found.calls, *found.uncompared)
        for metric, moved in _worse_metrics(call)
    }


def _worse_metrics(call: Comparison) -> Iterator[tuple[str, str]]:
    if call.broken:
        yield BROKEN, "fails"
    if call.training and call.trains(TrainingAnswer.DIFFERS):
        yield TRAINING, f"differs: {call.training.text}"
    time = call.time
    if time and STEP_MS.name in call.worse_metrics:
        yield STEP_MS.name, _moved(STEP_MS.name, time.before_ms, time.after_ms)
    for change in call.worse_counts:
        yield change.metric, _moved(change.metric, change.before, change.after)


def _moved(metric: str, before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "is worse"
    return " -> ".join(format_apart(metric_named(metric), before, after))


def marked(found: AbRun, sought: Collection[Sought]) -> tuple[Mark, str]:
    """Say whether *found* has some of what is *sought*, or why that is not known."""
    if not worse_of(found).keys().isdisjoint(sought):
        return Mark.BAD, ""
    why = next(filter(None, (_unknown(found, *each) for each in sought)), "")
    return (Mark.SKIP, why) if why else (Mark.GOOD, "")


def _unknown(found: AbRun, test: str, metric: str) -> str:
    """Say why *found* does not tell if a *metric* got worse; nothing if it does."""
    alike = nodeid_of if metric == BROKEN else str
    call = next((each for each in found.calls if alike(each.test) == test), None)
    if call is None:
        names = {test, nodeid_of(test)}
        whys = (each.uncompared for each in found.uncompared if each.test in names)
        return next(whys, "it was not compared")
    if metric == TRAINING:
        known = call.training and not call.trains(TrainingAnswer.NOT_COMPARED)
        text = call.training.text if call.training else "it was not asked"
        return "" if known else f"training not compared: {text}"
    varying = {c.metric for c in call.exact if c.turn is Turn.VARIES}
    is_open = call.is_inconclusive if metric == STEP_MS.name else metric in varying
    return "inconclusive" if is_open else ""
