"""A precision that is asked for: said before it is paid, stored, and judged by."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
from scripted_project import ScriptedProject


STEP = "def test_step(gpuperf): gpuperf(int)\n"
TEST = "test_it.py::test_step"
CALM = [10.0, 10.06, 9.96, 10.02, 9.94, 10.04, 9.98, 10.01]
"""Runs that scatter by 0.4 %."""


def runs(project: ScriptedProject, test: str = TEST) -> int:
    recorded = project.entries()[test]["runs"]
    assert isinstance(recorded, list)
    return len(recorded)


def said(result: pytest.RunResult) -> list[str]:
    """Return the announcement of a precision, a sentence of several lines."""
    lines = result.outlines
    start = next(n for n, line in enumerate(lines) if "gpuperf: precision" in line)
    rest = [line for line in lines[start + 1 : start + 4] if line.startswith("    ")]
    return [lines[start], *rest]


def words(result: pytest.RunResult) -> str:
    return " ".join(result.stdout.str().split())


def test_a_refresh_stores_more_runs_where_eight_show_too_little(
    project: ScriptedProject,
) -> None:
    project.script({"*": {"step_ms": CALM * 3}})
    project.file(STEP)

    usual = project.refresh(which="all")
    more = project.refresh("--override-ini=gpuperf_precision=2.4%", which="all")

    assert (
        "noise: runs vary by 0.4 %; this machine can detect slowdowns of 2.5 % or more"
        in (usual.outlines)
    )
    (line,) = said(more)
    told = r"gpuperf: precision 2\.4 %: 1 test needs 3 more runs, about \d+ s left"
    assert re.fullmatch(told, line)
    assert runs(project) == 11
    assert (
        "noise: runs vary by 0.4 %; this machine can detect slowdowns of 2.4 % or more"
        in (more.outlines)
    )


def test_a_refresh_says_which_floor_cannot_be_passed_and_stores_no_more(
    project: ScriptedProject,
) -> None:
    project.script({"*": {"step_ms": CALM}})
    project.file(STEP)

    result = project.refresh("--override-ini=gpuperf_precision=1.5%")

    assert said(result) == [
        "gpuperf: precision 1.5 %: 1 test cannot reach it on this machine, at best 2.4 %"
    ]
    assert runs(project) == 8


def test_a_gate_makes_as_many_runs_as_the_precision_takes_and_says_so_before(
    project: ScriptedProject,
) -> None:
    project.script({"*": {"step_ms": CALM}})
    project.file(STEP)
    project.refresh()
    project.script({"*": {"step_ms": 10.6}})

    usual = project.run()
    more = project.run("--override-ini=gpuperf_precision=2.462%")

    usual.assert_outcomes(failed=1)
    assert "each of 5 runs is" in words(usual)
    more.assert_outcomes(failed=1)
    assert said(more) == [
        "gpuperf: precision 2.46 %: 1 undecided test needs up to 8 runs, about 0 s at",
        "    most",
    ]
    assert "each of 8 runs is" in words(more)
    assert (
        "  accept   gpuperf refresh --accept-drift --device=scripted "
        f"--override-ini=gpuperf_precision=2.462% {TEST}"
    ) in more.outlines


def test_a_test_that_passes_at_once_costs_nothing_more(
    project: ScriptedProject,
) -> None:
    project.script({"*": {"step_ms": CALM}})
    project.file(STEP)
    project.refresh()

    result = project.run("--override-ini=gpuperf_precision=2.462%")

    result.assert_outcomes(passed=1)
    assert said(result) == ["gpuperf: precision 2.46 %: no test needs another run"]


def test_what_has_no_time_for_the_runs_of_a_precision_is_judged_by_the_usual_ones(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cap is counted in runs here: the seventh does not fit any more."""
    project.script({"*": {"step_ms": CALM}})
    project.file(STEP)
    project.refresh()
    project.script({"*": {"step_ms": 10.6}})
    monkeypatch.setattr(
        import_module("pytest_gpuperf.runner.screening"),
        "_wants_more",
        lambda case, judge, seconds: len(case.results) < 6,
    )

    result = project.run("--override-ini=gpuperf_precision=2.462%")

    result.assert_outcomes(failed=1)
    assert "each of 6 runs is" in words(result)


def test_nothing_is_said_where_nobody_asks(project: ScriptedProject) -> None:
    project.file(STEP)
    project.refresh()

    result = project.run()

    assert "precision" not in result.stdout.str()
