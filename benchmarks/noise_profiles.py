"""Step times as three kinds of GPU would show them; nothing of it was measured on one.

The logarithm of a step's time is a sum: what its session, its process and its step
add, a slow drift, now and then a change of clocks, and a tail to the right. Some
processes are slow as a whole, as by throttling or a neighbour, and such states last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Final

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

COPIES: Final = 0.001
"""Lasting difference, a standard deviation, between two copies of one step."""


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


def quads(profile: Profile, series: int, length: int, random: Generator) -> Array:
    """Return *series* of *length* quads of two copies of one step, in log time.

    By series, quad and block: before, after, after, before, whatever their order was.
    """
    blocks = 4 * length
    logs = _drift(profile, (series, blocks), random)
    logs += random.normal(0, profile.white, logs.shape)
    logs += _tail(profile, logs.shape, random)
    for row in logs:
        for _ in range(random.poisson(profile.shift_share * blocks / STEPS)):
            change = random.uniform(*profile.shift) * random.choice((-1, 1))
            row[random.integers(0, blocks) :] += change
    found = logs.reshape(series, length, 4)
    after_first = random.random((series, length)) < 0.5
    found[after_first] = found[after_first][:, [1, 0, 3, 2]]
    found[..., 1:3] += random.normal(0, COPIES, (series, 1, 1))
    return found
