"""The quantities that are measured, and what a metric is: unit, direction, kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple


class UnitScale(NamedTuple):
    """One of the sizes in which a unit is written."""

    symbol: str
    size: float
    least: float
    """How many of it a value must have to be written in it."""


class Unit(Enum):
    """Unit of a metric's values, which are per step from birth, but for ratios and shares."""

    MS = "ms"
    BYTES = "bytes"
    COUNT = "count"
    RATIO = "ratio"
    PERCENT = "percent"
    PER_SECOND = "per second"

    @property
    def noun(self) -> str:
        """What a value of it is called."""
        return _FORMS[self].noun

    @property
    def in_words(self) -> str:
        """What a budget in it limits."""
        return _FORMS[self].in_words

    @property
    def suffix(self) -> str:
        """What follows a number in the unit of budgets."""
        return _FORMS[self].suffix

    @property
    def scales(self) -> tuple[UnitScale, ...]:
        """Sizes in which a report writes it, largest first; none if it has only one."""
        return _FORMS[self].scales

    @property
    def is_tolerable(self) -> bool:
        """Whether a baseline has values of it, from which a tolerance can be taken."""
        return _FORMS[self].is_tolerable


class _Form(NamedTuple):
    noun: str
    in_words: str
    suffix: str = ""
    scales: tuple[UnitScale, ...] = ()
    is_tolerable: bool = True


_FORMS: Final = {
    Unit.MS: _Form(
        noun="time",
        in_words="milliseconds per step",
        suffix=" ms",
        scales=(
            UnitScale("s", 1e3, 10.0),
            UnitScale("ms", 1.0, 1.0),
            UnitScale("us", 1e-3, 1.0),
            UnitScale("ns", 1e-6, 1.0),
        ),
    ),
    Unit.BYTES: _Form(
        noun="size",
        in_words="MiB (2^20 bytes)",
        suffix=" MiB",
        scales=(
            # From 1023.5 on the smaller unit would be written as 1024.
            UnitScale("GiB", 2**30, 0.9995),
            UnitScale("MiB", 2**20, 0.9995),
            UnitScale("KiB", 2**10, 1.0),
        ),
    ),
    Unit.COUNT: _Form(noun="count", in_words="count per step"),
    Unit.PER_SECOND: _Form(
        noun="rate",
        in_words="per second",
        suffix=" /s",
        is_tolerable=False,
    ),
    # A speedup, a skew and a share are not compared with a baseline, nor is a rate.
    Unit.RATIO: _Form(
        noun="ratio", in_words="times as fast, at least", suffix="x", is_tolerable=False
    ),
    Unit.PERCENT: _Form(
        noun="share", in_words="percent", suffix=" %", is_tolerable=False
    ),
}


FLOP_SCALES: Final = tuple(
    UnitScale(f"{prefix}FLOP", size, 1.0)
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6))
)
"""For operations of a step, which are millions; fewer are written as they are."""


