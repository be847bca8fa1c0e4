"""pytest-cov sees a step in plain runs, and no tracer stands in a timed round."""

from __future__ import annotations

import json

import pytest
from scripted_project import ON, ScriptedProject


pytest.importorskip("pytest_cov")

TRAINED = """
import sys

def step():
    traced = "traced" if sys.gettrace() else "free"
    with open("seen.txt", "a") as file:
        file.write(traced + "\\n")
    return traced
"""

STEP = """
import trained

def test_step(gpuperf):
    gpuperf(trained.step)
"""


@pytest.fixture
def covered(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> ScriptedProject:
    """A project whose step says whether it is traced; coverage of this suite is not of it."""
    # COVERAGE_FILE would have it combine, and take away, what this suite has written.
    for name in ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "COVERAGE_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COVERAGE_CORE", "ctrace")
    project.pytester.makepyfile(trained=TRAINED)
    project.file(STEP)
    return project


COVER = ("-p", "pytest_cov.plugin", "--cov=trained", "--cov-report=json")


def test_a_plain_run_covers_the_code_of_a_step(covered: ScriptedProject) -> None:
    covered.pytester.runpytest_subprocess(*COVER).assert_outcomes(passed=1)

    report = json.loads((covered.path / "coverage.json").read_text())
    assert report["totals"]["percent_covered"] == 100


def test_a_step_is_measured_untraced(covered: ScriptedProject) -> None:
    covered.pytester.runpytest_subprocess(*COVER, *ON)

    assert set((covered.path / "seen.txt").read_text().split()) == {"free"}
