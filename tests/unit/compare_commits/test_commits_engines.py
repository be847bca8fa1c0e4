"""Which engine compared the times of two versions, in words."""

from __future__ import annotations

from builders import a_comparison

from pytest_gpuperf.compare_commits.pairs import engine_in_words
from pytest_gpuperf.model.ab import Answer, Comparison


PAIRS = (
    "pairs of fresh processes in alternating order; each process has a speed of its own, so a "
    'pair is one number; "sees" is the smallest slowdown that these would have shown '
    "9 times in 10"
)


def test_pairs() -> None:
    call = Comparison(test="a", pairs=3, time=a_comparison(Answer.SAME, 1.0))

    assert engine_in_words([call]) == PAIRS
    assert engine_in_words([]) == PAIRS


def test_no_clock() -> None:
    calls = [Comparison(test="a", pairs=2, unmeasured={"speedup": "it has no clock"})]

    assert engine_in_words(calls) == (
        "pairs of fresh processes; counts and bytes only: it has no clock"
    )
