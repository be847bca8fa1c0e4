"""The cuda device against a torch and an NVML that are no more than their surface."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpuperf.devices import open_device, profiler
from pytest_gpuperf.devices.base import MemoryReading
from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.devices.cuda.memory import IN_USE, out_of_memory_summary
from pytest_gpuperf.devices.cuda.nvml import COUNTERS, Nvml, Utilisation
from pytest_gpuperf.devices.memory_picture import Collecting, StorageRole
from pytest_gpuperf.devices.process_time import HostClock
from pytest_gpuperf.errors import PreflightError, UsageError
from pytest_gpuperf.model.environment import DeviceKind, Hardware


torch = pytest.importorskip("torch")

UUIDS = ("uuid-of-0", "uuid-of-1")
ME = os.getpid()
ABSENT = (
    "--gpuperf-device=cuda was asked for, but torch 2.13.0+cu130 sees no CUDA device:"
)


class FakeEvent:
    """An event that remembers when, on the fake GPU's clock, it was recorded."""

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda
        self.at_ms: float | None = None

    def record(self) -> None:
        self.at_ms = self.cuda.clock_ms

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.at_ms is not None
        assert end.at_ms is not None
        return end.at_ms - self.at_ms


class FakeGraphOfC:
    """What is of C++ in a captured graph."""

    def __init__(self, pool: tuple[int, int]) -> None:
        self._pool = pool

    def replay(self) -> None:
        """Launch it."""

    def pool(self) -> tuple[int, int]:
        return self._pool


class FakeGraph(FakeGraphOfC):
    """A captured graph, whose replays ask the allocator for nothing."""

    def replay(self) -> None:
        super().replay()


