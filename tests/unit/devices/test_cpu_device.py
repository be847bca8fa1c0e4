from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_gpuperf.devices import cpu, process_time as cores
from pytest_gpuperf.devices.cpu import A_CLOCK, CpuDevice
from pytest_gpuperf.devices.process_time import HostClock
from pytest_gpuperf.errors import PreflightError
from pytest_gpuperf.model.environment import DeviceKind


torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def device() -> CpuDevice:
    return CpuDevice()


def test_it_is_the_cpu(device: CpuDevice) -> None:
    assert (device.kind, device.torch_device) == (DeviceKind.CPU, "cpu")


def test_one_thread_is_the_default() -> None:
    torch.set_num_threads(2)

    CpuDevice()

    assert torch.get_num_threads() == 1


def test_more_threads_can_be_asked_for() -> None:
    device = CpuDevice(threads=2)

    assert torch.get_num_threads() == 2
    assert device.environment().software["threads"] == "2"


def test_its_hardware_is_the_model_and_the_usable_cores(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "cpu_model", lambda: "AMD EPYC 9654 96-Core Processor")
    monkeypatch.setattr(cpu, "usable_cores", lambda: 4)

    hardware = device.environment().hardware

    assert hardware.key == "cpu-amd-epyc-9654-96-core-processor-4-cores"


def test_its_software_is_named(device: CpuDevice) -> None:
    assert sorted(device.environment().software) == [
        "pytest-gpuperf",
        "python",
        "threads",
        "torch",
    ]


def test_bytes_waits_copies_and_launches_are_for_the_simulated_gpu_to_judge(
    device: CpuDevice,
) -> None:
    judged_elsewhere = [
        name for name, why in device.unmeasurable.items() if why == A_CLOCK
    ]

    assert " ".join(sorted(judged_elsewhere)) == (
        "d2h_bytes flops garbage_bytes growth_bytes h2d_bytes launches "
        "occasional_copies occasional_syncs pageable_copies "
        "peak_allocated_bytes peak_reserved_bytes syncs"
    )
    assert device.unmeasurable.keys() - judged_elsewhere == {"busy_pct"}


def test_a_state_in_which_nothing_can_be_read_is_refused(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")

    with pytest.raises(PreflightError) as refused:
        device.preflight()

    assert str(refused.value).startswith("CUDA_LAUNCH_BLOCKING=1 makes the CPU wait")


def test_there_is_no_queue_no_event_and_no_disturbance(device: CpuDevice) -> None:
    def step() -> None:
        pass

    device.synchronize()

    assert device.prepare(step, "test_it") is step
    assert device.record_event() is None
    assert device.span_ms(None, None) is None
    assert device.disturbance() is None


def test_its_clocks_are_those_of_the_host(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostClock, "wall_ns", lambda: 11)
    monkeypatch.setattr(HostClock, "process_ns", lambda: 22)
    monkeypatch.setattr(cpu, "run_queue_wait_ns", lambda: 33)
    monkeypatch.setattr(cpu, "others_ns", lambda: 44)

    assert (device.now_ns(), device.process_ns()) == (11, 22)
    assert (device.waiting_ns(), device.others_ns()) == (33, 44)


def test_it_settles_when_compiling_does(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_gpuperf.devices import compile as compile_counters

    monkeypatch.setattr(compile_counters, "compile_counters", lambda: (3, 2, 1))

    assert device.settling() == (3, 2, 1)


def test_a_step_that_keeps_graphs_of_autograd_is_found_with_its_line() -> None:
    device, weight = CpuDevice(root=f"{Path(__file__).parent}{os.sep}"), parameter()
    kept: list[torch.Tensor] = []

    def step() -> None:
        kept.append((weight * 2).sum())

    readings = [device.measure_memory(step, ()) for _ in range(3)]
    found = device.leaked(step, iter(lambda: (), None))

    graphs = [reading.graphs or 0 for reading in readings]
    assert [graphs[1] - graphs[0], graphs[2] - graphs[1]] == [1, 1]
    assert [reading.exact for reading in readings] == [{}, {}, {}]
    line = step.__code__.co_firstlineno + 1
    assert {str(f.location) for f in found} == {f"{__file__}:{line} in step"}


def parameter() -> torch.Tensor:
    return torch.nn.Parameter(torch.ones(3))


def test_a_machine_with_cpuinfo_is_named_by_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(
        "processor\t: 0\nmodel name\t: AMD EPYC  \nmodel name\t: other\n"
    )
    monkeypatch.setattr(cpu, "CPUINFO", cpuinfo)

    assert cpu.cpu_model() == "AMD EPYC"


def answer(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], 0, stdout=text)


def test_a_mac_is_named_by_sysctl(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "none")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer("Apple M3 Pro\n"))

    assert cpu.cpu_model() == "Apple M3 Pro"


@pytest.mark.parametrize(("processor", "named"), [("arm", "arm"), ("", "cpu")])
def test_any_other_machine_is_named_by_its_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, processor: str, named: str
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("CPU architecture: 8\n")
    monkeypatch.setattr(cpu, "CPUINFO", cpuinfo)
    monkeypatch.setattr(cpu, "SYSCTL", str(tmp_path / "none"))
    monkeypatch.setattr(cpu.platform, "processor", lambda: processor)

    assert cpu.cpu_model() == named


def test_cores_are_those_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: {0, 5}, raising=False)

    assert cores.usable_cores() == 2


@pytest.mark.parametrize(("count", "usable"), [(8, 8), (None, 1)])
def test_cores_are_counted_where_there_is_no_affinity(
    monkeypatch: pytest.MonkeyPatch, count: int | None, usable: int
) -> None:
    monkeypatch.delattr(cores.os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(cores.os, "cpu_count", lambda: count)

    assert cores.usable_cores() == usable
