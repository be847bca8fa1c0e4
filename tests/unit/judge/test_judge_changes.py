"""Changes of level: whom the search calls changed, and what it overlooks."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpuperf.judge.changepoints import LEAST_SEARCHED_RUNS
from pytest_gpuperf.judge.changepoints import MOST_RUNS_SEARCHED
from pytest_gpuperf.judge.changepoints import THRESHOLDS
from pytest_gpuperf.judge.changepoints import highest
from pytest_gpuperf.judge.changepoints import normal_scores
from pytest_gpuperf.judge.changepoints import seeded
from pytest_gpuperf.judge.changepoints import shifts
from pytest_gpuperf.judge.changepoints import threshold
from pytest_gpuperf.model.history import Shift


NOISE = 0.02

Draw = Callable[[Random], float]


def seeded_by(text: str) -> Random:
    return Random(text)  # noqa: S311 - reproducible


def normal(random: Random) -> float:
    return random.gauss(1.0, NOISE)


def skewed(random: Random) -> float:
    """Noise that only adds, as disturbances do."""
    return 1.0 + random.expovariate(1 / NOISE)


def wild(random: Random) -> float:
    """One run of twenty takes up to twice as long."""
    if random.random() < 0.05:
        return random.uniform(1.0, 2.0)
    return random.gauss(1.0, NOISE)


def course(random: Random, draw: Draw, *levels: tuple[int, float]) -> list[float]:
    """So many runs a level, each with its noise."""
    return [level * draw(random) for runs, level in levels for _ in range(runs)]


def noisy(values: Sequence[float], least: float = 0.01) -> tuple[Shift, ...]:
    return shifts(values, exact=False, least=least)


def found_at(values: Sequence[float]) -> list[int]:
    return [shift.at for shift in noisy(values)]


@pytest.mark.parametrize("draw", [normal, skewed, wild])
@pytest.mark.parametrize(("runs", "series"), [(20, 1000), (100, 400), (200, 200)])
def test_of_series_without_a_change_one_in_two_hundred_shows_one(
    draw: Draw, runs: int, series: int
) -> None:
    random = seeded_by(f"{draw.__name__} {runs}")

    alarms = sum(
        bool(noisy(course(random, draw, (runs, 1.0)), least=0.0)) for _ in range(series)
    )

    # twice the stated rate, and what a fair draw of so few may add to that
    assert alarms <= series / 100 + 3


@pytest.mark.parametrize(
    ("draw", "levels", "share"),
    [
        (normal, [(40, 1.0), (20, 1.05)], 0.95),
        (normal, [(90, 1.0), (10, 1.05)], 0.95),
        (normal, [(95, 1.0), (5, 1.05)], 0.7),
        (normal, [(10, 1.0), (10, 1.05)], 0.85),
        (normal, [(40, 1.05), (40, 1.0)], 0.95),
        (skewed, [(90, 1.0), (10, 1.05)], 0.9),
        (wild, [(40, 1.0), (20, 1.05)], 0.9),
        (wild, [(90, 1.0), (10, 1.05)], 0.7),
    ],
)
def test_five_percent_in_noise_of_two_is_found_near_its_place(
    draw: Draw, levels: list[tuple[int, float]], share: float
) -> None:
    random = seeded_by(f"{draw.__name__} {levels}")
    place, series = levels[0][0], 100

    near = sum(
        any(abs(at - place) <= 5 for at in found_at(course(random, draw, *levels)))
        for _ in range(series)
    )

    assert near / series >= share


def test_a_change_that_was_undone_does_not_hide_behind_its_opposite() -> None:
    random = seeded_by("undone")
    levels = ((50, 1.0), (15, 1.05), (50, 1.0))

    found = [found_at(course(random, normal, *levels)) for _ in range(40)]

    both = [f for f in found if len(f) == 2 and abs(f[0] - 50) + abs(f[1] - 65) <= 8]
    assert len(both) >= 32


def test_a_change_is_told_with_the_levels_on_its_sides() -> None:
    assert noisy([1.0, 1.01, 0.99] * 8 + [1.2, 1.21, 1.19] * 8) == (
        Shift(at=24, before=1.0, after=1.2),
    )


def test_changes_below_the_least_one_are_not_worth_a_line() -> None:
    values = [1.0, 1.001, 0.999] * 10 + [1.008, 1.007, 1.009] * 10

    assert found_at(values) == []
    assert [s.at for s in noisy(values, least=0.005)] == [30]


def test_one_run_that_went_wild_is_no_change() -> None:
    values = [1.0, 1.01, 0.99] * 10
    values[14:16] = [900.0, 900.0]

    assert found_at(values) == []


@pytest.mark.parametrize("count", range(2 * LEAST_SEARCHED_RUNS))
def test_of_too_few_runs_nothing_is_said(count: int) -> None:
    values = [1.0] * (count // 2) + [9.0] * (count - count // 2)

    assert noisy(values) == ()


def test_too_many_runs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^expected at most 1000 values, found 1001$"):
        noisy([1.0] * (MOST_RUNS_SEARCHED + 1))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([], []),
        ([5], []),
        ([5, 5, 5], []),
        ([5, 5, 5, 6], [3]),
        ([5, 5, 6, 5, 5], []),
        ([5, 5, 6, 6, 5, 5], [2, 4]),
        ([0, 0, 0, 1, 1], [3]),
        ([3, 3, 0, 0], [2]),
    ],
)
def test_an_exact_value_changed_when_it_is_another_one_and_stays_that(
    values: list[float], found: list[int]
) -> None:
    assert [s.at for s in shifts(values, exact=True, least=0.0)] == found


def test_an_exact_value_that_never_stands_still_is_noise() -> None:
    random = seeded_by("restless")
    values = [float(random.randrange(1000, 1100)) for _ in range(60)]

    assert shifts(values, exact=True, least=0.0) == ()


def test_bytes_within_the_floor_are_the_same() -> None:
    values = [1000.0] * 5 + [1400.0] * 5

    assert shifts(values, exact=True, least=0.01, floor=500) == ()
    assert shifts(values, exact=True, least=0.01, floor=300) == (
        Shift(at=5, before=1000.0, after=1400.0),
    )


@given(st.lists(st.floats(0.1, 1e9), min_size=0, max_size=60), st.booleans())
def test_levels_alternate_and_places_ascend(values: list[float], exact: bool) -> None:  # noqa: FBT001
    found = shifts(values, exact=exact, least=0.01)

    places = [shift.at for shift in found]
    assert places == sorted(set(places))
    assert all(0 < at < len(values) for at in places)
    assert all(a.after == b.before for a, b in pairwise(found))


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50))
def test_scores_add_up_to_zero_and_stand_in_the_order_of_the_values(
    values: list[float],
) -> None:
    scores = normal_scores(values)

    assert sum(scores) == pytest.approx(0.0, abs=1e-9)
    by_value = sorted(zip(values, scores, strict=True))
    assert all(
        (a[0] == b[0]) == (a[1] == b[1]) and a[1] <= b[1] for a, b in pairwise(by_value)
    )


def test_scores_are_those_of_a_normal_sample() -> None:
    """Blom: the expected largest of ten is 1.5388 (Harter 1961), his formula 1.5466."""
    largest = NormalDist().inv_cdf(9.625 / 10.25)

    assert normal_scores(range(10))[-1] == pytest.approx(largest)


def test_equal_values_show_nothing() -> None:
    assert highest([1.0] * 20, 0, 20).height == 0.0


@pytest.mark.parametrize("length", [10, 11, 47, 100, 200, MOST_RUNS_SEARCHED])
def test_seeded_intervals_cover_a_series_at_every_length(length: int) -> None:
    intervals = seeded(length)

    assert intervals[0] == (0, length)
    assert all(a >= 0 and b <= length and b - a >= 10 for a, b in intervals)
    for size in {b - a for a, b in intervals}:
        layer = [(a, b) for a, b in intervals if abs(b - a - size) <= 1]
        assert {i for a, b in layer for i in range(a, b)} == set(range(length))


def test_thresholds_rise_with_the_length() -> None:
    heights = [threshold(length) for length in range(10, MOST_RUNS_SEARCHED + 1)]

    assert heights == sorted(heights)
    assert [threshold(length) for length, _ in THRESHOLDS] == pytest.approx(
        [height for _, height in THRESHOLDS]
    )
