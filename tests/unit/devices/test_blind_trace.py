from __future__ import annotations

import pytest

from pytest_gpuperf.devices.profiler import refuse_blind_trace
from pytest_gpuperf.errors import PreflightError


SYNC = {"cat": "cuda_runtime", "name": "cudaDeviceSynchronize"}
OP = {"cat": "cpu_op", "name": "aten::add"}


@pytest.mark.parametrize(
    ("category", "call"),
    [
        ("cuda_runtime", "cudaLaunchKernel"),
        ("cuda_driver", "cuLaunchKernelEx"),
        ("cuda_runtime", "cudaGraphLaunch"),
        ("cuda_runtime", "cudaMemcpyAsync"),
        ("cuda_runtime", "cudaMemsetAsync"),
    ],
)
def test_a_launch_without_any_work_on_the_gpu_is_refused(
    category: str, call: str
) -> None:
    with pytest.raises(PreflightError) as refusal:
        refuse_blind_trace([OP, {"cat": category, "name": call}, SYNC])

    assert str(refusal.value) == (
        f"profiling unavailable: the trace has {call} but no kernel, because "
        "another client of CUPTI (nsys, ncu, DCGM) uses the GPU's profiler or a "
        "driver bug lost its records; run without the other client [GP410]"
    )


@pytest.mark.parametrize("call", ["cudaLaunchKernel", "cudaLaunchCooperativeKernel"])
def test_a_kernel_shows_that_the_profiler_sees_launches(call: str) -> None:
    launch = {"cat": "cuda_runtime", "name": call}

    assert not blind([launch, {"cat": "kernel", "name": "gemm"}, SYNC])
    assert blind([launch, {"cat": "gpu_memcpy", "name": "Memcpy HtoD"}, SYNC])


@pytest.mark.parametrize("work", ["kernel", "gpu_memcpy", "gpu_memset"])
def test_a_graph_may_hold_copies_alone(work: str) -> None:
    launch = {"cat": "cuda_runtime", "name": "cudaGraphLaunch"}

    assert not blind([launch, {"cat": work, "name": "anything"}, SYNC])


def test_a_step_that_launched_nothing_is_believed() -> None:
    assert not blind([OP, SYNC])


def blind(trace: list[dict[str, str]]) -> bool:
    try:
        refuse_blind_trace(trace)
    except PreflightError:
        return True
    return False
