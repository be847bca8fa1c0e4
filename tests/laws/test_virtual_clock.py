"""The virtual clock is that of all that this process reads, and of nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from virtual_gpu import MHZ, gpu_works, host_works, loop_ms, set_sm_mhz

from pytest_gpuperf.devices.base import STEP_RANGE
from pytest_gpuperf.devices.cuda.device import CudaDevice


pytestmark = [pytest.mark.gpu, pytest.mark.stub]


def test_a_trace_shows_the_times_of_the_virtual_clock() -> None:
    def step() -> None:
        host_works(8)
        gpu_works(20)
        torch.cuda.current_stream().synchronize()

    step()
    trace = CudaDevice.open().profile(step, [()])

    wanted = {
        ("user_annotation", STEP_RANGE),
        ("cuda_runtime", "cudaStreamSynchronize"),
        ("kernel", "at::cuda::(anonymous namespace)::spin_kernel(long)"),
    }
    found = {e["name"]: e["dur"] for e in trace if (e.get("cat"), e["name"]) in wanted}
    durations = [found[name] for _, name in sorted(wanted, reverse=True)]
    assert durations == pytest.approx([28_000, 20_000, 20_000], abs=20)


def test_a_trace_shows_what_each_gpu_did_to_its_end() -> None:
    """CUPTI reports what is done: the profiler waits for all, and not for one."""

    def step() -> None:
        gpu_works(1)
        with torch.cuda.device(1):
            gpu_works(20)

    step()
    trace = CudaDevice.open().plain_profile(step, [()] * 3)

    kernels = [event["args"] for event in trace if event.get("cat") == "kernel"]
    assert [kernel["device"] for kernel in kernels].count(1) == 3


def test_the_date_goes_on_with_the_other_clocks() -> None:
    date, start = time.time_ns(), time.perf_counter_ns()

    host_works(3_600_000)

    took_ns = time.perf_counter_ns() - start
    assert took_ns >= 3600 * 10**9
    assert time.time_ns() - date == pytest.approx(took_ns, abs=10_000)


def test_kernels_take_time_by_the_sm_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPERF_STUB_MHZ", str(MHZ))
    full = loop_ms(lambda: gpu_works(20), 1)
    set_sm_mhz(MHZ / 2)

    assert (full, loop_ms(lambda: gpu_works(20), 1)) == pytest.approx((20, 40), 0.01)


def test_faults_are_left_to_who_handles_them() -> None:
    """Reading the processor's counter is a fault that is answered, and no other is."""
    program = "import ctypes, faulthandler; faulthandler.enable(); ctypes.string_at(0)"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr


def test_programs_start_with_and_without_the_virtual_clock() -> None:
    without = {name: v for name, v in os.environ.items() if name != "LD_PRELOAD"}

    assert subprocess.run(["true"], env=without, check=False).returncode == 0  # noqa: S607
    assert os.system("true") == 0  # noqa: S605, S607
