"""Budgets of what a machine adds up as it works, per step."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject


def test_an_energy_over_its_budget_fails_and_one_within_passes(
    project: ScriptedProject,
) -> None:
    project.file(
        "@gpuperf.budget(energy_mj=40, on='scripted')\n"
        "def test_hot(gpuperf): gpuperf(int)\n"
        "@gpuperf.budget(energy_mj=60, on='scripted')\n"
        "def test_cool(gpuperf): gpuperf(int)\n"
    )
    project.script({"*": {"step_ms": 10.0, "counters": {"energy_mj": 50.0}}})

    result = project.run()

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*energy_mj*50*mJ*40*mJ*"])


def test_an_energy_that_nothing_counts_is_not_judged(project: ScriptedProject) -> None:
    project.file(
        "@gpuperf.budget(energy_mj=40, on='scripted')\n"
        "def test_hot(gpuperf): gpuperf(int)\n"
    )

    result = project.run("-rA", "--gpuperf-strict")

    result.stdout.fnmatch_lines(["*does not measure energy_mj*"])


@pytest.mark.parametrize("budget", ["syncs=9", "ms=99"])
def test_no_energy_is_read_that_no_budget_asks_for(
    project: ScriptedProject, budget: str
) -> None:
    project.file(
        f"@gpuperf.budget({budget}, on='scripted')\n"
        "def test_step(gpuperf):\n"
        "    gpuperf(int)\n"
        "    times = gpuperf.measurement.times if gpuperf.measurement else {}\n"
        "    assert 'energy_mj' not in times\n"
    )
    project.script({"*": {"step_ms": 10.0, "counters": {"energy_mj": 50.0}}})

    project.run().assert_outcomes(passed=1)
