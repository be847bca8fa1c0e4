"""Finds stored entries of tests that are gone, as far as one run can know."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field

from ..model.baseline import Leftovers


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The tests to measure that a run collected, and the files it collected whole.

    ``others`` are the tests that are not to be measured. ``skipped`` are files that skipped themselves while they were collected. ``obstacle`` says why this run cannot know which tests there are; empty if it can.
    """

    tests: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
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

    *calls* has the calls of each test that passed, *exists* returns whether a file
    exists. Nothing is known about a file that exists and was not collected.
    """
    if seen.obstacle:
        return Leftovers(obstacle=seen.obstacle if prune else "")
    stale = tuple(_stale(keys, seen, calls, exists))
    there = {*seen.tests, *seen.others}
    gone = tuple(key for key in stale if _test_of(key, there) is None)
    return Leftovers(entries=stale, gone=gone, pruned=prune)


def unmeasured(
    stored: Iterable[str], passed: Collection[str], measured: Collection[str]
) -> tuple[str, ...]:
    """Return the *stored* calls of tests that *passed* without being *measured*."""
    return tuple(
        key
        for key in sorted(stored)
        if key not in measured and _test_of(key, passed) is not None
    )


def owns_one(tests: Collection[str], stored: Iterable[str]) -> bool:
    """Whether one of the *stored* calls is of one of the *tests*."""
    return any(_test_of(key, tests) is not None for key in stored)


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
            # A test that did not pass may not have come to all its calls, so all count
            # as made.
            if key not in calls.get(test, (key,)):
                yield key
        elif file in seen.files or not exists(file):
            yield key


def _test_of(key: str, tests: Collection[str]) -> str | None:
    """Return the test that made the call *key*; parameters may contain a ``#``."""
    test = key
    while test not in tests:
        test, sign, _ = test.rpartition("#")
        if not sign:
            return None
    return test
