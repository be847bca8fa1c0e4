"""pytest-cov sees the code of measured tests, and no tracer stands in a timed round."""

from __future__ import annotations

import json

import pytest
from scripted_project import ON
from scripted_project import ScriptedProject


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


def run(project: ScriptedProject, *arguments: str) -> tuple[pytest.RunResult, float]:
    """Return the result, and the percentage of the step's file that was covered."""
    result = project.pytester.runpytest_subprocess(
        "-p", "pytest_cov.plugin", "--cov=trained", "--cov-report=json", *arguments
    )
    report = json.loads((project.path / "coverage.json").read_text())
    percent: float = report["totals"]["percent_covered"]
    return result, percent


@pytest.mark.parametrize(
    "arguments", [(), ON, (*ON, "-p", "xdist", "-n1")], ids=" ".join
)
def test_the_code_of_a_step_is_covered(
    covered: ScriptedProject, arguments: tuple[str, ...]
) -> None:
    result, percent = run(covered, *arguments)

    result.assert_outcomes(passed=1, warnings=1 if arguments else 0)
    assert percent == 100


def test_a_step_is_measured_untraced_and_traced_once_more(
    covered: ScriptedProject,
) -> None:
    run(covered, *ON)

    *measured, last = (covered.path / "seen.txt").read_text().split()
    assert measured
    assert set(measured) == {"free"}
    assert last == "traced"


def test_nothing_is_run_once_more_where_nobody_asks(covered: ScriptedProject) -> None:
    covered.pytester.runpytest_subprocess(*ON)

    assert set((covered.path / "seen.txt").read_text().split()) == {"free"}