def counted(number: int, noun: str) -> str:
    """Write *number* with its *noun*: ``1 copy``, ``2 copies``."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("ss"):
        return f"{number} {noun}es"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {plural}"


MIB: Final = 2**20


class MetricKind(Enum):
    """How a metric varies when nothing changes."""

    NOISY = "noisy"
    EXACT = "exact"


class MeasuringPhase(Enum):
    """The part of a measurement that reads a metric."""

    ROUNDS = "rounds"
    ISOLATED = "isolated steps"
    MEMORY = "memory"
    TRACE = "trace"
    COMPILER = "compiler"
    FURTHER = "further steps"
    RANKS = "ranks"


class OfRanks(Enum):
    """What a step has of a metric if several ranks measured it."""

    LARGEST = "largest"
    FIRST = "first"
    """That of rank 0: ranks are timed together."""


class Direction(Enum):
    """Which way is better."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A named quantity.

    ``budget`` is the keyword of ``gpuperf.budget`` that limits it. A ``gated``
    metric is judged against the stored baseline; the others are recorded. A change
    counts when it exceeds both ``tolerance`` (a ratio) and ``floor`` (in the unit).
    ``can_be_zero`` says that a step can do without it, so that a budget may say 0.
    ``error`` is how far, as a ratio, a prediction may be off what a GPU would measure;
    against itself it is exact. ``beneath`` names the metric of a part of it and
    not the step's own: the tolerance is taken of the rest. ``phase`` reads it,
    ``of_ranks`` combines what several ranks read. ``scatter`` is the standard deviation
    of runs, as a ratio, that is assumed until stored runs show theirs; 0 assumes that of
    the device's step times.
    """

    name: str
    unit: Unit
    summary: str
    kind: MetricKind = MetricKind.EXACT
    budget: str | None = None
    gated: bool = False
    tolerance: float = 0.0
    floor: float = 0.0
    direction: Direction = Direction.LOWER
    can_be_zero: bool = False
    error: float = 0.0
    beneath: str = ""
    phase: MeasuringPhase = MeasuringPhase.TRACE
    of_ranks: OfRanks = OfRanks.LARGEST
    scatter: float = 0.0

    @property
    def scales(self) -> tuple[UnitScale, ...]:
        """Sizes in which a report writes its values, largest first."""
        return FLOP_SCALES if self.name == "flops" else self.unit.scales


# The quantities that only a profiler's trace of a GPU can show.

BUSY: Final = Metric(
    name="busy_pct",
    unit=Unit.PERCENT,
    kind=MetricKind.NOISY,
    summary="share of the profiled steps in which a kernel runs on the GPU",
    budget="busy_pct",
    direction=Direction.HIGHER,
    of_ranks=OfRanks.FIRST,
)


# The quantity of a loop that takes its batches from a loader.

LOADER_WAIT: Final = Metric(
    name="loader_wait_pct",
    unit=Unit.PERCENT,
    kind=MetricKind.NOISY,
    summary="share of a loop's wall time that the CPU spends in next() of its loader (gpuperf.loader)",
    budget="loader_wait_pct",
    phase=MeasuringPhase.ROUNDS,
)


# The quantities of memory, measured on cuda, predicted on simulated.

FEW_SCALARS: Final = 4 * 2**10
"""Bytes that a step may leak unblamed, a list of its losses: a GPU's allocator
gives 512 to a scalar. What keeps an autograd graph alive is counted in ``retained_graphs``."""

WORKSPACES: Final = Metric(
    name="workspace_bytes",
    unit=Unit.BYTES,
    summary="part of that peak that cuBLAS takes for its workspaces (simulated GPU)",
    can_be_zero=True,
    phase=MeasuringPhase.MEMORY,
)

PEAK_ALLOCATED: Final = Metric(
    name="peak_allocated_bytes",
    unit=Unit.BYTES,
    summary="peak of torch.cuda.max_memory_allocated in a step",
    budget="mem_mb",
    gated=True,
    tolerance=0.005,
    floor=MIB,
    beneath=WORKSPACES.name,
    phase=MeasuringPhase.MEMORY,
)
PEAK_RESERVED: Final = Metric(
    name="peak_reserved_bytes",
    unit=Unit.BYTES,
    summary="peak of torch.cuda.max_memory_reserved in a step",
    budget="reserved_mb",
    phase=MeasuringPhase.MEMORY,
)
GROWTH: Final = Metric(
    name="growth_bytes",
    unit=Unit.BYTES,
    summary="bytes that each step leaves allocated when it is over: a leak",
    budget="growth_mb",
    gated=True,
    can_be_zero=True,
    floor=FEW_SCALARS,
    phase=MeasuringPhase.MEMORY,
)
GARBAGE: Final = Metric(
    name="garbage_bytes",
    unit=Unit.BYTES,
    summary="bytes per step that only Python's garbage collector frees, such as reference cycles",
    budget="garbage_mb",
    gated=True,
    can_be_zero=True,
    floor=FEW_SCALARS,
    phase=MeasuringPhase.MEMORY,
)
RETAINED_GRAPHS: Final = Metric(
    name="retained_graphs",
    unit=Unit.COUNT,
    summary="tensors that each step leaves alive together with their autograd graph",
    gated=True,
    can_be_zero=True,
    phase=MeasuringPhase.MEMORY,
)
# The quantities of a step that runs on several ranks at once.

RANK_SKEW: Final = Metric(
    name="rank_skew",
    unit=Unit.RATIO,
    kind=MetricKind.NOISY,
    summary="median time of a step on the slowest rank, divided by that on the fastest",
    budget="skew_pct",
    phase=MeasuringPhase.RANKS,
)
RANK_PEAK: Final = Metric(
    name="rank_peak_bytes",
    unit=Unit.BYTES,
    summary="peak memory of a step on the rank that needs most",
    budget="rank_mem_mb",
    phase=MeasuringPhase.RANKS,
)
COLLECTIVES: Final = Metric(
    name="collectives",
    unit=Unit.COUNT,
    summary="collective operations of torch.distributed that a rank starts per step",
    budget="collectives",
    gated=True,
    can_be_zero=True,
    phase=MeasuringPhase.RANKS,
)
COLLECTIVE_BYTES: Final = Metric(
    name="collective_bytes",
    unit=Unit.BYTES,
    summary="bytes of the tensors in these operations",
    gated=True,
    can_be_zero=True,
    phase=MeasuringPhase.RANKS,
)

RANKED: Final[tuple[Metric, ...]] = (
    RANK_SKEW,
    RANK_PEAK,
    COLLECTIVES,
    COLLECTIVE_BYTES,
)
"""What a step on one rank has none of."""


# The quantities of a step's code: how it is compiled and launched.

GRAPH_BREAKS: Final = Metric(
    name="graph_breaks",
    unit=Unit.COUNT,
    summary="lines where torch.compile breaks the graph of a step, and functions that it skips",
    budget="graph_breaks",
    can_be_zero=True,
    phase=MeasuringPhase.COMPILER,
)
RECOMPILES: Final = Metric(
    name="recompiles",
    unit=Unit.COUNT,
    summary="times that code of the step was compiled again",
    budget="recompiles",
    can_be_zero=True,
    phase=MeasuringPhase.COMPILER,
)
LAUNCHES: Final = Metric(
    name="launches",
    unit=Unit.COUNT,
    summary="calls per step that launch kernels, or a whole CUDA graph; on simulated, eager operations that would",
    budget="launches",
    gated=True,
    tolerance=0.01,
)
FLOPS: Final = Metric(
    name="flops",
    unit=Unit.COUNT,
    summary="floating point operations of a step by torch.utils.flop_counter's formulas (simulated GPU)",
    budget="flops",
    gated=True,
)

COMPILED: Final[tuple[Metric, ...]] = (GRAPH_BREAKS, RECOMPILES)
"""What is read off the compiler."""

STEPWISE: Final = frozenset({FLOPS.name, LAUNCHES.name})
"""Counts that a step's own chance may move, as layers dropped at random do: a baseline
blames them only if the step with the least of each run has too many."""

STEP_MS: Final = Metric(
    name="step_ms",
    unit=Unit.MS,
    kind=MetricKind.NOISY,
    summary="wall time of one step, no synchronisation inside a round",
    budget="ms",
    gated=True,
    tolerance=0.01,
    phase=MeasuringPhase.ROUNDS,
    of_ranks=OfRanks.FIRST,
)
LATENCY_MS: Final = Metric(
    name="latency_ms",
    unit=Unit.MS,
    kind=MetricKind.NOISY,
    summary="wall time of one isolated, synchronised step",
    budget="latency_ms",
    phase=MeasuringPhase.ISOLATED,
    of_ranks=OfRanks.FIRST,
)
SAMPLES_PER_S: Final = Metric(
    name="samples_per_s",
    unit=Unit.PER_SECOND,
    kind=MetricKind.NOISY,
    summary="samples trained on per second of step_ms, by gpuperf(step, samples=...)",
    direction=Direction.HIGHER,
    phase=MeasuringPhase.ROUNDS,
    of_ranks=OfRanks.FIRST,
)
TOKENS_PER_S: Final = replace(
    SAMPLES_PER_S,
    name="tokens_per_s",
    summary="the same for tokens, by gpuperf(step, tokens=...)",
)
SENTINEL_GEMM: Final = Metric(
    name="sentinel_gemm_ms",
    unit=Unit.MS,
    kind=MetricKind.NOISY,
    summary="a fixed matrix product, to see changes of the machine",
    phase=MeasuringPhase.ROUNDS,
    of_ranks=OfRanks.FIRST,
)
SENTINEL_COPY: Final = replace(
    SENTINEL_GEMM,
    name="sentinel_copy_ms",
    summary="fixed copies on the device, to see changes of the machine",
)
SENTINEL_LAUNCH: Final = replace(
    SENTINEL_GEMM,
    name="sentinel_launch_ms",
    summary="a fixed number of tiny kernels, to see changes of the machine",
)
SYNCS: Final = Metric(
    name="syncs",
    unit=Unit.COUNT,
    summary="times per step that the CPU waits for the GPU",
    budget="syncs",
    gated=True,
    can_be_zero=True,
)
PAGEABLE_COPIES: Final = Metric(
    name="pageable_copies",
    unit=Unit.COUNT,
    summary="copies per step between the GPU and ordinary (pageable) CPU memory",
    budget="pageable_copies",
    gated=True,
    can_be_zero=True,
)
OCCASIONAL_SYNCS: Final = Metric(
    name="occasional_syncs",
    unit=Unit.COUNT,
    summary="extra syncs that recur only in some steps, such as .item() in every 50th",
    budget="syncs",
    can_be_zero=True,
    phase=MeasuringPhase.FURTHER,
)
OCCASIONAL_COPIES: Final = replace(
    OCCASIONAL_SYNCS,
    name="occasional_copies",
    summary="the same for pageable_copies",
    budget="pageable_copies",
)
H2D_BYTES: Final = Metric(
    name="h2d_bytes",
    unit=Unit.BYTES,
    summary="bytes copied from the CPU to the GPU per step",
    budget="h2d_mb",
    gated=True,
    can_be_zero=True,
)
D2H_BYTES: Final = replace(
    H2D_BYTES,
    name="d2h_bytes",
    summary="bytes copied from the GPU to the CPU per step",
    budget="d2h_mb",
)
SPEEDUP: Final = Metric(
    name="speedup",
    unit=Unit.RATIO,
    kind=MetricKind.NOISY,
    summary="time of a step before, divided by that after (gpuperf.compare)",
    budget="speedup",
    direction=Direction.HIGHER,
    phase=MeasuringPhase.ROUNDS,
    of_ranks=OfRanks.FIRST,
)

SENTINELS: Final[tuple[Metric, ...]] = (SENTINEL_GEMM, SENTINEL_COPY, SENTINEL_LAUNCH)
"""Times of fixed kernels: where they move, the machine has changed."""

OCCASIONAL: Final = {
    SYNCS.name: OCCASIONAL_SYNCS,
    PAGEABLE_COPIES.name: OCCASIONAL_COPIES,
}
"""What only some steps have, by what each of the first steps has."""

AUDITED: Final[tuple[Metric, ...]] = (
    PAGEABLE_COPIES,
    H2D_BYTES,
    D2H_BYTES,
    LAUNCHES,
    FLOPS,
)
"""What the simulated device counts; but for ``flops``, so does a real one."""

SYNCS_AND_COPIES: Final = frozenset(
    {SYNCS, PAGEABLE_COPIES, H2D_BYTES, D2H_BYTES, *OCCASIONAL.values()}
)
"""What is certain where it changes, and explains what else does."""

METRICS: Final[dict[str, Metric]] = {
    metric.name: metric
    for metric in (
        STEP_MS,
        LATENCY_MS,
        *SENTINELS,
        PEAK_ALLOCATED,
        WORKSPACES,
        PEAK_RESERVED,
        GROWTH,
        GARBAGE,
        RETAINED_GRAPHS,
        SYNCS,
        *AUDITED,
        *OCCASIONAL.values(),
        *COMPILED,
        *RANKED,
        SPEEDUP,
        LOADER_WAIT,
        BUSY,
        SAMPLES_PER_S,
        TOKENS_PER_S,
    )
}

PREDICTED: Final = {
    metric.name: metric
    for metric in (
        replace(PEAK_ALLOCATED, floor=MIB / 64, error=0.05),
        WORKSPACES,
        replace(PEAK_RESERVED, error=0.10),
        GROWTH,
        GARBAGE,
        replace(LAUNCHES, tolerance=0.0),
    )
}
"""Metrics as a device has them that predicts a GPU: nothing on it varies by chance.

The stated errors: with two recordings of one model family on a GPU the predictions were
off by less than 0.1 % (allocated) and 0.6 % (reserved); other models, and other GPUs
than those of compute capability 9.0, have not been compared.
"""

BUDGET_KEYWORDS: Final[tuple[str, ...]] = tuple(
    dict.fromkeys(metric.budget for metric in METRICS.values() if metric.budget)
)


def limited_by(keyword: str) -> tuple[Metric, ...]:
    """Metrics that the budget *keyword* limits: of each step, and of some steps."""
    return tuple(m for m in METRICS.values() if m.budget == keyword)


def read_in(*phases: MeasuringPhase) -> frozenset[str]:
    """Name the metrics that these *phases* read."""
    return frozenset(name for name, m in METRICS.items() if m.phase in phases)
