"""The share of a GPU's peak that a step reaches, and budgets of it."""

from __future__ import annotations

from scripted_project import ScriptedProject


def test_a_share_below_its_budget_fails_and_one_above_passes(
    project: ScriptedProject,
) -> None:
    project.file(
        "import pytest\n"
        "def test_slow(gpuperf): gpuperf(int, mfu_pct=50, on='scripted')\n"
        "def test_fast(gpuperf):\n"
        "    gpuperf(int, mfu_pct=30, on='scripted')\n"
        "    share = gpuperf.measurement.times['mfu_pct'].mean\n"
        "    assert share == pytest.approx(40)\n"
    )
    project.script({"*": {"step_ms": 10.0, "at_peak_ms": 4.0}})

    result = project.run()

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*mfu_pct*40.00 %*50.00 %*"])


def test_a_peak_that_is_not_known_is_not_judged_and_says_why(
    project: ScriptedProject,
) -> None:
    project.file("def test_step(gpuperf): gpuperf(int, mfu_pct=50, on='scripted')\n")

    project.run("-rA").stdout.fnmatch_lines(["*the script has no peak*"])


def test_no_step_is_counted_that_no_budget_asks_for(project: ScriptedProject) -> None:
    project.file(
        "def test_step(gpuperf):\n"
        "    gpuperf(int)\n"
        "    assert 'mfu_pct' not in gpuperf.measurement.times\n"
    )
    project.script({"*": {"step_ms": 10.0, "at_peak_ms": 4.0}})

    project.run().assert_outcomes(passed=1)
