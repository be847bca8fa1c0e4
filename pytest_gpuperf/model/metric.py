"""The quantities that are measured, each with its unit, direction and kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


MIB: Final = 2**20


class Unit(Enum):
    """Unit of a metric's values, which are per step from birth, but for ratios."""

    MS = "ms"
    BYTES = "bytes"
    COUNT = "count"
    RATIO = "ratio"


class Kind(Enum):
    """How a metric varies when nothing changes."""

    NOISY = "noisy"
    EXACT = "exact"


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
    """

    name: str
    unit: Unit
    kind: Kind
    summary: str
    budget: str | None = None
    gated: bool = False
    tolerance: float = 0.0
    floor: float = 0.0
    direction: Direction = Direction.LOWER
    can_be_zero: bool = False


STEP_MS: Final = Metric(
    name="step_ms",
    unit=Unit.MS,
    kind=Kind.NOISY,
    summary="wall time of one step, no synchronisation inside a round",
    budget="ms",
    gated=True,
    tolerance=0.01,
)
LATENCY_MS: Final = Metric(
    name="latency_ms",
    unit=Unit.MS,
    kind=Kind.NOISY,
    summary="wall time of one isolated, synchronised step",
    budget="latency_ms",
)
ENQUEUE_MS: Final = Metric(
    name="enqueue_ms",
    unit=Unit.MS,
    kind=Kind.NOISY,
    summary="host time to enqueue one isolated step",
)
SPAN_MS: Final = Metric(
    name="gpu_span_ms",
    unit=Unit.MS,
    kind=Kind.NOISY,
    summary="time between two CUDA events around a round, per step",
)
PROCESS_MS: Final = Metric(
    name="process_ms",
    unit=Unit.MS,
    kind=Kind.NOISY,
    summary="CPU time of the process, per step",
)
SENTINEL_GEMM: Final = Metric(
    name="sentinel_gemm_ms",
    unit=Unit.MS,
    kind=Kind.NOISY,
    summary="a fixed matrix product, a witness of the machine",
)
SENTINEL_COPY: Final = Metric(
    name="sentinel_copy_ms",
    unit=Unit.MS,
    kind=Kind.NOISY,
    summary="fixed copies on the device, a witness of the machine",
)
SENTINEL_LAUNCH: Final = Metric(
    name="sentinel_launch_ms",
    unit=Unit.MS,
    kind=Kind.NOISY,
    summary="a fixed number of tiny kernels, a witness of the machine",
)
PEAK_ALLOCATED: Final = Metric(
    name="peak_allocated_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="peak of torch.cuda.max_memory_allocated in a step",
    budget="mem_mb",
    gated=True,
    tolerance=0.005,
    floor=MIB,
)
PEAK_REQUESTED: Final = Metric(
    name="peak_requested_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="peak of the bytes asked of the caching allocator, before rounding",
)
PEAK_RESERVED: Final = Metric(
    name="peak_reserved_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="peak of torch.cuda.max_memory_reserved in a step",
    budget="reserved_mb",
)
DRIVER_BYTES: Final = Metric(
    name="driver_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="memory of this process as the driver sees it (NVML)",
)
ALLOC_RETRIES: Final = Metric(
    name="alloc_retries",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="allocator flushes in a step, each a cudaFree and a synchronisation",
    budget="alloc_retries",
    gated=True,
    can_be_zero=True,
)
NON_TORCH: Final = Metric(
    name="non_torch_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="memory of this process beyond the allocator's: context, libraries (NVML)",
    can_be_zero=True,
)
FRAGMENTED: Final = Metric(
    name="fragmented_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="reserved bytes that lie idle between blocks in use, at a step's end",
    can_be_zero=True,
)
DEVICE_ALLOCS: Final = Metric(
    name="device_allocs",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="segments that each step asks of the driver once it is warm (cudaMalloc)",
    budget="device_allocs",
    gated=True,
    can_be_zero=True,
)
GROWTH: Final = Metric(
    name="growth_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="bytes that each step leaves allocated when it is over: a leak",
    budget="growth_mb",
    gated=True,
    can_be_zero=True,
)
LIVE_PEAK: Final = Metric(
    name="live_peak_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="peak bytes of the live tensor storages a step uses (cpu device)",
    budget="mem_mb",
    gated=True,
    tolerance=0.005,
    floor=MIB / 16,
)
SYNCS: Final = Metric(
    name="syncs",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="times a step makes the host wait for the device",
    budget="syncs",
    gated=True,
    can_be_zero=True,
)
PAGEABLE_COPIES: Final = Metric(
    name="pageable_copies",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="copies between device and pageable host memory in a step (pretend device)",
    budget="pageable_copies",
    gated=True,
    can_be_zero=True,
)
BLOCKING_COPIES: Final = Metric(
    name="blocking_copies",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="copies that the host waits for in a step (pretend device)",
)
H2D_BYTES: Final = Metric(
    name="h2d_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="bytes copied from the host to the device in a step (pretend device)",
    budget="h2d_mb",
    gated=True,
    can_be_zero=True,
)
D2H_BYTES: Final = Metric(
    name="d2h_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="bytes copied from the device to the host in a step (pretend device)",
    budget="d2h_mb",
    gated=True,
    can_be_zero=True,
)
DEVICE_SYNCS: Final = Metric(
    name="device_syncs",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="waits that a step asks for, as by torch.cuda.synchronize (pretend device)",
)
OPS: Final = Metric(
    name="ops",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="operations of a step that would launch work (pretend device)",
)

SPEEDUP: Final = Metric(
    name="speedup",
    unit=Unit.RATIO,
    kind=Kind.NOISY,
    summary="time of a step before, divided by that after (gpuperf.compare)",
    budget="speedup",
    direction=Direction.HIGHER,
)

SENTINELS: Final[tuple[Metric, ...]] = (SENTINEL_GEMM, SENTINEL_COPY, SENTINEL_LAUNCH)
"""Times of fixed kernels: where they move, the machine has changed."""

AUDITED: Final[tuple[Metric, ...]] = (
    PAGEABLE_COPIES,
    BLOCKING_COPIES,
    H2D_BYTES,
    D2H_BYTES,
    DEVICE_SYNCS,
    OPS,
)
"""What the pretend device alone counts."""

METRICS: Final[dict[str, Metric]] = {
    metric.name: metric
    for metric in (
        STEP_MS,
        LATENCY_MS,
        ENQUEUE_MS,
        SPAN_MS,
        PROCESS_MS,
        *SENTINELS,
        PEAK_ALLOCATED,
        PEAK_REQUESTED,
        PEAK_RESERVED,
        DRIVER_BYTES,
        NON_TORCH,
        FRAGMENTED,
        ALLOC_RETRIES,
        DEVICE_ALLOCS,
        GROWTH,
        LIVE_PEAK,
        SYNCS,
        *AUDITED,
        SPEEDUP,
    )
}

BUDGET_KEYWORDS: Final[tuple[str, ...]] = tuple(
    dict.fromkeys(metric.budget for metric in METRICS.values() if metric.budget)
)


def limited_by(keyword: str) -> tuple[Metric, ...]:
    """Metrics that the budget *keyword* limits; a device measures at most one."""
    return tuple(m for m in METRICS.values() if m.budget == keyword)
