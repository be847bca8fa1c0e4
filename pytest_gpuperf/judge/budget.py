"""Absolute ceilings: which of them hold on this hardware, and whether they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Final

from ..model.budget import Budget
from ..model.environment import DeviceKind
from ..model.environment import Hardware
from ..model.gpu_metric import BUSY
from ..model.measurement import Measurement
from ..model.metric import MIB
from ..model.metric import SPEEDUP
from ..model.metric import Kind
from ..model.metric import Metric
from ..model.metric import Unit
from ..model.metric import limited_by
from ..model.rank_metric import RANK_SKEW
from ..model.step_metric import SLOPE
from ..model.verdict import Outcome
from ..model.verdict import Verdict
from .figure import against
from .figure import figure
from .figure import percent
from .figure import plain
from .reading import readings


TIMED_KINDS: Final = frozenset({DeviceKind.CUDA, DeviceKind.SCRIPTED})
"""Where a time budget binds that names no device."""


PERCENTAGES: Final = frozenset({RANK_SKEW.name, SLOPE.name})
"""Ratios that are limited by how many percent they may be above 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedBudget:
    """The ceilings that hold here, by budget keyword in the keyword's unit.

    ``unbound`` says of every other keyword that was named why it does not bind.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    unbound: Mapping[str, str] = field(default_factory=dict)

    def without(self, *keywords: str) -> ResolvedBudget:
        """Return the rest, where *keywords* limit something else."""
        return ResolvedBudget(
            limits={k: v for k, v in self.limits.items() if k not in keywords},
            unbound={k: v for k, v in self.unbound.items() if k not in keywords},
        )


def resolve(layers: Sequence[Budget], hardware: Hardware) -> ResolvedBudget:
    """Merge budgets, highest precedence first, into what holds on *hardware*.

    Per keyword the first layer wins that names it and binds here; ``None`` in that
    layer lifts the ceiling.
    """
    limits: dict[str, float] = {}
    unbound: dict[str, str] = {}
    for keyword in dict.fromkeys(k for layer in layers for k in layer.limits):
        limit, skipped = _first_bound(keyword, layers, hardware)
        if limit is not None:
            limits[keyword] = limit
        elif skipped is not None:
            unbound[keyword] = _why_unbound(keyword, skipped, hardware)
    return ResolvedBudget(limits=limits, unbound=unbound)


def _first_bound(
    keyword: str, layers: Sequence[Budget], hardware: Hardware
) -> tuple[float | None, Budget | None]:
    """Return the limit that holds, and the first limit that was meant for elsewhere."""
    skipped: Budget | None = None
    for layer in (layer for layer in layers if keyword in layer.limits):
        limit = layer.limits[keyword]
        if _binds(layer, keyword, hardware):
            return limit, skipped
        if skipped is None and limit is not None:
            skipped = layer
    return None, skipped


def _binds(layer: Budget, keyword: str, hardware: Hardware) -> bool:
    if layer.on is not None:
        names = (hardware.kind.value, hardware.name, hardware.key)
        return any(
            fnmatchcase(name.lower(), pattern.lower())
            for pattern in layer.on
            for name in names
        )
    if layer.limits[keyword] is None:
        return True
    return hardware.kind in TIMED_KINDS or not is_time(keyword)


def is_time(keyword: str) -> bool:
    """Whether *keyword* limits times, which bind on their own hardware only.

    So does how far the times of ranks lie apart; a speedup holds wherever it is.
    """
    return keyword != SPEEDUP.budget and any(
        metric.kind is Kind.NOISY for metric in limited_by(keyword)
    )


def _why_unbound(keyword: str, layer: Budget, hardware: Hardware) -> str:
    written = f"{keyword}={plain(layer.limits[keyword] or 0)}"
    here = f"{hardware.kind.value} {hardware.name}"
    if layer.on is not None:
        return f"{written} is meant for {', '.join(layer.on)}, this is {here}"
    if hardware.kind is DeviceKind.PRETEND:
        return f"{written} binds on cuda only, the pretend device has no clock"
    if keyword == BUSY.budget:
        return f"{written} binds on cuda only, this is {here}, which has no kernels"
    return f"{written} binds on cuda only, this is {here}; name it with on="


def ceiling(metric: Metric, limit: float) -> float:
    """Convert *limit* from its budget keyword's unit to the metric's.

    MiB become bytes; a skew of 10 percent is a ratio of 1.1, and so is a slope.
    """
    if metric.name in PERCENTAGES:
        return 1 + limit / 100
    return limit * MIB if metric.unit is Unit.BYTES else limit


def judge_exact_budget(
    metric: Metric, runs: Sequence[Measurement], limit: float
) -> Verdict:
    """Judge a count or size against the ceiling *limit*, in the metric's unit.

    At least one of *runs* has measured it. ``now`` is the number the verdict rests on.
    A prediction decides nothing where the ceiling is nearer than it may be off.
    """
    values = [reading.value for reading in readings(metric, runs)]
    low, high = min(values), max(values)
    compared = against(metric, low, limit)
    off = metric.error * limit
    if high <= limit - off:
        outcome, because = Outcome.PASS, against(metric, high, limit)
    elif off and low <= limit + off:
        outcome = Outcome.INCONCLUSIVE
        because = (
            f"{against(metric, high, limit)}, and the prediction may be off by "
            f"{percent(metric.error)}"
        )
    elif low <= limit:
        outcome = Outcome.INCONCLUSIVE
        because = f"{figure(metric, high)} in one run, {figure(metric, low)} in another"
    elif len(values) == 1:
        outcome, because = Outcome.OVER_BUDGET, f"{compared} in 1 run"
    else:
        outcome = Outcome.OVER_BUDGET
        because = f"{compared} in each of {len(values)} runs"
    return Verdict(
        metric=metric.name,
        outcome=outcome,
        because=because,
        now=high if outcome is Outcome.PASS else low,
        limit=limit,
        settled=outcome is not Outcome.OVER_BUDGET or len(values) > 1,
    )
