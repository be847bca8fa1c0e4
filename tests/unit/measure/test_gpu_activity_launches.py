"""Launches and kernels of a step, by the trace of a GPU."""

from __future__ import annotations

from typing import Any

from pytest_gpuperf.measure.gpu_activity import count_launches


def event(
    category: str, name: str, start_us: float, duration_us: float, number: int = 0
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": start_us,
        "dur": duration_us,
        "pid": 1,
        "tid": 1,
        "args": {"correlation": number} if number else {},
    }


STEPS = [
    event("user_annotation", "gpuperf.step", 0.0, 100.0),
    event("user_annotation", "gpuperf.step", 200.0, 100.0),
]


def test_a_step_without_a_launch_has_none() -> None:
    assert count_launches(STEPS) == {"launches": 0}


def test_the_step_with_most_launches_counts() -> None:
    calls = [
        event("cuda_runtime", "cudaLaunchKernel", 10.0, 5.0, 1),
        event("cuda_runtime", "cudaLaunchKernelExC", 210.0, 5.0, 2),
        event("cuda_driver", "cuLaunchKernelEx", 220.0, 5.0, 3),
        event("cuda_runtime", "hipModuleLaunchKernel", 230.0, 5.0, 4),
    ]

    assert count_launches([*STEPS, *calls])["launches"] == 3


def test_what_is_no_launch_or_outside_of_a_step_is_not_counted() -> None:
    calls = [
        event("cuda_runtime", "cudaMemcpyAsync", 10.0, 5.0, 1),
        event("cuda_runtime", "cudaLaunchHostFunc", 20.0, 5.0, 2),
        event("cuda_runtime", "cudaLaunchKernel", 150.0, 5.0, 3),
        event("cpu_op", "cudaLaunchKernel", 30.0, 5.0, 4),
    ]

    assert count_launches([*STEPS, *calls])["launches"] == 0


def test_a_launch_that_makes_another_is_one() -> None:
    calls = [
        event("cuda_driver", "cuLaunchKernel", 11.0, 3.0, 2),
        event("cuda_runtime", "cudaLaunchKernel", 10.0, 5.0, 1),
    ]

    assert count_launches([*STEPS, *calls])["launches"] == 1


def test_a_graph_is_one_launch_whenever_its_kernels_run() -> None:
    launch = event("cuda_runtime", "cudaGraphLaunch", 10.0, 5.0, 7)
    kernels = [event("kernel", f"k{n}", 400.0 + n, 1.0, 7) for n in range(12)]

    assert count_launches([*STEPS, launch, *kernels]) == {"launches": 1}
