"""Stored entries whose tests are gone, as far as one run can know."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field

from .model.leftovers import Leftovers


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The tests to measure that a run collected, and the files it collected whole.

    ``skipped`` are files that skipped themselves while they were collected. ``obstacle`` says why this run cannot know which tests there are; empty if it can.
    """

    tests: tuple[str, ...] = ()
    files: frozenset[str] = field(default_factory=frozenset)
    skipped: tuple[str, ...] = ()
    obstacle: str = ""


def leftovers(
    keys: Iterable[str],
    seen: Seen,
    calls: Mapping[str, Collection[str]],
    exists: Callable[[str], bool],
    *,
    prune: bool,
) -> Leftovers:
    """Find the entries among *keys* that no test will ask for again.

    *calls* are those that each test made which passed, *exists* tells whether a file is
    there. Nothing is known of a file that is there and was not collected.
    """
    if seen.obstacle:
        return Leftovers(obstacle=seen.obstacle if prune else "")
    return Leftovers(entries=tuple(_stale(keys, seen, calls, exists)), pruned=prune)


def _stale(
    keys: Iterable[str],
    seen: Seen,
    calls: Mapping[str, Collection[str]],
    exists: Callable[[str], bool],
) -> Iterator[str]:
    tests = set(seen.tests)
    for key in sorted(keys):
        test, file = _test_of(key, tests), key.partition("::")[0]
        if test is not None:
            if key not in calls.get(test, (key,)):
                yield key
        elif file in seen.files or not exists(file):
            yield key


def _test_of(key: str, tests: Collection[str]) -> str | None:
    """Return the test that made the call *key*; a parameter may hold a ``#``, too."""
    test = key
    while test not in tests:
        test, sign, _ = test.rpartition("#")
        if not sign:
            return None
    return test
