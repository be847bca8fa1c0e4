"""Runs that confirm a time read nothing but times, where all else is as it was."""

from __future__ import annotations

import pytest
from builders import entries_in
from scripted_project import ScriptedProject


STEP = """
from pathlib import Path

@gpuperf.tolerance(ms="1%")
def test_step(gpuperf):
    gpuperf(lambda: None)
    found = gpuperf.measurement
    with Path("runs.txt").open("a") as file:
        print(int("latency_ms" in found.times), found.exact.get("syncs"), file=file)
"""

CALM = {"step_ms": [2.0, 2.18, 2.04, 1.98, 2.2, 2.08, 2.02, 2.1], "syncs": 1}


@pytest.fixture
def stored(project: ScriptedProject) -> ScriptedProject:
    """A baseline that scatters, so that one run decides nothing."""
    project.file(STEP)
    project.script({"*": CALM})
    project.record()
    (project.path / "runs.txt").unlink(missing_ok=True)
    return project


def runs_of(project: ScriptedProject) -> list[str]:
    return (project.path / "runs.txt").read_text().splitlines()


def test_the_first_run_reads_everything_and_the_others_the_times(
    stored: ScriptedProject,
) -> None:
    stored.script({"*": {"step_ms": [2.3, 2.32, 2.31, 2.1], "syncs": 1}})

    stored.run()

    first, *more = runs_of(stored)
    assert first == "1 1"
    assert set(more) == {"0 None"}


def test_what_is_accepted_of_them_has_its_counts_in_each_run(
    stored: ScriptedProject,
) -> None:
    stored.script({"*": {"step_ms": [2.9, 3.0, 3.1, 2.95, 3.0], "syncs": 1}})

    stored.run().assert_outcomes(failed=1)

    (pending,) = (stored.path / ".gpuperf").glob("pending-*.json")
    (test,) = entries_in(pending).values()
    assert [run["exact"]["syncs"] for run in test["runs"]] == [1] * 5
    assert runs_of(stored)[:5] == ["1 1", *["0 None"] * 4]


def test_all_runs_read_everything_where_a_count_changed(
    stored: ScriptedProject,
) -> None:
    stored.script({"*": {"step_ms": [2.9, 3.0, 3.1, 2.95, 3.0], "syncs": 2}})

    stored.run().assert_outcomes(failed=1)

    *five, traced = runs_of(stored)  # what failed is traced at the end
    assert (five, traced) == (["1 2"] * 5, "0 None")


SUITE = """
import pytest

@pytest.mark.parametrize("n", range(10))
def test_step(gpuperf, n):
    gpuperf(lambda: None)
"""

BUSY = [
    [2.0, 2.24, 2.28, 2.5, 2.22, 2.38],
    [2.2, 2.5, 2.26, 2.24, 2.42],
    [2.24, 2.36, 2.22, 2.52, 2.3],
    [2.26, 2.22, 2.46, 2.3, 2.54],
    [2.3, 2.4, 2.54, 2.2, 2.26],
]
"""What the runs of five tests take; the first of all came before others used the machine."""


def test_a_machine_that_others_slow_while_runs_are_confirmed_blames_no_test(
    project: ScriptedProject,
) -> None:
    project.file(SUITE)
    project.script({"*": {"step_ms": [2.0, 2.02, 1.99, 2.01, 2.0, 1.98, 2.01, 2.0]}})
    project.record()
    busy = {f"test_step[{n}]": {"step_ms": ms} for n, ms in enumerate(BUSY)}
    project.script({"*": {"step_ms": 2.0}, **busy})

    result = project.run()

    result.assert_outcomes(passed=10, warnings=4)
    said = " ".join(result.stdout.str().split())
    assert "unsteady machine: 95 % range" in said
