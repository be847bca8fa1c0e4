"""Which tests there were to measure before any was deselected."""

from __future__ import annotations

from collections.abc import Generator
from collections.abc import Sequence
from typing import Final

import pytest

from .reported import is_measured
from .reported import node_id


class SelectionWatch:
    """Remembers the measured tests that were collected, and those that were left."""

    def __init__(self) -> None:
        self.collected: tuple[str, ...] = ()
        self.selected: tuple[str, ...] = ()

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


SELECTION: Final[pytest.StashKey[SelectionWatch]] = pytest.StashKey()


def _measured(items: Sequence[pytest.Item]) -> tuple[str, ...]:
    """Name them as their baselines do, and one that stands twice once."""
    return tuple(dict.fromkeys(node_id(item) for item in items if is_measured(item)))
