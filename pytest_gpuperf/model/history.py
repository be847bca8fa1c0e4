"""Results of tests in run after run, as a history stores them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field


@dataclass(frozen=True, slots=True)
class Point:
    """One metric of one test in one run.

    ``recorded_at`` is UTC, ``2026-03-01T09:30:00Z``; ``value`` is in the metric's unit.
    ``commit`` and ``outcome``, a value of ``Outcome``, are ``None`` if nobody knows.
    ``dirty`` says that the code was not quite that of the commit.
    """

    recorded_at: str
    commit: str | None
    value: float
    outcome: str | None
    dirty: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """What one call of ``gpuperf(step)`` showed in one run: a line of a history file.

    ``hardware`` is the key of its baselines. ``metrics`` has what its verdicts call
    ``now``, in the metric's unit, ``outcomes`` the worst of each metric's verdicts;
    ``versions`` is the software. ``dirty`` is ``None`` if nobody knows.
    """

    test: str
    hardware: str
    recorded_at: str
    commit: str | None = None
    dirty: bool | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    outcomes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Series:
    """Names the points of one metric of one test on one kind of hardware."""

    test: str
    metric: str
    hardware: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A file in the folder of a history that is none of its files, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A point in a series at which its level changes.

    ``at`` is the number of the first point of the new level; the levels are medians
    from the shift before to the one behind.
    """

    at: int
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A series with its newest points, of *count* that there are."""

    series: Series
    points: tuple[Point, ...]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """A change of the level of a series, between the runs *last* and *first*."""

    series: Series
    shift: Shift
    last: Point
    first: Point
