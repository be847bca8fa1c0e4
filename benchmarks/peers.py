"""How other tools decide whether a step became slower, on the same times.

Each rule takes the times of stored and of fresh runs, by test, run and step, and says
which tests it blames. Rules that compare one run with one take the oldest of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from noise_profiles import Array
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu


Blamed = NDArray[np.bool_]

COMPARE_FAIL: Final = 0.05
"""Threshold of the examples in pytest-benchmark's manual."""

ASV_FACTOR: Final = 1.1
ASV_P: Final = 0.002

CRITERION_NOISE: Final = 0.01
CRITERION_RESAMPLES: Final = 1000
"""Criterion draws 100,000, which takes longer and changes little."""

SMOKE_RATIO: Final = 0.03
SMOKE_RUNS: Final = 3
SMOKE_SLOW: Final = 2


@dataclass(frozen=True, slots=True)
class Peer:
    """A tool's rule, with the default or the documented threshold."""

    name: str
    blames: Callable[[Array, Array], Blamed]


def compare_fail_min(stored: Array, fresh: Array) -> Blamed:
    """``--benchmark-compare-fail=min:5%``: the least time against that of one run."""
    return fresh[:, 0].min(axis=1) > (1 + COMPARE_FAIL) * stored[:, 0].min(axis=1)


def compare_fail_median(stored: Array, fresh: Array) -> Blamed:
    """``--benchmark-compare-fail=median:5%``."""
    now, then = np.median(fresh[:, 0], axis=1), np.median(stored[:, 0], axis=1)
    return now > (1 + COMPARE_FAIL) * then


def mann_whitney(stored: Array, fresh: Array) -> Blamed:
    """Find steps that differ at p < .002 by a Mann-Whitney test of one run each."""
    test = mannwhitneyu(fresh[:, 0], stored[:, 0], axis=1, method="asymptotic")
    slower = np.median(fresh[:, 0], axis=1) > np.median(stored[:, 0], axis=1)
    return (test.pvalue < ASV_P) & slower


def asv(stored: Array, fresh: Array) -> Blamed:
    """``asv compare``: the same test, and medians that differ by a factor of 1.1."""
    now, then = np.median(fresh[:, 0], axis=1), np.median(stored[:, 0], axis=1)
    return mann_whitney(stored, fresh) & (now > ASV_FACTOR * then)


def criterion(stored: Array, fresh: Array) -> Blamed:
    """Criterion.rs: bootstrapped 95 % interval of the mean's ratio, all above 1 %."""
    first, second = _weights(stored.shape[-1])
    ratios = (fresh[:, 0] @ first) / (stored[:, 0] @ second)
    return np.quantile(ratios, 0.025, axis=1) > 1 + CRITERION_NOISE


@lru_cache(maxsize=1)
def _weights(steps: int) -> tuple[Array, Array]:
    """Return what each step weighs in the mean of each resample, once for each side."""
    random = np.random.default_rng(1)
    shares = np.full(steps, 1 / steps)
    drawn = random.multinomial(steps, shares, (2, CRITERION_RESAMPLES)) / steps
    return drawn[0].T.copy(), drawn[1].T.copy()


def smoke_test(stored: Array, fresh: Array) -> Blamed:
    """PyTorch's smoke test: 2 of 3 runs 3 % above the median of the stored medians."""
    expected = np.median(np.median(stored, axis=2), axis=1)
    runs = np.median(fresh[:, :SMOKE_RUNS], axis=2)
    slow = runs > (1 + SMOKE_RATIO) * expected[:, None]
    return slow.sum(axis=1) >= SMOKE_SLOW


PEERS: Final = (
    Peer("pytest-benchmark, min +5 %", compare_fail_min),
    Peer("pytest-benchmark, median +5 %", compare_fail_median),
    Peer("Mann-Whitney, p < .002", mann_whitney),
    Peer("asv, the same and x 1.1", asv),
    Peer("Criterion, bootstrap, 1 %", criterion),
    Peer("PyTorch, 2 of 3 above 3 %", smoke_test),
)
