"""What only a real GPU can answer about the cuda device."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from pytest_gpuperf.devices.allow_sync import allow_sync
from pytest_gpuperf.devices.base import STEP_RANGE, Step
from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.devices.cuda.memory import out_of_memory_summary, read_memory
from pytest_gpuperf.devices.cuda.nvml import open_nvml
from pytest_gpuperf.devices.memory_picture import Collecting, StorageRole
from pytest_gpuperf.measure.gpu_activity import replays_graphs
from pytest_gpuperf.measure.memory import held_at_peak, read_snapshot
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.profile import with_lines
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.measure.syncs import find_syncs, find_traffic
from pytest_gpuperf.measure.timing import time_sentinels
from pytest_gpuperf.model.finding import FindingKind, Phase
from pytest_gpuperf.model.metrics import SENTINELS


pytestmark = pytest.mark.gpu

ROUND_MS = 1000.0
MIB = 2**20


@pytest.fixture
def device() -> CudaDevice:
    return CudaDevice.open()


@pytest.fixture
def empty_allocator() -> None:
    """Free what earlier tests left: cuBLAS keeps its workspaces, cycles their tensors."""
    torch.cuda.init()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def gemm() -> Step:
    """Make a step whose time the GPU decides."""
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(a)
    return lambda: torch.matmul(a, a, out=out)


def host_and_span_ms(device: CudaDevice, step: Step, steps: int) -> tuple[float, float]:
    device.synchronize()
    start, start_ns = device.record_event(), device.now_ns()
    for _ in range(steps):
        step()
    end = device.record_event()
    device.synchronize()
    host_ms = (device.now_ns() - start_ns) / 1e6
    span_ms = device.span_ms(start, end)
    assert span_ms is not None
    return host_ms, span_ms


def steps_for(device: CudaDevice, step: Step, wanted_ms: float) -> int:
    host_and_span_ms(device, step, 10)
    pilot_ms, _ = host_and_span_ms(device, step, 10)
    return max(10, round(wanted_ms / (pilot_ms / 10)))


def leaking(kept: list[torch.Tensor]) -> Callable[[], None]:
    return lambda: kept.append(torch.empty(MIB, dtype=torch.uint8, device="cuda"))


def test_events_and_the_host_clock_agree_on_a_long_round(device: CudaDevice) -> None:
    step = gemm()
    steps = steps_for(device, step, ROUND_MS)

    host_ms, span_ms = host_and_span_ms(device, step, steps)

    assert host_ms == pytest.approx(span_ms, rel=0.05)


def test_a_synchronisation_waits_for_streams_other_than_the_current(
    device: CudaDevice,
) -> None:
    step, other = gemm(), torch.cuda.Stream()
    steps = steps_for(device, step, ROUND_MS)
    with torch.cuda.stream(other):
        for _ in range(steps):
            step()

    device.synchronize()

    assert other.query()


def test_a_planted_item_is_found_by_the_profile(device: CudaDevice) -> None:
    step = gemm()
    loss = torch.zeros((), device="cuda")

    def step_with_item() -> float:
        step()
        return loss.item()

    step_with_item()
    found = find_syncs(device.profile(step_with_item, [()] * 3))

    assert found.per_step == 1
    assert [finding.per_step for finding in found.findings] == [1]


def test_each_wait_has_the_line_that_makes_it(device: CudaDevice) -> None:
    loss = torch.zeros(3, device="cuda", requires_grad=True)

    def step() -> None:
        total = loss.sum()
        total.item()
        total.cpu()
        loss.nonzero()

    step()
    found = find_syncs(device.profile(step, [()] * 3))

    top = step.__code__.co_firstlineno
    lines = {f.location.line - top for f in found.findings if f.location}
    assert found.per_step == 3
    assert lines == {2, 3, 4}
    assert all(f.location and f.location.exact for f in found.findings)


def test_waits_that_torch_does_not_warn_of_have_their_lines(device: CudaDevice) -> None:
    event = torch.cuda.Event()

    def step() -> None:
        event.record()
        event.synchronize()
        torch.cuda.synchronize()
        torch.accelerator.synchronize()
        torch.cuda.Event().synchronize()

    step()
    found = find_syncs(device.profile(step, [()] * 3))

    top = step.__code__.co_firstlineno
    lines = [f.location.line - top for f in found.findings if f.location]
    assert found.per_step == 3, "an event that was never recorded is not waited for"
    assert sorted(lines) == [2, 3, 4]
    assert all(f.location and f.location.exact for f in found.findings)


def test_a_wait_in_autograd_s_thread_has_the_line_of_its_backward_pass(
    device: CudaDevice,
) -> None:
    grid = torch.ones(4, 4, device="cuda", requires_grad=True)
    rows = torch.tensor([True, False, True, False], device="cuda")

    def step() -> None:
        loss = grid[rows].sum()
        loss.backward()
        loss.item()

    step()
    found = find_syncs(device.profile(step, [()] * 3))

    top = step.__code__.co_firstlineno
    lines = [f.location.line - top for f in found.findings if f.location]
    assert found.per_step == 3
    assert sorted(lines) == [1, 2, 3]
    assert all(f.location and f.location.exact for f in found.findings)


def test_waits_that_python_asks_for_are_torch_s_own_again_after_the_profile(
    device: CudaDevice,
) -> None:
    functions = (torch._C._cuda_synchronize, torch.cuda.Event.synchronize)

    device.profile(lambda: torch.cuda.Event().synchronize(), [()])

    assert functions == (torch._C._cuda_synchronize, torch.cuda.Event.synchronize)
    assert torch.cuda.get_sync_debug_mode() == 0


FREES_WHILE_RAISING = """
import torch
from pytest_gpuperf.devices.cuda.device import CudaDevice

