"""Records which measured tests were collected before any was deselected."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Final

import pytest

from ..baselines.refresh import Seen
from ..worker.items import is_measured, node_id, place_of
from .parse_settings import narrowed_by


class SelectionWatch:
    """Remembers the measured tests that were collected, and those that were left.

    ``others`` are the tests that are not to be measured.
    ``files`` are those that were collected whole, ``skipped`` those that skipped
    themselves, ``where`` is the line of each test.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._narrowed = narrowed_by(config)
        self.collected: tuple[str, ...] = ()
        self.others: tuple[str, ...] = ()
        self.selected: tuple[str, ...] = ()
        self.files: tuple[str, ...] = ()
        self.skipped: tuple[str, ...] = ()
        self.where: Mapping[str, str] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        # Classes are collected too, and only a whole file shows that a test in it is
        # gone.
        if "::" in report.nodeid:
            return
        if report.passed:
            self.files = (*self.files, report.nodeid)
        elif report.skipped:
            self.skipped = (*self.skipped, report.nodeid)

    # pytest deselects in plain implementations of this hook. The outermost wrapper sees
    # the items before all of them.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: Sequence[pytest.Item]
    ) -> Generator[None, None, None]:
        """Look before ``-k``, ``-m`` or a plugin takes the tests of other shards away."""
        self.collected = _measured(items)
        self.others = tuple(node_id(item) for item in items if not is_measured(item))
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.selected = _measured(session.items)
        self.where = {
            node_id(item): place_of(item) for item in session.items if is_measured(item)
        }

    @property
    def seen(self) -> Seen:
        """What this run knows about existing tests."""
        return Seen(
            tests=self.collected,
            others=self.others,
            files=frozenset(self.files),
            skipped=self.skipped,
            obstacle=self._obstacle(),
        )

    @property
    def nothing_because(self) -> str:
        """Say why there was nothing to measure."""
        taking, others = len(self.collected), len(self.others)
        if taking:
            takes = (
                "the 1 test that takes"
                if taking == 1
                else f"all {taking} tests that take"
            )
            was = "was" if taking == 1 else "were"
            return f"{takes} the gpuperf fixture {was} deselected"
        if others:
            none = "the 1 test collected does not take"
            none = (
                none if others == 1 else f"none of the {others} tests collected takes"
            )
            return f"{none} the gpuperf fixture"
        return "no test was collected"

    def _obstacle(self) -> str:
        """Say why not every test was looked at; nothing if it was."""
        if self._narrowed:
            return f"{self._narrowed} selects some of the tests"
        left_out = len(set(self.collected).difference(self.selected))
        tests = "1 test was" if left_out == 1 else f"{left_out} tests were"
        return f"{tests} deselected" if left_out else ""


SELECTION: Final[pytest.StashKey[SelectionWatch]] = pytest.StashKey()


def _measured(items: Sequence[pytest.Item]) -> tuple[str, ...]:
    """Return the names that their baselines have, without repetitions."""
    return tuple(dict.fromkeys(node_id(item) for item in items if is_measured(item)))
