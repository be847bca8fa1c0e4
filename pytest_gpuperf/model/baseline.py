"""Measurements that were accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import Final

from .budget import Tolerance
from .environment import DeviceKind
from .environment import Hardware
from .measurement import Board
from .measurement import Distribution
from .measurement import Measurement
from .verdict import Outcome


FULL_RUNS: Final = 8
"""Runs that a refresh records: the knee of power against cost."""

EXACT_RUNS: Final = 2
"""Runs that a refresh records where there are no times: exact metrics have no spread."""

ENOUGH_RUNS: Final = 5
"""Stored runs without which nothing is called REGRESSED or IMPROVED."""

MOST_RUNS: Final = 20
"""Stored runs kept, the newest."""


def full_runs(kind: DeviceKind) -> int:
    """Runs that a refresh on a device of this *kind* records."""
    return EXACT_RUNS if kind is DeviceKind.PRETEND else FULL_RUNS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What is kept of one run: no raw samples."""

    times: Mapping[str, Distribution] = field(default_factory=dict)
    exact: Mapping[str, int] = field(default_factory=dict)
    board: Board = field(default_factory=Board)

    @classmethod
    def of(cls, measurement: Measurement) -> RunSummary:
        return cls(
            times=measurement.times, exact=measurement.exact, board=measurement.board
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The commit that code was measured at; ``dirty`` where it was changed since."""

    commit: str
    dirty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a run said of an entry that it measured, by metric, and what it tolerated."""

    outcomes: Mapping[str, tuple[Outcome, ...]] = field(default_factory=dict)
    tolerance: Tolerance = field(default_factory=Tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The baseline of one test: its runs, newest last, and the oldest accepted values.

    ``origin`` is ``None`` where nobody recorded it, or no version control was there.
    ``judged`` stands beside what is pending alone.
    """

    runs: tuple[RunSummary, ...]
    software: Mapping[str, str] = field(default_factory=dict)
    anchor: Mapping[str, float] = field(default_factory=dict)
    origin: Origin | None = None
    judged: Judged | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """All entries of one hardware, by test."""

    hardware: Hardware
    entries: Mapping[str, Entry] = field(default_factory=dict)
