"""Whether a step takes longer the more steps were made, by the rounds that timed it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import exp
from math import log
from statistics import median
from typing import Final


STEPS: Final = 100
"""Steps over which a change of the time of a step is told."""

LEAST_ROUNDS: Final = 5

MOST_LOG: Final = 10.0
"""A factor of e**10 over ``STEPS`` steps: what is more is no better known."""


def slope_of(rounds_ms: Sequence[float], steps: int) -> float | None:
    """Return the time of a step, divided by that of a step ``STEPS`` steps earlier.

    *rounds_ms* are the times of a step in rounds of *steps* steps that followed each
    other. The line through their logarithms is that of Theil and Sen: its slope is the
    median of those of all pairs, which a quarter of disturbed rounds does not move
    (Sen, 1968). ``None`` for fewer than ``LEAST_ROUNDS`` rounds, and where a step
    takes no time at all.
    """
    if len(rounds_ms) < LEAST_ROUNDS or min(rounds_ms) <= 0:
        return None
    logs = [log(ms) for ms in rounds_ms]
    pairs = combinations(range(len(logs)), 2)
    a_round = median((logs[j] - logs[i]) / (j - i) for i, j in pairs)
    change = a_round * STEPS / steps
    return exp(max(-MOST_LOG, min(MOST_LOG, change)))
