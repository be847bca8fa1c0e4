"""Quads: who is blamed, who passes, and what nobody can tell."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from math import exp, inf, log, nan
from statistics import median

import pytest
from hypothesis import given, settings, strategies as st
from plain_swaps import plain_swaps
from synthetic_quads import boost_quads

from pytest_gpuperf.compare_steps.measure import torch_swaps
from pytest_gpuperf.errors import ErrorId, StepError, UsageError
from pytest_gpuperf.judge.interleaved import (
    QUAD_LOOKS,
    Quad,
    Swaps,
    decide_quads,
    judge_quads,
    quad_schedule,
)
from pytest_gpuperf.judge.process_pairs import Schedule
from pytest_gpuperf.model.ab import AbResult, Answer


pytestmark = pytest.mark.slow


RULE = quad_schedule(0.01, 0.03)
SMALL = Schedule(tolerance=0.01, detect=0.03, alpha=0.025, beta=0.05, looks=(6,))

QUICK: Swaps = torch_swaps if find_spec("torch") else plain_swaps
"""Both count the same; the plain ones take their time."""

MIRRORED = {Answer.SLOWER: Answer.FASTER, Answer.FASTER: Answer.SLOWER}


needs_torch = pytest.mark.skipif(
    QUICK is plain_swaps, reason="takes too long in Python"
)


def quads_of(before: Sequence[float], after: Sequence[float]) -> list[Quad]:
    """Milliseconds, two blocks a side and quad, as logarithms."""
    return [
        (log(before[i]), log(after[i]), log(after[i + 1]), log(before[i + 1]))
        for i in range(0, len(before), 2)
    ]


def gaussian(
    count: int, seed: int, slowdown: float = 0.0, sigma: float = 0.003
) -> list[Quad]:
    noise = random.Random(seed)  # noqa: S311 - noise, no secret
    before = [exp(noise.gauss(0, sigma)) for _ in range(2 * count)]
    after = [(1 + slowdown) * exp(noise.gauss(0, sigma)) for _ in range(2 * count)]
    return quads_of(before, after)


def sequentially(quads: Sequence[Quad], swaps: Swaps, seed: int) -> Answer:
    for look in QUAD_LOOKS:
        last = look >= len(quads)
        answer = decide_quads(quads[:look], RULE, swaps, seed=seed, last=last)[0]
        if answer is not Answer.MORE:
            return answer
    raise AssertionError


def test_a_slowdown_of_five_percent_is_called_after_fourteen_quads() -> None:
    result = judge_quads(gaussian(14, seed=1, slowdown=0.05), RULE, QUICK)

    assert (result.answer, result.p_value) == (Answer.SLOWER, 2**-14)
    assert result.low < 1.05 < result.high
    assert result.why == (
        "after is slower by more than 1 %: time +4.9 %, 95 % interval +4.7 % to "
        "+5.1 %; label-swap test over 14 quads"
    )


def test_a_speedup_is_called_the_same_way() -> None:
    result = judge_quads(gaussian(14, seed=1, slowdown=-0.05), RULE, QUICK)

    assert (result.answer, result.p_value) == (Answer.FASTER, 2 * 2**-14)
    assert result.why == (
        "after is faster by more than 1 %: time -5.1 %, 95 % interval -5.3 % to "
        "-4.9 %; label-swap test over 14 quads"
    )


def test_no_change_is_the_same_after_fourteen_quads() -> None:
    result = judge_quads(gaussian(14, seed=2), RULE, QUICK)

    assert result.answer is Answer.SAME
    assert result.p_value < 0.02
    assert result.why == (
        "a change of 3 % or more is ruled out: time -0.1 %, 95 % interval -0.3 % to "
        "+0.1 %; label-swap test over 14 quads"
    )


def test_noise_of_a_fifth_is_inconclusive_and_says_what_could_have_been_seen() -> None:
    quads = gaussian(14, seed=3, sigma=0.2)

    open_still = decide_quads(quads, RULE, QUICK)
    result = judge_quads(quads, RULE, QUICK, last=True)

    assert open_still == (Answer.MORE, None)
    assert (result.answer, result.p_value) == (Answer.INCONCLUSIVE, None)
    assert result.why == (
        "neither at most 1 % nor 3 % or more is ruled out: time -12.3 %, 95 % interval "
        "-24.6 % to +3.7 %; label-swap test over 14 quads; the smallest slowdown these "
        "could have shown is 59.7 %"
    )


def test_between_looks_the_answer_is_more_however_clear_the_quads_are() -> None:
    quads = gaussian(30, seed=4, slowdown=0.5)

    answers = [decide_quads(quads[:n], RULE, QUICK)[0] for n in (1, 13, 14, 15)]

    assert answers == [Answer.MORE, Answer.MORE, Answer.SLOWER, Answer.MORE]


def test_the_last_look_ends_it() -> None:
    quads = gaussian(QUAD_LOOKS[-1], seed=5, sigma=0.3)

    assert decide_quads(quads, RULE, QUICK) == (Answer.INCONCLUSIVE, None)


UNCLEAR = "neither at most 1 % nor 3 % or more is ruled out"


@pytest.mark.parametrize(
    ("quads", "answer", "words"),
    [
        (
            5,
            Answer.INCONCLUSIVE,
            (
                f"{UNCLEAR}: time +50.2 %, too few for an interval; label-swap test over 5 "
                "quads, too few to blame"
            ),
        ),
        (
            12,
            Answer.INCONCLUSIVE,
            (
                f"{UNCLEAR}: time +50.1 %, 95 % interval +49.7 % to +50.5 %; label-swap test "
                "over 12 quads, too few to blame"
            ),
        ),
        (
            13,
            Answer.SLOWER,
            (
                "after is slower by more than 1 %: time +50.0 %, 95 % interval +49.7 % to "
                "+50.3 %; label-swap test over 13 quads"
            ),
        ),
    ],
)
def test_thirteen_quads_are_the_least_that_can_blame(
    quads: int, answer: Answer, words: str
) -> None:
    clear = gaussian(quads, seed=6, slowdown=0.5)

    result = judge_quads(clear, RULE, QUICK, last=True)

    assert result.answer is answer
    assert result.why == words


@pytest.mark.parametrize(
    ("quads", "times", "answer"),
    [
        (1, 30, Answer.INCONCLUSIVE),
        (1, 40, Answer.SLOWER),
        (2, 5, Answer.INCONCLUSIVE),
        (2, 7, Answer.SLOWER),
        (12, 7, Answer.SLOWER),
    ],
)
def test_a_step_so_slow_that_few_quads_fit_is_blamed_beyond_what_disturbances_add(
    quads: int, times: float, answer: Answer
) -> None:
    slow = gaussian(quads, seed=6, slowdown=times - 1)

    result = judge_quads(slow, RULE, QUICK, last=True)

    assert result.answer is answer
    assert decide_quads(slow, RULE, QUICK)[0] is Answer.MORE


def test_one_fast_block_of_after_leaves_a_doubt() -> None:
    before, after = [10.0] * 6, [600.0] * 5 + [30.0]

    result = judge_quads(quads_of(before, after), RULE, QUICK, last=True)

    assert result.answer is Answer.INCONCLUSIVE


def test_what_is_beyond_doubt_names_the_distance_and_no_test() -> None:
    result = judge_quads(quads_of([10.0] * 6, [600.0] * 6), RULE, QUICK, last=True)

    assert (result.answer, result.p_value) == (Answer.SLOWER, None)
    assert result.why == (
        "after is slower by more than 1 %: time +5900.0 %, too few for an interval; "
        "each block of after takes over 6 times as long as any of before in 3 quads, "
        "which no disturbance explains"
    )


def test_constant_times_are_the_same_once_there_are_enough_of_them() -> None:
    quads = quads_of([10.0] * 56, [10.0] * 56)

    assert decide_quads(quads[:14], RULE, QUICK)[0] is Answer.MORE
    assert decide_quads(quads, RULE, QUICK)[0] is Answer.SAME
    assert judge_quads(quads, RULE, QUICK).ratio == 1.0


@pytest.mark.parametrize(
    ("after", "answer"), [(10.3, Answer.SLOWER), (9.7, Answer.FASTER)]
)
def test_constant_times_that_differ_are_distinguished(
    after: float, answer: Answer
) -> None:
    """Ties count against the change, so that it takes 56 quads instead of 14."""
    quads = quads_of([10.0] * 112, [after] * 112)

    assert decide_quads(quads[:28], RULE, QUICK)[0] is Answer.MORE
    assert decide_quads(quads, RULE, QUICK)[0] is answer


def test_one_hit_block_in_four_moves_nothing() -> None:
    quads = [
        (b + 3.0 * (i % 4 == 0), x, y, b2)
        for i, (b, x, y, b2) in enumerate(gaussian(28, seed=7))
    ]

    assert decide_quads(quads, RULE, QUICK)[0] is Answer.SAME


@pytest.mark.parametrize("change", [0.03, 0.04, 0.05, -0.03, -0.05])
def test_a_clean_shift_with_two_humps_is_seen(change: float) -> None:
    """A z-score of the same swaps calls these noise: see the module's first words."""
    expected = Answer.SLOWER if change > 0 else Answer.FASTER
    quads = gaussian(28, seed=8, slowdown=change, sigma=0.001)

    answers = {sequentially(quads, QUICK, seed) for seed in range(5)}

    assert answers == {expected}


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_a_time_that_is_no_number_is_refused(bad: float) -> None:
    quads = gaussian(3, seed=0)
    quads[1] = (0.0, 0.0, bad, 0.0)

    with pytest.raises(StepError) as refused:
        decide_quads(quads, RULE, QUICK)

    assert str(refused.value) == (
        f"quad 2 of 3: expected the logarithms of four times, found {bad}; a time that "
        "is zero, negative or no number cannot be compared [GP715]"
    )


