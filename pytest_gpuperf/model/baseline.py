"""Measurements that were accepted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from enum import Enum
from functools import lru_cache
from itertools import combinations_with_replacement
from math import exp, log
from statistics import median
from typing import Final

from .budget import Tolerance
from .environment import Capability, DeviceKind, Hardware
from .finding import StoredLine
from .measurement import Board, Distribution, FurtherSteps, Measurement
from .metrics import METRICS, OCCASIONAL
from .verdict import Outcome


# Baselines of tests that are gone.


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Entries that no test asks for; ``pruned`` if they were removed.

    ``gone`` are those of tests that do not exist any more.
    """

    entries: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    pruned: bool = False

    @property
    def removed(self) -> tuple[str, ...]:
        """What is to be taken out of the file."""
        return self.entries if self.pruned else ()


# Kinds of refresh: what each rewrites, leaves alone and refuses.


class Refresh(Enum):
    """Which tests' baselines a refresh replaces.

    ``EVIDENCE`` replaces none: it adds the runs of another session to the stored ones.
    """

    MISSING = "missing"
    IMPROVED = "improved"
    ALL = "all"
    EVIDENCE = "evidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A test with a baseline that was left alone, and one metric that shows why.

    ``stored`` and ``now`` are in the metric's unit. ``noise`` is the standard deviation
    from run to run, a ratio; ``None`` if the metric is exact.
    """

    test: str
    metric: str
    stored: float
    now: float
    noise: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A metric that got worse since its anchor, beyond ``limit``; all in its unit.

    ``bound`` says what the limit comes from: ``detect 3 %``.
    """

    test: str
    metric: str
    anchor: float
    now: float
    limit: float
    bound: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineChange:
    """A metric's typical value before and after, in its unit; ``None`` if it has none.

    ``anchor`` is the value that its drift is counted from, if it was stored before. Of
    each of them cuBLAS keeps ``workspace_bytes``.
    """

    test: str
    metric: str
    old: float | None
    new: float | None
    anchor: float | None = None
    workspace_bytes: int = 0

    @property
    def has_drifted(self) -> bool:
        """Whether the way from the anchor is another one than that from the old value."""
        return self.new is not None and self.anchor not in {None, self.old, self.new}


# The typical value of the stored runs of one time.


def typical_time(times: Sequence[float]) -> float:
    """Return the estimate of Hodges and Lehmann (1963) of *times*, positive, at least one.

    It is the median over the geometric means of all pairs, each time with itself too.
    Of 8 normal runs its variance is 1.07 times that of their mean, where a plain
    median's is 1.34, and two wild runs of eight do not carry it off.
    """
    return _typical(tuple(times))


@lru_cache(maxsize=1 << 15)
def _typical(times: tuple[float, ...]) -> float:
    """Cache the values of a large suite: each test and the whole suite ask for them."""
    # Scaled before the logarithm: equal times give exactly 0, and rounding stays small.
    scale = times[0]
    logs = [log(time / scale) for time in times]
    pairs = combinations_with_replacement(logs, 2)
    return scale * exp(median([first + second for first, second in pairs]) / 2)


FULL_RUNS: Final = 8
"""Runs that a refresh records: the knee of power against cost."""

EXACT_RUNS: Final = 2
"""Runs that a refresh records where there are no times: exact metrics have no spread."""

ENOUGH_RUNS: Final = 5
"""Stored runs without which nothing is called REGRESSED or IMPROVED."""

MOST_RUNS: Final = 20
"""Stored runs kept, the newest."""


def recorded_runs(refresh: Refresh | None, kind: DeviceKind, *, stored: bool) -> int:
    """Runs that a *refresh* makes of a test of which something is *stored* or nothing."""
    adds = refresh is Refresh.EVIDENCE and stored
    return min(SESSION_RUNS, full_runs(kind)) if adds else full_runs(kind)


def full_runs(kind: DeviceKind) -> int:
    """Runs that a refresh on a device of this *kind* records."""
    return FULL_RUNS if kind.has(Capability.CLOCK) else EXACT_RUNS


