"""A step that the simulated GPU is too small for fails its test, and no other."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch")

ON = ("--gpuperf", "--gpuperf-device=simulated")

TOO_LARGE = """
import torch

GIB = 2**30

def taken(gib):
    return torch.empty(gib * GIB, dtype=torch.uint8, device="cuda")

@gpuperf.budget(syncs=0)
def test_too_large(gpuperf):
    def step():
        kept = taken(50)
        return taken(40)
    gpuperf(step)

@gpuperf.budget(syncs=0)
def test_built_too_large(gpuperf):
    model = [taken(50), taken(40)]
    gpuperf(lambda: model[0].zero_())

@gpuperf.budget(mem_mb=100_000)
def test_retried(gpuperf):
    def step():
        torch.cuda.empty_cache()
        taken(50).zero_()
        taken(60).zero_()
    gpuperf(step)

@gpuperf.budget(mem_mb=100_000)
def test_fits(gpuperf):
    gpuperf(lambda: taken(60).zero_())

@gpuperf.budget(syncs=0)
def test_small(gpuperf):
    gpuperf(lambda: torch.zeros(3, device="cuda"))
"""


@pytest.mark.parametrize("isolation", ["test", "module"])
def test_a_step_too_large_for_the_gpu_fails_with_what_the_allocator_would_hold(
    project: ScriptedProject, isolation: str
) -> None:
    project.file(TOO_LARGE)

    result = project.pytester.runpytest_inprocess(
        *ON, f"--override-ini=gpuperf_isolation={isolation}"
    )

    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*___ test_too_large ___*",
            "    return taken(40)",
            ">       return torch.empty(gib * GIB, dtype=torch.uint8, device=*",
            (
                "E *torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 40.00 "
                "GiB. GPU 0 has a total capacity of 80.00 GiB of which 30.00 GiB is free. *"
            ),
            "*- Captured CUDA memory call -*",
            "|            CUDA OOMs: 1            |        cudaMalloc retries: 1         |",
            "| GPU reserved memory   |  51200 MiB |  51200 MiB |  51200 MiB |      0 B   |",
            "*___ test_built_too_large ___*",
            "E *torch.OutOfMemoryError: CUDA out of memory. *",
        ]
    )
    said = " ".join(line.strip() for line in result.outlines)
    assert (
        "the GPU would run out of memory in a step, and its allocator flush its" in said
    )
    assert "/pytest_gpuperf/" not in said


def test_a_step_for_a_larger_gpu_fits_on_one(
    project: ScriptedProject,
) -> None:
    project.file(TOO_LARGE)

    result = project.pytester.runpytest_subprocess(
        *ON, "--override-ini=gpuperf_simulated_gb=141", "-k", "built"
    )

    result.assert_outcomes(passed=1, deselected=4)


SMALL_HOST = """
import torch
from pytest_gpuperf.devices.simulated.tensor_values import BACKING

@pytest.fixture
def small_host():
    BACKING._available = lambda: 2**30

@gpuperf.budget(mem_mb=5000)
def test_large(gpuperf, small_host):
    weights = torch.ones(2**15, 2**15, device="cuda")
    gpuperf(lambda: weights.sum())

@gpuperf.budget(mem_mb=5000)
def test_read(gpuperf, small_host):
    weights = torch.ones(2**15, 2**15, device="cuda")
    gpuperf(lambda: weights.sum().item() > 0)
"""


def test_a_step_too_large_for_the_host_says_so_before_it_swaps(
    project: ScriptedProject,
) -> None:
    project.file(SMALL_HOST)

    result = project.pytester.runpytest_inprocess(*ON, "-rs")

    result.assert_outcomes(passed=1, skipped=1)
    said = " ".join(line.strip() for line in result.outlines)
    assert (
        "values on the simulated GPU need more than the 1024 MiB of memory that this machine "
        "has left: from there on it runs without values"
    ) in said
    assert (
        "only a GPU can judge Tensor.item (test_it.py:19): no values are kept on the simulated GPU, so "
        "what was read is a guess, which decides what runs"
    ) in said
