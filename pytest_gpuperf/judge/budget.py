"""Budgets: absolute ceilings that apply on this hardware, and whether they are met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from math import fsum, inf, log
from typing import Final

from ..model.baseline import ENOUGH_RUNS, RunSummary
from ..model.budget import Budget
from ..model.environment import Capability, Hardware
from ..model.measurement import Fit, Forecast, Measurement
from ..model.metrics import (
    BUSY,
    MIB,
    RANK_SKEW,
    SPEEDUP,
    Direction,
    Metric,
    MetricKind,
    Unit,
    limited_by,
)
from ..model.verdict import DecidedBy, Evidence, Outcome, Verdict
from .exact import PROVING_RUNS, bytes_beneath, in_runs, is_random
from .readings import (
    MAX_RUNS,
    WHOLE_PERCENT,
    Reading,
    against,
    despite,
    dirt,
    figure,
    percent,
    plain,
    readings,
    remaining_runs,
    stored_values,
)
from .statistics import (
    ALPHA,
    INTERVAL_RISK,
    PASS_RISK,
    POWER_QUANTILE,
    Shift,
    Spread,
    ratio,
)


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


# Times, shares and rates against their limits: missed only if proven, met only if proven.
#
# After 2, 3 and 5 runs a t test at a third of alpha asks whether the mean is over a ceiling,
# or below a floor, and every run must be; after any run it passes if the upper 95 % bound is
# not. The first rule that is met decides, later runs do not reopen it.

# The excess of a noisy value over its limit, as a log ratio of times.
#
# A time is compared as it is. A loop that waits for its loader a share w of its time,
# and may wait w0, takes (1 - w0) / (1 - w) of the time that it may take, because its
# work is the same. So shares near 0 hardly differ, and their noise is that of times.
# The excess of a value that should be high is how many times it is too low.


LEAST_LEFT: Final = 1e-9
"""What a ceiling of 100 % leaves: no share is above it, and 0 has no logarithm."""


def log_excess(metric: Metric, value: float, limit: float) -> float:
    """Return the excess of *value* over *limit*, or its lack, both in the metric's unit."""
    if metric.direction is Direction.HIGHER:
        return log(limit / value)
    if metric.unit is Unit.PERCENT:
        return log(max(LEAST_LEFT, WHOLE_PERCENT - limit) / (WHOLE_PERCENT - value))
    return log(value / limit)


def value_at(metric: Metric, excess: float, limit: float) -> float:
    """Return the value that is *excess* above *limit*, or below a floor."""
    if metric.direction is Direction.HIGHER:
        return min(_most(metric), limit / (1 + ratio(excess)))
    if metric.unit is Unit.PERCENT:
        return WHOLE_PERCENT - (WHOLE_PERCENT - limit) / (1 + ratio(excess))
    return limit * (1 + ratio(excess))


def _most(metric: Metric) -> float:
    return WHOLE_PERCENT if metric.unit is Unit.PERCENT else inf


BUDGET_LOOKS: Final = (2, 3, 5)
"""Numbers of runs after which a time may be called over."""

BUDGET_RISK: Final = ALPHA / len(BUDGET_LOOKS)
"""Bonferroni over the looks: several tests of growing data may each be wrong."""