UNSTORED: Final = frozenset(metric.name for metric in OCCASIONAL.values())
"""Metrics of which a baseline stores nothing."""

GATED: Final = tuple(metric for metric in METRICS.values() if metric.gated)
"""Metrics that are judged by a baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What is kept of one run: no raw samples.

    ``round_steps`` are those of its ``Measurement``. ``session`` is the refresh or
    gate that made it; empty if nobody recorded it. ``further`` is its look at further
    steps.
    """

    times: Mapping[str, Distribution] = field(default_factory=dict)
    exact: Mapping[str, int] = field(default_factory=dict)
    board: Board = field(default_factory=Board)
    round_steps: int | None = None
    session: str = ""
    further: FurtherSteps | None = None

    @classmethod
    def of(cls, measurement: Measurement, session: str = "") -> RunSummary:
        look = measurement.further
        return cls(
            times=measurement.times,
            # What only some steps have is seen in one run and not in another.
            exact={n: v for n, v in measurement.exact.items() if n not in UNSTORED},
            board=measurement.board,
            round_steps=measurement.round_steps,
            session=session,
            further=replace(look, raised="")
            if look and look.last >= look.first
            else None,
        )


def cut_at(last: int, further: FurtherSteps) -> FurtherSteps:
    """Return the look with *last* as its last step, and nothing beyond that."""
    counts = {
        name: tuple(each for each in seen if each[0] <= last)
        for name, seen in further.counts.items()
    }
    seen = {name: found for name, found in counts.items() if found}
    return replace(further, last=last, counts=seen)


# Sessions: what a machine was like when a refresh or a gate measured on it.

SESSION_RUNS: Final = 5
"""Runs that a further session adds to a baseline: as many as a gate blames with."""

LEAST_GAP: Final = timedelta(minutes=30)
"""Time between the beginnings of two sessions below which they count as one.

Heat and clocks of a GPU settle within minutes; what lasts longer differs between days.
"""

NOT_STORED: Final = "0000"
"""In place of what tells a stored session from others of the same minute."""

_SESSION_TIME: Final = "%Y-%m-%dT%H:%MZ"


def session_id(begun: datetime, token: str = NOT_STORED) -> str:
    """Name the session that has *begun*, in UTC.

    *token* tells one that is stored from others of the same minute.
    """
    return f"{begun.astimezone(timezone.utc):{_SESSION_TIME}}-{token}"


def by_session(runs: Sequence[RunSummary]) -> tuple[tuple[RunSummary, ...], ...]:
    """Divide *runs* by their sessions; those that began soon after one belong to it.

    Runs of which nobody recorded the session are one together.
    """
    if len({run.session for run in runs}) == 1:
        return (tuple(runs),)  # as of most tests, and a suite has many
    sessions = _sessions(runs)
    found: dict[str, list[RunSummary]] = {}
    for run in runs:
        found.setdefault(sessions[run.session], []).append(run)
    return tuple(map(tuple, found.values()))


def is_of_one_session(runs: Sequence[RunSummary], now: str) -> bool:
    """Whether all of *runs* are of the session that is *now*; not if nobody knows."""
    sessions = {run.session for run in runs}
    if not now or "" in sessions or not sessions:
        return False
    since = [_begun(now) - _begun(session) for session in sessions]
    return all(timedelta(0) <= gap < LEAST_GAP for gap in since)


def spread_over_sessions(
    runs: Sequence[RunSummary], most: int
) -> tuple[RunSummary, ...]:
    """Return *most* of the *runs*: the oldest of the most crowded session go first.

    So a new session does not push an old one out while any has two runs.
    """
    kept, sessions = list(runs), _sessions(runs)
    while len(kept) > most:
        counts = Counter(sessions[run.session] for run in kept)
        crowded = max(counts.values())
        kept.remove(
            next(run for run in kept if counts[sessions[run.session]] == crowded)
        )
    return tuple(kept)


def _sessions(runs: Sequence[RunSummary]) -> dict[str, str]:
    """Map each recorded session to the first of those that count as one with it."""
    found: dict[str, str] = {}
    first = ""
    for session in sorted({run.session for run in runs}):
        if not (first and _begun(session) - _begun(first) < LEAST_GAP):
            first = session
        found[session] = first
    return found


