"""Syncs and copies that only some steps have, found by a look at further steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from ..model.finding import Finding
from ..model.measurement import FurtherSteps, Measurement
from ..model.metrics import OCCASIONAL
from .plan import Deadline


LOOKED_STEPS: Final = 100
"""Further steps that are looked at.

What comes every 50th step is in two of them; what comes once may be a preparation.
"""

LOOKED_SHARE: Final = 1 / 20
"""Share of the time cap that this may cost at most: 3 s of 60."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenStep:
    """What the step of this ``number`` did, how often, by findings without numbers."""

    number: int
    counts: Mapping[Finding, int]

    def count(self, metric: str, without: Collection[Finding]) -> int:
        """Count what it has of *metric*, *without* what comes once."""
        return sum(
            count
            for cause, count in self.counts.items()
            if metric in cause.metrics and cause not in without
        )


Look = Callable[[int], Sequence[SeenStep]]
"""Runs at most so many further steps, at least one; none if it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Further:
    """What further steps showed, by metric name, and why they did not.

    ``findings`` are causes that the first steps do not have; ``rhythms`` say of the
    others how many steps have them. ``looked`` is the number of further steps, ``steps``
    what a baseline keeps of them.
    """

    exact: Mapping[str, int] = field(default_factory=dict)
    missed: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    rhythms: Mapping[Finding, Finding] = field(default_factory=dict)
    looked: int = 0
    steps: FurtherSteps | None = None

    def added_to(self, measurement: Measurement) -> Measurement:
        """Return *measurement* with it; causes in the first steps keep their numbers."""
        known = (self._with_rhythm(finding) for finding in measurement.findings)
        return replace(
            measurement.missing(self.missed),
            exact={**measurement.exact, **self.exact},
            findings=(*known, *self.findings),
            further=self.steps,
        )

    def _with_rhythm(self, finding: Finding) -> Finding:
        rhythm = self.rhythms.get(cause_of(finding))
        if rhythm is None:
            return finding
        return replace(
            finding,
            in_steps=rhythm.in_steps,
            of_steps=rhythm.of_steps,
            every=rhythm.every,
        )


def cause_of(finding: Finding) -> Finding:
    """Return *finding* without its numbers, which is the same one in another step."""
    return replace(finding, per_step=0, blocked_ms=0.0, moved_bytes=0)


def look_further(first: Sequence[SeenStep], look: Look, deadline: Deadline) -> Further:
    """Look at further steps until *deadline*, after the *first*, which have been judged.

    They are ``LOOKED_STEPS``, and then as many as show whether what was seen once comes
    again: as many steps as there were before it.
    """
    looked = _Looked(first=first, steps=())
    while deadline.leaves(0.0) and (left := looked.left) > 0:
        more = look(left)
        if not more:
            break
        looked = replace(looked, steps=(*looked.steps, *more))
    return looked.further()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """The ``steps`` of a look, in their order, and the ``first`` ones before it."""

    first: Sequence[SeenStep]
    steps: Sequence[SeenStep]

    @property
    def left(self) -> int:
        """How many more steps must be looked at."""
        planned = LOOKED_STEPS - len(self.steps)
        return planned if planned > 0 else self._left_of(self._once)

    def _left_of(self, once: Mapping[Finding, int]) -> int:
        last = self.steps[-1].number if self.steps else 0
        return max((2 * n for n in once.values()), default=0) - last

    @property
    def _numbers(self) -> dict[Finding, list[int]]:
        """The numbers of the steps that have a cause, by the cause."""
        numbers: dict[Finding, list[int]] = {}
        for step in (*self.first, *self.steps):
            for cause in step.counts:
                numbers.setdefault(cause, []).append(step.number)
        return numbers

    @property
    def _known(self) -> set[Finding]:
        return {cause for step in self.first for cause in step.counts}

    @property
    def _once(self) -> dict[Finding, int]:
        """The causes that a single further step has, with the number of that step."""
        known = self._known
        return {
            cause: numbers[0]
            for cause, numbers in self._numbers.items()
            if len(numbers) == 1 and cause not in known and cause.metrics
        }

    def further(self) -> Further:
        """Return what the steps showed."""
        once, known = self._once, self._known
        rhythms = {c: self._rhythm(c, n) for c, n in self._numbers.items()}
        return Further(
            exact=self._occasional(once),
            missed=self._inconclusive(once),
            findings=tuple(
                self._further(finding, is_once=cause in once)
                for cause, finding in rhythms.items()
                if cause not in known
            ),
            rhythms={c: f for c, f in rhythms.items() if c in known},
            looked=len(self.steps),
            steps=self._steps(once),
        )

    def _steps(self, once: Collection[Finding]) -> FurtherSteps | None:
        """Return which steps did more than the first with least, without what comes once."""
        if not self.steps:
            return None
        usual = {
            name: min((step.count(name, once) for step in self.first), default=0)
            for name in OCCASIONAL
        }
        counts = {}
        for name in OCCASIONAL:
            numbered = ((step.number, step.count(name, once)) for step in self.steps)
            counts[name] = tuple(
                (n, count) for n, count in numbered if count > usual[name]
            )
        counts = {name: seen for name, seen in counts.items() if seen}
        first, last = self.steps[0].number, self.steps[-1].number
        usual = {name: count for name, count in usual.items() if count}
        return FurtherSteps(first=first, last=last, usual=usual, counts=counts)

    def _rhythm(self, cause: Finding, numbers: Sequence[int]) -> Finding:
        """Return *cause* with its number and what share of the steps has it."""
        steps = (*self.first, *self.steps)
        most = max(step.counts.get(cause, 0) for step in steps)
        if len(numbers) == len(steps):
            return replace(cause, per_step=most)
        return replace(
            cause,
            per_step=most,
            in_steps=len(numbers),
            of_steps=len(steps),
            every=_distance(numbers, steps[0].number, steps[-1].number),
        )

    def _further(self, finding: Finding, *, is_once: bool) -> Finding:
        """Let *finding* count in what it is part of: in nothing, if it comes once."""
        if not is_once:
            return replace(finding, metrics=_counting(finding))
        why = f"{finding.reason}; " if finding.reason else ""
        reason = f"{why}once and not again, so it does not count"
        return replace(finding, metrics=(), reason=reason)

    def _inconclusive(self, once: Mapping[Finding, int]) -> dict[str, str]:
        """Say which causes may come again, as the look ended too early to know."""
        missed = {}
        for cause, number in once.items():
            if self._left_of({cause: number}) > 0:
                why = (
                    f"{cause.location} waited in 1 of {len(self.steps)} further steps, "
                    "too few to know whether it does so again; raise --gpuperf-seconds"
                )
                missed.update(dict.fromkeys(_counting(cause), why))
        return missed

    def _occasional(self, once: Collection[Finding]) -> dict[str, int]:
        """Return the counts of the step with most, if it has more than the first ones."""
        found = {}
        for name, metric in OCCASIONAL.items():
            first = max((step.count(name, once) for step in self.first), default=0)
            most = max((step.count(name, once) for step in self.steps), default=0)
            if most > first:
                found[metric.name] = most
        return found


def _counting(cause: Finding) -> tuple[str, ...]:
    """Name the metrics of further steps that *cause* counts in."""
    return tuple(OCCASIONAL[n].name for n in cause.metrics if n in OCCASIONAL)


def _distance(numbers: Sequence[int], first: int, last: int) -> int:
    """Return the distance of *numbers* if it is the same from *first* to *last*, else 0."""
    distances = {b - a for a, b in pairwise(numbers)}
    if len(distances) != 1:
        return 0
    (distance,) = distances
    is_whole = numbers[0] - distance < first and numbers[-1] + distance > last
    return distance if is_whole else 0
