"""How small a slowdown can be seen, in whole lines."""

from __future__ import annotations

import pytest

from pytest_gpuperf.model.verdict import Acuity
from pytest_gpuperf.model.verdict import SuiteAcuity
from pytest_gpuperf.report.screen.precision import acuity_lines
from pytest_gpuperf.report.screen.precision import percent
from pytest_gpuperf.report.screen.summary import LineRole


def one(name: str, scatter: float, *, tolerance: float = 0.01) -> Acuity:
    return Acuity(
        test=name,
        scatter=scatter,
        smallest=0.01 + 4 * scatter,
        tolerance=tolerance,
        decidable=scatter < 0.02,
    )


def suite(
    *tests: Acuity, advised: float | None = None, decidable_then: int = 0
) -> SuiteAcuity:
    return SuiteAcuity(
        tests=tests,
        scatter=0.023,
        smallest=0.061,
        decidable=sum(test.decidable for test in tests),
        advised=advised,
        decidable_then=decidable_then,
    )


def texts(found: SuiteAcuity) -> list[str]:
    return [line.text for line in acuity_lines(found)]


def test_a_machine_that_sees_well_gets_a_short_line() -> None:
    assert texts(suite(one("t", 0.01))) == [
        "noise: runs scatter by 2.3 %, a slowdown of 6.1 % can be blamed"
    ]
    assert texts(suite(one("t", 0.01), one("u", 0.01))) == [
        (
            "noise: runs of a test scatter by 2.3 % (median of 2 tests), a slowdown of"
            " 6.1 %"
        ),
        "    can be blamed",
    ]


def test_a_machine_that_sees_badly_gets_advice() -> None:
    noisy = suite(
        *[one("t", 0.01)] * 12, *[one("u", 0.03)] * 28, advised=0.08, decidable_then=38
    )

    assert texts(noisy) == [
        "noise: runs of a test scatter by 2.3 % (median of 40 tests); with tolerance 1 %",
        "    a slowdown of 6.1 % can be blamed, and 12 of 40 tests can pass;",
        "    --gpuperf-tolerance=ms=8% would let 38 of 40 be decided",
        "    other times are decided by measuring the baseline's code again, from git",
    ]
    assert {line.role for line in acuity_lines(noisy)} == {LineRole.WARN}


def test_one_test_gets_advice_too() -> None:
    assert texts(suite(one("t", 0.03), advised=0.1, decidable_then=1)) == [
        "noise: runs scatter by 2.3 %; with tolerance 1 % a slowdown of 6.1 % can be",
        "    blamed, and unchanged code would rarely pass; --gpuperf-tolerance=ms=10%",
        "    would let it be decided",
        "    other times are decided by measuring the baseline's code again, from git",
    ]


def test_where_no_tolerance_helps_it_says_what_does() -> None:
    tests = (one("t", 0.4, tolerance=0.05), one("u", 0.4))

    assert texts(suite(*tests))[:5] == [
        "noise: runs of a test scatter by 2.3 % (median of 2 tests); with their",
        "    tolerances a slowdown of 6.1 % can be blamed, and 0 of 2 tests can pass; no",
        "    tolerance up to 50 % changes that: baselines of this machine gate counts and",
        "    memory",
        "    other times are decided by measuring the baseline's code again, from git",
    ]


def test_tests_that_scatter_twice_as_much_are_named_three_at_most() -> None:
    tests = (
        one("test_a.py::test_wild", 0.4),
        one("test_a.py::test_loud", 0.05),
        one("test_a.py::test_usual", 0.02),
        one("test_a.py::test_calm", 0.01),
    )

    assert texts(suite(*tests, advised=0.5, decidable_then=4))[4:] == [
        "    40 %, 161 % can be blamed: test_a.py::test_wild",
        "    5.0 %, 21 % can be blamed: test_a.py::test_loud",
    ]
    assert len(texts(suite(*[one("t", 0.5)] * 5))) == 4 + 3


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.002, "0.2 %"), (0.0994, "9.9 %"), (0.0996, "10 %"), (1.614, "161 %")],
)
def test_ratios_have_two_digits(ratio: float, text: str) -> None:
    assert percent(ratio) == text
