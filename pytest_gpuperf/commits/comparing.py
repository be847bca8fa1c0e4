"""One version of the project against another, from checkout to verdicts."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from contextlib import ExitStack
from contextlib import closing
from pathlib import Path

from ..errors import UsageError
from ..model.commit_comparison import CommitComparison
from ..model.commit_comparison import Uncompared
from ..plan import groups_of
from ..runs.relocation import Relocation
from .checkout import Checkout
from .collected import Collected
from .collected import Selection
from .engines import apart_in_words
from .engines import engine_in_words
from .pairs import Both
from .pairs import run_pairs
from .repository import Repository
from .side import Place
from .side import Side
from .together import Together
from .version import Version


Announce = Callable[[str], None]


class NothingComparedError(UsageError):
    """No test could be compared; ``uncompared`` says why of each that there is."""

    def __init__(self, uncompared: Sequence[Uncompared]) -> None:
        super().__init__(_nothing(uncompared))
        self.uncompared = tuple(uncompared)


def compare_versions(
    repository: Repository,
    versions: tuple[Version, Version],
    selection: Selection,
    *,
    preload: Sequence[str],
    announce: Announce,
) -> CommitComparison:
    """Measure the tests that both *versions* have, in turns, and judge them.

    Raises ``UsageError`` where a side cannot be checked out or collected or imports code
    that is not its own, and ``NothingComparedError`` where that is so.
    """
    before, after = versions
    with ExitStack() as opened:
        trees = [
            *before.trees(repository, "before"),
            *after.trees(repository, "after"),
        ]
        checkout = opened.enter_context(closing(Checkout(trees)))
        sides = [
            opened.enter_context(
                closing(Side(_place(repository, v, at), preload, announce))
            )
            for v, at in (
                (before, Path(checkout.folder, "before")),
                (after, Path(checkout.folder, "after")),
            )
        ]
        return _compared(sides, versions, selection, announce)


def _place(repository: Repository, version: Version, checked_out: Path) -> Place:
    """Put *version* where it stands; the working tree stays where it is."""
    root = repository.top if version.commit is None else str(checked_out.resolve())
    relocation = Relocation(origin=repository.top, root=root)
    directory = Path(root, Path.cwd().resolve().relative_to(repository.top))
    if not directory.is_dir():
        msg = (
            f"{version.label}: has no folder {directory.relative_to(root)}; run gpuperf "
            "ab in a folder that both versions have"
        )
        raise UsageError(msg)
    return Place(label=version.label, relocation=relocation, directory=str(directory))


def _compared(
    sides: Sequence[Side],
    versions: tuple[Version, Version],
    selection: Selection,
    announce: Announce,
) -> CommitComparison:
    before, after = sides
    old, new = before.collect(selection), after.collect(selection)
    alone = [*_only(old, new, "before only"), *_only(new, old, "after only")]
    tests = {planned.test for planned in old.plan}
    plan = [planned for planned in new.plan if planned.test in tests]
    both = run_pairs(
        groups_of(plan, new.isolation),
        before.run,
        after.run,
        project=new.tolerance,
        seconds=new.seconds,
        announce=announce,
        together=Together(before, after, new.seconds) if new.can_share else None,
    )
    return _summed_up(both, alone, versions, new)


def _only(here: Collected, there: Collected, why: str) -> list[Uncompared]:
    known = {planned.test for planned in there.plan}
    return [
        Uncompared(test=planned.test, why=why)
        for planned in here.plan
        if planned.test not in known
    ]


def _summed_up(
    both: Sequence[Both],
    alone: Sequence[Uncompared],
    versions: tuple[Version, Version],
    collected: Collected,
) -> CommitComparison:
    before, after = versions
    uncompared = (*alone, *(found for test in both for found in test.uncompared()))
    calls = tuple(c for test in both if test.measured for c in test.judged(last=True))
    if not calls and not any(found.is_worse for found in uncompared):
        raise NothingComparedError(uncompared)
    return CommitComparison(
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


def _nothing(uncompared: Sequence[Uncompared]) -> str:
    if not uncompared:
        return (
            "nothing to compare: found no test that takes the gpuperf fixture on either "
            "side; name the files of those that do after `--`"
        )
    told = "; ".join(f"{found.test}: {found.why}" for found in uncompared)
    return f"nothing could be compared: {told}"