class FakeCuda:
    """``torch.cuda`` with an allocator that counts and a log of what was called."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.clock_ms = 0.0
        self.device = 0
        self.contexts = {0}
        self.backend = "native"
        self.sync_debug_mode = 0
        self.allocated = 0
        self.peak = 0
        self.retries = 0
        self.segments = 0
        self.snapshot: list[dict[str, object]] = []
        self.CUDAGraph = FakeGraph

    def memory_snapshot(self) -> list[dict[str, object]]:
        return self.snapshot

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return self.device

    def get_device_properties(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(uuid=UUIDS[index])

    def get_device_name(self) -> str:
        return "NVIDIA H200"

    def get_sync_debug_mode(self) -> int:
        return self.sync_debug_mode

    def set_sync_debug_mode(self, mode: int | str) -> None:
        self.sync_debug_mode = {"warn": 1}.get(str(mode), 0)

    def get_allocator_backend(self) -> str:
        return self.backend

    def Event(self, *, enable_timing: bool) -> FakeEvent:  # noqa: N802, torch's name
        assert enable_timing
        return FakeEvent(self)

    def device_count(self) -> int:
        return len(UUIDS)

    def has_context(self, index: int) -> bool:
        return index in self.contexts

    def synchronize(self, index: int | None = None) -> None:
        self.calls.append("synchronize" if index is None else f"synchronize {index}")

    def _sleep(self, cycles: int) -> None:
        self.calls.append(f"sleep {cycles}")

    def allocate(self, size: int) -> None:
        self.calls.append("step")
        self.allocated += size
        self.peak = max(self.peak, self.allocated)

    def free(self, size: int) -> None:
        self.allocated -= size

    def reset_peak_memory_stats(self) -> None:
        self.calls.append("reset peak")
        self.forget_peak(0)

    def forget_peak(self, _: int) -> None:
        self.peak = self.allocated

    def memory_allocated(self) -> int:
        return self.allocated

    def memory_stats(self) -> dict[str, int]:
        self.calls.append("stats")
        return {
            "allocated_bytes.all.peak": self.peak,
            "reserved_bytes.all.peak": 4096,
            "reserved_bytes.all.current": 2048,
            "inactive_split_bytes.all.current": 512,
            "num_alloc_retries": self.retries,
            "num_device_alloc": 3 + self.segments,
            "segment.all.allocated": 5,
        }


class FakeNvml:
    """What the driver says of one GPU."""

    def __init__(
        self,
        *,
        name: str | None = "NVIDIA H200",
        faults: tuple[str, ...] = (),
        processes: dict[int, int | None] | None = None,
    ) -> None:
        self._name = name
        self.faults = faults
        self._processes = processes or {}
        self.counted: dict[str, int] = {}
        self.used: Utilisation | None = Utilisation()
        self.asked_since: list[int] = []

    def name(self) -> str | None:
        return self._name

    def settings(self) -> dict[str, str]:
        return {"driver": "580.95.05", "power limit": "700 W"}

    def sm_mhz(self) -> int | None:
        return 1410

    def throttling(self) -> tuple[str, ...]:
        return self.faults

    def throttled_ns(self) -> dict[str, int]:
        return self.counted

    def utilisation(self, since_us: int) -> Utilisation | None:
        self.asked_since.append(since_us)
        return self.used

    def processes(self) -> dict[int, int | None]:
        return self._processes


def fake_torch(cuda: FakeCuda | None = None, **changes: Any) -> SimpleNamespace:
    matmul = SimpleNamespace(fp32_precision="tf32")
    cudnn = SimpleNamespace(
        version=lambda: 91900,
        benchmark=True,
        deterministic=False,
        conv=SimpleNamespace(fp32_precision="ieee"),
    )
    members: dict[str, Any] = {
        "__version__": "2.13.0+cu130",
        "cuda": cuda or FakeCuda(),
        "version": SimpleNamespace(cuda="13.0", hip=None),
        "backends": SimpleNamespace(cuda=SimpleNamespace(matmul=matmul), cudnn=cudnn),
        "are_deterministic_algorithms_enabled": lambda: False,
    }
    members["_C"] = SimpleNamespace(
        _cuda_resetPeakMemoryStats=members["cuda"].forget_peak,
        _cuda_hasPrimaryContext=members["cuda"].has_context,
    )
    return SimpleNamespace(**{**members, **changes})


def device(cuda: FakeCuda | None = None, nvml: FakeNvml | None = None) -> CudaDevice:
    def nvml_of(_: str) -> Any:
        return nvml

    return CudaDevice(torch=fake_torch(cuda), nvml_of=nvml_of)


def refusal_of(ask: Callable[[], object]) -> str:
    with pytest.raises(PreflightError) as refusal:
        ask()
    return refusal.value.text


def absence(torch_like: SimpleNamespace) -> str:
    torch_like.cuda.is_available = lambda: False
    with pytest.raises(UsageError) as absent:
        CudaDevice.of(torch_like)
    return absent.value.text


# Opening


def test_asking_a_machine_without_a_gpu_for_cuda_is_a_usage_error() -> None:
    if torch.version.cuda is not None:
        pytest.skip("this torch is built with CUDA")

    with pytest.raises(UsageError) as absent:
        open_device(DeviceKind.CUDA)

    assert str(absent.value) == (
        f"--gpuperf-device=cuda was asked for, but torch {torch.__version__} sees "
        "no CUDA device: install a build of torch with CUDA, or use "
        "--gpuperf-device=simulated [GP401]"
    )


def test_hidden_gpus_are_named_as_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    why = "CUDA_VISIBLE_DEVICES='' hides them all, unset it"
    assert absence(fake_torch()) == f"{ABSENT} {why}"


def test_torch_s_own_reason_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> bool:
        warnings.warn("The NVIDIA driver is too old (Triggered at x.cpp)", stacklevel=1)
        return False

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    torch_like = fake_torch()
    torch_like.cuda.is_available = refuse

    with pytest.raises(UsageError) as absent:
        CudaDevice.of(torch_like)

    assert str(absent.value) == f"{ABSENT} The NVIDIA driver is too old [GP401]"


def test_a_missing_gpu_without_a_known_reason_points_to_nvidia_smi(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    assert absence(fake_torch()) == f"{ABSENT} check the driver with nvidia-smi"


def test_a_device_opens_where_torch_sees_one() -> None:
    torch_like = fake_torch()

    opened = CudaDevice.of(torch_like)

    assert opened == CudaDevice(torch=torch_like)
    assert (opened.kind, opened.torch_device) == (DeviceKind.CUDA, "cuda")


def test_a_device_knows_whose_lines_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    opened = open_device(DeviceKind.CUDA, root="/src")

    assert opened == CudaDevice(torch=torch, root="/src")


# What it says of itself


def test_only_other_devices_metrics_are_unmeasurable() -> None:
    assert device().unmeasurable == {
        "flops": "counted on the simulated GPU only",
        "occasional_copies": "counted on the simulated GPU only",
        "occasional_syncs": "counted on the simulated GPU only",
    }


def test_nvml_is_asked_for_the_gpu_that_is_current_now() -> None:
    cuda = FakeCuda()
    asked: list[str] = []

    def nvml_of(uuid: str) -> Nvml | None:
        asked.append(uuid)
        return None

    watched = CudaDevice(torch=fake_torch(cuda), nvml_of=nvml_of)
    watched.disturbance()
    cuda.device = 1
    watched.disturbance()

    assert asked == ["uuid-of-0", "uuid-of-1"]


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        (None, "NVIDIA H200"),
        ("NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA H200 MIG 3g.71gb", "NVIDIA H200 MIG 3g.71gb"),
        ("H200", "NVIDIA H200"),
    ],
)
def test_the_hardware_is_torch_s_name_with_a_mig_profile_if_any(
    seen: str | None, name: str
) -> None:
    environment = device(nvml=FakeNvml(name=seen)).environment()

    assert environment.hardware == Hardware(kind=DeviceKind.CUDA, name=name)


def test_versions_and_settings_are_next_to_the_hardware(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")

    software = dict(device(nvml=FakeNvml()).environment().software)

    own = {"torch", "python", "pytest-gpuperf"}
    assert {k: v for k, v in software.items() if k not in own} == {
        "cuda": "13.0",
        "cudnn": "91900",
        "allocator": "native expandable_segments:True",
        "cudnn.benchmark": "True",
        "cudnn.deterministic": "False",
        "deterministic": "False",
        "float32 matmul": "tf32",
        "float32 convolution": "ieee",
        "driver": "580.95.05",
        "power limit": "700 W",
    }
    assert software["torch"] == torch.__version__


def test_torch_before_2_9_says_its_float32_precision_by_flags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    older = fake_torch()
    older.backends.cuda.matmul = SimpleNamespace(allow_tf32=False)
    older.backends.cudnn = SimpleNamespace(
        version=lambda: 90100, benchmark=False, deterministic=False, allow_tf32=True
    )

    software = CudaDevice(torch=older, nvml_of=lambda _: None).environment().software

    assert software["float32 matmul"] == "ieee"
    assert software["float32 convolution"] == "tf32"
    assert software["allocator"] == "native"


# Preflight


def test_sync_debug_mode_is_refused() -> None:
    cuda = FakeCuda()
    cuda.sync_debug_mode = 1

    assert refusal_of(device(cuda).preflight) == (
        "torch.cuda's sync debug mode is on, which does extra work at every "
        "synchronisation: call torch.cuda.set_sync_debug_mode(0) to measure"
    )


def test_an_allocator_that_counts_nothing_is_refused() -> None:
    cuda = FakeCuda()
    cuda.backend = "pluggable"

    assert refusal_of(device(cuda).preflight) == (
        "a pluggable CUDA allocator is in use, which counts no peak memory: "
        "measure with torch's own allocator"
    )


def test_an_allocator_without_cache_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")

    assert refusal_of(device().preflight) == (
        "PYTORCH_NO_CUDA_MEMORY_CACHING turns the caching allocator off, so every "
        "allocation waits for the GPU and no peak is counted: unset it to measure"
    )


def test_the_checks_of_every_device_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    cuda = FakeCuda()
    cuda.sync_debug_mode = 1

    message = refusal_of(device(cuda).preflight)

    assert message.startswith("CUDA_LAUNCH_BLOCKING=1 ")


# Time


def test_the_clocks_are_the_monotonic_one_and_the_process_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HostClock, "wall_ns", lambda: 5)
    monkeypatch.setattr(HostClock, "process_ns", lambda: 3)
    monkeypatch.setattr("pytest_gpuperf.devices.cpu.run_queue_wait_ns", lambda: 1)
    monkeypatch.setattr("pytest_gpuperf.devices.cpu.others_ns", lambda: 2)
    timed = device()

    assert (timed.now_ns(), timed.process_ns()) == (5, 3)
    assert (timed.waiting_ns(), timed.others_ns()) == (1, 2)


def test_to_synchronise_is_to_wait_for_each_gpu_that_the_process_has_used() -> None:
    cuda = FakeCuda()
    cuda.contexts = {0, 1}

    device(cuda).synchronize()
    cuda.device = 1
    device(cuda).synchronize()

    assert cuda.calls[:2] == ["synchronize", "synchronize 1"]
    assert cuda.calls[2:] == ["synchronize", "synchronize 0"]


@pytest.mark.parametrize(("end_ms", "span_ms"), [(12.5, 12.5), (-1.0, None)])
def test_a_span_is_the_time_between_two_events_and_none_if_negative(
    end_ms: float, span_ms: float | None
) -> None:
    cuda = FakeCuda()
    timed = device(cuda)

    start = timed.record_event()
    cuda.clock_ms = end_ms
    end = timed.record_event()

    assert timed.span_ms(start, end) == span_ms


def test_the_clock_is_that_of_the_multiprocessors_where_nvml_sees_it() -> None:
    assert device(nvml=FakeNvml()).clock_mhz() == 1410
    assert device().clock_mhz() is None


def test_a_gpu_is_known_among_others_without_its_uuid() -> None:
    cuda = FakeCuda()
    watched = CudaDevice(torch=fake_torch(cuda), nvml_of=lambda _: None)

    first = watched.fingerprint()
    again = watched.fingerprint()
    cuda.device = 1
    second = watched.fingerprint()

    assert first == again == sha256(b"uuid-of-0").hexdigest()[:12]
    assert second == sha256(b"uuid-of-1").hexdigest()[:12]


def test_settling_watches_the_compiler_and_the_allocator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "pytest_gpuperf.devices.cuda.device.compile_counters", lambda: (1, 2, 2)
    )
    cuda = FakeCuda()
    cuda.retries = 7

    assert device(cuda).settling() == (1, 2, 2, 3, 5, 7, 2048)


def test_an_allocator_that_was_never_used_stands_still() -> None:
    cuda = FakeCuda()
    cuda.memory_stats = dict  # type: ignore[method-assign]

    assert device(cuda).settling()[-4:] == (0, 0, 0, 0)


# Disturbances


def test_a_clean_gpu_of_our_own_is_undisturbed() -> None:
    assert device(nvml=FakeNvml(processes={ME: 5})).disturbance() is None


def test_without_nvml_nothing_is_known_to_disturb() -> None:
    assert device().disturbance() is None


def test_throttling_is_a_disturbance_with_its_reasons() -> None:
    faults = ("hardware slowdown", "hardware thermal slowdown")

    assert device(nvml=FakeNvml(faults=faults)).disturbance() == (
        "the GPU was throttled by hardware slowdown and hardware thermal slowdown"
    )


def watched(nvml: FakeNvml, *now_s: float) -> tuple[CudaDevice, FakeCuda]:
    """A device that is looked at, at so many seconds."""
    cuda = FakeCuda()

    class Watched(CudaDevice):
        def now_ns(self) -> int:
            return next(times)

    times = iter([round(s * 1e9) for s in now_s])
    return Watched(torch=fake_torch(cuda), nvml_of=lambda _: nvml), cuda  # type: ignore[arg-type, return-value]


ALL_COUNTED = dict.fromkeys(COUNTERS.values(), 0)


@pytest.mark.parametrize(
    ("throttled_ms", "said"),
    [(0, None), (9, None), (11, "the GPU was throttled by hardware thermal slowdown")],
)
def test_throttling_is_what_was_counted_since_the_last_look(
    throttled_ms: int, said: str | None
) -> None:
    """One second goes by, of which a fault slowed the clocks for so many ms."""
    nvml = FakeNvml()
    nvml.counted = {**ALL_COUNTED, "hardware thermal slowdown": 5_000_000_000}
    gpu, cuda = watched(nvml, 1.0, 2.0)
    gpu.disturbance()
    nvml.counted = {
        **ALL_COUNTED,
        "hardware thermal slowdown": 5_000_000_000 + throttled_ms * 1_000_000,
    }
    nvml.faults = ("power brake",)  # as an idle GPU may say at this very moment

    assert gpu.disturbance() == said
    assert cuda.calls == []


def test_a_driver_that_counts_nothing_is_asked_with_the_gpu_at_work() -> None:
    nvml = FakeNvml()
    gpu, cuda = watched(nvml, 1.0, 2.0)
    gpu.disturbance()
    nvml.faults = ("power brake",)

    assert gpu.disturbance() == "the GPU was throttled by power brake"
    assert cuda.calls == ["sleep 2000000"]


def test_other_processes_that_computed_are_a_disturbance() -> None:
    nvml = FakeNvml(processes={ME: 5, ME + 2: 5, ME + 1: None})
    percent = {ME: 90, ME + 2: 3, ME + 1: 1}
    nvml.used = Utilisation(newest_us=4, percent=percent)

    assert device(nvml=nvml).disturbance() == (
        f"other processes computed on the GPU (pid {ME + 1}, {ME + 2})"
    )


@pytest.mark.parametrize("percent", [{}, {ME: 99}, {ME: 99, ME + 1: 0}])
def test_a_process_that_only_has_a_context_disturbs_nothing(
    percent: dict[int, int],
) -> None:
    nvml = FakeNvml(processes={ME: 5, ME + 1: 5})
    nvml.used = Utilisation(newest_us=4, percent=percent)
    gpu = device(nvml=nvml)

    assert gpu.disturbance() is None
    assert gpu.remarks() == ()


def test_processes_that_this_one_comes_from_or_has_started_are_no_others() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    ) as child:
        family = {ME: 50, os.getppid(): 50, child.pid: 50}
        nvml = FakeNvml(processes=dict.fromkeys(family, 5))
        nvml.used = Utilisation(newest_us=4, percent=family)

        assert device(nvml=nvml).disturbance() is None


def test_only_newer_samples_are_asked_for_and_until_then_the_last_one_counts() -> None:
    nvml = FakeNvml(processes={ME: 5, ME + 1: 5})
    nvml.used = Utilisation(newest_us=4, percent={ME + 1: 50})
    gpu = device(nvml=nvml)
    busy = gpu.disturbance()

    nvml.used = Utilisation()
    still = gpu.disturbance()
    nvml.used = Utilisation(newest_us=9, percent={ME: 50})
    ended = gpu.disturbance()

    assert busy == still == f"other processes computed on the GPU (pid {ME + 1})"
    assert ended is None
    assert nvml.asked_since == [0, 4, 4]


def test_where_nobody_says_who_computes_contexts_are_a_remark() -> None:
    nvml = FakeNvml(processes={ME: 5, ME + 2: 5, ME + 1: 5})
    nvml.used = None
    gpu = device(nvml=nvml)

    assert gpu.disturbance() is None
    (said,) = gpu.remarks()
    assert said == (
        f"other processes have the GPU open (pid {ME + 1}, {ME + 2}); the driver does "
        "not say here whether they compute"
    )
    assert device().remarks() == ()


@pytest.mark.parametrize("used", [None, Utilisation(newest_us=4, percent={ME + 1: 50})])
def test_strangers_are_no_disturbance_where_we_are_not_seen_ourselves(
    used: Utilisation | None,
) -> None:
    nvml = FakeNvml(processes={ME + 1: 5})
    nvml.used = used
    gpu = device(nvml=nvml)

    assert gpu.disturbance() is None
    assert gpu.remarks() == ()


# Memory


def test_what_the_allocator_has_lent_is_known_by_address() -> None:
    cuda = FakeCuda()
    blocks = [
        {"address": 64, "size": 512, "state": IN_USE},
        {"address": 576, "size": 448, "state": "inactive"},
    ]
    last = {"address": 4096, "size": 1024, "state": IN_USE}
    cuda.memory_snapshot = lambda: [  # type: ignore[attr-defined]
        {"blocks": blocks},
        {"blocks": [last]},
    ]

    assert device(cuda).blocks() == {64: 512, 4096: 1024}


def test_memory_is_read_around_one_step() -> None:
    cuda = FakeCuda()
    cuda.allocated, cuda.peak, cuda.retries = 1000, 9000, 4

    def step(size: int) -> None:
        cuda.allocate(size)
        cuda.free(size - 100)

    reading = device(cuda).measure_memory(step, (500,))

    assert cuda.calls == ["synchronize", "reset peak", "step", "synchronize", "stats"]
    assert reading == MemoryReading(
        exact={
            "peak_allocated_bytes": 1500,
            "peak_reserved_bytes": 4096,
        },
        end_bytes=1100,
        graphs=0,
        garbage_bytes=0,
        collecting=Collecting.BY_PYTHON,
    )


class Lent:
    """Memory that is given back when the object ends, and a cycle that keeps it."""

    def __init__(self, cuda: FakeCuda, size: int) -> None:
        self.me, self._cuda, self._size = self, cuda, size
        cuda.allocate(size)

    def __del__(self) -> None:
        self._cuda.free(self._size)


@pytest.mark.parametrize(
    ("collect", "freed", "collecting"),
    [
        (lambda: None, 700, Collecting.BY_PYTHON),
        (gc.collect, None, Collecting.BY_STEP),
        (gc.disable, None, Collecting.NEVER),
    ],
)
def test_what_the_collector_frees_after_a_step_is_read(
    collect: Callable[[], object], freed: int | None, collecting: Collecting
) -> None:
    cuda = FakeCuda()

    def step() -> None:
        Lent(cuda, 700)
        collect()

    try:
        reading = device(cuda).measure_memory(step, ())
    finally:
        gc.enable()

    assert (reading.garbage_bytes, reading.collecting) == (freed, collecting)
    assert reading.end_bytes == (0 if collect is gc.collect else 700)
    gc.collect()


def test_a_step_that_resets_the_peak_loses_none_of_it() -> None:
    cuda = FakeCuda()
    cuda.allocated = 100
    torch_like = fake_torch(cuda)
    own = torch_like._C._cuda_resetPeakMemoryStats

    def step() -> None:
        cuda.allocate(900)
        cuda.free(900)
        torch_like._C._cuda_resetPeakMemoryStats(0)
        cuda.allocate(50)
        cuda.free(50)

    reading = CudaDevice(torch=torch_like, nvml_of=lambda _: None).measure_memory(
        step, ()
    )

    assert cuda.peak == 150
    assert reading.exact["peak_allocated_bytes"] == 1000
    assert torch_like._C._cuda_resetPeakMemoryStats == own


def segment(pool: tuple[int, int], total: int, used: int = 0, gpu: int = 0) -> Any:
    return {
        "device": gpu,
        "segment_pool_id": pool,
        "total_size": total,
        "allocated_size": used,
    }


def test_what_a_replayed_graph_keeps_is_in_the_peaks_of_its_step() -> None:
    cuda = FakeCuda()
    cuda.allocate(1000)
    cuda.snapshot = [
        segment((0, 0), 8_000_000),
        segment((7, 0), 5_000_000, used=400),
        segment((7, 0), 3_000_000),
        segment((7, 0), 1_000_000, gpu=1),
        segment((9, 0), 2_000_000),
    ]
    kept_before = FakeGraph((7, 0)).replay

    def step() -> None:
        kept_before()
        FakeGraph((7, 0)).replay()

    reading = device(cuda).measure_memory(step, ())

    assert reading.graph_bytes == 7_999_600
    assert reading.exact["peak_allocated_bytes"] == 1000 + 7_999_600
    assert reading.exact["peak_reserved_bytes"] == 4096
    assert not hasattr(FakeGraphOfC.replay, "__wrapped__")


def test_a_pool_that_no_graph_of_the_step_uses_is_in_no_peak() -> None:
    cuda = FakeCuda()
    cuda.snapshot = [segment((7, 0), 5_000_000)]

    reading = device(cuda).measure_memory(lambda: None, ())

    assert reading.graph_bytes is None
    assert reading.exact["peak_allocated_bytes"] == 0


def test_a_step_that_raises_leaves_the_reset_of_torch_as_it_was() -> None:
    torch_like = fake_torch()
    own = torch_like._C._cuda_resetPeakMemoryStats

    with pytest.raises(ZeroDivisionError):
        CudaDevice(torch=torch_like).measure_memory(lambda: 1 / 0, ())

    assert torch_like._C._cuda_resetPeakMemoryStats == own


@pytest.mark.parametrize("is_initialized", [True, False])
def test_the_allocator_s_summary_is_added_to_an_error_that_ran_out_of_gpu_memory(
    *, is_initialized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: is_initialized)
    monkeypatch.setattr(torch.cuda, "memory_summary", lambda abbreviated: "| 80 GiB |")

    summary = out_of_memory_summary(torch.OutOfMemoryError("tried 2 GiB"))

    assert summary == ("| 80 GiB |" if is_initialized else None)
    assert out_of_memory_summary(MemoryError()) is None


def test_the_peak_of_two_steps_is_sorted_by_the_tensors_on_the_current_gpu() -> None:
    """Meta tensors stand for the GPU's."""
    asked: list[tuple[str, int]] = []

    def of_meta(kind: str, index: int) -> Any:
        asked.append((kind, index))
        return torch.device("meta")

    cuda = FakeCuda()
    cuda.device = 1
    root = f"{Path(__file__).parent}{os.sep}"
    gpu = CudaDevice(torch=fake_torch(cuda, device=of_meta), root=root)
    elsewhere = gpu.picture_memory(lambda: torch.ones(2, device="meta"), repeat(()))
    weight = torch.nn.Parameter(torch.ones(500, device="meta"))
    batches = iter([(torch.ones(1000, device="meta"),)] * 2)

    def step(batch: Any) -> None:
        torch.ones(9000) + 1
        batch * 2

    picture = gpu.picture_memory(step, batches)

    assert asked == [("cuda", 1)] * 2
    assert elsewhere is not None
    assert picture is not None
    assert picture.op == "aten::mul"
    assert Counter(picture.by_role) - Counter(elsewhere.by_role) == {
        StorageRole.INPUTS: 4000,
        StorageRole.ACTIVATIONS: 4000 - 8,
        StorageRole.PARAMETERS: 2000,
    }
    line = step.__code__.co_firstlineno + 2
    assert [(h.op, h.held_bytes, h.location.line) for h in picture.held] == [
        ("aten::mul", 4000, line)
    ]
    assert weight.is_meta


