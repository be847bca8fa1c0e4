"""How a time varies from run to run, and what runs to come may be expected to show."""

from __future__ import annotations

from math import fsum, sqrt

import numpy as np
import pytest
from scipy import stats

from pytest_gpuperf.judge.statistics import SHARED, Spread


pytestmark = pytest.mark.slow


def chance_of_reaching(
    bound: float, seen: list[float], coming: int, honest: list[float], sigma: float
) -> float:
    """Bayes' rule on a grid of what the runs of the session may have in common."""
    common = np.linspace(-8 * sigma, 8 * sigma, 16001)
    own = sqrt(1 - SHARED) * sigma
    belief = stats.norm(0, sqrt(SHARED) * sigma).pdf(common)
    for run in honest:
        belief = belief * stats.norm(common, own).pdf(run)
    needed = (bound * (len(seen) + coming) - fsum(seen)) / coming
    reached = stats.norm(common, own / sqrt(coming)).cdf(needed)
    return float((belief * reached).sum() / belief.sum())


@pytest.mark.parametrize("seen", [[0.0], [0.02], [0.01, -0.01], [0.03, 0.0, 0.02]])
@pytest.mark.parametrize("discount", [0.0, 0.01])
@pytest.mark.parametrize("coming", [1, 2, 4])
def test_more_runs_are_worth_their_time_where_one_in_ten_such_tests_would_get_there(
    seen: list[float], discount: float, coming: int
) -> None:
    spread = Spread(sigma=0.02, nu=7)
    honest = [run - discount for run in seen]
    bounds = np.linspace(-0.05, 0.05, 201)
    chances = [chance_of_reaching(b, seen, coming, honest, 0.02) for b in bounds]

    promised = [spread.promises(b, seen, coming, honest) for b in bounds]

    assert promised == [chance >= 0.1 for chance in chances]
    assert 0 < sum(promised) < len(bounds)
