"""Pairs of fresh processes: each side once, in alternating order, all tests in turn.

Before that, whether the tests of both sides train the same.
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Final

from ..errors import ErrorId, UsageError
from ..judge.calls import merged
from ..judge.exact import PROVING_RUNS
from ..judge.process_pairs import (
    FEWEST_TO_BLAME,
    LEAST_PAIRS,
    MOST_PAIRS,
    Pair,
    judge_call,
)
from ..judge.training import judge_training
from ..model.ab import AbRun, Comparison, Recorded, Training, TrainingAnswer
from ..model.budget import Tolerance
from ..model.environment import Capability, DeviceKind
from ..model.finding import Finding, Location
from ..model.metrics import STEP_MS, counted
from ..model.run import Ending, StepCall, TestResult, nodeid_of
from ..runner.evidence import MOST_TRACES, with_changes
from ..runner.request import groups_of
from ..runner.screening import Case, Group
from .side_server import Collected, Selection, SideServer
from .sides import Side, checked_out


Run = Callable[[Group, int], Sequence[TestResult]]
"""Measures a group on one side, in a fresh process."""

NO_RESULT: Final = "the measuring process gave no result for this test"

ENDING_WORDS: Final = {
    Ending.FAILED: "failed",
    Ending.DIED: "could not be measured",
    Ending.SKIPPED: "was skipped",
    Ending.XFAILED: "was expected to fail and did",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Both:
    """One test on both sides, and the tolerance of its project; is it ``timed``?"""

    before: Case
    after: Case
    project: Tolerance
    timed: bool = True

    @property
    def measured(self) -> bool:
        """Whether it passed on both sides, each time."""
        cases = (self.before, self.after)
        return all(case.last.ending is Ending.PASSED for case in cases)

    @property
    def seconds(self) -> float:
        return self.before.seconds + self.after.seconds

    def judged(self, *, last: bool) -> list[Comparison]:
        """Judge each call that both sides make."""
        return [
            judge_call(
                _paired(self.before.calls[call], self.after.calls[call]),
                self.tolerance_of(call),
                last=last,
                timed=self.timed,
            )
            for call in self.after.calls
            if call in self.before.calls
        ]

    def tolerance_of(self, call: str) -> Tolerance:
        """Return what ``after`` tolerates."""
        newest = self.after.calls[call][-1]
        return merged((*newest.tolerances, self.project))

    def wants_more(self, seconds: float) -> bool:
        """Whether another pair may decide on a count, or on a time if *seconds* allow it."""
        unsettled = self._unsettled()
        if not unsettled or self.proving:
            return bool(unsettled)
        pairs = len(self.after.results)
        suspect = any(call.is_suspect for call in unsettled)
        least = FEWEST_TO_BLAME if suspect else LEAST_PAIRS
        return pairs < least or self.seconds * (1 + 1 / pairs) <= seconds

    @property
    def proving(self) -> str:
        """How many pairs agree on a change that is to be proven, and why more have to."""
        exact = (change for call in self._unsettled() for change in call.exact)
        if not any(change.gated and change.proving for change in exact):
            return ""
        calls = (*self.before.calls.values(), *self.after.calls.values())
        draws = (run.measurement.unseeded for runs in calls for run in runs)
        where = next(filter(None, draws), "")
        why = f", because {where}" if where else ""
        pairs = len(self.after.results)
        return f"{pairs} of {pairs} agree, {PROVING_RUNS} are asked for{why}"

    @property
    def seems_changed(self) -> bool:
        """Whether another pair is to confirm something."""
        return any(
            call.is_suspect or any(c.gated for c in call.exact)
            for call in self._unsettled()
        )

    def _unsettled(self) -> list[Comparison]:
        judged = self.judged(last=False) if self.measured else []
        return [call for call in judged if not call.settled]

    def uncompared(self) -> list[Comparison]:
        """Say what of it could not be compared, and why."""
        if not self.measured:
            return [self._why_unmeasured()]
        before, after = self.before.calls, self.after.calls
        if not before and not after:
            why = "it calls only gpuperf.compare, which pytest --gpuperf judges"
            if not any(result.comparisons for result in self.after.results):
                why = "it never calls gpuperf(step)"
            return [Comparison(test=self.after.test, uncompared=why)]
        return [
            Comparison(
                test=key, uncompared="after only" if key in after else "before only"
            )
            for key in sorted(before.keys() ^ after.keys())
        ]

    def _why_unmeasured(self) -> Comparison:
        before, after = self.before.last, self.after.last
        ended = [_in_words(before, "before"), _in_words(after, "after")]
        if _in_words(before, "") == _in_words(after, ""):
            ended = [_in_words(after, "before and after")]
        return Comparison(
            test=self.after.test,
            uncompared="; ".join(filter(None, ended)),
            broken=after.ending.fails and before.ending is Ending.PASSED,
        )


def _in_words(result: TestResult, side: str) -> str:
    ended = f"{ENDING_WORDS.get(result.ending, '')} {side}"
    text = result.headline or result.text
    return ": ".join(filter(None, (ended, text))) * (result.ending is not Ending.PASSED)


def _paired(before: Sequence[StepCall], after: Sequence[StepCall]) -> list[Pair]:
    """Put the runs of a pair together; a call may be missing from some."""
    return [
        (old.measurement, new.measurement)
        for old, new in zip(before, after, strict=False)
    ]


def run_pairs(  # noqa: PLR0913  what is measured, by whom, and two bounds
    groups: Sequence[Group],
    before: Run,
    after: Run,
    *,
    project: Tolerance,
    seconds: float,
    announce: Callable[[str], None],
    timed: bool = True,
    renew: Callable[[int], None] = lambda _: None,
) -> list[Both]:
    """Measure all *groups* in pairs until counts are decided, and times or out of *seconds*.

    Times count if they are *timed*. *renew* lets the processes of a pair, by its number,
    have nothing in common with those before it: a change is to be confirmed by them.
    """
    tests = [test for group in groups for test in group]
    both = {
        test: Both(before=Case(test), after=Case(test), project=project, timed=timed)
        for test in tests
    }
    for number in range(MOST_PAIRS):
        wanting = [
            group
            for group in groups
            if number == 0 or any(both[test].wants_more(seconds) for test in group)
        ]
        if not wanting:
            if number:  # else there was nothing to compare
                announce(f"compared in {counted(number, 'pair')}")
            break
        again = [test for group in wanting for test in group if number]
        proving = (both[test].proving for test in again)
        announce(_progress(number, wanting, next(filter(None, proving), "")))
        if any(both[test].seems_changed for test in again):
            renew(number)
        for group in wanting:
            _run_pair(group, number, before, after, both)
    return list(both.values())


def _progress(number: int, groups: Sequence[Group], proving: str) -> str:
    tests = counted(sum(map(len, groups)), "test")
    why = f"; {proving}" if proving else ""
    return f"pair {number + 1} of at most {MOST_PAIRS}: {tests}{why}"


def _run_pair(
    group: Group, number: int, before: Run, after: Run, both: Mapping[str, Both]
) -> None:
    turns: list[tuple[Run, Callable[[Both], Case]]] = [
        (before, lambda test: test.before),
        (after, lambda test: test.after),
    ]
    # A machine that warms up or slows down over a pair would always favour the same
    # side.
    if number % 2:
        turns.reverse()
    for run, case in turns:
        found = {result.test: result for result in run(group, number)}
        for test in group:
            lost = TestResult(test=test, ending=Ending.DIED, text=NO_RESULT)
            case(both[test]).results.append(found.get(test, lost))


# Whether the tests of both sides train the same: one process of each side, or two.
#
# This is asked before anything is measured. A process that measures makes as many steps
# as it has time for, and leaves another model to the next call of its test.


Train = Callable[[Group], Recorded]
"""Records a group on one side, in a fresh process."""

FEW: Final = 2
"""Runs of a side, which show whether it repeats itself."""


class Trainings:
    """Knows of each call what its training says, once it was asked."""

    def __init__(self, before: Train, after: Train) -> None:
        self._train = before, after
        self._runs: list[tuple[Recorded, Recorded]] = []

    def ask(
        self,
        groups: Sequence[Group],
        announce: Callable[[str], None],
        renew: Callable[[int], None],
    ) -> None:
        """Record all *groups*, and those that seem to differ again, in other processes."""
        for number in range(FEW):
            wanting = [g for g in groups if number == 0 or any(map(self._differs, g))]
            if not wanting:
                return
            announce(f"training {number + 1} of at most {FEW}: {_tests(wanting)}")
            renew(number)
            before, after = (_recorded(train, wanting) for train in self._train)
            self._runs.append((before, after))
        renew(0)

    def added_to(self, found: Comparison) -> Comparison:
        """Return *found* with what the training of its call says, if that was asked."""
        if not self._runs:
            return found
        return replace(found, training=self._judged(found.test))

    def _differs(self, test: str) -> bool:
        _, after = self._runs[0]
        calls = [call for call in after.records if nodeid_of(call) == test]
        differs = TrainingAnswer.DIFFERS
        return any(self._judged(call).answer is differs for call in calls)

    def _judged(self, call: str) -> Training:
        """Judge the runs that recorded *call* on both sides."""
        test = nodeid_of(call)
        pairs = [
            (before.records[call], after.records[call])
            for before, after in self._runs
            if call in before.records and call in after.records
        ]
        if pairs:
            before, after = zip(*pairs, strict=True)
            return judge_training(before, after)
        failed = {side.failed[test] for side in self._runs[0] if test in side.failed}
        why = next(iter(failed), "it made no step when it was run for that")
        return Training(answer=TrainingAnswer.NOT_COMPARED, text=why)


def _recorded(train: Train, groups: Sequence[Group]) -> Recorded:
    each = [train(group) for group in groups]
    return Recorded(
        records=dict(ChainMap(*(dict(found.records) for found in each))),
        failed=dict(ChainMap(*(dict(found.failed) for found in each))),
    )


def _tests(groups: Sequence[Group]) -> str:
    return counted(sum(map(len, groups)), "test")


# The lines of what a comparison of two versions blames.

WATCHED: Final = (Capability.KERNELS, Capability.HOST_WORK)
"""What a device has, one of them, if the time of its lines can be seen."""


def with_lines(
    calls: Mapping[str, Sequence[Comparison]],
    before: Side,
    after: SideServer,
    scratch: Path,
) -> tuple[Comparison, ...]:
    """Return all *calls*, by test, those that became worse with their lines.

    *after* runs once more for the time of its lines, with files in *scratch*.
    """
    slower = [
        test
        for test, made in calls.items()
        if any(STEP_MS.name in call.worse_metrics for call in made)
    ]
    timed = _timed(after, slower[:MOST_TRACES], scratch)
    changed = _changed_lines(before, after.side)

    def is_changed(at: Location) -> bool:
        return at.line in changed(_path_in(after, at))

    def located(call: Comparison) -> Comparison:
        lines = (*call.findings, *timed.get(call.test, ()))
        return replace(call, findings=with_changes(lines, is_changed, before.label))

    return tuple(
        located(call) if call.is_worse else call
        for made in calls.values()
        for call in made
    )


def _changed_lines(before: Side, after: Side) -> Callable[[str], frozenset[int]]:
    """Return what names the lines of a file that changed; none without a commit."""
    if before.repository is None:
        return lambda _: frozenset()
    changed, commit = before.repository.changed_lines, str(before.commit)
    return cache(partial(changed, commit, until=after.commit))


def _timed(
    after: SideServer, tests: Sequence[str], scratch: Path
) -> dict[str, tuple[Finding, ...]]:
    """Return by call the lines that take most of a step."""
    kind = after.collected.environment.hardware.kind
    if not tests or not any(map(kind.has, WATCHED)):
        return {}
    after.announce(f"the lines that take the time: {len(tests)} slower")
    found: dict[str, tuple[Finding, ...]] = {}
    for test in tests:
        # A device that does not come free is no reason to lose what was compared.
        with suppress(UsageError):
            for result in after.trace(test, scratch):
                for call in result.calls:
                    found[call.measurement.test] = call.measurement.findings
    return found


def _path_in(after: SideServer, at: Location) -> str:
    """Return the path by which git knows the file of *at*."""
    real = os.path.realpath(Path(after.collected.project.rootdir, at.file))
    return os.path.relpath(real, after.side.relocation.root)


# How times were compared, why in that way, and the smallest change it could detect.

PAIRS: Final = (
    "pairs of fresh processes in alternating order; each process has a speed of its "
    'own, so a pair is one number; "sees" is the smallest slowdown that these would '
    "have shown 9 times in 10"
)

PAIRS_WITHOUT_CLOCK: Final = "pairs of fresh processes; counts and bytes only"


def engine_in_words(calls: Sequence[Comparison]) -> str:
    """Say how *calls* were compared, up to the number of pairs, which comes next."""
    if calls and all(call.time is None for call in calls):
        return f"{PAIRS_WITHOUT_CLOCK}: {calls[0].no_time}"
    return PAIRS


Announce = Callable[[str], None]


def compare_versions(
    sides: tuple[Side, Side],
    selection: Selection,
    announce: Announce,
) -> AbRun:
    """Measure the tests that both *sides* have, in turns, and judge them.

    Whether they train the same is asked first, if *selection* says so.

    Raises ``UsageError`` if a side cannot be checked out or collected or imports code
    that is not its own, or if there is no test.
    """
    before, _ = sides
    # Closed in reverse: the fork servers end before the folder that they run in is
    # removed.
    with ExitStack() as opened:
        *both, folder = opened.enter_context(checked_out(sides))
        round_steps: dict[str, int] = {}  # those of both sides
        old, new = (
            opened.enter_context(
                closing(SideServer(side, selection, announce, round_steps))
            )
            for side in both
        )
        calls, uncompared = _compared(old, new, selection, announce)
        if not (calls or uncompared):
            raise UsageError(NO_TEST, ErrorId.GP709)
        located = with_lines(calls, before, new, folder)
        return _summed_up(located, uncompared, sides, new.collected)


def _compared(
    before: SideServer, after: SideServer, selection: Selection, announce: Announce
) -> tuple[dict[str, list[Comparison]], tuple[Comparison, ...]]:
    """Return the calls by test, and what could not be compared."""
    old, new = before.collect(), after.collect()
    alone = [*_only(old, new, "before only"), *_only(new, old, "after only")]
    tests = {planned.test for planned in old.plan}
    plan = [planned for planned in new.plan if planned.test in tests]
    settings = new.settings

    def renew(number: int) -> None:
        before.renew(number)
        after.renew(number)

    groups = groups_of(plan, settings.isolation)
    trainings = Trainings(before.train, after.train)
    if (
        selection.asks_training
        and new.environment.hardware.kind is not DeviceKind.SCRIPTED
    ):
        trainings.ask(groups, announce, renew)
    both = run_pairs(
        groups,
        before.run,
        after.run,
        project=settings.tolerance,
        seconds=settings.seconds,
        announce=announce,
        timed=not selection.exact_alone,
        renew=renew,
    )
    calls = {
        t.after.test: [*map(trainings.added_to, t.judged(last=True))]
        for t in both
        if t.measured
    }
    return calls, (*alone, *(found for test in both for found in test.uncompared()))


def _only(here: Collected, there: Collected, why: str) -> list[Comparison]:
    known = {planned.test for planned in there.plan}
    return [
        Comparison(test=planned.test, uncompared=why)
        for planned in here.plan
        if planned.test not in known
    ]


def _summed_up(
    calls: tuple[Comparison, ...],
    uncompared: tuple[Comparison, ...],
    sides: tuple[Side, Side],
    collected: Collected,
) -> AbRun:
    before, after = sides
    return AbRun(
        before=before.label,
        after=after.label,
        device=collected.environment.hardware.key,
        engine=engine_in_words(calls),
        calls=calls,
        uncompared=uncompared,
        notes=(*_same(before, after), *before.notes, *after.notes),
    )


def _same(before: Side, after: Side) -> list[str]:
    if before.commit is None or before.commit != after.commit:
        return []
    return ["both are the same commit: what differs here is noise"]


NO_TEST: Final = (
    "nothing to compare: found no test that takes the gpuperf fixture on either "
    "side; name the files of those that do after `--`"
)
