"""Waits that only some steps have, from the test's call to its verdict."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch")

STEP = """
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

def step_of(every):
    weight, steps = torch.zeros(8, device=DEVICE), []
    def step():
        steps.append(weight.add_(1).sum())
        if len(steps) % every == 0:
            print(steps[-1].item())
    return step
"""


def test_a_budget_of_no_waits_fails_for_every_50th_step_on_the_simulated_gpu(
    project: ScriptedProject,
) -> None:
    project.file(
        f"{STEP}\n"
        "def test_log(gpuperf): gpuperf(step_of(50), syncs=0)\n"
        "def test_one(gpuperf): gpuperf(step_of(50), syncs=1)\n"
        "def test_never(gpuperf): gpuperf(step_of(10**6), syncs=0)\n"
    )

    result = project.run("--gpuperf-device=pretend", "--gpuperf-seconds=1200")

    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "OVER LIMIT syncs: 1 in some steps, limit 0",
            "  --> test_it.py:13 in step",
            "*1 every 50 steps*",
        ]
    )


def test_a_period_has_a_budget_of_its_own(project: ScriptedProject) -> None:
    project.file(
        f"{STEP}\n"
        "def test_two(gpuperf): gpuperf(step_of(6), period=12, period_syncs=1)\n"
        "def test_few(gpuperf): gpuperf(step_of(6), period=12, period_syncs=2)\n"
    )

    result = project.run("--gpuperf-device=pretend", "--gpuperf-seconds=600")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*period_syncs*2*1*", "*1 every 6 steps*"])


def test_a_period_is_compared_with_its_baseline_and_what_is_occasional_is_not_stored(
    project: ScriptedProject,
) -> None:
    device = ("--gpuperf-device=pretend", "--gpuperf-seconds=600")
    project.file(f"{STEP}\ndef test_log(gpuperf): gpuperf(step_of(9), period=18)\n")
    project.refresh(*device)
    baseline = (project.path / "baselines" / "pretend-cuda.json").read_text()
    project.file(f"{STEP}\ndef test_log(gpuperf): gpuperf(step_of(5), period=18)\n")

    result = project.run(*device)

    assert "period_syncs" in baseline
    assert "occasional_syncs" not in baseline
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*period_syncs*", "*1 every 5 steps*"])


def test_a_period_that_does_not_fit_is_not_judged_and_fails_if_strict(
    project: ScriptedProject,
) -> None:
    project.file(
        f"{STEP}\n"
        "def test_long(gpuperf):\n"
        "    gpuperf(step_of(10**6), period=10**6, syncs=0, period_syncs=0)\n"
    )

    result = project.run(
        "--gpuperf-device=pretend", "--gpuperf-seconds=1", "--gpuperf-strict"
    )

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*steps of a period fit into the time cap*"])


def test_a_budget_of_a_period_without_one_says_how_to_name_it(
    project: ScriptedProject,
) -> None:
    project.file("def test_step(gpuperf): gpuperf(int, period_syncs=0)\n")

    project.run("-rA").stdout.fnmatch_lines(["*gpuperf(step, period=...) says after*"])
