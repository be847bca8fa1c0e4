"""Whether the tests of both sides train the same: one process of each side, or two.

This is asked before anything is measured. A process that measures makes as many steps as
it has time for, and leaves another model to the next call of its test.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ..judge.training import judge_training
from ..model.ab import Comparison
from ..model.metric import counted
from ..model.run import nodeid_of
from ..model.training import Recorded, Training, TrainingAnswer
from ..runner.screening import Group


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
