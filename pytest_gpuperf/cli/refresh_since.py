"""``gpuperf refresh --since=LOCK``: which tests an update leaves equal or better."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..compare_commits.commits import Announce
from ..compare_commits.commits import compare_versions
from ..compare_commits.search import worse_of
from ..compare_commits.side_server import Selection
from ..compare_commits.sides import present
from ..compare_commits.sides import versions
from ..environments.cache import PackageCache
from ..environments.cache import default_place
from ..environments.overlay import PackageChange
from ..environments.overlay import overlay
from ..model.ab import AbOutcome
from ..model.ab import AbRun
from ..model.ab import Comparison
from ..model.baseline import Refresh
from ..model.units import counted
from ..report.command import Invocation
from ..report.command import refresh_command
from ..report.wrapping import uncut
from ..report.wrapping import wrapped
from ..runner.git import Repository


PROVEN: Final = frozenset({AbOutcome.SAME, AbOutcome.BETTER})

TEST_OF: Final = re.compile(r"[^\[#]*(\[.*\])?")
"""The node id in the key of a call, which may have a name after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The tests that are ``proven`` equal or better, and why each of the others is not.

    ``timed`` says that the times of all that are proven were judged as well.
    """

    proven: tuple[str, ...]
    others: dict[str, str]
    timed: bool = True

    @classmethod
    def of(cls, found: AbRun) -> Proof:
        """Sum *found* up: a test is proven if all of its calls are."""
        calls = (*found.calls, *found.uncompared)
        unproven = (call for call in calls if call.outcome not in PROVEN)
        others = {_test(call): _why(call, found) for call in unproven}
        tests = dict.fromkeys(map(_test, calls))
        proven = tuple(t for t in tests if t not in others)
        timed = all(call.time for call in calls if _test(call) in proven)
        return cls(proven=proven, others=others, timed=timed)

    def lines(self, run: Invocation) -> Iterator[str]:
        """Say it: the sum, a sentence for each test that is not proven, and what stores it."""
        total = counted(len(self.proven) + len(self.others), "test")
        exact = "training, counts and bytes; time was not judged"
        compared = "training, counts, bytes and time" if self.timed else exact
        sum_ = (
            f"gpuperf: of {total} {len(self.proven)} the same or better in {compared}"
        )
        yield from wrapped(f"{sum_}; {len(self.others)} for a person to decide")
        for test, why in self.others.items():
            yield from wrapped(f"{test}: {why}", first="    ", rest="        ")
        if self.others:
            tests = [*map(argument_of, self.others)]
            command = refresh_command(Refresh.ALL, run, tests, accept_drift=True)
            yield from uncut("accept", command)


def prove(since: str, arguments: tuple[str, ...], announce: Announce) -> Proof:
    """Compare what was *since* a lock file, or a commit, with what is here now.

    Raises ``UsageError`` if there is nothing to compare.
    """
    selection = Selection(arguments=arguments, asks_training=True)
    if not Path(since).is_file():
        both = versions(Repository.containing(Path.cwd()), since, None)
        return Proof.of(compare_versions(both, selection, announce))
    with closing(PackageCache(default_place())) as cache:
        here = present()
        change = PackageChange.to_lock(Path(since))
        old = here.with_packages(overlay(change, cache, announce))
        return Proof.of(compare_versions((old, here), selection, announce))


def argument_of(test: str) -> str:
    """Return what selects *test* here: its id begins at the root of the tests."""
    file, colons, name = test.partition("::")
    here = Path.cwd()
    root = next((at for at in (here, *here.parents) if (at / file).exists()), here)
    return f"{os.path.relpath(root / file)}{colons}{name}"


def _test(call: Comparison) -> str:
    found = TEST_OF.match(call.test)
    return found[0] if found else call.test


def _why(call: Comparison, found: AbRun) -> str:
    worse = [
        f"{m} {moved}" for (c, m), moved in worse_of(found).items() if c == call.test
    ]
    time = call.time.why if call.time else call.no_time
    differs = call.outcome is AbOutcome.DIFFERS
    training = call.training.text if call.training and differs else ""
    why = call.uncompared.partition("\n")[0] or training or ", ".join(worse) or time
    return f"{call.outcome.value}: {why}"