def step():
    x = torch.ones(10, device="cuda")
    try:
        [x + 1, {}["no such key"]]
    except KeyError:
        x.sum().item()

CudaDevice.open().profile(step, [()])
"""
"""The sum is freed while the error looks for its handler."""


def test_an_error_that_frees_a_tensor_reaches_its_handler() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FREES_WHILE_RAISING],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_a_plain_profile_counts_what_the_one_with_lines_names(
    device: CudaDevice,
) -> None:
    grid = torch.ones(4, 4, device="cuda", requires_grad=True)
    rows = torch.tensor([True, False, True, False], device="cuda")

    def step() -> None:
        grid[rows].sum().backward()
        torch.cuda.synchronize()
        grid.sum().item()

    step()
    plain, named = (
        profile(step, [()] * 3) for profile in (device.plain_profile, device.profile)
    )
    joined = find_syncs(with_lines(plain, named))

    top = step.__code__.co_firstlineno
    lines = [f.location.line - top for f in joined.findings if f.location]
    assert not [event for event in plain if event.get("cat") == "python_function"]
    assert find_syncs(plain).per_step == find_syncs(named).per_step == 4
    assert sorted(lines) == [1, 2, 3], "both of the first line are one finding"
    assert all(f.location and f.location.exact for f in joined.findings)


def test_a_measured_step_has_plain_numbers_and_exact_lines(
    device: CudaDevice,
) -> None:
    compute = gemm()
    total = torch.zeros((), device="cuda")

    def step() -> None:
        compute()
        total.add_(1).item()

    found = measure(
        device, Subject(step=step), MeasurePlan(test="t", seconds=60)
    ).measurement

    (finding,) = (f for f in found.findings if "syncs" in f.metrics)
    assert finding.location is not None
    assert finding.location.line == step.__code__.co_firstlineno + 2
    assert (found.exact["syncs"], found.remarks) == (1, ())


def test_copies_of_known_sizes_are_counted(device: CudaDevice) -> None:
    pageable, pinned = torch.ones(1000), torch.ones(500).pin_memory()
    on_device = torch.ones(250, device="cuda")

    def step() -> None:
        pageable.to("cuda")
        pinned.to("cuda", non_blocking=True)
        on_device.cpu()
        on_device.sum().item()

    step()
    found = find_traffic(device.profile(step, [()] * 3))

    assert found.exact == {
        "h2d_bytes": 6000,
        "d2h_bytes": 1000,
        "pageable_copies": 2,
    }


def test_a_block_and_a_comment_allow_their_waits(device: CudaDevice) -> None:
    loss = torch.ones((), device="cuda")

    def step() -> None:
        with allow_sync(1, reason="it is logged"):
            loss.item()
        loss.item()  # gpuperf: allow-sync it is printed
        loss.item()

    step()
    found = find_syncs(device.profile(step, [()] * 3))

    assert found.per_step == 1
    assert {f.allowed for f in found.findings} == {
        "it is logged",
        "it is printed",
        None,
    }


def test_a_step_without_a_sync_has_none_in_its_profile(device: CudaDevice) -> None:
    step = gemm()
    step()

    assert find_syncs(device.profile(step, [()] * 3)).per_step == 0


def test_a_step_that_launches_nothing_is_believed(device: CudaDevice) -> None:
    trace = device.profile(lambda: None, [()] * 3)

    assert not [event for event in trace if event.get("cat") == "kernel"]
    assert find_syncs(trace).per_step == 0


def test_the_peak_of_a_known_allocation_is_read_within_rounding(
    device: CudaDevice, empty_allocator: None
) -> None:
    size = 10_000_000
    base = torch.cuda.memory_allocated()

    reading = device.measure_memory(
        lambda: torch.empty(size, dtype=torch.uint8, device="cuda"), ()
    )

    assert 0 <= reading.exact["peak_allocated_bytes"] - base - size <= MIB
    assert reading.exact["peak_reserved_bytes"] >= reading.exact["peak_allocated_bytes"]
    assert reading.end_bytes == base


def test_memory_is_read_once_all_streams_have_done_the_step(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it frees in the order of a stream is the driver's again by then."""
    side = torch.cuda.Stream()
    was_done: list[bool] = []
    stats = torch.cuda.memory_stats

    def asked() -> dict[str, int]:
        was_done.append(side.query())
        return stats()

    def step() -> None:
        with torch.cuda.stream(side):
            torch.cuda._sleep(cycles(100))

    monkeypatch.setattr(torch.cuda, "memory_stats", asked)
    read_memory(torch, step, ())

    assert was_done[-1]