def test_no_quads_are_refused() -> None:
    with pytest.raises(StepError) as refused:
        judge_quads([], RULE, QUICK)

    assert refused.value.error_id is ErrorId.GP715


@pytest.mark.parametrize(
    ("tolerance", "detect", "complaint"),
    [
        (
            -0.01,
            0.03,
            "tolerance=-0.01: expected a ratio from 0 up to 1, such as 0.01 for 1 %",
        ),
        (5, 7, "tolerance=5: expected a ratio from 0 up to 1, such as 0.01 for 1 %"),
        (
            nan,
            0.03,
            "tolerance=nan: expected a ratio from 0 up to 1, such as 0.01 for 1 %",
        ),
        (0.02, 0.02, "detect=0.02: expected a ratio above the tolerance, 0.02"),
        (0.02, inf, "detect=inf: expected a ratio above the tolerance, 0.02"),
        (0.02, nan, "detect=nan: expected a ratio above the tolerance, 0.02"),
    ],
)
def test_limits_that_make_no_verdict_are_refused(
    tolerance: float, detect: float, complaint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        quad_schedule(tolerance, detect)

    assert str(refused.value) == f"{complaint} [GP221]"


def test_the_interval_holds_what_the_test_does_not_reject() -> None:
    quads = gaussian(28, seed=10, slowdown=0.02, sigma=0.01)

    result = judge_quads(quads, RULE, QUICK, seed=5)

    low, high = bounds(result)
    for bound in (low, high):
        inside, outside = (bound + step for step in (-1e-5, 1e-5))
        if bound is low:
            inside, outside = outside, inside
        assert rejected(quads, outside)
        assert not rejected(quads, inside)


def rejected(quads: list[Quad], slowdown: float) -> bool:
    """Whether either one-sided test at 2.5 % rejects *slowdown*."""
    from pytest_gpuperf.judge.interleaved import DRAWS, Labels

    labels = Labels.drawn(len(quads), DRAWS, seed=5)
    counts = QUICK(quads, slowdown, labels)
    return labels.share(min(counts)) < 0.025


TIMES = st.integers(9_000, 11_000).map(lambda micros: micros / 1000)
SAMPLES = st.lists(TIMES, min_size=12, max_size=12)


def judged(before: Sequence[float], after: Sequence[float]) -> AbResult:
    return judge_quads(quads_of(before, after), SMALL, plain_swaps)


def bounds(result: AbResult) -> list[float]:
    """Interval of *result* in log time, infinite where there is none."""
    return [
        -inf if result.low is None else log(result.low),
        inf if result.high is None else log(result.high),
    ]


@settings(max_examples=30)
@given(before=SAMPLES, after=SAMPLES)
def test_swapping_the_roles_mirrors_the_verdict(
    before: list[float], after: list[float]
) -> None:
    there, back = judged(before, after), judged(after, before)

    assert back.answer is MIRRORED.get(there.answer, there.answer)
    assert back.p_value == there.p_value
    assert back.ratio == pytest.approx(1 / there.ratio, rel=1e-12)
    assert bounds(back) == pytest.approx(
        [-bound for bound in reversed(bounds(there))], abs=1e-9
    )


@settings(max_examples=30)
@given(before=SAMPLES, after=SAMPLES, slowdown=st.floats(0, 0.2))
def test_slowing_after_neither_clears_nor_praises_it(
    before: list[float], after: list[float], slowdown: float
) -> None:
    first = judged(before, after)
    slowed = judged(before, [(1 + slowdown) * ms for ms in after])

    assert (first.answer is Answer.SLOWER) <= (slowed.answer is Answer.SLOWER)
    assert (slowed.answer is Answer.FASTER) <= (first.answer is Answer.FASTER)


def simulated(slowdown: float, series: int, quads: int) -> Counter[Answer]:
    return Counter(
        sequentially(boost_quads(quads, seed, slowdown), QUICK, seed)
        for seed in range(series)
    )


@needs_torch
def test_on_a_boosting_clock_nobody_is_blamed_in_three_hundred_comparisons() -> None:
    assert simulated(0.0, series=300, quads=28) == {Answer.SAME: 300}


@needs_torch
@pytest.mark.parametrize(("slowdown", "least"), [(0.03, 95), (0.05, 100)])
def test_on_a_boosting_clock_a_slowdown_is_found(slowdown: float, least: int) -> None:
    assert simulated(slowdown, series=100, quads=56)[Answer.SLOWER] >= least


@needs_torch
def test_the_smallest_slowdown_is_found_nine_times_in_ten() -> None:
    said = median(
        judge_quads(gaussian(28, seed, sigma=0.05), RULE, QUICK, last=True).smallest
        for seed in range(9)
    )

    found = [
        decide_quads(gaussian(28, seed, said, sigma=0.05), RULE, QUICK)[0]
        for seed in range(100, 200)
    ]

    assert 84 <= found.count(Answer.SLOWER) <= 96
