"""A real training step on the cpu device: its syncs with their lines, its memory."""

from __future__ import annotations

import subprocess
import sys

import pytest
from git_project import GitProject
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


def line_of(project: ScriptedProject, part: str) -> int:
    source = (project.path / "test_it.py").read_text().splitlines()
    return next(i for i, text in enumerate(source, 1) if part in text)


def test_a_sync_is_found_at_its_line_and_memory_is_judged(
    project: ScriptedProject,
) -> None:
    project.file(TRAINING)
    line = line_of(project, "loss.item()")

    result = project.pytester.runpytest_inprocess("--gpuperf", "--gpuperf-device=cpu")

    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "OVER LIMIT syncs: 1 per step, limit 0",
            f"  --> test_it.py:{line} in <lambda>",
            "*.item()*",
            "      | the CPU waits here for the GPU",
            "OVER LIMIT mem_mb: *, limit *",
            "not judged: step_ms budget of 1 test, ms=1e-06 binds on cuda only, *",
        ]
    )


PEAK = """
import torch

def training(width):
    model = torch.nn.Sequential(torch.nn.Linear(256, width, bias=False), torch.nn.Tanh())
    optimizer = torch.optim.SGD(model.parameters())
    x = torch.ones(1024, 256)
    def step():
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
    return step

@gpuperf.budget(mem_mb=4)
def test_peak(gpuperf):
    gpuperf(training(256))

@gpuperf.budget(mem_mb=6)
def test_small(gpuperf):
    gpuperf(training(256))
"""


def test_a_verdict_says_what_the_peak_is_for_and_which_lines_hold_it(
    project: ScriptedProject,
) -> None:
    project.file(PEAK)
    forward, backward = line_of(project, "model(x)"), line_of(project, "loss.backward")

    result = project.pytester.runpytest_inprocess(
        "--gpuperf", "--gpuperf-device=cpu", "--gpuperf-explain"
    )

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "OVER LIMIT mem_mb: 5.250 MiB, limit 4.000 MiB",
            f"  --> test_it.py:{backward} in step",
            "*most memory is in use here: aten::mul, backward, 5.250 MiB: *",
            "*in use at the peak: aten::mul, backward, 2.000 MiB in 2 blocks",
            f"  --> test_it.py:{forward} in step",
            "*in use at the peak: aten::tanh, forward, 1.000 MiB in 1 block",
            "  sure?    5.25 MiB against 4 MiB in each of 2 runs",
        ]
    )
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_small",
            "    live_peak_bytes passed: *",
            f"    --> test_it.py:{backward} in step",
        ]
    )
    assert max(map(len, told(result))) <= 80


def told(result: pytest.RunResult) -> list[str]:
    """Lines of the failure, from its headline to its budget."""
    lines = result.outlines
    first = next(i for i, text in enumerate(lines) if text.startswith("OVER LIMIT"))
    last = next(i for i, text in enumerate(lines) if text.startswith("  limit"))
    return lines[first:last]


LEAKING = """
import torch

@gpuperf.budget(growth_mb=0)
def test_leak(gpuperf):
    kept = []
    gpuperf(lambda: kept.append(torch.zeros(2**18)))

@gpuperf.budget(growth_mb=0)
def test_no_leak(gpuperf):
    gpuperf(lambda: torch.zeros(2**18))

class Node:
    def __init__(self):
        self.me, self.big = self, torch.zeros(2**18)

@gpuperf.budget(growth_mb=0, garbage_mb=0.5)
def test_cycle(gpuperf):
    gpuperf(Node)
"""


def test_what_every_step_leaves_behind_is_a_leak(project: ScriptedProject) -> None:
    project.file(LEAKING)

    result = project.pytester.runpytest_inprocess("--gpuperf", "--gpuperf-device=cpu")

    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "OVER LIMIT growth_mb: 1.000 MiB per step, limit 0 B",
            "  --> test_it.py:*",
            "*1.000 MiB in 1 block left by each step*",
            "OVER LIMIT garbage_mb: 1.000 MiB per step, limit 0.5000 MiB",
            "  --> test_it.py:*",
            "*collector frees: in a cycle of Node.me",
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


SLOW = """
import torch

x = torch.zeros(4)

def slow():
    total = 0
    for i in range(200_000): total += i
    return total

def step():
    x.add_(1)
    slow()

@gpuperf.budget(ms=0.001, on="cpu")
def test_slow(gpuperf): gpuperf(step)
"""


def test_a_time_that_fails_names_the_line_that_takes_it(
    project: ScriptedProject,
) -> None:
    project.file(SLOW)
    line = line_of(project, "range(200_000)")

    result = project.pytester.runpytest_inprocess("--gpuperf", "--gpuperf-device=cpu")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "OVER LIMIT ms: *",
            f"  --> test_it.py:{line} in slow",
            f"{line:5} | for i in range(200_000): total += i",
            "      | ^*",
            "      | ?? % of the step's time is spent here",
        ],
        consecutive=True,
    )


def test_the_line_that_changed_since_the_baseline_is_named_for_a_slower_step(
    project_of_commits: GitProject,
) -> None:
    project = project_of_commits
    header = "import pytest_gpuperf as gpuperf\n"
    now = header + SLOW.replace('ms=0.001, on="cpu"', "syncs=0")
    project.tests(now.replace("200_000", "2_000"))
    commit = project.commit()
    measured(project, "--gpuperf-update=all")
    project.tests(now)
    line = now.splitlines().index("    for i in range(200_000): total += i") + 1

    shown = measured(project)

    assert "SLOWER: " in shown
    assert f"  --> test_it.py:{line} in slow\n" in shown
    assert f"of the step's time is spent here, changed since {commit}\n" in shown


def measured(project: GitProject, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "--gpuperf", "--gpuperf-device=cpu"]
    return subprocess.run(
        [*command, *options],
        cwd=project.path,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
