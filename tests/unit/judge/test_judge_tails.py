"""Student's t and F agree with scipy, far into the tails."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given, strategies as st
from scipy import stats

from pytest_gpuperf.judge.statistics import f_sf, t_isf, t_sf


NUS = [0.3, 1, 1.5, 2, 3.5, 4, 7, 10, 31.7, 57, 99.9, 100.1, 1e3, 3333.3, 1e4]
TAILS = [0.49, 0.25, 0.1, 0.05, 0.025, 0.01, 1e-3, 0.01 / 3, 1e-4, 1e-6, 1e-9, 1e-12]
POINTS = [0.0, 1e-9, 1e-3, 0.3, 1.0, 2.5, 6.0, 12.0, 40.0, 1e3, 1e6]


@pytest.mark.parametrize("nu", NUS)
def test_the_tail_is_that_of_scipy(nu: float) -> None:
    ours = [t_sf(t, nu) for t in POINTS]

    assert ours == pytest.approx(list(stats.t.sf(POINTS, nu)), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("nu", NUS)
def test_the_quantile_is_that_of_scipy(nu: float) -> None:
    ours = [t_isf(p, nu) for p in TAILS]

    assert ours == pytest.approx(list(stats.t.isf(TAILS, nu)), rel=1e-9)


def test_the_ends_of_the_line_have_no_tail_and_all_of_it() -> None:
    assert (t_sf(inf, 5), t_sf(-inf, 5), t_sf(0, 5)) == (0.0, 1.0, 0.5)


@given(
    st.floats(min_value=1e-12, max_value=0.499), st.floats(min_value=0.5, max_value=1e4)
)
def test_a_quantile_has_the_tail_it_was_asked_for(p: float, nu: float) -> None:
    assert t_sf(t_isf(p, nu), nu) == pytest.approx(p, rel=1e-9)


@pytest.mark.parametrize("nu", [0, -1, inf, nan])
def test_degrees_of_freedom_must_be_positive(nu: float) -> None:
    with pytest.raises(ValueError, match="degrees of freedom") as refused:
        t_sf(1.0, nu)

    assert refused.value.args == (
        f"degrees of freedom must be a positive number, found {nu}",
    )


@pytest.mark.parametrize("p", [0, 1, -0.1, 1.5, nan])
def test_a_tail_probability_lies_between_0_and_1(p: float) -> None:
    with pytest.raises(ValueError, match="a tail probability") as refused:
        t_isf(p, 5)

    assert refused.value.args == (
        f"a tail probability must be between 0 and 1, found {p}",
    )


@pytest.mark.parametrize("above", [1, 2.5, 4, 30, 400])
@pytest.mark.parametrize("below", [1, 7, 36.5, 50, 1e3])
def test_the_tail_of_f_is_that_of_scipy(above: float, below: float) -> None:
    ratios = [1e-6, 0.01, 0.3, 1.0, 1.5, 4.0, 20.0, 1e4]

    ours = [f_sf(ratio, above, below) for ratio in ratios]

    theirs = stats.f.sf(ratios, above, below)
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-14)
