"""A real training step on the cpu device: its syncs with their lines, its memory."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch")

TRAINING = """
import torch

def training(device):
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 10).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(32, 64, device=device)
    y = torch.randint(10, (32,), device=device)
    return model, optimizer, x, y

def step_of(device, read):
    model, optimizer, x, y = training(device)
    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return read(loss)
    return step

@gpuperf.budget(syncs=0, mem_mb=1, ms=0.000001)
def test_clean(gpuperf):
    gpuperf(step_of(gpuperf.device, read=lambda loss: None))

@gpuperf.budget(syncs=0, mem_mb=1)
def test_item(gpuperf):
    gpuperf(step_of(gpuperf.device, read=lambda loss: loss.item()))

@gpuperf.budget(mem_mb=0.001)
def test_memory(gpuperf, gpuperf_device):
    assert gpuperf_device == gpuperf.device == "cpu"
    gpuperf(step_of(gpuperf_device, read=lambda loss: None))
"""


def test_a_sync_is_found_at_its_line_and_memory_is_judged(
    project: ScriptedProject,
) -> None:
    project.file(TRAINING)
    source = (project.path / "test_it.py").read_text().splitlines()
    line = next(i for i, text in enumerate(source, 1) if "loss.item()" in text)

    result = project.pytester.runpytest_inprocess("--gpuperf", "--gpuperf-device=cpu")

    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "OVER BUDGET syncs: 1 a step, budget 0",
            f"  at       test_it.py:{line} in <lambda>: *_local_scalar_dense, 1 a step",
            "OVER BUDGET live_peak_bytes: *, budget *",
            "not judged: step_ms budget of 1 test, ms=1e-06 binds on cuda only, *",
        ]
    )


LEAKING = """
import torch

@gpuperf.budget(growth_mb=0)
def test_leak(gpuperf):
    kept = []
    gpuperf(lambda: kept.append(torch.zeros(2**18)))

@gpuperf.budget(growth_mb=0)
def test_no_leak(gpuperf):
    gpuperf(lambda: torch.zeros(2**18))
"""


def test_what_every_step_leaves_behind_is_a_leak(project: ScriptedProject) -> None:
    project.file(LEAKING)

    result = project.pytester.runpytest_inprocess("--gpuperf", "--gpuperf-device=cpu")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "OVER BUDGET growth_bytes: 1.000 MiB, budget 0 B",
            "    *every step leaves 1 MiB allocated: is that a leak?*",
        ]
    )


OUT_OF_MEMORY = """
import torch

torch.cuda.is_initialized = lambda: True
torch.cuda.memory_summary = lambda abbreviated: "|  79.9 GiB in use  |"

def test_too_large(gpuperf):
    def step():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    gpuperf(step)

@gpuperf.budget(syncs=0)
def test_small(gpuperf):
    gpuperf(lambda: torch.zeros(3))
"""


def test_running_out_of_gpu_memory_fails_the_test_with_what_the_allocator_held(
    project: ScriptedProject,
) -> None:
    project.file(OUT_OF_MEMORY)

    result = project.pytester.runpytest_inprocess("--gpuperf", "--gpuperf-device=cpu")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E * torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "*- Captured CUDA memory call -*",
            "|  79.9 GiB in use  |",
        ]
    )
