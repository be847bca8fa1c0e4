"""What several runs of one commit came to together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import NamedTuple

from .baseline import Baselines
from .results import Record
from .results import Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The results of one run, the file they stand in, and what it left to be accepted."""

    source: str
    results: Results
    pending: Baselines | None = None


class Found(NamedTuple):
    """What came of a test, and the file that says so; a tuple, for there are many."""

    record: Record
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """All shards as one run.

    ``tests`` are what came of each measured test, by the key of its hardware and by node
    id. ``missing`` were collected and not measured by any shard, ``lost`` never reported.
    ``objections`` are sentences on what makes the whole fail beside its tests.
    """

    shards: int
    exit_status: int
    tests: Mapping[str, Mapping[str, Found]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    objections: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    pending: tuple[Baselines, ...] = ()
