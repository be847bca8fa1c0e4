"""The simulated GPU has only so much memory, and torch is told what is taken of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.cuda.memory import out_of_memory_summary
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.device import SimulatedDevice
from pytest_gpuperf.devices.simulated.memory import StepMemory
from pytest_gpuperf.devices.simulated.memory_watch import watching_memory


KIB, MIB, GIB = 2**10, 2**20, 2**30

CUDA = torch.cuda


@pytest.fixture(scope="module", autouse=True)
def _simulated() -> Iterator[None]:
    with simulated_gpu(values=False):
        yield


def taken(nbytes: int) -> Any:
    return torch.empty(nbytes, dtype=torch.uint8, device="cuda")


def limited(step: Callable[[], object]) -> StepMemory:
    """What *step* needs of a GPU with 80 GiB that is otherwise empty."""
    with watching_memory(0, from_now=True, limited=True) as audit:
        audit.step(step)
    return audit.memories()[0]


def test_torch_answers_what_the_simulated_allocator_has_reserved() -> None:
    seen: list[int] = []

    def step() -> None:
        first = taken(30 * MIB)
        second = taken(1 * MIB)
        del first
        seen.extend((CUDA.memory_allocated(), CUDA.memory_reserved()))
        seen.extend((CUDA.max_memory_allocated(), CUDA.max_memory_reserved()))
        CUDA.reset_peak_memory_stats()
        seen.extend((CUDA.max_memory_allocated(), CUDA.max_memory_reserved("cuda")))
        del second

    memory = limited(step)

    assert seen == [nbytes * MIB for nbytes in (1, 32, 31, 32, 1, 32)]
    assert memory.reserved_bytes == 32 * MIB
    assert memory.allocated_bytes == 31 * MIB
    assert CUDA.memory_reserved() == CUDA.max_memory_reserved() == 0


def test_what_is_reserved_is_not_free() -> None:
    kept: list[Any] = []

    limited(lambda: kept.extend((taken(1), CUDA.mem_get_info())))

    assert kept[1] == (80 * GIB - 2 * MIB, 80 * GIB)
    assert CUDA.mem_get_info() == (80 * GIB, 80 * GIB)


def test_an_emptied_cache_is_reserved_no_more() -> None:
    seen: list[int] = []

    def step() -> None:
        taken(30 * MIB)
        CUDA.empty_cache()
        seen.append(CUDA.memory_reserved())
        taken(34 * MIB)

    emptied = limited(step)

    assert seen == [0]
    assert emptied.reserved_bytes == 34 * MIB
    assert emptied.retries == 0


def test_a_cache_that_is_kept_is_reserved_beside_what_is_new() -> None:
    def step() -> None:
        taken(30 * MIB)
        taken(34 * MIB)

    assert limited(step).reserved_bytes == 64 * MIB


def test_statistics_are_those_of_torch() -> None:
    stats: dict[str, int] = {}

    def step() -> None:
        kept = taken(1000), taken(6 * MIB)
        taken(30 * MIB)
        CUDA.empty_cache()
        stats.update(CUDA.memory_stats())
        del kept

    limited(step)

    split = 16 * MIB - KIB
    assert {name: value for name, value in stats.items() if value} == {
        "num_device_alloc": 3,
        "num_device_free": 1,
        **gauge("allocated_bytes", 6 * MIB + KIB, 36 * MIB + KIB),
        **gauge("active_bytes", 6 * MIB + KIB, 36 * MIB + KIB),
        **gauge("requested_bytes", 6 * MIB + 1000, 36 * MIB + 1000),
        **gauge("reserved_bytes", 22 * MIB, 52 * MIB),
        **gauge("inactive_split_bytes", split, split),
        **gauge("allocation", 2, 3),
        **gauge("active", 2, 3),
        **gauge("segment", 2, 3),
        **gauge("inactive_split", 2, 2),
    }


def gauge(name: str, current: int, peak: int) -> dict[str, int]:
    """Those of a quantity that only falls after its peak."""
    found = {
        f"{name}.all.current": current,
        f"{name}.all.peak": peak,
        f"{name}.all.allocated": peak,
        f"{name}.all.freed": peak - current,
    }
    return {key: value for key, value in found.items() if value}


def test_sums_can_be_counted_anew() -> None:
    stats: dict[str, int] = {}

    def step() -> None:
        kept = taken(6 * MIB)
        CUDA.reset_accumulated_memory_stats()
        stats.update(CUDA.memory_stats())
        del kept

    limited(step)

    assert stats["allocated_bytes.all.allocated"] == 0
    assert stats["allocated_bytes.all.current"] == 6 * MIB
    assert stats["num_device_alloc"] == 0


def test_a_cache_in_the_way_is_emptied_and_the_retry_is_counted() -> None:
    def step() -> None:
        taken(50 * GIB)
        taken(60 * GIB)

    memory = limited(step)

    assert memory.retries == 1
    assert memory.reserved_bytes == memory.allocated_bytes == 60 * GIB


def test_more_than_there_is_runs_out_of_memory_as_on_a_gpu() -> None:
    errors: list[BaseException] = []

    def step() -> None:
        kept = taken(50 * GIB)
        taken(6 * GIB)
        with pytest.raises(torch.OutOfMemoryError) as caught:
            taken(40 * GIB)
        errors.append(caught.value)
        del kept
        taken(40 * GIB)

    memory = limited(step)

    assert str(errors[0]) == (
        "CUDA out of memory. Tried to allocate 40.00 GiB. GPU 0 has a total capacity of "
        "80.00 GiB of which 30.00 GiB is free. Of the allocated memory 50.00 GiB is "
        "allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated. This "
        "is gpuperf's prediction for its simulated GPU: no real GPU ran out."
    )
    assert memory.allocated_bytes == 56 * GIB
    assert memory.retries == 1
    assert memory.end_bytes == 0


def test_an_error_that_was_foreseen_tells_what_the_allocator_would_hold() -> None:
    errors: list[BaseException] = []

    def step() -> None:
        kept = taken(50 * GIB)
        with pytest.raises(torch.OutOfMemoryError) as caught:
            taken(40 * GIB)
        errors.append(caught.value)
        del kept

    limited(step)
    summary = str(out_of_memory_summary(errors[0])).splitlines()

    assert summary[3] == (
        "|            CUDA OOMs: 1            |        cudaMalloc retries: 1         |"
    )
    assert summary[7] == (
        "| Allocated memory      |  51200 MiB |  51200 MiB |  51200 MiB |      0 B   |"
    )


def test_a_step_that_ran_out_is_what_a_later_step_is_predicted_after() -> None:
    def too_large() -> None:
        kept = taken(50 * GIB)
        taken(40 * GIB + len(kept.shape))

    with watching_memory(0, from_now=True, limited=True) as audit:
        with pytest.raises(torch.OutOfMemoryError):
            audit.step(too_large)
        audit.step(lambda: taken(20 * MIB))

    assert audit.memories()[0].allocated_bytes == 20 * MIB


def test_a_storage_that_cannot_grow_keeps_the_block_it_has() -> None:
    seen: list[int] = []

    def step() -> None:
        kept = taken(50 * GIB)
        with pytest.raises(torch.OutOfMemoryError):
            kept.untyped_storage().resize_(60 * GIB)
        seen.append(CUDA.memory_allocated())
        del kept
        seen.append(CUDA.memory_allocated())

    limited(step)

    assert seen == [50 * GIB, 0]


def test_a_process_may_be_allowed_less() -> None:
    errors: list[BaseException] = []

    def step() -> None:
        CUDA.set_per_process_memory_fraction(0.5)
        with pytest.raises(torch.OutOfMemoryError) as caught:
            taken(41 * GIB)
        errors.append(caught.value)

    limited(step)
    share = CUDA.get_per_process_memory_fraction()
    CUDA.set_per_process_memory_fraction(1.0)

    assert share == 0.5
    assert str(errors[0]).startswith(
        "CUDA out of memory. Tried to allocate 41.00 GiB. GPU 0 has a total capacity of "
        "80.00 GiB of which 80.00 GiB is free. 40.00 GiB allowed; Of the allocated "
    )
    with pytest.raises(ValueError, match=r"^Invalid fraction value: 2. Allowed range"):
        CUDA.set_per_process_memory_fraction(2)


def test_what_is_only_asked_about_has_no_limit() -> None:
    with watching_memory(0, from_now=True) as audit:
        audit.step(lambda: taken(100 * GIB))

    assert audit.memories()[0].reserved_bytes == 100 * GIB


@pytest.mark.usefixtures("settings_unread")
@pytest.mark.parametrize(
    ("setting", "is_limited"), [("", True), ("expandable_segments:True", False)]
)
def test_a_device_has_a_limit_where_its_allocator_can_be_simulated(
    setting: str, *, is_limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", setting)

    with SimulatedDevice("/project").watching_memory() as audit:
        room = audit.live.device.room

    assert (room is not None) is is_limited