# Profile


def recording(trace: list[dict[str, str]]) -> Callable[..., list[dict[str, str]]]:
    def record_trace(
        step: Callable[..., object],
        batches: Sequence[Sequence[object]],
        *,
        cuda: bool,
        marked: AbstractContextManager[object] | None,
        stacks: bool,
    ) -> list[dict[str, str]]:
        assert cuda
        assert stacks is (marked is not None)
        with marked or nullcontext():
            for arguments in batches:
                step(*arguments)
        return trace

    return record_trace


def test_the_profile_runs_a_step_a_batch_and_returns_the_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = [{"cat": "kernel", "name": "gemm"}]
    monkeypatch.setattr(profiler, "record_trace", recording(trace))
    seen: list[int] = []

    assert device().profile(seen.append, [(1,), (2,)]) == trace
    assert seen == [1, 2]


def test_torch_tells_of_waits_inside_the_profile_and_not_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profiler, "record_trace", recording([]))
    cuda = FakeCuda()
    modes: list[int] = []

    device(cuda).profile(lambda: modes.append(cuda.sync_debug_mode), [()])

    assert modes == [1]
    assert cuda.sync_debug_mode == 0


def test_a_plain_profile_has_neither_stacks_nor_torch_s_warnings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = [{"cat": "kernel", "name": "gemm"}]
    monkeypatch.setattr(profiler, "record_trace", recording(trace))
    cuda = FakeCuda()
    modes: list[int] = []

    found = device(cuda).plain_profile(
        lambda: modes.append(cuda.sync_debug_mode), [(), ()]
    )

    assert (found, modes) == (trace, [0, 0])


def test_a_trace_that_missed_the_kernels_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = [{"cat": "cuda_runtime", "name": "cudaLaunchKernel"}]
    monkeypatch.setattr(profiler, "record_trace", recording(trace))

    cuda = device()
    refused = {
        refusal_of(partial(profile, lambda: None, [()]))
        for profile in (cuda.profile, cuda.plain_profile)
    }

    assert refused == {
        (
            "profiling unavailable: the trace has cudaLaunchKernel but no kernel, because "
            "another client of CUPTI (nsys, ncu, DCGM) uses the GPU's profiler or a "
            "driver bug lost its records; run without the other client"
        )
    }
