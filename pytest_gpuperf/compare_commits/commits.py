"""One version of the project against another."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Final

from ..errors import ErrorId, UsageError
from ..model.ab import AbRun, Comparison
from ..model.environment import Capability, DeviceKind
from ..model.finding import Finding, Location
from ..model.metrics import STEP_MS
from ..runner.evidence import MOST_TRACES, with_changes
from ..runner.request import groups_of
from .pairs import Trainings, run_pairs
from .side_server import Collected, Selection, SideServer
from .sides import Side, checked_out


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
