"""Budgets and tolerances: which mark holds, and what a mark may say."""

from __future__ import annotations

import math

import pytest
from scripted_project import ScriptedProject

import pytest_gpuperf
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.marks import budgets_of, ranks_of, tolerances_of
from pytest_gpuperf.model.budget import Budget, Tolerance, parse_tolerance
from pytest_gpuperf.model.ranks import Ranks


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


def test_the_call_overrides_the_mark_and_none_lifts_it(
    project: ScriptedProject,
) -> None:
    project.file(
        """
pytestmark = gpuperf.budget(ms=5)
def test_inherited(gpuperf): gpuperf(int)
def test_lifted(gpuperf): gpuperf(int, ms=None)
def test_raised(gpuperf): gpuperf(int, ms=15)
@gpuperf.budget(ms=20)
def test_nearer(gpuperf): gpuperf(int)
"""
    )

    result = project.run("-rfp", "--override-ini=gpuperf_missing_baseline=warn")

    result.assert_outcomes(failed=1, passed=3, warnings=1)
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_inherited*"])


def test_a_mark_for_other_hardware_lets_the_outer_one_hold(
    project: ScriptedProject,
) -> None:
    project.file(
        """
pytestmark = gpuperf.budget(ms=5)
@gpuperf.budget(ms=20, on="*H200*")
def test_outer_holds(gpuperf): gpuperf(int)
@gpuperf.budget(ms=20, on=["*H200*", "scripted"])
def test_own_holds(gpuperf): gpuperf(int)
"""
    )

    result = project.run()

    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_outer_holds*"])


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


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        (
            {"mss": 1, "foo": 2},
            (
                "gpuperf.budget() does not know foo, mss (did you mean ms?); it knows ms, "
                "latency_ms, mem_mb, syncs, pageable_copies, launches and 15 more "
                "(docs/reference/marks.md) [GP201]"
            ),
        ),
        (
            {"ms": True},
            "gpuperf.budget(ms=True): expected a number above 0, or None to lift it [GP202]",
        ),
        (
            {"syncs": 1.5},
            (
                "gpuperf.budget(syncs=1.5): expected a whole number of at least 0, or None "
                "to lift it [GP202]"
            ),
        ),
        (
            {"busy_pct": 120},
            (
                "gpuperf.budget(busy_pct=120): expected a number above 0, at most 100, or "
                "None to lift it [GP202]"
            ),
        ),
        (
            {"ms": 1, "on": 5},
            (
                "gpuperf.budget(on=5): expected a device kind or a pattern of the "
                'hardware\'s name, such as "cpu" or "*H200*", or a list of them [GP204]'
            ),
        ),
    ],
)
def test_a_wrong_budget_is_refused_where_it_is_written(
    keywords: dict[str, object], sentence: str
) -> None:
    with pytest.raises(UsageError) as caught:
        pytest_gpuperf.budget(**keywords)  # type: ignore[arg-type]  # wrong on purpose

    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("keyword", "text", "example"),
    [
        ("ms", "5% and", '"5% and 1 ms"'),
        ("ms", "5% and 0.1", '"5% and 1 ms"'),
        ("ms", "5% and 0.1 MiB", '"5% and 1 ms"'),
        ("ms", "5% and -1 ms", '"5% and 1 ms"'),
        ("ms", "0.1 ms", '"5% and 1 ms"'),
        ("mem_mb", "1% and nan MiB", '"5% and 1 MiB"'),
        ("syncs", "0% and one", '"5% and 1"'),
    ],
)
def test_a_wrong_floor_is_refused_with_the_unit_of_its_keyword(
    keyword: str, text: str, example: str
) -> None:
    with pytest.raises(UsageError) as caught:
        pytest_gpuperf.tolerance(**{keyword: text})

    assert str(caught.value) == (
        f"gpuperf.tolerance({keyword}={text!r}): expected a percentage of at least 0 "
        f'as text, such as "5%" or {example} [GP205]'
    )


def test_a_floor_is_in_the_unit_of_its_keyword() -> None:
    keywords = {"ms": "5% and 0.1 ms", "mem_mb": "1% and 2 MiB", "syncs": "0% and 1"}

    assert parse_tolerance({**keywords, "detect": "8%"}) == Tolerance(
        ratios={"ms": 0.05, "mem_mb": 0.01, "syncs": 0},
        floors={"ms": 0.1, "mem_mb": 2, "syncs": 1},
        detect=0.08,
    )


def test_a_change_must_be_above_the_tolerance_and_the_floor(
    project: ScriptedProject,
) -> None:
    project.file(
        """
@gpuperf.tolerance(ms="1% and 1 ms", mem_mb="0% and 8 MiB", syncs="0% and 1")
def test_wide(gpuperf): gpuperf(int)
@gpuperf.tolerance(ms="1% and 0.1 ms", mem_mb="0% and 1 MiB")
def test_tight(gpuperf): gpuperf(int)
"""
    )
    project.record()
    project.script({"*": {"step_ms": 10.6, "mem_mb": 104, "syncs": 1}})

    result = project.run()

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "SLOWER: *",
            "NEW SYNC: *",
            "MORE MEMORY: *",
        ]
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


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("mem", "mem_mb"),
        ("memory", "mem_mb"),
        ("h2d", "h2d_mb"),
        ("sync", "syncs"),
        ("waits", "syncs"),
        ("time", "ms"),
    ],
)
def test_a_keyword_that_is_almost_one_is_told_which_alone(
    typed: str, meant: str
) -> None:
    with pytest.raises(UsageError) as caught:
        pytest_gpuperf.budget(**{typed: 1})

    assert str(caught.value) == (
        f"gpuperf.budget() does not know {typed} (did you mean {meant}?) [GP201]"
    )


@pytest.mark.parametrize("n", [0, 2.0, True])
def test_a_number_of_ranks_that_is_none_is_refused_where_it_is_written(
    n: object,
) -> None:
    with pytest.raises(UsageError) as caught:
        pytest_gpuperf.ranks(n)  # type: ignore[arg-type]

    expected = "expected a whole number of ranks, at least 1 [GP207]"
    assert str(caught.value) == f"gpuperf.ranks({n}): {expected}"


@pytest.mark.parametrize("seconds", [0, -1.5, math.nan, math.inf, "3", True])
def test_a_timeout_of_ranks_that_is_none_is_refused(seconds: object) -> None:
    with pytest.raises(UsageError) as caught:
        pytest_gpuperf.ranks(2, timeout_s=seconds)  # type: ignore[arg-type]

    assert str(caught.value) == (
        f"gpuperf.ranks(timeout_s={seconds!r}): expected a number of seconds above 0, or "
        "None for three times --gpuperf-seconds and half a minute [GP207]"
    )


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


def test_a_mark_of_ranks_that_cannot_be_meant_is_a_usage_error(
    project: ScriptedProject,
) -> None:
    project.file(
        """
@pytest.mark.gpuperf_ranks(n=2, gpus=4)
def test_it(): pass
"""
    )

    result = project.pytester.runpytest_inprocess()

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(
        [
            "*test_it: gpuperf.ranks() does not know gpus; it knows n, timeout_s [[]GP201]"
        ]
    )
