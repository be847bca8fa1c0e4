"""``gpuperf doctor --cost``: what a gate will take, before it is started."""

from __future__ import annotations

import pytest
from builders import a_run
from builders import an_entry
from scripted_project import ScriptedProject

from pytest_gpuperf.cli import main
from pytest_gpuperf.model.checkup import PlannedGate
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Distribution
from pytest_gpuperf.report.screen.checkup import cost_lines
from pytest_gpuperf.runner.run_estimates import GATE_START_SECONDS
from pytest_gpuperf.runner.run_estimates import gate_cost


STEPS = """\
import pytest
import pytest_gpuperf as gpuperf

@pytest.mark.parametrize("number", range(2))
def test_step(gpuperf, number): gpuperf(int)
def test_plain(): pass
"""
RANKED = "\n@gpuperf.ranks(4)\ndef test_ranks(gpuperf): gpuperf(int)\n"


def cost_of(*options: str) -> int:
    return main(["doctor", "--cost", "--device=scripted", *options])


def test_the_tests_of_a_gate_are_counted_and_none_is_measured(
    project: ScriptedProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project.file(STEPS + RANKED)

    assert cost_of() == 0

    assert capsys.readouterr().out.splitlines() == [
        "tests      3 with the fixture, 1 without",
        "processes  6; a test in doubt runs up to 8 times",
        "expected   about 16 s: about 15 s to start, and 3 tests of a small step, as no",
        "           time is stored",
        "at most    about 3 min 15 s: 60 s per test (--gpuperf-seconds)",
        "cheaper    --gpuperf-device=pretend reads no times",
    ]
    assert not (project.pytester.path / ".gpuperf").exists()


def test_stored_times_say_what_it_takes(
    project: ScriptedProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project.file(STEPS)
    project.script({"*": {"step_ms": 2.0}})
    project.refresh()
    capsys.readouterr()

    assert cost_of() == 0

    shown = capsys.readouterr().out
    assert "to start, the stored times of 2 tests" in shown
    assert "slowest    test_" in shown


def test_the_settings_of_the_project_count(
    project: ScriptedProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project.file(STEPS)
    ini = "[pytest]\ngpuperf_isolation = module\naddopts = --gpuperf-seconds=5\n"
    project.pytester.makeini(ini)

    assert cost_of() == 0

    shown = capsys.readouterr().out
    assert "processes  1; " in shown
    assert "about 25 s: 5 s per test" in shown


def test_tests_that_cannot_be_collected_are_no_cheap_gate(
    project: ScriptedProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project.file("import nothing_like_this\n")

    assert cost_of() == 4

    error = capsys.readouterr().err
    assert error.startswith("gpuperf: pytest cannot collect the tests of this project")
    assert "No module named 'nothing_like_this'" in error
    assert "[GP109]" in error


def test_a_suite_without_the_fixture_has_nothing_to_measure(
    project: ScriptedProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project.file("def test_plain(): pass\n")

    assert cost_of() == 0

    expected = "tests      0 with the fixture, 1 without: a gate measures nothing\n"
    assert capsys.readouterr().out == expected


def test_a_module_per_process_is_named_where_it_saves_seconds() -> None:
    tests = tuple(f"t.py::t{number}" for number in range(40))
    groups = tuple((test,) for test in tests)
    gate = PlannedGate(groups=groups, processes=40, modules=1, others=0, seconds=9.0)
    times = {"step_ms": Distribution.of([500.0] * 20)}
    slow, quick = an_entry(a_run(times=times)), an_entry(a_run())

    cost = gate_cost(gate, {tests[3]: slow, tests[4]: quick}, DeviceKind.PRETEND)
    lines = cost_lines(gate, cost, DeviceKind.PRETEND)

    assert cost.most == GATE_START_SECONDS + 360
    assert cost.slowest == tests[3]
    assert "and 38 tests like them" in " ".join(" ".join(lines).split())
    assert any("isolation=module saves about 8 s;" in line for line in lines)
    assert len(lines) <= 8
