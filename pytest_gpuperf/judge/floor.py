"""A share that must not fall below a floor: missed only if proven, met only if proven.

The rules are those of time budgets, upside down: after 2, 3 and 5 runs a t test at a
third of alpha asks whether the mean is below, and every run must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..model.measurement import Measurement
from ..model.metric import Metric
from ..model.verdict import Outcome
from ..model.verdict import Verdict
from .comparison import mean
from .excess import log_excess
from .excess import value_at
from .figure import against
from .reading import WHOLE
from .reading import Reading
from .reading import dirt
from .reading import readings
from .reading import remaining_runs
from .spread import Spread
from .spread import ratio
from .time_budget import Excess
from .time_budget import deciding
from .time_budget import used


def judge_floor(
    metric: Metric, runs: Sequence[Measurement], least: float, *, alpha: float = 0.01
) -> Verdict:
    """Judge a share by its fresh *runs*, oldest first, against *least* percent.

    At least one of *runs* has measured it. Runs are taken to scatter as times do on
    such a device: by 1 % on a GPU.
    """
    seen = readings(metric, runs)
    verdict = partial(Verdict, metric=metric.name, limit=least)
    wrong = [r.value for r in seen if not 0 < r.value <= WHOLE]
    if wrong:
        because = f"not a share: {wrong[0]}"
        return verdict(outcome=Outcome.INCONCLUSIVE, because=because)
    spread = Spread.assumed(runs[-1].environment.hardware.kind)
    missing = deciding(used(metric, seen, least, spread), alpha)
    shown = missing.runs or tuple(log_excess(metric, r.value, least) for r in seen)
    now = min(WHOLE, value_at(metric, mean(shown), least))
    compared = against(metric, now, least)
    if missing.is_below:
        return verdict(outcome=Outcome.PASS, because=compared, now=now)
    if missing.is_over(alpha):
        because = (
            f"{compared}, below in each of {len(missing.runs)} runs and proven at "
            f"p = {missing.p_over:.1g}"
        )
        return verdict(outcome=Outcome.OVER_BUDGET, because=because, now=now)
    is_open = missing.may_decide(remaining_runs(seen))
    return verdict(
        outcome=Outcome.INCONCLUSIVE,
        because=f"{compared}{_doubt(missing, seen, is_open=is_open)}",
        now=now,
        settled=not is_open,
    )


def _doubt(missing: Excess, seen: Sequence[Reading], *, is_open: bool) -> str:
    if not missing.runs:
        why = f", but dirty: {dirt(seen)}"
    else:
        why = f", cannot tell +-{100 * ratio(missing.margin):.1f} %"
    if not is_open:
        return why
    most = len(seen) + remaining_runs(seen)
    return f" so far{why} after {len(seen)} of at most {most} runs"
