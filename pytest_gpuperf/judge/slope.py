"""A step that becomes slower with every step, against a ceiling for that.

A slope has no spread that another test could tell: it depends on how many steps a run
has, and how long they are. So at least two runs are needed, and their own scatter says
what is proven. Runs in which the machine was disturbed have none; that a step drifts is
no disturbance here, but what is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log

from ..model.measurement import Measurement
from ..model.metric import Metric
from ..model.verdict import Outcome
from ..model.verdict import Verdict
from .figure import against
from .reading import Reading
from .reading import impossible
from .reading import readings
from .spread import Spread
from .time_budget import judge_excess


def judge_slope_budget(
    metric: Metric, runs: Sequence[Measurement], limit: float, *, alpha: float = 0.01
) -> Verdict:
    """Judge by fresh *runs*, oldest first, whether the slope is above *limit* > 0.

    At least one of *runs* has measured it.
    """
    nonsense = impossible(metric, runs)
    seen = tuple(replace(reading, dirty=()) for reading in readings(metric, runs))
    if nonsense is None and len(seen) > 1:
        spread = Spread.of([log(reading.value) for reading in seen], None)
        assert spread is not None  # noqa: S101 - two runs have a spread
        return judge_excess(metric, seen, limit, spread, alpha=alpha)
    return Verdict(
        metric=metric.name,
        outcome=Outcome.INCONCLUSIVE,
        because=nonsense or _lonely(metric, seen[0], limit),
        now=None if nonsense else seen[0].value,
        limit=limit,
        settled=nonsense is not None,
    )


def _lonely(metric: Metric, reading: Reading, limit: float) -> str:
    compared = against(metric, reading.value, limit)
    return f"{compared} in one run, and only others can tell how far that is by chance"
