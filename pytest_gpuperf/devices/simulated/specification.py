"""The GPU model that is simulated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Final
from uuid import UUID


SIMULATED_NAME: Final = "simulated GPU"
CAPABILITY: Final = (9, 0)
CUDA_VERSION: Final = "12.6"
CUDNN_VERSION: Final = 91000

PROPERTIES: Final = SimpleNamespace(
    name=SIMULATED_NAME,
    major=CAPABILITY[0],
    minor=CAPABILITY[1],
    total_memory=80 * 2**30,
    multi_processor_count=132,
    warp_size=32,
    max_threads_per_block=1024,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    L2_cache_size=50 * 2**20,
    clock_rate=1_980_000,
    memory_bus_width=5120,
    memory_clock_rate=2_619_000,
    uuid=UUID(int=0),
    **dict.fromkeys(("pci_bus_id", "pci_device_id", "pci_domain_id"), 0),
    **dict.fromkeys(("is_integrated", "is_multi_gpu_board"), 0),
    gcnArchName="",
)
"""Of an H100 with 80 GB, by NVIDIA's data sheet and compute capability 9.0."""


@contextmanager
def memory_of(gib: float) -> Iterator[None]:
    """Let the simulated GPU have so much memory."""
    # Changed in place: the same object is what ``get_device_properties`` returned
    # before.
    before = PROPERTIES.total_memory
    PROPERTIES.total_memory = int(gib * 2**30)
    try:
        yield
    finally:
        PROPERTIES.total_memory = before
