"""Noise: step times as three kinds of GPU would show them, and those that were recorded.

The logarithm of a step's time is a sum: what its session, its process and its step
add, a slow drift, now and then a change of clocks, and a tail to the right. Some
processes are slow as a whole, as by throttling or a neighbour, and such states last.
Nothing of it was measured on a GPU.

Recorded once are three training steps in 88 processes on a CPU. Each ran each workload:
300 steps, of which two windows of 100 are kept. 62 more sessions ran the same step in two
processes in turns; of each the difference is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray


Array = NDArray[np.float64]

STEPS: Final = 100
"""Steps of a run."""

STORED: Final = 8
FRESH: Final = 5
"""Runs of a test."""

AT_ONCE: Final = 1000
"""Tests that are in memory together."""

MEMORY: Final = 0.97
"""Share of the slow drift that a step leaves to the next."""

SENTINEL_SEES: Final = (0.3, 1.2)
"""Share of a machine's state that a sentinel sees; each test draws its own."""

SENTINEL_NOISE: Final = 0.003

SPREAD_OUT: Final = 3.0
"""By how much rarer a slow state is still there when the re-run was put off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Standard deviations and ranges of log time; shares are of steps or of runs.

    ``shift`` is a change of clocks within a run; ``slow_run`` what a slow run adds;
    ``lasting`` the chance that the next run is slow too.
    """

    name: str
    white: float
    drift: float
    tail_share: float
    tail_mean: float
    run: float
    session: float
    shift_share: float
    shift: tuple[float, float]
    slow_share: float
    slow_run: tuple[float, float]
    lasting: float


LOCKED: Final = Profile(
    name="locked",
    white=0.003,
    drift=0.0005,
    tail_share=0.005,
    tail_mean=0.05,
    run=0.0015,
    session=0.001,
    shift_share=0.02,
    shift=(0.003, 0.010),
    slow_share=0.005,
    slow_run=(0.01, 0.03),
    lasting=0.3,
)
"""A GPU of its own, its clocks locked."""

BOOST: Final = Profile(
    name="boost",
    white=0.007,
    drift=0.004,
    tail_share=0.010,
    tail_mean=0.10,
    run=0.005,
    session=0.004,
    shift_share=0.10,
    shift=(0.005, 0.020),
    slow_share=0.02,
    slow_run=(0.02, 0.06),
    lasting=0.4,
)
"""A GPU of its own that chooses its clocks."""

SHARED: Final = Profile(
    name="shared",
    white=0.020,
    drift=0.010,
    tail_share=0.050,
    tail_mean=0.20,
    run=0.015,
    session=0.010,
    shift_share=0.20,
    shift=(0.010, 0.040),
    slow_share=0.08,
    slow_run=(0.03, 0.15),
    lasting=0.6,
)
"""A GPU with neighbours, or one that throttles."""

