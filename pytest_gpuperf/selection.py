"""Which tests there were to measure before any was deselected."""

from __future__ import annotations

from collections.abc import Generator
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from .narrowing import narrowed_by
from .pruning import Seen
from .reported import is_measured
from .reported import node_id


class SelectionWatch:
    """Remembers the measured tests that were collected, and those that were left.

    ``files`` are those that were collected whole, ``skipped`` those that skipped
    themselves, ``where`` is the line of each test.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._narrowed = narrowed_by(config)
        self.collected: tuple[str, ...] = ()
        self.selected: tuple[str, ...] = ()
        self.files: list[str] = []
        self.skipped: list[str] = []
        self.where: Mapping[str, str] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if "::" in report.nodeid:
            return
        if report.passed:
            self.files.append(report.nodeid)
        elif report.skipped:
            self.skipped.append(report.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: Sequence[pytest.Item]
    ) -> Generator[None, None, None]:
        """Look before ``-k``, ``-m`` or a plugin takes the tests of other shards away."""
        self.collected = _measured(items)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.selected = _measured(session.items)
        self.where = {
            node_id(item): place_of(item) for item in session.items if is_measured(item)
        }

    @property
    def seen(self) -> Seen:
        """What this run knows of the tests that there are."""
        return Seen(
            tests=self.collected,
            files=frozenset(self.files),
            skipped=tuple(self.skipped),
            obstacle=self._obstacle(),
        )

    def _obstacle(self) -> str:
        """Say why not every test was looked at; nothing if it was."""
        if self._narrowed:
            return f"{self._narrowed} selects some of the tests"
        left_out = len(set(self.collected).difference(self.selected))
        tests = "1 test was" if left_out == 1 else f"{left_out} tests were"
        return f"{tests} deselected" if left_out else ""


SELECTION: Final[pytest.StashKey[SelectionWatch]] = pytest.StashKey()


def place_of(item: pytest.Item) -> str:
    """File and line, from 1, of *item*; its file where no line is known."""
    file, line, _ = item.location
    path = Path(file).as_posix()
    return path if line is None else f"{path}:{line + 1}"


def _measured(items: Sequence[pytest.Item]) -> tuple[str, ...]:
    """Name them as their baselines do, and one that stands twice once."""
    return tuple(dict.fromkeys(node_id(item) for item in items if is_measured(item)))
