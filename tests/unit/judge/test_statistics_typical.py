"""One number that stands for the stored runs of a time."""

from __future__ import annotations

from itertools import combinations
from math import sqrt

import numpy as np
import pytest

from pytest_gpuperf.judge.statistics import TYPICAL_COST
from pytest_gpuperf.model.baseline import typical_time


@pytest.mark.parametrize(
    ("times", "typical"),
    [([3.0], 3.0), ([2.0, 8.0], 4.0), ([1.0, 2.0, 4.0], 2.0), ([1.0, 1.0, 16.0], 2.0)],
)
def test_it_is_the_median_of_the_geometric_means_of_pairs(
    times: list[float], typical: float
) -> None:
    assert typical_time(times) == pytest.approx(typical)


def test_two_wild_runs_of_eight_do_not_carry_it_off() -> None:
    steady = [9.96, 9.98, 9.99, 10.0, 10.0, 10.02]

    for wild in combinations([1e-3, 1e3, 1e6], 2):
        assert 9.9 < typical_time([*steady, *wild]) < 10.1


@pytest.mark.parametrize("runs", [5, 8, 20])
def test_its_variance_is_at_most_what_the_judge_counts_with(runs: int) -> None:
    random = np.random.default_rng(5)
    times = np.exp(random.normal(0, 0.01, (4000, runs)))

    logs = np.log([typical_time(list(row)) for row in times])

    cost = runs * logs.var() / 0.01**2
    four_standard_errors = 4 * sqrt(2 / 4000)
    assert cost < TYPICAL_COST * (1 + four_standard_errors)
