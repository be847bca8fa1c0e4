"""Where the stored runs of one time lie: one number that stands for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from math import exp
from math import log
from statistics import median


def typical_time(times: Sequence[float]) -> float:
    """Return the estimate of Hodges and Lehmann (1963) of *times*, positive, at least one.

    It is the median over the geometric means of all pairs, each time with itself too.
    Of 8 normal runs its variance is 1.07 times that of their mean, where a plain
    median's is 1.34, and two wild runs of eight do not carry it off.
    """
    scale = times[0]
    logs = [log(time / scale) for time in times]
    pairs = combinations_with_replacement(logs, 2)
    return scale * exp(median([first + second for first, second in pairs]) / 2)
