"""Numbers as people read them."""

from __future__ import annotations

import pytest

from pytest_gpuperf.model.metric import Metric
from pytest_gpuperf.model.metrics import PEAK_ALLOCATED, STEP_MS, SYNCS
from pytest_gpuperf.report.numbers import (
    format_apart,
    format_change,
    format_value,
    join_fitting,
    rounded,
)


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        (STEP_MS, 12.034, "12.03 ms"),
        (STEP_MS, 9.99, "9.990 ms"),
        (STEP_MS, 1203.4, "1203 ms"),
        (STEP_MS, 9999.7, "10.00 s"),
        (STEP_MS, 12_034.0, "12.03 s"),
        (STEP_MS, 12_034_000.0, "12034 s"),
        (STEP_MS, 0.0312, "31.20 us"),
        (STEP_MS, 0.99999, "1.000 ms"),
        (STEP_MS, 0.000312, "312.0 ns"),
        (STEP_MS, 0.0, "0 ms"),
        (STEP_MS, float("nan"), "nan ms"),
        (STEP_MS, float("inf"), "inf s"),
        (PEAK_ALLOCATED, 38_063_309, "36.30 MiB"),
        (PEAK_ALLOCATED, 2**20 - 1, "1.000 MiB"),
        (PEAK_ALLOCATED, 1000 * 2**20, "1000 MiB"),
        (PEAK_ALLOCATED, 3 * 2**29, "1.500 GiB"),
        (PEAK_ALLOCATED, 2048, "2.000 KiB"),
        (PEAK_ALLOCATED, 1023, "1023 B"),
        (PEAK_ALLOCATED, 0, "0 B"),
        (SYNCS, 30, "30"),
        (SYNCS, 1_234_567.0, "1234567"),
        (SYNCS, 0.5, "0.5"),
    ],
)
def test_a_value_has_four_digits_and_the_unit_that_fits(
    metric: Metric, value: float, text: str
) -> None:
    assert format_value(metric, value) == text


@pytest.mark.parametrize(
    ("metric", "old", "new", "text"),
    [
        (STEP_MS, 10.0, 12.03, "+20.3 %"),
        (STEP_MS, 10.0, 9.0, "-10.0 %"),
        (STEP_MS, 10.0, 10.001, "0.0 %"),
        (STEP_MS, 10.0, 9.999, "0.0 %"),
        (STEP_MS, 0.0, 12.03, "+12.03 ms"),
        (PEAK_ALLOCATED, 2**20, 2**21, "+100.0 %"),
        (PEAK_ALLOCATED, 2**25, 2**25 + 512, "+512 B"),
        (PEAK_ALLOCATED, 2**25, 2**25, "0 B"),
        (PEAK_ALLOCATED, 0, 2**20, "+1.000 MiB"),
        (SYNCS, 0, 1, "+1"),
        (SYNCS, 3, 1, "-2"),
        (SYNCS, 2, 2, "0"),
    ],
)
def test_a_change_is_a_ratio_where_a_ratio_says_something(
    metric: Metric, old: float, new: float, text: str
) -> None:
    assert format_change(metric, old, new) == text


def test_different_values_have_the_digits_that_an_eye_can_compare() -> None:
    assert format_apart(STEP_MS, 12.0, 12.001) == ("12.000 ms", "12.001 ms")
    assert format_apart(PEAK_ALLOCATED, 38_063_309, 38_063_310) == (
        "36.300 MiB",
        "36.300 MiB",
    )  # whose change is written beside them, in bytes


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((0, 512), ("0 B", "512 B")),
        ((100, 900), ("100 B", "900 B")),
        ((512, 1536), ("0.5000 KiB", "1.500 KiB")),
        ((12 * 2**10, 2**20), ("0.01172 MiB", "1.000 MiB")),
        ((1000 * 2**10, 1229 * 2**10), ("0.9766 MiB", "1.200 MiB")),
        ((3 * 2**30, 4 * 2**30), ("3.000 GiB", "4.000 GiB")),
        ((100 * 2**20, 1.5 * 2**30), ("100.0 MiB", "1536 MiB")),
        ((512, 64 * 2**20), ("0.0004883 MiB", "64.00 MiB")),
        ((2.0, 2.0 + 2**-50), ("2.0000 ms", "2.0000 ms")),
    ],
)
def test_values_beside_each_other_are_in_one_unit_and_five_digits(
    values: tuple[float, float], texts: tuple[str, str]
) -> None:
    metric = STEP_MS if texts[0].endswith("ms") else PEAK_ALLOCATED

    assert format_apart(metric, *values) == texts


def test_equal_values_keep_four_digits() -> None:
    assert format_apart(STEP_MS, 12.0, 12.0) == ("12.00 ms", "12.00 ms")


def test_nothing_to_tell_apart_is_nothing() -> None:
    assert format_apart(STEP_MS) == ()


def test_values_that_no_eye_tells_apart_are_given_with_five_digits() -> None:
    values = (0.1, 0.1 + 2**-56)

    assert format_apart(STEP_MS, *values) == ("100.00 us",) * 2


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (20, "alpha, beta, gamma"),
        (17, "alpha and 2 more"),
        (18, "alpha, beta, gamma"),
        (0, "alpha and 2 more"),
    ],
)
def test_what_does_not_fit_is_counted(width: int, text: str) -> None:
    assert join_fitting(["alpha", "beta", "gamma"], width) == text


def test_nothing_joins_to_nothing() -> None:
    assert join_fitting([], 80) == ""


@pytest.mark.parametrize(
    ("value", "written"),
    [(10.0, "10"), (104857600, "104857600"), (1.23456789, "1.23457"), (0.0, "0")],
)
def test_a_number_for_programs_is_whole_or_has_six_digits(
    value: float, written: str
) -> None:
    assert str(rounded(value)) == written