def cycles(ms: float) -> int:
    """About so many milliseconds of a GPU's clock."""
    return round(ms * 1_500_000)


def graph_of(step: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of *step*, captured once it has run."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


@pytest.mark.parametrize("how", ["asked each time", "kept from before"])
def test_the_peak_of_a_captured_step_contains_its_scratch(
    device: CudaDevice, empty_allocator: None, how: str
) -> None:
    total = torch.zeros((), device="cuda")

    def scratch() -> None:
        total.add_(torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")[0])

    graph = graph_of(scratch)
    base = torch.cuda.memory_allocated()
    kept_before = graph.replay

    def asking() -> None:
        graph.replay()

    step = kept_before if how == "kept from before" else asking
    reading = device.measure_memory(step, ())
    after = device.measure_memory(lambda: total.add_(1), ())

    assert reading.graph_bytes is not None
    assert 64 * MIB <= reading.graph_bytes <= 68 * MIB
    assert reading.exact["peak_allocated_bytes"] == base + reading.graph_bytes
    assert after.graph_bytes is None
    assert replays_graphs(device.plain_profile(step, [()]))
    assert not replays_graphs(device.plain_profile(lambda: total.add_(1), [()]))


def test_a_planted_leak_grows_the_bytes_at_the_end_of_each_step(
    device: CudaDevice,
) -> None:
    step = leaking([])

    ends = [device.measure_memory(step, ()).end_bytes for _ in range(4)]

    growths = [after - before for before, after in pairwise(ends)]
    assert growths == [MIB, MIB, MIB]


def test_what_each_step_keeps_is_measured_and_has_its_line(
    device: CudaDevice,
) -> None:
    kept: list[torch.Tensor] = []

    def step() -> None:
        torch.cuda._sleep(cycles(20))
        kept.append(torch.empty(2048, dtype=torch.uint8, device="cuda"))

    found = measure(
        device, Subject(step=step), MeasurePlan(test="t", seconds=60)
    ).measurement

    (left,) = (f for f in found.findings if f.kind is FindingKind.LEFT)
    assert found.exact["growth_bytes"] == 2048
    assert left.location is not None
    assert left.location.line == step.__code__.co_firstlineno + 2


class Batch:
    """Holds itself, and so what it has until the collector runs."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows, self.own = rows, self


def test_what_only_the_collector_frees_is_measured_and_has_its_line(
    device: CudaDevice,
) -> None:
    def step() -> None:
        torch.cuda._sleep(cycles(20))
        Batch(torch.empty(2048, dtype=torch.uint8, device="cuda"))

    found = measure(
        device, Subject(step=step), MeasurePlan(test="t", seconds=60)
    ).measurement

    (garbage,) = (f for f in found.findings if f.kind is FindingKind.GARBAGE)
    assert found.exact["garbage_bytes"] == 2048
    assert found.exact["growth_bytes"] == 0
    assert garbage.location is not None
    assert garbage.location.line == step.__code__.co_firstlineno + 2
    assert "Batch.own" in garbage.reason


def test_a_step_that_collects_by_itself_leaves_no_garbage(device: CudaDevice) -> None:
    def step() -> None:
        Batch(torch.empty(2048, dtype=torch.uint8, device="cuda"))
        gc.collect()

    reading = device.measure_memory(step, ())

    assert (reading.garbage_bytes, reading.collecting) == (None, Collecting.BY_STEP)


def test_a_steady_step_ends_with_the_bytes_it_began_with(device: CudaDevice) -> None:
    step = gemm()
    step()

    ends = {device.measure_memory(step, ()).end_bytes for _ in range(4)}

    assert len(ends) == 1


def test_the_counters_stand_still_for_a_steady_step_and_move_when_memory_grows(
    device: CudaDevice,
) -> None:
    step = gemm()
    step()
    steady = device.settling()
    step()
    unchanged = device.settling()

    block = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")

    assert unchanged == steady
    assert device.settling() != steady
    del block


def test_nvml_found_by_uuid_is_the_gpu_that_torch_names(device: CudaDevice) -> None:
    uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    nvml = open_nvml(uuid)

    assert nvml is not None
    assert nvml.name() == torch.cuda.get_device_name()
    assert device.environment().hardware.name == torch.cuda.get_device_name()


def test_this_process_alone_is_no_disturbance_to_itself(device: CudaDevice) -> None:
    torch.zeros(1, device="cuda")

    assert str(os.getpid()) not in (device.disturbance() or "")


def test_a_snapshot_of_a_step_names_the_line_that_holds_the_peak(
    device: CudaDevice, empty_allocator: None, tmp_path: Path
) -> None:
    kept = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")

    def step() -> None:
        large = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        large.add_(kept[0])

    step()
    device.record_allocations(step, (), tmp_path / "memory.pickle")
    held = held_at_peak(read_snapshot(tmp_path / "memory.pickle"))

    assert held[0].held_bytes == 64 * MIB
    assert held[0].location is not None
    assert held[0].location.line == step.__code__.co_firstlineno + 1
    assert [h.location for h in held if h.held_bytes >= 3 * MIB][1:] == [None]


def test_what_the_peak_is_for_is_told_of_the_gpu_s_tensors(tmp_path: Path) -> None:
    """Backward runs in a thread of its own, whose lines are those that wait for it."""
    device = CudaDevice.open(root=f"{Path(__file__).parent}{os.sep}")
    model = torch.nn.Linear(4096, 4096, bias=False, device="cuda")
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    batch = torch.ones(1, 4096, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    step()
    step()
    measured = device.measure_memory(step, ()).exact["peak_allocated_bytes"]
    picture = device.picture_memory(step, iter([()] * 2))
    device.record_allocations(step, (), tmp_path / "memory.pickle")
    held = held_at_peak(read_snapshot(tmp_path / "memory.pickle"))

    assert picture is not None
    assert picture.site is not None
    assert picture.site.phase is Phase.OPTIMIZER
    assert picture.by_role[StorageRole.PARAMETERS] == 64 * MIB
    assert picture.by_role[StorageRole.GRADIENTS] == 64 * MIB
    assert 128 * MIB <= picture.by_role[StorageRole.OPTIMIZER_STATE] <= 128 * MIB + 4
    assert picture.by_role[StorageRole.TEMPORARIES] == 64 * MIB
    top = step.__code__.co_firstlineno
    lines = {
        (h.phase, h.location.line - top)
        for h in picture.held
        if h.location and h.held_bytes == 64 * MIB
    }
    assert lines == {(Phase.BACKWARD, 2), (Phase.OPTIMIZER, 3)}
    assert sum(picture.by_role.values()) <= measured
    assert Phase.BACKWARD in {h.phase for h in held if h.held_bytes >= 64 * MIB}


def test_a_step_that_runs_out_of_memory_is_told_with_the_allocator_s_summary() -> None:
    with pytest.raises(torch.OutOfMemoryError) as out_of_memory:
        torch.empty(2**50, dtype=torch.uint8, device="cuda")

    summary = out_of_memory_summary(out_of_memory.value)

    assert summary is not None
    assert "Allocated memory" in summary


def captured(stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    """A product of the user's that replays with the workspace of its stream."""
    a = torch.ones(64, 64, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(a)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.mm(a, a, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        torch.mm(a, a, out=out)
    return graph


@pytest.mark.usefixtures("empty_allocator")
def test_sentinels_leave_no_memory_behind(device: CudaDevice) -> None:
    kept = torch.ones(MIB, device="cuda")
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()

    times = time_sentinels(device)

    assert list(times) == [metric.name for metric in SENTINELS]
    after = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    assert after == before
    assert kept.is_cuda


@pytest.mark.usefixtures("empty_allocator")
def test_sentinels_leave_the_workspace_of_a_captured_graph_alone(
    device: CudaDevice,
) -> None:
    graph = captured(torch.cuda.Stream())
    torch.cuda.synchronize()
    workspaces = {block["address"] for block in large_blocks()}

    time_sentinels(device)

    assert workspaces
    assert {block["address"] for block in large_blocks()} == workspaces
    graph.replay()
    torch.cuda.synchronize()


def large_blocks() -> list[dict[str, int]]:
    """What is in use and as large as a workspace of cuBLAS."""
    return [
        block
        for segment in torch.cuda.memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == "active_allocated" and block["size"] > 4 * MIB
    ]


def test_sentinels_launch_the_same_whatever_the_code_has_set(
    device: CudaDevice,
) -> None:
    def launched() -> list[str]:
        with device.sentinels() as kernels:

            def step() -> None:
                for kernel in kernels.values():
                    kernel()

            step()
            trace = device.profile(step, [()])
        # The profiler runs an operation of its own before the step.
        begun = min(e["ts"] for e in trace if e.get("name") == STEP_RANGE)
        return sorted(
            e["name"]
            for e in trace
            if e.get("cat") in {"kernel", "gpu_memcpy"} and e["ts"] >= begun
        )

    plain = launched()
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    torch.set_float32_matmul_precision("high")
    torch.set_default_device("cpu")
    try:
        with torch.autocast("cuda", dtype=torch.float16):
            changed = launched()
    finally:
        torch.set_default_device(None)
        torch.set_float32_matmul_precision("highest")
        torch.use_deterministic_algorithms(mode=False)

    assert plain
    assert changed == plain