HOPE: Final = 3.0
"""Standard deviations by which the runs to come may beat the fastest one seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """How far runs are above the ceiling, in log time, oldest first."""

    runs: tuple[float, ...]
    spread: Spread

    @property
    def shift(self) -> Shift:
        return self.spread.shift(self.runs)

    @property
    def are_over(self) -> bool:
        return bool(self.runs) and min(self.runs) > 0

    @property
    def is_over(self) -> bool:
        looked = len(self.runs) in BUDGET_LOOKS and self.are_over
        return looked and self.shift.p_above(0.0) < BUDGET_RISK

    @property
    def is_below(self) -> bool:
        return bool(self.runs) and self.shift.most(PASS_RISK) < 0

    def may_decide(self, coming: int) -> bool:
        """Whether *coming* runs may yet show that the time is over, or that it is not."""
        if not self.runs or not coming:
            return coming > 0
        total = len(self.runs) + coming
        looks = any(len(self.runs) < look <= total for look in BUDGET_LOOKS)
        if looks and self.are_over:
            return True
        bound = -self.spread.quantile(PASS_RISK) * self.spread.error(total)
        needed = (bound * total - fsum(self.runs)) / coming
        return needed >= min(self.runs) - HOPE * self.spread.sigma


def judge_time_budget(
    metric: Metric,
    runs: Sequence[Measurement],
    limit: float,
    *,
    entry_runs: Sequence[RunSummary] = (),
    prior: Spread | None = None,
) -> Verdict:
    """Judge a time by its fresh *runs*, oldest first, against *limit* > 0 in its unit.

    Or a share of it, below 100 %. At least one of *runs* has measured it, and each a
    number that can be one. How far runs scatter is known from the stored *entry_runs*
    where there are five or a *prior*, else assumed by the kind of device: 1 % on a GPU,
    3 % on a CPU.
    """
    kind = runs[-1].environment.hardware.kind
    stored = stored_values(metric, entry_runs, kind)
    moved = [log_excess(metric, value, limit) for value in stored]
    spread = _spread(moved, prior, Spread.assumed(kind, metric.scatter))
    return _judge_excess(metric, readings(metric, runs), limit, spread, len(stored))


def judge_floor(metric: Metric, runs: Sequence[Measurement], least: float) -> Verdict:
    """Judge a share or a rate by its fresh *runs*, oldest first, against *least*.

    At least one of *runs* has measured it. Runs are taken to scatter as times do on
    such a device, by 1 % on a GPU: a rate is work by the time of a step, and how busy a
    GPU is the time of its kernels by that, which no profiler makes longer.
    """
    seen = readings(metric, runs)
    wrong = [r.value for r in seen if not 0 < r.value <= _most(metric)]
    if wrong:
        return Verdict(
            metric=metric.name,
            outcome=Outcome.INCONCLUSIVE,
            because=f"not a {metric.unit.noun}: {wrong[0]}",
            limit=least,
            unchecked_budget=True,
        )
    spread = Spread.assumed(runs[-1].environment.hardware.kind)
    return _judge_excess(metric, seen, least, spread, 0)


def _judge_excess(
    metric: Metric, seen: tuple[Reading, ...], limit: float, spread: Spread, stored: int
) -> Verdict:
    case = _BudgetCase(
        metric=metric,
        limit=limit,
        stored=stored,
        seen=seen,
        excess=_deciding(_used(metric, seen, limit, spread)),
        bound=_deciding(_bounded(metric, seen, limit, spread)),
    )
    return _verdict(case)


def _spread(moved: Sequence[float], prior: Spread | None, assumed: Spread) -> Spread:
    known = Spread.of(moved, prior) if moved else None
    return assumed if known is None or known.nu < ENOUGH_RUNS - 1 else known


def _used(
    metric: Metric, seen: Sequence[Reading], limit: float, spread: Spread
) -> Excess:
    """Leave out disturbed runs that would not pass alone: they say nothing."""
    moved = [(log_excess(metric, r.value, limit), r.dirty) for r in seen]
    kept = (
        m for m, dirty in moved if not dirty or spread.shift([m]).most(PASS_RISK) < 0
    )
    return Excess(runs=tuple(kept), spread=spread)


def _bounded(
    metric: Metric, seen: Sequence[Reading], limit: float, spread: Spread
) -> Excess:
    """Take the proven excess of each run; no run at all if one proves nothing."""
    proven = [None if _is_floor(metric) else reading.proven for reading in seen]
    kept = [log_excess(metric, value, limit) for value in proven if value is not None]
    return Excess(runs=tuple(kept) if len(kept) == len(seen) else (), spread=spread)


def _is_floor(metric: Metric) -> bool:
    return metric.direction is Direction.HIGHER


def _deciding(excess: Excess) -> Excess:
    """Return the runs up to the first decision, or all runs if there is none."""
    for count in range(1, len(excess.runs)):
        first = Excess(runs=excess.runs[:count], spread=excess.spread)
        # The order of runs counts: whoever looked on until a test rejects would find
        # one.
        if first.is_below or first.is_over:
            return first
    return excess


@dataclass(frozen=True, slots=True, kw_only=True)
class _BudgetCase:
    metric: Metric
    limit: float
    stored: int
    seen: tuple[Reading, ...]
    excess: Excess
    bound: Excess

    @property
    def is_proving(self) -> bool:
        """Whether runs to come may prove what all so far show, disturbed or not."""
        return self.bound.are_over and self.bound.may_decide(remaining_runs(self.seen))

    @property
    def shift(self) -> Shift:
        """What the reported numbers say: of all runs if none could be used."""
        every = (log_excess(self.metric, r.value, self.limit) for r in self.seen)
        return self.excess.spread.shift(self.excess.runs or tuple(every))

    def at(self, excess: float) -> float:
        """Return the value that is *excess* above the ceiling."""
        return value_at(self.metric, excess, self.limit)

    def against_limit(self, excess: float) -> float:
        """Return how far that value is off the ceiling, as a ratio of it."""
        return self.at(excess) / self.limit - 1


def _verdict(case: _BudgetCase) -> Verdict:
    now, excess = case.at(case.shift.estimate), case.excess
    verdict = partial(
        Verdict,
        metric=case.metric.name,
        now=now,
        limit=case.limit,
        evidence=None if _is_floor(case.metric) else _evidence(case),
    )
    compared = against(case.metric, now, case.limit)
    if excess.is_below:
        return verdict(outcome=Outcome.PASS, because=compared)
    if excess.is_over or case.bound.is_over:
        because = f"{compared}, {_why_missed(case)}"
        return verdict(outcome=Outcome.OVER_BUDGET, because=because)
    is_open = case.is_proving or excess.may_decide(remaining_runs(case.seen))
    return verdict(
        outcome=Outcome.INCONCLUSIVE,
        because=f"{compared}{_doubt(case, is_open=is_open)}",
        settled=not is_open,
        proving=case.is_proving,
    )


def _why_missed(case: _BudgetCase) -> str:
    side = "below" if _is_floor(case.metric) else "over"
    if case.excess.is_over:
        each = f"{side} in each of {len(case.excess.runs)} runs"
        return f"{each}, and more than their scatter explains"
    return f"{side} in each of {len(case.bound.runs)} runs{despite(case.seen)}"


def _doubt(case: _BudgetCase, *, is_open: bool) -> str:
    margin = f"cannot tell +-{_margin(case)}"
    seen, remaining = len(case.seen), remaining_runs(case.seen)
    if is_open:
        why = margin if case.excess.runs else f"but disturbed: {dirt(case.seen)},"
        return f" so far, {why} after {seen} of at most {seen + remaining} runs"
    clean = sum(not reading.dirty for reading in case.seen)
    if clean < MAX_RUNS and not remaining:
        return f", but disturbed: {dirt(case.seen)}"
    return f", {margin}"


def _margin(case: _BudgetCase) -> str:
    shift = case.shift
    if case.metric.unit is not Unit.PERCENT or _is_floor(case.metric):
        return f"{100 * ratio(shift.margin(PASS_RISK)):.1f} %"
    upper = case.at(shift.most(PASS_RISK))
    return f"{upper - case.at(shift.estimate):.1f} points"


def _evidence(case: _BudgetCase) -> Evidence:
    excess, shift, spread = case.excess, case.shift, case.excess.spread
    proof = spread.quantile(BUDGET_RISK) + POWER_QUANTILE
    return Evidence(
        estimate=case.against_limit(shift.estimate),
        low=case.against_limit(shift.least(INTERVAL_RISK)),
        high=case.against_limit(shift.most(INTERVAL_RISK)),
        tolerance=0.0,
        detect=0.0,
        runs=len(excess.runs),
        stored_runs=case.stored,
        smallest_detectable=case.against_limit(proof * spread.error(MAX_RUNS)),
        p_regressed=shift.p_above(0.0) if excess.runs else None,
        rule=DecidedBy.BUDGET if excess.runs else DecidedBy.DIRTY,
    )
