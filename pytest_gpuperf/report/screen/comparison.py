"""Two steps side by side: in a few lines, and a row a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ...model.ab import AbResult, Answer, Comparison
from ...model.metrics import (
    LAUNCHES,
    PAGEABLE_COPIES,
    PEAK_ALLOCATED,
    SPEEDUP,
    STEP_MS,
    SYNCS,
    Metric,
)
from ...model.verdict import TestVerdict
from ..document import Block, Field, wrapped
from ..numbers import format_apart, format_change, format_value
from .summary import NO_VALUE, SUMMARY_INDENT, Line, in_a_word, lines_of_tests, remark


COUNTED_METRICS: Final = {
    "memory": PEAK_ALLOCATED,
    "syncs": SYNCS,
    "copies": PAGEABLE_COPIES,
    "ops": LAUNCHES,
}
"""Counts of both sides, by what a line calls them."""


def sides_blocks(sides: Comparison) -> Iterator[Block]:
    """Say how both sides compare, a line a number that both have."""
    yield Field("time", time_in_words(sides))
    yield Field("step", step_in_words(sides))
    for name in COUNTED_METRICS:
        if both_sides(sides, name) is not None:
            yield Field(name, count_in_words(sides, name))
    yield Field("why", sides.time.why if sides.time else "")
    yield Field("training", sides.training.text if sides.training else "")


def time_in_words(sides: Comparison) -> str:
    """Write ``faster, speedup 1.300x (95 %: 1.290x to 1.310x)``."""
    if sides.time is None:
        return f"not measured: {sides.no_time}"
    verdict = sides.time.answer.value
    return f"{verdict}, speedup {speedup(sides.time)} (95 %: {interval(sides.time)})"


def step_in_words(sides: Comparison) -> str:
    """Write the times of both steps; nothing if they are not known."""
    time = sides.time
    if time is None or time.before_ms is None or time.after_ms is None:
        return ""
    return arrow(STEP_MS, time.before_ms, time.after_ms)


def speedup(time: AbResult | None) -> str:
    """Write the ratio of both times, or a dash."""
    if time is None or time.speedup is None:
        return NO_VALUE
    return format_value(SPEEDUP, time.speedup)


def interval(time: AbResult | None) -> str:
    """Write ``1.290x to 1.310x``, with 95 % confidence, or a dash."""
    if time is None or time.least_speedup is None or time.most_speedup is None:
        return NO_VALUE
    low, high = time.least_speedup, time.most_speedup
    return f"{format_value(SPEEDUP, low)} to {format_value(SPEEDUP, high)}"


def count_in_words(sides: Comparison, name: str) -> str:
    """Write both sides of *name*, a key of ``COUNTED_METRICS``, or why they are not known."""
    both = both_sides(sides, name)
    if both is None:
        return f"not measured: {why_unmeasured(sides, name)}"
    metric, before, after = both
    change = "the same" if before == after else format_change(metric, before, after)
    return f"{arrow(metric, before, after)} ({change})"


def both_sides(sides: Comparison, name: str) -> tuple[Metric, int, int] | None:
    """Return what both sides have of *name*, a key of ``COUNTED_METRICS``."""
    metric = COUNTED_METRICS[name]
    if metric.name in sides.before and metric.name in sides.after:
        return metric, sides.before[metric.name], sides.after[metric.name]
    return None


def why_unmeasured(sides: Comparison, name: str) -> str:
    """Return why the two have no number of *name*, a key of ``COUNTED_METRICS``."""
    return sides.unmeasured.get(COUNTED_METRICS[name].name, "")


def arrow(metric: Metric, before: float, after: float) -> str:
    """Write ``13.00 ms -> 10.00 ms``, or the one value if both have it."""
    return " -> ".join(dict.fromkeys(format_apart(metric, before, after)))


# The table of comparisons at the end of a run.

STEPS_HEADER: Final = (
    "speedup",
    "95 % interval",
    "step",
    "memory",
    "syncs",
    "verdict",
    "test",
)


def compared_lines(verdicts: Sequence[TestVerdict]) -> tuple[Line, ...]:
    """One row a comparison with the numbers of both sides, worst first."""
    shown = [verdict for verdict in verdicts if verdict.sides is not None]
    return lines_of_tests(shown, STEPS_HEADER, compared_cells, _remarks)


def compared_cells(verdict: TestVerdict) -> tuple[str, ...]:
    """Return what the table has of a comparison, in the order of its header."""
    sides = verdict.sides or Comparison()
    return (
        speedup(sides.time),
        interval(sides.time),
        step_in_words(sides) or NO_VALUE,
        _both(sides, "memory"),
        _both(sides, "syncs"),
        _verdict(verdict, sides),
        verdict.test,
    )


def _both(sides: Comparison, name: str) -> str:
    both = both_sides(sides, name)
    return NO_VALUE if both is None else arrow(*both)


def _verdict(verdict: TestVerdict, sides: Comparison) -> str:
    if verdict.outcome.fails:
        return in_a_word(verdict)
    return NO_VALUE if sides.time is None else sides.time.answer.value


def _remarks(verdict: TestVerdict) -> Iterator[str]:
    yield from remark(verdict)
    for text in _said(verdict.sides or Comparison(), verdict):
        yield from wrapped(text, first=SUMMARY_INDENT, rest=SUMMARY_INDENT)


def _said(sides: Comparison, verdict: TestVerdict) -> Iterator[str]:
    if sides.time is None and not verdict.verdicts:
        yield f"time was not measured: {sides.no_time}"
    if sides.time is not None and sides.time.answer is Answer.INCONCLUSIVE:
        yield sides.time.why
    if sides.training:
        yield f"same training: {sides.training.text}"
