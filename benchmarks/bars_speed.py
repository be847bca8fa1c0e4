"""Bars of the judge's own speed, in CPU time: both work in one thread, others may too."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from math import exp
from typing import Final

from effort import Effort
from effort import say
from figures import Figure
from figures import Table
from figures import within_seconds
from order_of_work import TOLERANCE
from order_of_work import kept
from order_of_work import measured

from pytest_gpuperf.compare_steps.interleave import torch_swaps
from pytest_gpuperf.judge.calls import judge_calls
from pytest_gpuperf.judge.calls import settle_together
from pytest_gpuperf.judge.calls import suite_context_of
from pytest_gpuperf.judge.calls import suite_of
from pytest_gpuperf.judge.interleaved import DRAWS
from pytest_gpuperf.judge.interleaved import QUAD_LOOKS
from pytest_gpuperf.judge.interleaved import Labels
from pytest_gpuperf.judge.interleaved import Quad
from pytest_gpuperf.model.baseline import Entry
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Distribution
from pytest_gpuperf.model.run import StepCall


TESTS: Final = 10_000
STORED: Final = 8
JUDGE_BAR_SECONDS: Final = 2.0
SWAPS_BAR_SECONDS: Final = 0.2


def tables(effort: Effort) -> list[Table]:
    figures = [_judging(effort.attempts), _swapping(effort.attempts)]
    return [
        Table(title=f"Speed, CPU time, the least of {effort.attempts}", figures=figures)
    ]


def _judging(attempts: int) -> Figure:
    """Judge a suite as a gate does after its first run: suite_context, verdicts, Holm."""
    say(f"speed, judging {TESTS:,} tests")
    noise = random.Random(71)  # noqa: S311  noise, no secret
    entries = {
        str(test): Entry(runs=tuple(kept(_times(noise)) for _ in range(STORED)))
        for test in range(TESTS)
    }
    first = {
        test: measured(_times(noise), DeviceKind.CUDA, test=test) for test in entries
    }

    runs = {test: [run] for test, run in first.items()}

    def judge() -> None:
        suite_context = suite_context_of(runs, entries)
        verdicts = {
            test: {
                test: judge_calls(
                    [StepCall(measurement=run)], entries[test], suite_context
                )
            }
            for test, run in first.items()
        }
        settle_together(verdicts)
        suite_of(first, entries)

    return within_seconds(
        f"judging {TESTS:,} tests with {STORED} stored runs each",
        _least_seconds(judge, attempts),
        JUDGE_BAR_SECONDS,
    )


def _times(noise: random.Random) -> Distribution:
    ms = 10 * exp(noise.gauss(0, 0.007))
    return Distribution(q10=ms, q25=ms, q50=ms, mean=ms, samples=100)


def _swapping(attempts: int) -> Figure:
    say(f"speed, {DRAWS:,} label swaps")
    noise = random.Random(72)  # noqa: S311  noise, no secret
    quads = [_quad(noise) for _ in range(QUAD_LOOKS[-1])]
    seeds = iter(range(attempts))

    def swap() -> None:
        labels = Labels.drawn(len(quads), DRAWS, next(seeds))
        torch_swaps(quads, TOLERANCE, labels)

    return within_seconds(
        f"{DRAWS:,} label swaps of {len(quads)} quads, the draw included",
        _least_seconds(swap, attempts),
        SWAPS_BAR_SECONDS,
    )


def _quad(noise: random.Random) -> Quad:
    before, after, later, last = (noise.gauss(0, 0.01) for _ in range(4))
    return before, after, later, last


def _least_seconds(work: Callable[[], None], attempts: int) -> float:
    return min(_seconds(work) for _ in range(attempts))


def _seconds(work: Callable[[], None]) -> float:
    start_s = time.process_time()
    work()
    return time.process_time() - start_s
