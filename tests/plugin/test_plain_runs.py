"""Without ``--gpuperf`` a measured test is an ordinary test."""

from __future__ import annotations

from scripted_project import ScriptedProject


def test_the_step_runs_once_with_its_setup_and_no_budget_is_judged(
    project: ScriptedProject,
) -> None:
    project.file(
        """
calls = []

@gpuperf.budget(ms=0.000001, syncs=0)
def test_step(gpuperf):
    step = lambda x, y: calls.append((x, y)) or x + y
    result = gpuperf(step, setup=lambda: (1, 2), mem_mb=0.5)
    assert result == 3
    assert calls == [(1, 2)]
    assert gpuperf.measurement is None

@gpuperf.budget(ms=1)
def test_never_judged(): pass

def test_arguments(gpuperf):
    given = lambda *arguments: arguments
    assert gpuperf(given) == gpuperf(given, setup=lambda: None, name="b") == ()
    assert gpuperf(given, setup=lambda: [1], name="c") == ([1],)

def test_loader(gpuperf):
    seen = []
    assert gpuperf.loader([(1, 2), 3], lambda batch: seen.append(batch) or 7) == 7
    assert seen == [(1, 2)]

def test_loop(gpuperf):
    begun = []
    with gpuperf.steps() as step:
        while True:
            begun.append(1)
            step()
    assert begun == [1]
    assert gpuperf.measurement is None
"""
    )

    project.pytester.runpytest_subprocess().assert_outcomes(passed=5)


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