@lru_cache(maxsize=1 << 12)
def _begun(session: str) -> datetime:
    return datetime.fromisoformat(session.partition("Z")[0] + "+00:00")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """The memory of a step at its peak, by purpose.

    Nothing is judged by it: a report shows how it has changed since.
    """

    peak_bytes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, measurement: Measurement) -> StepSummary | None:
        """Sum up *measurement*; ``None`` if it does not say."""
        held = (dict(found.held_for) for found in measurement.findings)
        peak = next(filter(None, held), {})
        return cls(peak_bytes=peak) if peak else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The outcomes of an entry in the run that measured it, and its tolerance.

    ``disturbed`` says that it has runs which something else disturbed.
    """

    outcomes: Mapping[str, tuple[Outcome, ...]] = field(default_factory=dict)
    tolerance: Tolerance = field(default_factory=Tolerance)
    disturbed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The baseline of one test: its runs, newest last.

    ``anchor`` has the oldest accepted values, as far as the runs have others now. Only a
    pending entry has ``judged``. ``lines`` did something in its newest run; ``None`` if
    that was not recorded yet. ``step`` sums up a step of that run.
    """

    runs: tuple[RunSummary, ...]
    software: Mapping[str, str] = field(default_factory=dict)
    anchor: Mapping[str, float] = field(default_factory=dict)
    judged: Judged | None = None
    lines: tuple[StoredLine, ...] | None = None
    step: StepSummary | None = None


def rounded(value: float) -> float:
    """*value* to four significant digits, a count or a size as it is."""
    return value if isinstance(value, int) else float(f"{value:.4g}")


def typical_values(entry: Entry, kind: DeviceKind) -> dict[str, float]:
    """Return what *entry* says of each gated metric that it has, in the metric's unit.

    Typical is where the runs of a time lie (``typical_time``), and the largest of a
    count or size; both as they are stored, to four digits.
    """
    values = {m.name: _typical_of(m.name, entry.runs, kind) for m in GATED}
    return {name: value for name, value in values.items() if value is not None}


def _typical_of(
    name: str, runs: Sequence[RunSummary], kind: DeviceKind
) -> float | None:
    times = [run.times[name].location(kind) for run in runs if name in run.times]
    if times:
        return rounded(typical_time(times))
    return max((run.exact[name] for run in runs if name in run.exact), default=None)


def with_anchor(entry: Entry, anchors: Mapping[str, float], kind: DeviceKind) -> Entry:
    """Give *entry* those of *anchors* that its runs do not say by themselves."""
    typical = typical_values(entry, kind)
    own = {name: v for name, v in anchors.items() if typical.get(name) != v}
    return replace(entry, anchor=own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """All entries of one hardware, by test.

    ``is_old`` says that they were read from a file of an earlier format.
    """

    hardware: Hardware
    entries: Mapping[str, Entry] = field(default_factory=dict)
    is_old: bool = field(default=False, compare=False)


# What becomes of stored values when others are accepted.


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptancePlan:
    """What is written, what is left alone and what is refused, and why.

    ``thin`` are entries that would replace one of ``enough`` runs by one of fewer,
    ``missed`` those of them that were to be accepted. Of those in ``counted`` only counts
    and bytes are written, which two runs prove. ``adds`` says that runs are only added, and
    ``unfit`` are those that are none of the stored code, or disturbed.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    kept: tuple[Kept, ...] = ()
    drifts: tuple[Drift, ...] = ()
    thin: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    adds: bool = False
    enough: int = 1

    @property
    def drifted(self) -> tuple[str, ...]:
        """The calls that are refused because of drift."""
        return tuple(dict.fromkeys(drift.test for drift in self.drifts))

    @property
    def weak(self) -> tuple[str, ...]:
        """The calls that are accepted from few runs."""
        few = (k for k, e in self.entries.items() if len(e.runs) < self.enough)
        return () if self.adds else tuple(few)
