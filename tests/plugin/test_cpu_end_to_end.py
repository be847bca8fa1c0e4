"""A real training step on the cpu device, which is a clock."""

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

@gpuperf.budget(syncs=0, mem_mb=0.001, growth_mb=0, launches=1, ms=0.000001)
def test_item(gpuperf, gpuperf_device):
    assert gpuperf_device == gpuperf.device == "cpu"
    gpuperf(step_of(gpuperf.device, read=lambda loss: loss.item()))

kept = []

def test_leak(gpuperf):
    gpuperf(step_of(gpuperf.device, read=kept.append))
    assert gpuperf.measurement.exact["retained_graphs"] == 1
"""


def line_of(project: ScriptedProject, part: str) -> int:
    source = (project.path / "test_it.py").read_text().splitlines()
    return next(i for i, text in enumerate(source, 1) if part in text)


def test_syncs_bytes_and_launches_are_left_to_the_simulated_gpu(
    project: ScriptedProject,
) -> None:
    project.file(TRAINING)

    result = project.pytester.runpytest_inprocess("--gpuperf", "--gpuperf-device=cpu")

    result.assert_outcomes(passed=2)
    said = " ".join(result.stdout.str().split())
    assert "the cpu device is a clock: run on the simulated GPU, the default" in said
    assert "ms=1e-06 binds on cuda only" in said
    assert "every step keeps a graph of autograd alive" in said


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
            "      | *% of the step's time is spent here",
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
    project.commit()
    measured(project, "--gpuperf-update=all")
    commit = project.commit()
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