PROFILES: Final = (LOCKED, BOOST, SHARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Many tests in which nothing changed: times around 1, and logs of sentinels.

    ``stored`` and ``fresh`` are by test, run and step, the sentinels by test and run.
    """

    stored: Array
    fresh: Array
    stored_sentinels: Array
    fresh_sentinels: Array


def draws(profile: Profile, tests: int, random: Generator) -> Iterator[Draw]:
    """Draw *tests* in portions; stored runs are of a session each, fresh ones of one."""
    for start in range(0, tests, AT_ONCE):
        yield _draw(profile, min(AT_ONCE, tests - start), random)


def _draw(profile: Profile, tests: int, random: Generator) -> Draw:
    then = [_machine(profile, tests, 1, random) for _ in range(STORED)]
    machine = np.concatenate([*then, _machine(profile, tests, FRESH, random)], axis=1)
    runs = machine + random.normal(0, profile.run, machine.shape)
    times = np.exp(runs[..., None] + _steps(profile, machine.shape, random))
    seen = random.uniform(*SENTINEL_SEES, (tests, 1)) * machine
    sentinels = seen + random.normal(0, SENTINEL_NOISE, machine.shape)
    return Draw(
        stored=times[:, :STORED],
        fresh=times[:, STORED:],
        stored_sentinels=sentinels[:, :STORED],
        fresh_sentinels=sentinels[:, STORED:],
    )


def _machine(profile: Profile, tests: int, runs: int, random: Generator) -> Array:
    """Return what the machine adds to the runs of one session, by test and run."""
    added = np.empty((tests, runs))
    slow = np.zeros(tests, dtype=bool)
    for run in range(runs):
        lasting = profile.lasting / SPREAD_OUT
        chance = np.where(slow, lasting, profile.slow_share)
        slow = random.random(tests) < chance
        added[:, run] = slow * random.uniform(*profile.slow_run, tests)
    return added + random.normal(0, profile.session, (tests, 1))


def _steps(profile: Profile, shape: tuple[int, ...], random: Generator) -> Array:
    """Return what the steps of so many runs add, with one more axis."""
    logs = random.normal(0, profile.white, (*shape, STEPS))
    logs += _drift(profile, (*shape, STEPS), random)
    shifted = random.random(shape) < profile.shift_share
    size = random.uniform(*profile.shift, shape) * random.choice((-1, 1), shape)
    since = random.integers(0, STEPS, shape)
    logs += (np.arange(STEPS) >= since[..., None]) * (shifted * size)[..., None]
    return logs + _tail(profile, logs.shape, random)


def _drift(profile: Profile, shape: tuple[int, ...], random: Generator) -> Array:
    drift = random.normal(0, profile.drift * sqrt(1 - MEMORY**2), shape)
    drift[..., 0] = random.normal(0, profile.drift, shape[:-1])
    for step in range(1, shape[-1]):
        drift[..., step] += MEMORY * drift[..., step - 1]
    return drift


def _tail(profile: Profile, shape: tuple[int, ...], random: Generator) -> Array:
    tail = np.zeros(shape)
    hit = random.random(shape) < profile.tail_share
    tail[hit] = np.log1p(random.exponential(profile.tail_mean, int(hit.sum())))
    return tail


# What was recorded.

FILE: Final = Path(__file__).parent / "recorded_noise.json"

WORKLOADS: Final = ("mlp", "conv", "attention")

BUSY: Final = 0.9
"""CPU time over wall time below which a process was disturbed."""

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """One workload in many processes, oldest first; times in milliseconds.

    ``early`` and ``late`` are two windows of each process, by process and step.
    """

    early: Array
    late: Array
    clean: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.clean)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which processes are stored and which are fresh, by test and run."""

    stored: Indices
    fresh: Indices

    def first(self, tests: int) -> Choice:
        return Choice(stored=self.stored[:tests], fresh=self.fresh[:tests])


def processes(workload: str, *, quiet: bool) -> Processes:
    """Return the processes of the last, quiet phase, or of all three phases."""
    runs = [
        run
        for run in recorded()["runs"]
        if run["workload"] == workload and (run["phase"] == "quiet" or not quiet)
    ]
    return Processes(
        early=np.array([run["early_us"] for run in runs]) / 1e3,
        late=np.array([run["late_us"] for run in runs]) / 1e3,
        clean=np.array([run["busy"] > BUSY for run in runs]),
    )


def choose(  # noqa: PLR0913  how a baseline and a gate come about
    source: Processes,
    tests: int,
    random: Generator,
    *,
    fresh: int,
    spread: bool,
    stored: int = 8,
) -> Choice:
    """Choose *stored* and *fresh* processes for each of *tests*, none of them twice.

    Fresh ones follow one another in time, or are *spread* over it. No disturbed process
    is stored.
    """
    count = len(source)
    allowed = np.flatnonzero(source.clean)
    chosen = np.empty((tests, stored + fresh), dtype=np.int64)
    for row in chosen:
        if spread:
            now = random.choice(count, fresh, replace=False)
        else:
            now = (random.integers(0, count) + np.arange(fresh)) % count
        rest = np.setdiff1d(allowed, now)
        row[:stored] = random.choice(rest, stored, replace=False)
        row[stored:] = now
    return Choice(stored=chosen[:, :stored], fresh=chosen[:, stored:])


def choose_in_a_row(
    source: Processes, tests: int, random: Generator, *, stored: int = 8, fresh: int = 8
) -> Choice:
    """Choose undisturbed processes that follow one another, and others that do.

    So a refresh and a gate of *tests* come about, each at a time of its own.
    """
    allowed, chosen = np.flatnonzero(source.clean), []
    while len(chosen) < tests:
        start = random.integers(0, len(allowed) - stored + 1)
        then = allowed[start : start + stored]
        now = (random.integers(0, len(source)) + np.arange(fresh)) % len(source)
        if not np.intersect1d(then, now).size:
            chosen.append(np.concatenate([then, now]))
    rows = np.array(chosen)
    return Choice(stored=rows[:, :stored], fresh=rows[:, stored:])


def pair_differences() -> Mapping[str, Array]:
    """Return by workload how pairs of processes with the same step differ, in logs."""
    found: dict[str, list[float]] = {workload: [] for workload in WORKLOADS}
    for pairs in recorded()["pairs"]:
        found[pairs["workload"]] += pairs["log_ratios"]
    return {workload: np.array(ratios) for workload, ratios in found.items()}


@lru_cache(maxsize=1)
def recorded() -> Mapping[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))
