"""Pairs of processes: each pair is one number, their spread is the only one assumed."""

from __future__ import annotations

import random
from collections import Counter
from math import inf, log, log1p, nan

import pytest
from hypothesis import given, strategies as st

from pytest_gpuperf.errors import ErrorId, RunError, UsageError
from pytest_gpuperf.judge.process_pairs import PAIR_LOOKS, judge_pairs, pair_schedule
from pytest_gpuperf.model.ab import Answer


RULE = pair_schedule(0.01, 0.03)

MIRRORED = {Answer.SLOWER: Answer.FASTER, Answer.FASTER: Answer.SLOWER}


def test_five_pairs_that_agree_on_five_percent_are_enough() -> None:
    result = judge_pairs([0.048, 0.0485, 0.049, 0.0495, 0.050], RULE)

    assert result.answer is Answer.SLOWER
    assert result.p_value == pytest.approx(1.28e-6, rel=0.01)
    assert result.why == (
        "after is slower by more than 1 %: time +5.0 %, 95 % interval +4.7 % to "
        "+5.3 %; t-test over 5 pairs of processes"
    )


def test_processes_with_luck_of_their_own_are_never_blamed() -> None:
    differences = [0.15, -0.04, 0.12, 0.09, 0.02, 0.13, -0.01, 0.1]

    answers = [judge_pairs(differences[:n], RULE).answer for n in range(1, 9)]
    result = judge_pairs(differences, RULE)

    assert answers == [Answer.MORE] * 7 + [Answer.INCONCLUSIVE]
    assert result.why == (
        "neither at most 1 % nor 3 % or more is ruled out: time +7.3 %, 95 % interval "
        "+1.1 % to +13.8 %; t-test over 8 pairs of processes; the smallest slowdown "
        "these could have shown is 18.1 %"
    )


@pytest.mark.parametrize(
    ("difference", "answer", "looks"),
    [(0.2, Answer.SLOWER, [5, 8]), (0.0, Answer.SAME, [3, 5, 8])],
)
def test_a_change_takes_five_pairs_and_none_three(
    difference: float, answer: Answer, looks: list[int]
) -> None:
    answers = [judge_pairs([difference] * n, RULE).answer for n in range(1, 10)]

    assert [n for n, given in enumerate(answers, 1) if given is answer] == looks


def test_three_equal_pairs_are_given_a_spread() -> None:
    result = judge_pairs([0.0, 0.0, 0.0], RULE)

    assert result.answer is Answer.SAME
    assert (
        result.high == pytest.approx(1 / result.low) == pytest.approx(1.0043, abs=1e-4)
    )


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_a_difference_that_is_no_number_is_refused(bad: float) -> None:
    with pytest.raises(RunError) as refused:
        judge_pairs([0.0, bad], RULE)

    assert str(refused.value) == (
        f"pair 2 of 2: expected the logarithm of a ratio of times, found {bad}; a time "
        "that is zero, negative or no number cannot be compared [GP715]"
    )


def test_no_pairs_are_refused() -> None:
    with pytest.raises(RunError) as refused:
        judge_pairs([], RULE)

    assert refused.value.error_id is ErrorId.GP715


def test_a_limit_below_the_tolerance_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        pair_schedule(0.05, 0.03)

    assert refused.value.error_id is ErrorId.GP221


DIFFERENCES = st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=8)


@given(differences=DIFFERENCES)
def test_swapping_the_roles_mirrors_the_verdict(differences: list[float]) -> None:
    there = judge_pairs(differences, RULE, last=True)
    back = judge_pairs([-d for d in differences], RULE, last=True)

    mirrored = MIRRORED.get(there.answer, there.answer)
    assert (back.answer, back.p_value) == (mirrored, there.p_value)
    assert back.low == pytest.approx(1 / there.high, rel=1e-12)
    assert back.high == pytest.approx(1 / there.low, rel=1e-12)


def test_the_interval_is_that_of_scipy() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    differences = [0.01, 0.03, -0.02, 0.04, 0.05]

    result = judge_pairs(differences, RULE, last=True)
    expected = scipy_stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)

    assert (log(result.low), log(result.high)) == pytest.approx(
        tuple(expected), rel=1e-9
    )


def simulated(slowdown: float, sigma: float, sessions: int = 1000) -> Counter[Answer]:
    """Verdicts on pairs with now and then a wilder one."""
    noise = random.Random(1)  # noqa: S311 - noise, no secret
    answers: Counter[Answer] = Counter()
    for _ in range(sessions):
        differences: list[float] = []
        answer = Answer.MORE
        while answer is Answer.MORE:
            wild = noise.gauss(0, 5 * sigma) if noise.random() < 0.02 else 0.0
            differences.append(log1p(slowdown) + noise.gauss(0, sigma) + wild)
            answer = judge_pairs(differences, RULE).answer
        answers[answer] += 1
    return answers


@pytest.mark.parametrize("sigma", [0.0017, 0.004, 0.01, 0.03, 0.15])
def test_unchanged_sessions_are_blamed_as_seldom_as_was_promised(sigma: float) -> None:
    answers = simulated(0.0, sigma)

    most = 0 if sigma < RULE.tolerance else RULE.alpha * answers.total()
    assert answers[Answer.SLOWER] <= most
    assert answers[Answer.FASTER] <= most


@pytest.mark.parametrize("sizes", [(1.0, 1.7), (1.0, 1.1, 1.2), (0.5, 0.7, 2.0, 8.0)])
def test_processes_that_draw_one_of_few_sizes_are_blamed_once_in_a_thousand(
    sizes: tuple[float, ...],
) -> None:
    noise = random.Random(2)  # noqa: S311 - noise, no secret
    blamed = 0
    for _ in range(5000):
        drawn = [log(noise.choice(sizes) / noise.choice(sizes)) for _ in range(8)]
        differences = [d + noise.gauss(0, 1e-4) for d in drawn]
        seen = (differences[:look] for look in PAIR_LOOKS)
        answers = [judge_pairs(pairs, RULE).answer for pairs in seen]
        blamed += Answer.SLOWER in answers and Answer.SAME not in answers

    assert blamed <= 10


@pytest.mark.parametrize(
    ("sigma", "slowdown", "least"),
    [(0.0017, 0.03, 0.99), (0.004, 0.03, 0.97), (0.01, 0.03, 0.77), (0.01, 0.05, 0.97)],
)
def test_a_slowdown_is_found_as_often_as_its_noise_allows(
    sigma: float, slowdown: float, least: float
) -> None:
    answers = simulated(slowdown, sigma)

    assert answers[Answer.SLOWER] / answers.total() >= least
