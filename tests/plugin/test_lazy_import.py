"""Nothing heavy is imported by those who do not measure."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from scripted_project import ON, ScriptedProject


HEAVY = ("torch", "numpy", "pynvml", "rich", "jinja2")

TO_COLLECT_BUDGETS = {
    "pytest_gpuperf",
    "pytest_gpuperf.errors",
    "pytest_gpuperf.plugin.options",
    "pytest_gpuperf.marks",
    "pytest_gpuperf.model",
    "pytest_gpuperf.model.budget",
    "pytest_gpuperf.model.metrics",
    "pytest_gpuperf.model.retired",
    "pytest_gpuperf.plugin",
    "pytest_gpuperf.plugin.mark_checks",
}

TO_MEASURE = {
    "pytest_gpuperf.compare_steps.measure",
    "pytest_gpuperf.judge",
    "pytest_gpuperf.measure.phases",
    "pytest_gpuperf.runner",
    "pytest_gpuperf.worker.measurer",
}

RECORDS_MODULES = """
import json, sys
def pytest_unconfigure(config):
    with open("modules.json", "w") as file: json.dump(sorted(sys.modules), file)
"""

BUDGETED = """
@gpuperf.budget(ms=12)
def test_step(gpuperf): assert gpuperf(lambda: 3) == 3
"""


@pytest.fixture
def bare(project: ScriptedProject, monkeypatch: pytest.MonkeyPatch) -> ScriptedProject:
    """A project on a machine where every heavy module fails to import."""
    broken = project.path / "broken"
    broken.mkdir()
    for name in HEAVY:
        text = f"raise ImportError('{name} was imported')\n"
        (broken / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(broken), prepend=os.pathsep)
    project.pytester.makeconftest(RECORDS_MODULES)
    project.file(BUDGETED)
    return project


def imported(project: ScriptedProject) -> set[str]:
    path: Path = project.path / "modules.json"
    return set(json.loads(path.read_text(encoding="utf-8")))


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.startswith("pytest_gpuperf")}


@pytest.mark.parametrize("arguments", [("--co",), ("--co", "--gpuperf")])
def test_collecting_imports_nothing_heavy_and_nothing_that_measures(
    bare: ScriptedProject, arguments: tuple[str, ...]
) -> None:
    result = bare.pytester.runpytest_subprocess("-q", *arguments)

    assert result.ret == pytest.ExitCode.OK
    assert result.outlines[0] == "test_it.py::test_step"
    assert imported(bare).isdisjoint(HEAVY)
    assert ours(imported(bare)) == TO_COLLECT_BUDGETS


def test_a_plain_run_of_a_step_without_torch_needs_none(bare: ScriptedProject) -> None:
    result = bare.pytester.runpytest_subprocess()

    result.assert_outcomes(passed=1)
    assert imported(bare).isdisjoint(HEAVY)
    assert {name for name in TO_MEASURE if name in imported(bare)} == set()


def test_a_measured_run_touches_torch_in_its_children_only(
    bare: ScriptedProject,
) -> None:
    result = bare.pytester.runpytest_subprocess(*ON)

    result.assert_outcomes(passed=1)
    assert imported(bare).isdisjoint(HEAVY)
    assert "pytest_gpuperf.runner.evaluation" in imported(bare)


def test_a_torch_that_cannot_be_imported_is_named_before_anything_is_measured(
    bare: ScriptedProject,
) -> None:
    result = bare.pytester.runpytest_subprocess("--gpuperf", "--gpuperf-device=cpu")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: the measuring server could not start: Traceback *",
            "ImportError: torch was imported [[]GP604]",
        ]
    )


def test_the_package_itself_is_cheap_to_import(bare: ScriptedProject) -> None:
    code = (
        "import sys, pytest_gpuperf as gpuperf; gpuperf.budget; gpuperf.Gpuperf; "
        "print(sorted(set(sys.modules) & {'torch', 'numpy', 'pynvml', 'rich'}))"
    )

    result = bare.pytester.run(sys.executable, "-c", code)

    assert result.outlines == ["[]"]


@pytest.mark.parametrize("update", [(), ("--gpuperf-update=all",)])
def test_a_suite_without_measured_tests_imports_nothing_heavy(
    bare: ScriptedProject, update: tuple[str, ...]
) -> None:
    bare.file("def test_plain(): pass\n")

    result = bare.pytester.runpytest_subprocess(
        "-q", "--gpuperf", "--gpuperf-device=simulated", *update
    )

    assert result.ret == pytest.ExitCode.OK
    assert imported(bare).isdisjoint(HEAVY)
