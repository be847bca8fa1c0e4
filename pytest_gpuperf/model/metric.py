"""The quantities that are measured, each with its unit, direction and kind."""

from __future__ import annotations

from typing import Final

from .gpu_metric import BUSY
from .loader_metric import LOADER_WAIT
from .memory_metric import ALLOC_RETRIES
from .memory_metric import DEVICE_ALLOCS
from .memory_metric import DRIVER_BYTES
from .memory_metric import FRAGMENTED
from .memory_metric import GROWTH
from .memory_metric import LIVE_PEAK
from .memory_metric import NON_TORCH
from .memory_metric import PEAK_ALLOCATED
from .memory_metric import PEAK_REQUESTED
from .memory_metric import PEAK_RESERVED
from .memory_metric import PREDICTED_ALLOCATED
from .memory_metric import PREDICTED_GROWTH
from .memory_metric import PREDICTED_REQUESTED
from .memory_metric import PREDICTED_RESERVED
from .memory_metric import PREDICTED_RETRIES
from .quantity import MIB as MIB  # noqa: PLC0414, to be had from here
from .quantity import Direction as Direction  # noqa: PLC0414
from .quantity import Kind as Kind  # noqa: PLC0414
from .quantity import Metric as Metric  # noqa: PLC0414
from .quantity import Unit as Unit  # noqa: PLC0414
from .rank_metric import RANKED
from .step_metric import COMPILED
from .step_metric import FLOPS
from .step_metric import LAUNCHED
from .step_metric import OPS
from .step_metric import SLOPE


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
    summary="copies between device and pageable host memory in a step",
    budget="pageable_copies",
    gated=True,
    can_be_zero=True,
)
BLOCKING_COPIES: Final = Metric(
    name="blocking_copies",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="copies that the host waits for in a step",
)
H2D_BYTES: Final = Metric(
    name="h2d_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="bytes copied from the host to the device in a step",
    budget="h2d_mb",
    gated=True,
    can_be_zero=True,
)
D2H_BYTES: Final = Metric(
    name="d2h_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="bytes copied from the device to the host in a step",
    budget="d2h_mb",
    gated=True,
    can_be_zero=True,
)
DEVICE_SYNCS: Final = Metric(
    name="device_syncs",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="waits that a step asks for, as by torch.cuda.synchronize",
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
    FLOPS,
)
"""What the pretend device counts; but for the operations, so does a real one."""

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
        PREDICTED_ALLOCATED,
        PREDICTED_REQUESTED,
        PREDICTED_RESERVED,
        PREDICTED_GROWTH,
        PREDICTED_RETRIES,
        SYNCS,
        *AUDITED,
        *LAUNCHED,
        *COMPILED,
        SLOPE,
        *RANKED,
        SPEEDUP,
        LOADER_WAIT,
        BUSY,
    )
}

BUDGET_KEYWORDS: Final[tuple[str, ...]] = tuple(
    dict.fromkeys(metric.budget for metric in METRICS.values() if metric.budget)
)


def limited_by(keyword: str) -> tuple[Metric, ...]:
    """Metrics that the budget *keyword* limits; a device measures at most one."""
    return tuple(m for m in METRICS.values() if m.budget == keyword)
