"""Simulate what the search for changes finds where there is none.

    python tools/change_thresholds.py [DRAWS]

prints, per length of a series, what its statistic exceeds in one of 200 series in random
order: the table in ``judge/changepoints.py``. The order alone counts, so that is what noise of
any distribution gives.
"""

from __future__ import annotations

import sys
from random import Random

from pytest_gpuperf.judge.changepoints import highest
from pytest_gpuperf.judge.changepoints import seeded


LENGTHS = (10, 12, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200, 300, 500, 1000)
RATE = 1 / 200


def largest(length: int, random: Random) -> float:
    """Return the statistic of one series in random order."""
    values = [random.random() for _ in range(length)]
    return max(highest(values, *interval).height for interval in seeded(length))


def main(draws: int) -> None:
    """Print a line a length."""
    random = Random(2023)  # noqa: S311 - reproducible
    for length in LENGTHS:
        found = sorted(largest(length, random) for _ in range(draws))
        print(f"    ({length}, {found[int((1 - RATE) * draws)]:.2f}),", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8_000)
