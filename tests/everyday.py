"""Which tests `make test` and `make matrix` run; `make test-all` runs the others.

They are those of the rooms that are not ``slow``, one test of each row of ``features.md``,
and those that compare the text of the package with its documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest


QUICK: Final = (
    "tests/test_agents.py",
    "tests/test_architecture.py",
    "tests/test_claims.py",
    "tests/test_features.py",
    "tests/test_reference.py",
    "tests/faults/test_printed_commands.py::test_every_command_that_can_be_printed_is_in_the_inventory",
    "tests/plugin/test_lazy_import.py::test_collecting",
    "tests/faults/test_printed_commands.py::test_the_inventory_holds_nothing_that_cannot_be_printed",
)
"""Beginnings of names: a change that forgets a text is red at once, and not after an hour."""

PAGE: Final = Path(__file__).with_name("features.md")


def first_of_rows(page: str) -> set[str]:
    """Return the test that each row of *page*, the table of features, names first."""
    return set(re.findall(r"^\| .* \| `(tests/[^`]+)`", page, re.MULTILINE))


def everyday(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield those of *items* that `make test` runs; of a row's test the first case."""
    rows = first_of_rows(PAGE.read_text(encoding="utf-8"))
    for item in items:
        name = item.nodeid.partition("[")[0]
        is_quick = item.nodeid.startswith("tests/unit/") and not any(
            item.iter_markers("slow")
        )
        if name in rows or is_quick or name.startswith(QUICK):
            yield item
        rows.discard(name)


def first_cases(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield of each test the first case that is not ``slow``: enough on another interpreter."""
    seen: set[str] = set()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name not in seen and not any(item.iter_markers("slow")):
            seen.add(name)
            yield item


DEAREST: Final = (
    "tests/test_examples.py",
    "tests/faults/test_training_regressions.py",
    "tests/plugin/test_ab_training.py",
)
"""Files with tests that take minutes: a worker that began one last would end alone."""


def is_no_dearest(item: pytest.Item) -> bool:
    """Whether *item* may begin after others: a key to sort by."""
    return not item.nodeid.startswith(DEAREST)
