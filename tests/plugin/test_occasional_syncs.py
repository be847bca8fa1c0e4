"""Syncs that only some steps have, from the test's call to its verdict."""

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

    result = project.run("--gpuperf-device=simulated", "--gpuperf-seconds=1200")

    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "OVER LIMIT syncs: 1 in some steps, limit 0",
            "  --> test_it.py:13 in step",
            "*1 every 50 steps*",
        ]
    )


@pytest.mark.parametrize("keyword", ["period=12", "period_syncs=1", "period_copies=0"])
def test_a_period_is_refused_with_what_limits_rare_syncs(
    project: ScriptedProject, keyword: str
) -> None:
    project.file(f"def test_log(gpuperf): gpuperf(int, {keyword})\n")

    project.run().stdout.fnmatch_lines([f"*{keyword.partition('=')[0]}= was removed:*"])
