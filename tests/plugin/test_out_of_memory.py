"""A step that the pretend GPU is too small for fails its test, and no other."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch")

ON = ("--gpuperf", "--gpuperf-device=pretend")

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

@gpuperf.budget(alloc_retries=0)
def test_retried(gpuperf):
    def step():
        torch.cuda.empty_cache()
        taken(50).zero_()
        taken(60).zero_()
    gpuperf(step)

@gpuperf.budget(mem_mb=100_000, alloc_retries=0)
def test_fits(gpuperf):
    gpuperf(lambda: taken(60).zero_())

@gpuperf.budget(syncs=0)
def test_small(gpuperf):
    gpuperf(lambda: torch.zeros(3, device="cuda"))

def test_asked(gpuperf):
    def make_step():
        large = [taken(50), taken(40)]
        return lambda: large[0].zero_()
    assert not gpuperf.fits(make_step, gb=80)
"""


@pytest.mark.parametrize("isolation", ["test", "module"])
def test_a_step_too_large_for_the_gpu_fails_with_what_the_allocator_would_hold(
    project: ScriptedProject, isolation: str
) -> None:
    project.file(TOO_LARGE)

    result = project.pytester.runpytest_inprocess(
        *ON, f"--gpuperf-isolation={isolation}"
    )

    result.assert_outcomes(passed=3, failed=3)
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
            "*___ test_retried ___*",
            "OVER BUDGET predicted_alloc_retries: 1 a step, budget 0",
        ]
    )
    told = " ".join(line.strip() for line in result.outlines)
    assert (
        "the GPU would run out of memory in a step, and its allocator flush its" in told
    )
    assert "/pytest_gpuperf/" not in told
