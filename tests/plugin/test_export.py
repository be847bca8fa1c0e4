"""``gpuperf export``: from a run to a file that another program reads."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from scripted_project import ScriptedProject

from pytest_gpuperf.cli import main


STEPS = """
@pytest.mark.parametrize("size", [8])
def test_sized(gpuperf, size): gpuperf(int)
def test_step(gpuperf): gpuperf(int)
"""
SIZED, STEP = "test_it.py::test_sized[8]", "test_it.py::test_step"


@pytest.fixture
def measured(project: ScriptedProject) -> ScriptedProject:
    """A project that was measured, as the working directory."""
    project.file(STEPS)
    project.script({"*": {"step_ms": 10.0}, "hardware": "NVIDIA H200"})
    project.run()
    os.chdir(project.path)
    return project


def exported(
    capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main(["export", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    status, out, err = exported(capsys, *arguments)
    assert (status, out) == (4, "")
    return err


def rows(project: ScriptedProject, *arguments: str) -> Sequence[dict[str, str]]:
    """Let pytest-benchmark compare, and read what it says."""
    command = (sys.executable, "-m", "pytest_benchmark", "compare", "--csv=table")
    result = project.pytester.run(*command, *arguments)
    assert result.ret == 0, result.errlines
    with (project.path / "table.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_pytest_benchmark_compares_two_exported_runs(
    measured: ScriptedProject,
) -> None:
    pytest.importorskip("pytest_benchmark")
    assert main(["export", "pytest-benchmark", "--out=before.json"]) == 0
    measured.script({"*": {"step_ms": 12.0}})
    measured.run("-k", "sized")
    assert main(["export", "pytest-benchmark", ".gpuperf", "--out=after.json"]) == 0

    found = rows(measured, "before.json", "after.json")

    assert sorted(
        (row["name"], row["param:id"], float(row["min"])) for row in found
    ) == [(SIZED, "8", 0.01), (SIZED, "8", 0.012), (STEP, "", 0.01)]


def test_charts_find_what_they_read_of_a_test(
    measured: ScriptedProject, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = exported(capsys, "pytest-benchmark")

    assert str(measured.path) not in out
    assert str(Path.home()) not in out
    document = json.loads(out)
    stats = {b["fullname"]: b["stats"] for b in document["benchmarks"]}[STEP]
    # github-action-benchmark with the tool `pytest` draws `ops`, and names the others.
    said = {name: stats[name] for name in ("ops", "mean", "stddev")}
    assert said == pytest.approx({"ops": 100, "mean": 0.01, "stddev": 0}, abs=1e-6)
    assert stats["rounds"] > 0
    # Bencher's adapter `python_pytest` refuses a file that lacks one of these.
    assert document.keys() >= {"machine_info", "commit_info"}
    assert (stats["median"], stats["iqr"]) == pytest.approx((0.01, 0), abs=1e-6)


def drop_samples(project: ScriptedProject, *tests: str) -> None:
    """Leave the results of a run that read no times in *tests*."""
    path = project.path / ".gpuperf" / "results.json"
    found = json.loads(path.read_text("utf-8"))
    for test in tests:
        del found["tests"][test]["samples"]
    path.write_text(json.dumps(found), "utf-8")


def test_what_has_no_times_is_left_out_and_counted(
    measured: ScriptedProject, capsys: pytest.CaptureFixture[str]
) -> None:
    drop_samples(measured, STEP)

    status, out, err = exported(capsys, "pytest-benchmark")

    assert (status, err) == (0, "gpuperf: 1 call has no times and is left out\n")
    assert [b["fullname"] for b in json.loads(out)["benchmarks"]] == [SIZED]


def test_a_run_without_times_is_nothing_for_pytest_benchmark(
    measured: ScriptedProject, capsys: pytest.CaptureFixture[str]
) -> None:
    drop_samples(measured, STEP, SIZED)

    assert refusal(capsys, "pytest-benchmark") == (
        "gpuperf: pytest-benchmark knows times alone, and this run has none: measure on "
        "cuda or cpu [GP514]\n"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("csv", "found 'csv', expected pytest-benchmark"),
        *(
            (
                name,
                f"'{name}' was removed: services read pytest-benchmark as well, and ",
            )
            for name in ("bmf", "custom-smaller-is-better")
        ),
    ],
)
def test_another_format_is_refused_with_what_does_its_job(
    capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    error = refusal(capsys, name)

    assert error.startswith(f"gpuperf: argument FORMAT: {said}")
    assert error.endswith("; see `gpuperf export --help` [GP102]\n")


def test_a_run_that_measured_nothing_is_refused(
    project: ScriptedProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project.file("def test_plain(): pass\n")
    project.run()
    os.chdir(project.path)

    assert refusal(capsys, "pytest-benchmark") == (
        "gpuperf: .gpuperf/results.json: nothing was measured in this run; run `pytest "
        "--gpuperf` first, or name the folder with its results [GP514]\n"
    )
