"""What is to be measured and how a measuring process finds it."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from .gate import Group
from .settings import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A selected test: its node id, the argument that selects it, its module."""

    test: str
    argument: str
    module: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Where the tests are and how a child must be started to find them."""

    rootdir: Path
    directory: str
    search_path: tuple[str, ...]
    arguments: tuple[str, ...]
    options: Mapping[str, object]


def groups_of(plan: Sequence[Planned], isolation: Isolation) -> list[Group]:
    """Return the tests that share a fresh process, in the order of *plan*."""
    if isolation is Isolation.TEST:
        return [(planned.test,) for planned in plan]
    return [
        tuple(planned.test for planned in together)
        for _, together in groupby(plan, key=lambda planned: planned.module)
    ]
