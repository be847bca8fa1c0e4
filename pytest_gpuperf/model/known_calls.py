"""Calls and the tests that make them: a call's key is its test's id, perhaps ``#`` and a name."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from typing import Generic
from typing import TypeVar


Known = TypeVar("Known")


def nodeid_of(call: str) -> str:
    """Return the node id of a call; the ``#`` of a parameter names none."""
    test, end, _ = call.rpartition("]#")
    if end or call.endswith("]"):
        return f"{test}]" if end else call
    return call.partition("#")[0]


class KnownCalls(Generic[Known]):
    """What is known of calls, found by their tests: a suite may have thousands."""

    def __init__(self, by_call: Mapping[str, Known]) -> None:
        self._found: dict[str, dict[str, Known]] = {}
        for call, known in by_call.items():
            self.learn(call, known)

    def learn(self, call: str, known: Known) -> None:
        """Keep what is *known* of *call*, unless something already is."""
        self._found.setdefault(nodeid_of(call), {}).setdefault(call, known)

    def of(self, tests: Collection[str]) -> dict[str, Known]:
        """Return it by the calls of *tests*."""
        of_tests = [self._found.get(test, {}) for test in tests]
        return {call: known for one in of_tests for call, known in one.items()}
