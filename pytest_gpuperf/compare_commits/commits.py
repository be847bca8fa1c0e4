"""One version of the project against another, from checkout to verdicts."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from contextlib import ExitStack
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from ..errors import ErrorId
from ..errors import UsageError
from ..model.ab import AbResult
from ..model.ab import AbRun
from ..model.ab import Comparison
from ..runner.git import Repository
from ..runner.plan import groups_of
from ..runner.relocation import Relocation
from .one_process import Together
from .pairs import run_pairs
from .side import Collected
from .side import Selection
from .side import Side
from .side import SidePlace
from .slow_lines import Blamed
from .versions import Checkout
from .versions import Version


# How times were compared, why in that way, and the smallest change it could detect.

PAIRS: Final = (
    "pairs of fresh processes in alternating order; each process has a speed of its "
    'own, so a pair is one number; "sees" is the smallest slowdown that these would '
    "have shown 9 times in 10"
)

PAIRS_WITHOUT_CLOCK: Final = "pairs of fresh processes, for what is exact alone"

TOGETHER: Final = (
    "times by both versions in turns in one process, which share its conditions; "
    '"sees" is the smallest slowdown that so many steps would have shown 9 times in 10'
)

EXACT: Final = "what is exact by pairs of fresh processes"

APART: Final = "compared in pairs of processes, as one cannot hold both"


def engine_in_words(calls: Sequence[Comparison]) -> str:
    """Say how *calls* were compared, up to the number of pairs, which comes next."""
    times = [call.time for call in calls if call.time is not None]
    shared = [time for time in times if time.steps]
    if calls and not times:
        return f"{PAIRS_WITHOUT_CLOCK}: {calls[0].no_time}"
    if not shared:
        return PAIRS
    words = f"{TOGETHER}; {_effort(shared)}"
    if len(shared) < len(times):
        rest = f"{len(times) - len(shared)} of {len(times)} tests"
        return f"{words}; {rest}, and {EXACT}"
    return f"{words}; {EXACT}"


def _effort(times: Sequence[AbResult]) -> str:
    steps = _span([f"{time.steps}" for time in sorted(times, key=lambda t: t.steps)])
    seconds = _span(
        [f"{time.seconds:.1f}" for time in sorted(times, key=lambda t: t.seconds)]
    )
    return f"{steps} steps in {seconds} s a test"


def _span(ascending: Sequence[str]) -> str:
    least, most = ascending[0], ascending[-1]
    return least if least == most else f"{least} to {most}"


def apart_in_words(calls: Sequence[Comparison]) -> list[str]:
    """Say why one process could not run both: once, if all have the same reason."""
    reasons = {call.test: call.apart for call in calls if call.apart}
    if len(reasons) == len(calls) and len(set(reasons.values())) == 1:
        return [f"{APART}: {next(iter(reasons.values()))}"]
    return [f"{test}: {APART}: {reason}" for test, reason in reasons.items()]


Announce = Callable[[str], None]


class NothingComparedError(UsageError):
    """No test could be compared; ``uncompared`` has the reason for each test."""

    def __init__(self, uncompared: Sequence[Comparison]) -> None:
        super().__init__(_nothing(uncompared), ErrorId.GP709)
        self.uncompared = tuple(uncompared)


def compare_versions(
    repository: Repository,
    versions: tuple[Version, Version],
    selection: Selection,
    *,
    preload: Sequence[str],
    announce: Announce,
) -> AbRun:
    """Measure the tests that both *versions* have, in turns, and judge them.

    Raises ``UsageError`` if a side cannot be checked out or collected or imports code
    that is not its own, and ``NothingComparedError`` if that is so.
    """
    before, after = versions
    # Closed in reverse: the fork servers end before the folder that they run in is
    # removed.
    with ExitStack() as opened:
        trees = [
            *before.trees(repository, "before"),
            *after.trees(repository, "after"),
        ]
        checkout = opened.enter_context(closing(Checkout(trees)))
        round_steps: dict[str, int] = {}  # those of both sides
        sides = [
            opened.enter_context(
                closing(Side(_place(repository, v, at), preload, announce, round_steps))
            )
            for v, at in (
                (before, Path(checkout.folder, "before")),
                (after, Path(checkout.folder, "after")),
            )
        ]
        blamed = Blamed(
            repository=repository,
            versions=versions,
            after=sides[-1],
            scratch=Path(checkout.folder),
            announce=announce,
        )
        return _compared(sides, versions, selection, blamed)


def _place(repository: Repository, version: Version, checked_out: Path) -> SidePlace:
    """Return the place of *version*: the checkout, or the working tree as it is."""
    root = repository.top if version.commit is None else str(checked_out.resolve())
    relocation = Relocation(origin=repository.top, root=root)
    directory = Path(root, Path.cwd().resolve().relative_to(repository.top))
    if not directory.is_dir():
        msg = (
            f"{version.label}: has no folder {directory.relative_to(root)}; run gpuperf "
            "ab in a folder that both versions have"
        )
        raise UsageError(msg, ErrorId.GP707)
    return SidePlace(
        label=version.label, relocation=relocation, directory=str(directory)
    )


def _compared(
    sides: Sequence[Side],
    versions: tuple[Version, Version],
    selection: Selection,
    blamed: Blamed,
) -> AbRun:
    before, after = sides
    old, new = before.collect(selection), after.collect(selection)
    alone = [*_only(old, new, "before only"), *_only(new, old, "after only")]
    tests = {planned.test for planned in old.plan}
    plan = [planned for planned in new.plan if planned.test in tests]
    settings = new.settings
    both = run_pairs(
        groups_of(plan, settings.isolation),
        before.run,
        after.run,
        project=settings.tolerance,
        seconds=settings.seconds,
        announce=blamed.announce,
        together=Together(before, after, settings.seconds) if new.can_share else None,
        renew=partial(_renew, sides),
    )
    calls = {t.after.test: t.judged(last=True) for t in both if t.measured}
    uncompared = (*alone, *(found for test in both for found in test.uncompared()))
    return _summed_up(blamed.located(calls), uncompared, versions, new)


def _renew(sides: Sequence[Side], number: int) -> None:
    for side in sides:
        side.renew(number)


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
    versions: tuple[Version, Version],
    collected: Collected,
) -> AbRun:
    before, after = versions
    if not calls and not any(found.is_worse for found in uncompared):
        raise NothingComparedError(uncompared)
    return AbRun(
        before=before.label,
        after=after.label,
        device=collected.environment.hardware.key,
        engine=engine_in_words(calls),
        calls=calls,
        uncompared=uncompared,
        notes=(
            *apart_in_words(calls),
            *_same(before, after),
            *before.notes,
            *after.notes,
        ),
    )


def _same(before: Version, after: Version) -> list[str]:
    if before.commit is None or before.commit != after.commit:
        return []
    return ["both are the same commit: what differs here is noise"]


def _nothing(uncompared: Sequence[Comparison]) -> str:
    if not uncompared:
        return (
            "nothing to compare: found no test that takes the gpuperf fixture on either "
            "side; name the files of those that do after `--`"
        )
    reasons = "; ".join(f"{found.test}: {found.uncompared}" for found in uncompared)
    return f"nothing could be compared: {reasons}"
