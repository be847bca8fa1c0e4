"""Budgets and tolerances: which mark holds, and what a mark may say."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject

from pytest_gpuperf.marks import budgets_of, ranks_of, tolerances_of
from pytest_gpuperf.model.budget import Budget, Ranks, Tolerance, parse_tolerance


PRECEDENCE = """
pytestmark = [gpuperf.budget(ms=1), gpuperf.tolerance(ms="1%", detect="9%")]
class Base:
    pytestmark = gpuperf.budget(ms=2, mem_mb=2)
@gpuperf.budget(ms=3)
class TestSub(Base):
    @gpuperf.budget(ms=4, syncs=4)
    @gpuperf.tolerance(ms="4%")
    @pytest.mark.parametrize("x", [pytest.param(1, marks=gpuperf.budget(ms=None))])
    def test_step(self, x): pass
"""


def test_parameter_function_subclass_base_class_module_in_this_order(
    project: ScriptedProject,
) -> None:
    project.file(PRECEDENCE)

    (item,) = project.pytester.inline_genitems()[0]

    assert budgets_of(item) == (
        Budget(limits={"ms": None}),
        Budget(limits={"ms": 4.0, "syncs": 4.0}),
        Budget(limits={"ms": 3.0}),
        Budget(limits={"ms": 2.0, "mem_mb": 2.0}),
        Budget(limits={"ms": 1.0}),
    )
    assert tolerances_of(item) == (
        Tolerance(ratios={"ms": 0.04}),
        Tolerance(ratios={"ms": 0.01}, detect=0.09),
    )


def test_marks_are_registered(project: ScriptedProject) -> None:
    result = project.pytester.runpytest_inprocess("--markers")

    result.stdout.fnmatch_lines(
        [
            "@pytest.mark.gpuperf_budget(..., on=None): ceilings of a step, *",
            "@pytest.mark.gpuperf_tolerance(..., detect=None): changes to ignore, *",
            "@pytest.mark.gpuperf_ranks(n, timeout_s=None): processes that execute *",
            "@pytest.mark.gpuperf: added to each test that takes the gpuperf fixture",
        ]
    )


def test_a_floor_is_in_the_unit_of_its_keyword() -> None:
    keywords = {"ms": "5% and 0.1 ms", "mem_mb": "1% and 2 MiB", "syncs": "0% and 1"}

    assert parse_tolerance({**keywords, "detect": "8%"}) == Tolerance(
        ratios={"ms": 0.05, "mem_mb": 0.01, "syncs": 0},
        floors={"ms": 0.1, "mem_mb": 2, "syncs": 1},
        detect=0.08,
    )


@pytest.mark.parametrize(
    "spelled",
    [
        ("--gpuperf-tolerance=ms=5%, mem_mb=9%, syncs=0% and 1",),
        ("-o", "gpuperf_tolerance=ms=1% and 1 ms, mem_mb=9%, syncs=0% and 1"),
    ],
)
def test_a_tolerance_of_the_project_holds_where_no_mark_names_one(
    project: ScriptedProject, spelled: tuple[str, ...]
) -> None:
    project.file(
        """
def test_step(gpuperf): gpuperf(int)
@gpuperf.tolerance(ms="1%")
def test_own(gpuperf): gpuperf(int)
"""
    )
    project.record()
    project.script({"*": {"step_ms": 10.4, "mem_mb": 104, "syncs": 1}})

    result = project.run(*spelled)

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_own*SLOWER*"])


RANKED = """
pytestmark = gpuperf.ranks(2)
class TestIt:
    @gpuperf.ranks(3, timeout_s=7)
    @pytest.mark.parametrize("x", [1, pytest.param(2, marks=gpuperf.ranks(4))])
    def test_own(self, x): pass
    def test_of_the_module(self): pass
"""


def test_the_nearest_mark_says_how_many_ranks_execute_a_test(
    project: ScriptedProject,
) -> None:
    project.file(RANKED)

    items = project.pytester.inline_genitems()[0]

    assert [ranks_of(item) for item in items] == [
        Ranks(count=3, timeout_s=7.0),
        Ranks(count=4),
        Ranks(count=2),
    ]
