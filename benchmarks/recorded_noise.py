"""Step times of three training steps in 88 processes, recorded once and kept.

Every process ran each workload: 300 steps alone, of which two windows of 100 are kept,
then 150 quads of two copies of the step in turns, kept where the machine was quiet.
62 more sessions ran the same step in two processes in turns; of each the difference
is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from typing import Final

import numpy as np
from noise_profiles import Array
from numpy.random import Generator
from numpy.typing import NDArray


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
    guarded: bool,
    stored: int = 8,
) -> Choice:
    """Choose *stored* and *fresh* processes for each of *tests*, none of them twice.

    Fresh ones follow one another in time, or are *spread* over it. Where the machine
    is *guarded* no disturbed process is stored.
    """
    count = len(source)
    allowed = np.flatnonzero(source.clean) if guarded else np.arange(count)
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


def quiet_quads() -> list[Array]:
    """Return series of quads in log time, by quad and block, of identical steps."""
    return [
        np.log(np.array(series["blocks_us"]) / 1e3).reshape(-1, 4)
        for series in recorded()["quads"]
    ]


def pair_differences() -> Mapping[str, Array]:
    """Return by workload how pairs of processes with the same step differ, in logs."""
    found: dict[str, list[float]] = {workload: [] for workload in WORKLOADS}
    for pairs in recorded()["pairs"]:
        found[pairs["workload"]] += pairs["log_ratios"]
    return {workload: np.array(ratios) for workload, ratios in found.items()}


@lru_cache(maxsize=1)
def recorded() -> Mapping[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))
