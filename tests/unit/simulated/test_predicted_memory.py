"""What a small GPT's step needs, against totals another mechanism has given.

The live peaks were worked out before with torch's fake tensors on a device of their own,
which see the same storages by another way. So were the counts of allocations, less those
that CUDA does not make since it sums gradients in place, and one more, for the partial
norms of the gradients that are clipped.
"""

from __future__ import annotations

import pytest


torch = pytest.importorskip("torch")

from published_gpt import MINI, Savings, Shape, Training

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.memory import (
    MemoryEvent,
    StepMemory,
    step_memories,
)
from pytest_gpuperf.devices.simulated.memory_watch import watching_memory


KIB, MIB = 2**10, 2**20

PREDICTED = {
    "fp32": (Savings(), 117.0, 656, "nll_loss_forward"),
    "checkpointing": (
        Savings(micro_batches=2, checkpointing=True),
        51.682,
        1571,
        "_foreach_sqrt",
    ),
    "fused attention": (
        Savings(fused_attention=True),
        106.922,
        566,
        "nll_loss_forward",
    ),
    "autocast": (Savings(autocast=True), 104.607, 854, "addmm"),
    "both": (Savings(fused_attention=True, autocast=True), 96.785, 746, "addmm"),
}


def steady(
    savings: Savings, *, values: bool, shape: Shape = MINI
) -> tuple[float, StepMemory, str]:
    """Live peak in MiB, blocks rounded, of the second of two steps; and that step."""
    with simulated_gpu(values=values), watching_memory(0, from_now=True) as audit:
        training = Training(shape, savings, batch=8)
        audit.step(training)
        audit.live.reset_peak()
        audit.step(training)
    memory = audit.memories()[1]
    assert memory.peak is not None
    return audit.live.peak_bytes / MIB, memory, audit.events[memory.peak].op


@pytest.mark.slow
@pytest.mark.parametrize("case", PREDICTED)
def test_a_small_gpt_s_step_is_predicted_without_values(case: str) -> None:
    savings, peak_mib, allocations, op = PREDICTED[case]

    live_mib, memory, at = steady(savings, values=False)

    assert round(live_mib, 3) == peak_mib
    assert memory.allocations == allocations
    assert at == f"aten::{op}"


def test_values_change_nothing_about_memory() -> None:
    savings = Savings(fused_attention=True, autocast=True)

    tiny = Shape(layers=2, heads=2, width=32, tokens=16)

    assert steady(savings, values=True, shape=tiny) == steady(
        savings, values=False, shape=tiny
    )


def test_the_allocator_gives_more_than_was_asked_for() -> None:
    _, memory, _ = steady(Savings(), values=False)

    assert memory.requested_bytes == 122_634_764
    assert memory.allocated_bytes == 118 * MIB
    assert memory.reserved_bytes == 134 * MIB


def test_steps_are_told_apart_and_what_lies_between_them_counts() -> None:
    events = [
        MemoryEvent(1, 2 * KIB, "before"),
        MemoryEvent(2, 3 * KIB, "first"),
        MemoryEvent(2, 0, "first"),
        MemoryEvent(3, 4 * KIB, "between"),
        MemoryEvent(4, 100, "second"),
        MemoryEvent(1, 0, "second"),
    ]

    first, second = step_memories(events, [(1, 3), (4, 6)])

    assert first.requested_bytes == first.allocated_bytes == 5 * KIB
    assert (first.end_bytes, first.allocations, first.peak) == (2 * KIB, 1, 1)
    assert second.requested_bytes == 6 * KIB + 100
    assert second.allocated_bytes == 6 * KIB + 512
    assert (second.end_bytes, second.allocations, second.peak) == (4 * KIB + 512, 1, 4)
    assert second.reserved_bytes == 2 * MIB
