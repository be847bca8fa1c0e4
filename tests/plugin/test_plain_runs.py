"""Without ``--gpuperf`` a measured test is an ordinary test."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject


def test_the_step_runs_once_with_its_setup_and_its_result_comes_back(
    project: ScriptedProject,
) -> None:
    project.file(
        """
calls = []
def test_step(gpuperf):
    result = gpuperf(lambda x, y: calls.append((x, y)) or x + y, setup=lambda: (1, 2))
    assert result == 3
    assert calls == [(1, 2)]
    assert gpuperf.measurement is None
"""
    )

    result = project.pytester.runpytest_inprocess()

    result.assert_outcomes(passed=1)


def test_budgets_do_nothing(project: ScriptedProject) -> None:
    project.file(
        """
@gpuperf.budget(ms=0.000001, syncs=0)
def test_step(gpuperf):
    gpuperf(lambda: sum(range(1000)), mem_mb=0.5)
@gpuperf.budget(ms=1)
def test_never_judged():
    pass
"""
    )

    result = project.pytester.runpytest_inprocess()

    result.assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("setup", "arguments"),
    [("None", "()"), ("lambda: None", "()"), ("lambda: [1]", "([1],)")],
)
def test_what_setup_returns_becomes_the_arguments(
    project: ScriptedProject, setup: str, arguments: str
) -> None:
    project.file(
        f"""
def test_step(gpuperf):
    assert gpuperf(lambda *given: given, setup={setup}) == {arguments}
"""
    )

    result = project.pytester.runpytest_inprocess()

    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            "3",
            (
                "gpuperf(step): expected a function, found 3 of type int; pass the "
                "function itself, without calling it [GP215]"
            ),
        ),
        (
            "work",
            (
                "gpuperf(step): the step returned a coroutine, so its work has not been "
                "done when it returns; pass a function that runs the step to its end [GP301]"
            ),
        ),
        (
            "lambda: (i for i in [])",
            (
                "gpuperf(step): the step returned a generator, so its work has not been "
                "done when it returns; pass a function that runs the step to its end [GP301]"
            ),
        ),
        (
            "print, setup=5",
            (
                "gpuperf(setup): expected a function, found 5 of type int; pass the "
                "function itself, without calling it [GP215]"
            ),
        ),
        (
            "print, mss=5",
            ("gpuperf.budget() does not know mss (did you mean ms?) [GP201]"),
        ),
    ],
)
def test_a_step_that_cannot_be_measured_fails_with_one_sentence(
    project: ScriptedProject, step: str, message: str
) -> None:
    project.file(f"async def work(): pass\ndef test_step(gpuperf): gpuperf({step})")

    result = project.pytester.runpytest_inprocess()

    result.assert_outcomes(failed=1)
    assert message in result.outlines


def test_tests_that_take_the_fixture_carry_the_mark_gpuperf(
    project: ScriptedProject,
) -> None:
    project.file(
        """
@pytest.fixture
def indirect(gpuperf): return gpuperf
def test_direct(gpuperf): gpuperf(int)
def test_through_a_fixture(indirect): indirect(int)
def test_other(): pass
"""
    )

    result = project.pytester.runpytest_inprocess("-m", "gpuperf", "--strict-markers")

    result.assert_outcomes(passed=2, deselected=1)
