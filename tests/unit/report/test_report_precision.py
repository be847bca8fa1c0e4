"""How small a slowdown can be seen, in whole lines."""

from __future__ import annotations

import pytest

from pytest_gpuperf.model.verdict import DetectableChange, SuiteAcuity
from pytest_gpuperf.report.screen.precision import acuity_lines, percent


def one(name: str, scatter: float, *, tolerance: float = 0.01) -> DetectableChange:
    return DetectableChange(
        test=name,
        scatter=scatter,
        smallest=0.01 + 4 * scatter,
        tolerance=tolerance,
        decidable=scatter < 0.02,
    )


def suite(
    *tests: DetectableChange, advised: float | None = None, decidable_then: int = 0
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
        "noise: runs vary by 2.3 %; this machine can detect slowdowns of 6.1 % or more"
    ]
    assert texts(suite(one("t", 0.01), one("u", 0.01))) == [
        "noise: runs vary by 2.3 % (median of 2 tests); this machine can detect slowdowns",
        "    of 6.1 % or more",
    ]


def test_one_test_gets_advice_too() -> None:
    assert texts(suite(one("t", 0.03), advised=0.1, decidable_then=1)) == [
        "noise: runs vary by 2.3 %; this machine can detect slowdowns of 6.1 % or more,",
        "    but with a tolerance of 1 % unchanged code would rarely pass; it would with",
        "    --gpuperf-tolerance=ms=10%",
        "    inconclusive tests are compared with the baseline's code, run again from git",
    ]


def test_where_no_tolerance_helps_it_says_what_does() -> None:
    tests = (one("t", 0.4, tolerance=0.05), one("u", 0.4))

    assert texts(suite(*tests))[:5] == [
        "noise: runs vary by 2.3 % (median of 2 tests); this machine can detect slowdowns",
        "    of 6.1 % or more, but with their tolerances only 0 of 2 tests would pass",
        "    unchanged; no tolerance up to 50 % would help: check syncs and memory on",
        "    this machine, not time",
        "    inconclusive tests are compared with the baseline's code, run again from git",
    ]


def test_tests_that_scatter_twice_as_much_are_named_three_at_most() -> None:
    tests = (
        one("test_a.py::test_wild", 0.4),
        one("test_a.py::test_loud", 0.05),
        one("test_a.py::test_usual", 0.02),
        one("test_a.py::test_calm", 0.01),
    )

    assert texts(suite(*tests, advised=0.5, decidable_then=4))[4:] == [
        "    varies by 40 %, detects 161 % or more: test_a.py::test_wild",
        "    varies by 5.0 %, detects 21 % or more: test_a.py::test_loud",
    ]
    assert len(texts(suite(*[one("t", 0.5)] * 5))) == 5 + 3


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.002, "0.2 %"), (0.0994, "9.9 %"), (0.0996, "10 %"), (1.614, "161 %")],
)
def test_ratios_have_two_digits(ratio: float, text: str) -> None:
    assert percent(ratio) == text
