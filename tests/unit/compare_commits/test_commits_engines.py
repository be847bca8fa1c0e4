"""Which engine compared the times of two versions, in words."""

from __future__ import annotations

from builders import a_comparison

from pytest_gpuperf.compare_commits.commits import apart_in_words
from pytest_gpuperf.compare_commits.commits import engine_in_words
from pytest_gpuperf.model.ab import Answer
from pytest_gpuperf.model.ab import Comparison


TIMES = (
    "times by both versions in turns in one process, which share its conditions; "
    '"sees" is the smallest slowdown that so many steps would have shown 9 times in 10'
)
PAIRS = (
    "pairs of fresh processes in alternating order; each process has a speed of its own, so a "
    'pair is one number; "sees" is the smallest slowdown that these would have shown '
    "9 times in 10"
)


def call(
    test: str, *, steps: int = 0, seconds: float = 0.0, apart: str = ""
) -> Comparison:
    time = a_comparison(
        Answer.SAME,
        1.0,
        low=None,
        high=None,
        smallest=None,
        before_ms=1.0,
        after_ms=1.0,
        pairs=0 if steps else 3,
        steps=steps,
        seconds=seconds,
    )
    return Comparison(test=test, pairs=1, time=time, apart=apart)


def test_one_process() -> None:
    assert engine_in_words([call("a", steps=56, seconds=1.24)]) == (
        f"{TIMES}; 56 steps in 1.2 s a test; what is exact by pairs of fresh processes"
    )


def test_more_steps_for_some_and_pairs_for_others() -> None:
    calls = [
        call("a", steps=560, seconds=1.24),
        call("b", steps=56, seconds=3.0),
        call("c", apart="no"),
    ]

    assert engine_in_words(calls) == (
        f"{TIMES}; 56 to 560 steps in 1.2 to 3.0 s a test; 1 of 3 tests, and what is "
        "exact by pairs of fresh processes"
    )
    assert apart_in_words(calls) == [
        "c: compared in pairs of processes, as one cannot hold both: no"
    ]


def test_pairs() -> None:
    calls = [call("a", apart="no"), call("b", apart="no")]

    assert engine_in_words(calls) == PAIRS
    assert apart_in_words(calls) == [
        "compared in pairs of processes, as one cannot hold both: no"
    ]
    assert engine_in_words([]) == PAIRS
    assert apart_in_words([call("a")]) == []


def test_no_clock() -> None:
    calls = [Comparison(test="a", pairs=2, unmeasured={"speedup": "it has no clock"})]

    assert engine_in_words(calls) == (
        "pairs of fresh processes, for what is exact alone: it has no clock"
    )
