"""The quantities of memory, measured on cuda and cpu, predicted on pretend."""

from __future__ import annotations

from typing import Final

from .quantity import MIB
from .quantity import Kind
from .quantity import Metric
from .quantity import Unit


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
ALLOC_RETRIES: Final = Metric(
    name="alloc_retries",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="allocator flushes in a step, each a cudaFree and a synchronisation",
    budget="alloc_retries",
    gated=True,
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
PREDICTED_ALLOCATED: Final = Metric(
    name="predicted_peak_allocated_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="predicted torch.cuda.max_memory_allocated of a step (pretend device)",
    budget="mem_mb",
    gated=True,
    tolerance=0.005,
    floor=MIB / 16,
    error=0.05,
)
PREDICTED_REQUESTED: Final = Metric(
    name="predicted_peak_requested_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="the same before the allocator rounds (pretend device)",
    error=0.05,
)
PREDICTED_RESERVED: Final = Metric(
    name="predicted_peak_reserved_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="predicted torch.cuda.max_memory_reserved of a step (pretend device)",
    budget="reserved_mb",
    error=0.10,
)
PREDICTED_GROWTH: Final = Metric(
    name="predicted_growth_bytes",
    unit=Unit.BYTES,
    kind=Kind.EXACT,
    summary="memory that a step leaves behind, step after step (pretend device)",
    budget="growth_mb",
    gated=True,
    can_be_zero=True,
)
PREDICTED_RETRIES: Final = Metric(
    name="predicted_alloc_retries",
    unit=Unit.COUNT,
    kind=Kind.EXACT,
    summary="allocator flushes in a step for want of memory (pretend device)",
    budget="alloc_retries",
    can_be_zero=True,
)

PREDICTED: Final[tuple[Metric, ...]] = (
    PREDICTED_ALLOCATED,
    PREDICTED_REQUESTED,
    PREDICTED_RESERVED,
    PREDICTED_GROWTH,
    PREDICTED_RETRIES,
)
"""What the pretend device predicts.

The stated errors: with two recordings of one model family on a GPU the predictions were
off by less than 0.1 % (allocated) and 0.6 % (reserved); other models, and other GPUs
than those of compute capability 9.0, have not been compared.
"""
