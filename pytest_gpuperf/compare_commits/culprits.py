"""Which of the packages that changed did it, one of them or several together.

That is, made tests worse, or train otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from itertools import combinations, pairwise
from typing import Final

from ..environments import Pins
from ..errors import UsageError
from ..model.ab import AbRun, Comparison, TrainingAnswer, Turn
from ..model.metrics import STEP_MS
from ..model.run import nodeid_of
from ..report.numbers import format_apart, metric_named
from .pairs import Announce


Compare = Callable[[tuple[str, ...]], AbRun]
"""Compares the old packages with these, by those tests that got worse or differ.

Raises ``UsageError`` if they do not fit together, as the installer knows.
"""


class Culprits:
    """Applies some of the changes on top of the old packages, until those are left that
    do what all of them do.
    """

    def __init__(
        self,
        found: AbRun,
        pins: tuple[Pins, Pins],
        compare: Compare,
        announce: Announce,
    ) -> None:
        """Take the *pins* of both sides: all packages that differ between them."""
        self._before, self._after = pins
        self._compare, self._announce = compare, announce
        self._all = worse_of(found)
        self._known: dict[Changes, Mark] = {}
        self._worse: dict[Changes, Worse] = {frozenset(self._before): self._all}
        self._named: list[Changes] = []
        self._open: list[str] = []  # what the search could not tell

    def search(self) -> None:
        """Name one package or set after the other, until the rest does none of it."""
        rest = tuple(self._before)
        while rest:
            culprits = frozenset(smallest_bad(rest, self._judge))
            self._named.append(culprits)
            rest = tuple(each for each in rest if each not in culprits)
            mark = self._judge(frozenset(rest)) if rest else Mark.GOOD
            if mark is Mark.SKIP:
                self._open.append("the other changes cannot be judged without these")
            if mark is not Mark.BAD:
                break
        explained = {key for named in self._named for key in self._worse[named]}
        self._open += [
            f"{call}: {metric} {'differs' if metric == TRAINING else 'is worse'} only "
            "with more of the changes"
            for call, metric in self._all
            if (call, metric) not in explained
        ]

    def _judge(self, changes: Changes) -> Mark:
        if changes not in self._known:
            self._known[changes] = self._measured(changes)
        return self._known[changes]

    def _measured(self, changes: Changes) -> Mark:
        names = self._in_words(changes)
        self._announce(f"with {len(changes)} of {len(self._before)} changes: {names}")
        try:
            found = self._compare(self._requirements(changes))
        except UsageError as error:
            self._announce(f"skip: {error}")
            return Mark.SKIP
        worse = worse_of(found)
        self._worse[changes] = {k: worse[k] for k in worse if k in self._all}
        mark, why = marked(found, self._all)
        if why:
            self._announce(f"skip: {why}")
        return mark

    def _requirements(self, changes: Changes) -> tuple[str, ...]:
        """Name all packages that differ, as they are with *changes* on top of the old ones."""
        after = {name: self._after[name] for name in changes if name in self._after}
        before = {n: v for n, v in self._before.items() if n not in changes}
        both = sorted({**before, **after}.items())
        return tuple(f"{name}=={version}" for name, version in both)

    def lines(self) -> Iterator[str]:
        """Say what is known, a sentence each."""
        for named in self._named:
            numbers = "; ".join(
                f"{call}: {metric} {moved}"
                for (call, metric), moved in self._worse[named].items()
            )
            yield f"{self._in_words(named)}{self._together(named)}: {numbers}"
        yield from self._open

    def _together(self, named: Changes) -> str:
        if len(named) == 1:
            return ""
        parts = combinations(named, len(named) - 1)
        skipped = any(self._known.get(frozenset(p)) is Mark.SKIP for p in parts)
        return ", which cannot be judged apart" if skipped else ", only together"

    def left(self) -> str:
        """Say what a search that was interrupted leaves open."""
        if self._named:
            return "interrupted: other packages may have done it too"
        bad = [c for c, mark in self._known.items() if mark is Mark.BAD]
        least = min([*bad, frozenset(self._before)], key=len)
        return f"interrupted: what did it is among {self._in_words(least)}"

    def _in_words(self, changes: Changes) -> str:
        return ", ".join(
            f"{name} {self._before[name]} -> {self._after.get(name, 'none')}"
            for name in sorted(changes)
        )


# Which of many did it: the smallest bad set of changes.
#
# It asks a judge about as few as it can. What cannot be judged, such as packages that
# do not install, is skipped, and is never named as if it were. A comparison is judged
# by what got worse, or trains otherwise, with all changes.


class Mark(Enum):
    """The answer for a candidate; one that cannot be judged is skipped."""

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


# The answer of a comparison to the change that is sought.

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
    """Say whether *found* has any of the *sought* changes, or why that is not known."""
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
