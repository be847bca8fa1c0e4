"""The numbers that a verdict on a time rests on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Rule(Enum):
    """Which rule decided, or which reason kept every rule from deciding."""

    UPPER_BOUND = "upper bound"
    T_AND_RANK = "t and rank"
    BUDGET = "budget"
    MORE_RUNS = "more runs"
    TOO_FEW_STORED = "too few stored runs"
    DIRTY = "dirty"
    SUITE_SHIFT = "suite-wide shift"
    ENVIRONMENT = "environment"
    NOISE = "noise"
    HOLM = "holm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the runs of one test say about one time, against a baseline or a budget.

    All but the counts and probabilities are ratios: 0.034 is 3.4 % slower. ``low``
    and ``high`` bound ``estimate`` with 95 % confidence. ``tolerance`` and ``detect``
    are those that held, the absolute floor included. ``runs`` counts the fresh runs
    that were used; it is 0 where all were disturbed and slow, the estimate is then
    theirs. ``smallest_detectable`` is the slowdown that five clean runs, or as many as
    a precision asks for, would have blamed with a probability of 90 %. ``discount`` is
    what the machine itself seems to have moved: positive where it was slower, which is
    taken off before code is blamed, negative where it was faster, which is added before
    code passes.
    ``p_regressed`` and ``p_improved`` are the chances of such runs if nothing had
    changed by more than the tolerance; ``None`` while runs are too few to blame.
    """

    estimate: float
    low: float
    high: float
    tolerance: float
    detect: float
    runs: int
    stored_runs: int
    smallest_detectable: float
    discount: float = 0.0
    p_regressed: float | None = None
    p_improved: float | None = None
    rule: Rule
