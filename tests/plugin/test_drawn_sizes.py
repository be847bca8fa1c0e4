"""Sizes that a test draws: unchanged code is never blamed, a shift of them all is."""

from __future__ import annotations

import json

import pytest
from builders import entries_in
from scripted_project import ScriptedProject


pytest.importorskip("torch")

STEPS = """
import os

import pytest
import torch

def seeded():
    torch.manual_seed(3)
    return torch.randint(8, 24, ()).item()

DRAWS = {
    "torch": lambda: torch.randint(8, 24, ()).item(),
    "system": lambda: 8 + int.from_bytes(os.urandom(2), "big") / 2**12,
    "seeded": seeded,
}

@pytest.mark.parametrize("kind", DRAWS)
def test_step(gpuperf, kind):
    size = int((DRAWS[kind]() + MORE) * 2**20)
    gpuperf(lambda: torch.ones(size, dtype=torch.uint8, device="cuda"))
"""

DRAWN = ("torch", "system")


@pytest.fixture
def stored(project: ScriptedProject) -> ScriptedProject:
    project.file(f"MORE = 0\n{STEPS}")
    gate(project, "--gpuperf-update=missing").assert_outcomes(passed=3)
    return project


def gate(project: ScriptedProject, *more: str) -> pytest.RunResult:
    return project.run("--gpuperf-device=simulated", *more)


def test_unchanged_code_passes_whatever_it_draws_and_a_shift_of_all_draws_does_not(
    stored: ScriptedProject,
) -> None:
    entries = entries_in(stored.path / "baselines/simulated-cuda.json")
    sizes = {
        test.partition("[")[2].rstrip("]"): [
            run["exact"]["peak_allocated_bytes"] for run in entry["runs"]
        ]
        for test, entry in entries.items()
    }
    assert {k for k, runs in sizes.items() if len(runs) == 8} == set(DRAWN), sizes
    assert all(len(set(sizes[kind])) > 2 for kind in DRAWN)
    assert len(set(sizes["seeded"])) == 1

    gate(stored, "--gpuperf-seed=7").assert_outcomes(passed=3)
    results = json.loads((stored.path / ".gpuperf/results.json").read_text())
    assert results["seed"] == 7

    stored.file(f"MORE = 40\n{STEPS}")
    result = gate(stored, "-k", "torch or seeded")
    result.assert_outcomes(failed=2, deselected=1)
    result.stdout.fnmatch_lines_random(
        [
            "MORE MEMORY*",
            "*sure*it varies from run to run: * MiB to * MiB stored*",
            "*in each of 8 runs, each with random numbers of*",
            "*sure*in each of 2 runs*",
        ]
    )


def test_a_seed_repeats_what_a_test_draws(project: ScriptedProject) -> None:
    project.file(f"MORE = 0\n{STEPS}")

    def drawn(seed: int) -> list[float]:
        result = gate(project, f"--gpuperf-seed={seed}", "-k", "torch")
        result.assert_outcomes(passed=1)
        found = json.loads((project.path / ".gpuperf/results.json").read_text())
        assert found["seed"] == seed
        return [
            verdict["now"]
            for record in found["tests"].values()
            for call in record["verdicts"]
            for verdict in call["verdicts"]
            if verdict["metric"] == "peak_allocated_bytes"
        ]

    assert drawn(7) == drawn(7) != drawn(8)
