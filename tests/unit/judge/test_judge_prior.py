"""What a suite says about the spread of one test: limma's fit, against scipy."""

from __future__ import annotations

from math import exp, inf, nan

import numpy as np
import pytest
from scipy import optimize, special

from pytest_gpuperf.judge.statistics import MOST_NU, digamma, fit_prior, trigamma


POINTS = [1e-3, 0.1, 0.5, 1, 2, 3.5, 9.99, 14.99, 15, 25, 1e4, 1e8]


@pytest.mark.parametrize("x", POINTS)
def test_digamma_and_trigamma_are_those_of_scipy(x: float) -> None:
    assert digamma(x) == pytest.approx(special.digamma(x), rel=1e-12, abs=1e-13)
    assert trigamma(x) == pytest.approx(special.polygamma(1, x), rel=1e-12)


def limma(variances: np.ndarray, nu: np.ndarray) -> tuple[float, float]:
    """Fit as in Smyth 2004, with scipy: the prior's variance and degrees of freedom."""
    half = nu / 2
    e = np.log(variances) - special.digamma(half) + np.log(half)
    excess = e.var(ddof=1) - special.polygamma(1, half).mean()
    root = optimize.brentq(lambda y: special.polygamma(1, y) - excess, 1e-4, 1e6)
    return float(np.exp(e.mean() + special.digamma(root) - np.log(root))), 2 * root


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("differ", [0.4, 0.8])
def test_the_fit_is_that_of_limma(seed: int, differ: float) -> None:
    rng = np.random.default_rng(seed)
    nu = rng.integers(4, 20, 300).astype(float)
    true = (0.01 * np.exp(rng.normal(0, differ, 300))) ** 2
    variances = true * rng.chisquare(nu) / nu

    prior = fit_prior(list(variances), list(nu))

    expected_variance, expected_nu = limma(variances, nu)
    assert prior is not None
    assert prior.sigma == pytest.approx(expected_variance**0.5, rel=1e-9)
    assert prior.nu == pytest.approx(min(expected_nu, MOST_NU), rel=1e-9)


def test_a_prior_is_believed_like_50_runs_at_most() -> None:
    rng = np.random.default_rng(1)
    true = (0.01 * np.exp(rng.normal(0, 0.08, 4000))) ** 2
    variances = true * rng.chisquare(7, 4000) / 7

    prior = fit_prior(list(variances), 7)

    assert limma(variances, np.full(4000, 7.0))[1] > 55
    assert prior is not None
    assert prior.nu == 50.0


def test_tests_that_are_alike_give_the_most_that_is_believed() -> None:
    prior = fit_prior([1e-4] * 40, 7)

    assert prior is not None
    assert prior.nu == 50.0
    assert prior.sigma == pytest.approx(
        exp((np.log(1e-4) - special.digamma(3.5) + np.log(3.5)) / 2), rel=1e-12
    )


@pytest.mark.parametrize("tests", [0, 1, 7])
def test_fewer_than_8_tests_give_no_prior(tests: int) -> None:
    assert fit_prior([1e-4] * tests, 7) is None


def test_stored_runs_that_all_agree_do_not_make_the_others_look_still() -> None:
    noisy = [1e-4] * 10

    alone, beside_constants = fit_prior(noisy, 7), fit_prior([*noisy, 0.0, 0.0], 7)

    assert alone is not None
    assert beside_constants is not None
    assert beside_constants.nu < 2 < alone.nu
    assert beside_constants == fit_prior([*noisy, 1e-9, 1e-9], 7)


@pytest.mark.parametrize("wrong", [-1e-4, nan, inf])
def test_what_is_no_variance_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="a variance") as refused:
        fit_prior([1e-4] * 8 + [wrong], 7)

    assert refused.value.args == (
        f"a variance must be a number of 0 or more, found {wrong}",
    )


@pytest.mark.parametrize("wrong", [0, -1, nan, inf])
def test_degrees_of_freedom_must_be_positive(wrong: float) -> None:
    with pytest.raises(ValueError, match="degrees") as refused:
        fit_prior([1e-4] * 8, wrong)

    assert refused.value.args == (
        f"degrees of freedom must be a positive number, found {wrong}",
    )


def test_every_variance_needs_its_degrees_of_freedom() -> None:
    with pytest.raises(ValueError, match="variances") as refused:
        fit_prior([1e-4] * 8, [7] * 9)

    assert refused.value.args == ("8 variances with 9 degrees of freedom",)
