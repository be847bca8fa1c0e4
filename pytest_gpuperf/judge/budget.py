"""Budgets: absolute ceilings that apply on this hardware, and whether they are met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from ..model.budget import Budget
from ..model.environment import Capability, Hardware
from ..model.measurement import Fit, Forecast, Measurement
from ..model.metrics import (
    BUSY,
    MIB,
    RANK_SKEW,
    SPEEDUP,
    Metric,
    MetricKind,
    Unit,
    limited_by,
)
from ..model.verdict import Outcome, Verdict
from .exact import PROVING_RUNS, bytes_beneath, in_runs, is_random
from .readings import against, figure, percent, plain, readings


PERCENTAGES: Final = frozenset({RANK_SKEW.name})
"""Ratios that are limited by how many percent they may be above 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedBudget:
    """The ceilings that apply here, by budget keyword in the keyword's unit.

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
    """Merge budgets, highest precedence first, into the limits on *hardware*.

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
    """Return the limit that applies, and the first one that was meant for elsewhere."""
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
        names = hardware.names
        return any(
            fnmatchcase(name.lower(), pattern.lower())
            for pattern in layer.on
            for name in names
        )
    # Lifting a ceiling needs no clock, so it binds on every device.
    if layer.limits[keyword] is None:
        return True
    return hardware.kind.has(Capability.GPU_TIMES) or not is_time(keyword)


def is_time(keyword: str) -> bool:
    """Whether *keyword* limits times, which bind on their own hardware only.

    So does the skew between ranks; a speedup applies on any hardware.
    """
    return keyword != SPEEDUP.budget and any(
        metric.kind is MetricKind.NOISY for metric in limited_by(keyword)
    )


def _why_unbound(keyword: str, layer: Budget, hardware: Hardware) -> str:
    written = f"{keyword}={plain(layer.limits[keyword] or 0)}"
    here = f"{hardware.kind.value} {hardware.name}"
    if layer.on is not None:
        return f"{written} is meant for {', '.join(layer.on)}, this is {here}"
    if not hardware.kind.has(Capability.CLOCK):
        return f"{written} binds on cuda only, the simulated GPU has no clock"
    if keyword == BUSY.budget:
        return f"{written} binds on cuda only, this is {here}, which has no kernels"
    return f"{written} binds on cuda only, this is {here}; name it with on="


def ceiling(metric: Metric, limit: float) -> float:
    """Convert *limit* from its budget keyword's unit to the metric's.

    MiB become bytes; a skew of 10 percent is a ratio of 1.1.
    """
    if metric.name in PERCENTAGES:
        return 1 + limit / 100
    return limit * MIB if metric.unit is Unit.BYTES else limit


def judge_exact_budget(
    metric: Metric, runs: Sequence[Measurement], limit: float
) -> Verdict:
    """Judge a count or size against the ceiling *limit*, in the metric's unit.

    At least one of *runs* has measured it. ``now`` is the number the verdict rests on.
    A prediction decides nothing if the ceiling is nearer than it may be off; and what is
    only a bound blames nobody.
    """
    values = [reading.value for reading in readings(metric, runs)]
    low, high = min(values), max(values)
    compared = against(metric, low, limit)
    # What libraries keep is known: only the rest is a prediction.
    beneath = bytes_beneath(metric, runs)
    off = metric.error * ((limit if limit > beneath else low) - beneath)
    if high <= limit - off:
        outcome, because = Outcome.PASS, against(metric, high, limit)
    elif off and low <= limit + off:
        outcome = Outcome.INCONCLUSIVE
        because = (
            f"{against(metric, high, limit)}, and the prediction may be off by "
            f"{percent(metric.error)}"
        )
    elif bounds := [
        run.at_most[metric.name] for run in runs if metric.name in run.at_most
    ]:
        outcome = Outcome.INCONCLUSIVE
        because = f"{against(metric, high, limit)}, and {bounds[0]}"
    elif low <= limit:
        outcome = Outcome.INCONCLUSIVE
        because = f"{figure(metric, high)} in one run, {figure(metric, low)} in another"
    else:
        outcome, because = Outcome.OVER_BUDGET, f"{compared} {in_runs(values)}"
    is_drawn = is_random(metric, runs, values)
    enough = PROVING_RUNS if is_drawn else 2
    is_proven = outcome is not Outcome.OVER_BUDGET or len(values) >= enough
    return Verdict(
        metric=metric.name,
        outcome=outcome,
        because=because,
        now=high if outcome is Outcome.PASS else low,
        limit=limit,
        settled=is_proven,
        proving=not is_proven and is_drawn,
    )


# Does a predicted peak fit a GPU, within the error of the prediction?

GIB: Final = 2**30

ALLOCATED_ERROR: Final = 0.05
"""Two recordings were off by 0.05 % and 0.03 %; they are of one family of models."""

RESERVED_ERROR: Final = 0.10
"""The same two were off by 0.2 % and 0.5 %; fragmentation depends on more."""

COMPILED_ERROR: Final = 0.25
"""Compiled code reserved up to 20 % more than eager code, of which the prediction is."""

ROOMY: Final = 2
"""How often a guess has to fit: nobody knows how far it is off."""

CONTEXT_BYTES: Final = GIB * 3 // 4
"""What the CUDA context and libraries take besides the allocator: the gap between the
published memory of that ladder and its recorded reserved bytes, 740 to 776 MiB."""


LIKELY_STEPS: Final = 100_000
"""Steps that a program may well run: a list of losses that needs more to fill the memory may
be emptied before."""


def grown_at(forecast: Forecast, gib: float) -> int:
    """Return the step of a program that grows which has no room on such a GPU."""
    room = gib * GIB - CONTEXT_BYTES - forecast.allocated_bytes
    return max(1, forecast.steps + int(room // forecast.growth_bytes) + 1)


def fit_of(forecast: Forecast, gib: float) -> Fit:
    """Judge *forecast* against a GPU with *gib* GiB (2**30 bytes) of memory.

    Memory that grows does not fit a GPU that it soon fills. A program fits if there is room
    for all that the allocator would like to reserve, and does not without room for the peak
    of its allocations. Between them a GPU must tell, also where the program compiles code
    that may need less. What only a GPU can tell leaves it open, unless there is room to
    spare: for twice as much.
    """
    goes_on = forecast.growth_bytes and forecast.was_ended
    if goes_on and grown_at(forecast, gib) <= LIKELY_STEPS:
        return Fit.TOO_LARGE
    room = gib * GIB - CONTEXT_BYTES
    if forecast.not_checked:
        # Of a program that was never on the GPU nothing is known.
        is_roomy = 0 < ROOMY * forecast.reserved_bytes <= room
        return Fit.FITS if is_roomy else Fit.UNKNOWN
    error = COMPILED_ERROR if forecast.as_eager else RESERVED_ERROR
    if forecast.reserved_bytes * (1 + error) <= room:
        return Fit.FITS
    if forecast.as_eager:
        return Fit.TOO_CLOSE
    if forecast.allocated_bytes * (1 - ALLOCATED_ERROR) > room:
        return Fit.TOO_LARGE
    return Fit.TOO_CLOSE
