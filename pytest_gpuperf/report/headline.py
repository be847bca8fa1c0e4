"""What happened to a metric, on one line that is never broken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Final, NamedTuple

from ..model.metrics import (
    COLLECTIVE_BYTES,
    COLLECTIVES,
    D2H_BYTES,
    FLOPS,
    GARBAGE,
    GROWTH,
    H2D_BYTES,
    LATENCY_MS,
    LAUNCHES,
    OCCASIONAL_COPIES,
    OCCASIONAL_SYNCS,
    PAGEABLE_COPIES,
    PEAK_ALLOCATED,
    PEAK_RESERVED,
    RETAINED_GRAPHS,
    STEP_MS,
    SYNCS,
    Direction,
    Metric,
)
from ..model.verdict import Outcome, TestVerdict, Verdict
from .document import text_width
from .numbers import (
    each,
    excess_alike,
    format_change,
    format_value,
    join_fitting,
    metric_named,
    texts_apart,
)


class MetricWords(NamedTuple):
    """What people call a metric, and in capitals what became of it.

    It is ``worse`` or ``better`` than the baseline, or ``new`` where that had none of it.
    An amount is ``per_step`` if each step has its own; counts say so by themselves.
    """

    title: str = ""
    worse: str = ""
    new: str = ""
    better: str = ""
    per_step: bool = False


_NEW_SYNC: Final = "NEW SYNC"
_NEW_COPY: Final = "NEW UNPINNED COPY"
_MORE_COPIES: Final = "MORE UNPINNED COPIES"

WORDS: Final = {
    STEP_MS.name: MetricWords("step time", "SLOWER", better="FASTER", per_step=True),
    LATENCY_MS.name: MetricWords("latency"),
    PEAK_ALLOCATED.name: MetricWords(
        "peak memory", "MORE MEMORY", better="LESS MEMORY"
    ),
    PEAK_RESERVED.name: MetricWords("reserved memory", "MORE RESERVED MEMORY"),
    GROWTH.name: MetricWords("memory growth", "MEMORY GROWS", per_step=True),
    GARBAGE.name: MetricWords("garbage", "MORE GARBAGE", per_step=True),
    RETAINED_GRAPHS.name: MetricWords("retained graphs", "RETAINED GRAPH"),
    SYNCS.name: MetricWords("syncs", "MORE SYNCS", _NEW_SYNC, "FEWER SYNCS"),
    OCCASIONAL_SYNCS.name: MetricWords("syncs in some steps", "MORE SYNCS", _NEW_SYNC),
    OCCASIONAL_COPIES.name: MetricWords(
        "unpinned copies in some steps", _MORE_COPIES, _NEW_COPY
    ),
    PAGEABLE_COPIES.name: MetricWords("unpinned copies", _MORE_COPIES, _NEW_COPY),
    H2D_BYTES.name: MetricWords(
        "bytes to the GPU", "MORE COPIED TO THE GPU", per_step=True
    ),
    D2H_BYTES.name: MetricWords(
        "bytes to the CPU", "MORE COPIED TO THE CPU", per_step=True
    ),
    LAUNCHES.name: MetricWords("kernel launches", "MORE LAUNCHES"),
    FLOPS.name: MetricWords(worse="MORE FLOPS"),
    COLLECTIVES.name: MetricWords(worse="MORE COLLECTIVES"),
    COLLECTIVE_BYTES.name: MetricWords(worse="MORE SENT BETWEEN RANKS"),
}
"""The best known first; other metrics go by their names."""

ASKED_FIRST: Final = (STEP_MS.name, SYNCS.name, PEAK_ALLOCATED.name)
"""What everyone wants to know of a test, also if there is none of it."""

PEOPLE: Final = {
    Outcome.INCONCLUSIVE: "inconclusive",
    Outcome.NO_BASELINE: "no baseline",
    Outcome.IMPROVED: "improved",
    Outcome.PASS: "passed",
    Outcome.NOT_CHECKED: "not checked",
}
"""What people call an outcome; those that fail go by what happened."""


def telling(verdict: TestVerdict) -> list[Verdict]:
    """Return what to look at: all that failed, else the verdicts of the worst outcome."""
    failing = [v for v in verdict.verdicts if v.outcome.fails or v.unchecked_budget]
    return failing or [v for v in verdict.verdicts if v.outcome is verdict.outcome]


def excess(verdict: Verdict) -> float:
    """Return how far it is beyond its baseline or limit, as a ratio; above 1 is worse."""
    reference = verdict.limit if verdict.baseline is None else verdict.baseline
    if verdict.now is None or reference is None:
        return 0.0
    higher_is_better = metric_named(verdict.metric).direction is Direction.HIGHER
    # Always above 1 if worse, so that metrics of both directions sort together.
    small, large = sorted((verdict.now, reference))
    ratio = large / small if small > 0 else inf if large > 0 else 1.0
    return ratio if (verdict.now > reference) is not higher_is_better else 1 / ratio


def title(metric: str) -> str:
    """Return what people call the metric of that name."""
    return words_of(metric).title or metric


def words_of(metric: str) -> MetricWords:
    """Return the words for the metric of that name."""
    return WORDS.get(metric, MetricWords())


def what_happened(verdict: Verdict) -> str:
    """Name it in capitals: ``SLOWER``, ``NEW SYNC``, ``OVER LIMIT mem_mb``."""
    outcome, name = verdict.outcome, verdict.metric
    words = words_of(name)
    if outcome is Outcome.REGRESSED:
        if verdict.baseline == 0 and words.new:
            several = f"{words.new}S".replace("YS", "IES")
            return words.new if verdict.now == 1 else several
        return words.worse or f"WORSE {name}"
    if outcome is Outcome.OVER_BUDGET:
        metric = metric_named(name)
        side = "BELOW" if metric.direction is Direction.HIGHER else "OVER"
        return f"{side} LIMIT {metric.budget or name}"
    if outcome is Outcome.IMPROVED and words.better:
        return words.better
    return f"{PEOPLE[outcome].upper()} {title(name)}"


def headline_of(
    verdict: Verdict, limit: float | None = None, *, is_short: bool = False
) -> str:
    """Write ``SLOWER: 12.03 ms per step, was 10.00 ms (+20.3 %), allowed 10.26 ms``.

    *limit* is that of a budget on the same metric that was missed as well. A short one
    leaves out what the baseline allows.
    """
    what = what_happened(verdict)
    if verdict.now is None:
        return what
    by_baseline = verdict.baseline is not None and not _is_over(verdict)
    shown = replace(verdict, limit=None) if is_short and by_baseline else verdict
    return f"{what}: {_numbers(shown, limit)}"


def _is_over(verdict: Verdict) -> bool:
    return verdict.outcome is Outcome.OVER_BUDGET


def _numbers(verdict: Verdict, limit: float | None) -> str:
    over = _is_over(verdict)
    if over or verdict.baseline is None:
        verdict, limit = replace(verdict, baseline=None), verdict.limit
    verdict, kept = _apart(verdict, limit)
    metric, now, before = metric_named(verdict.metric), verdict.now, verdict.baseline
    assert now is not None  # noqa: S101 - its only caller asks
    text = texts_apart(metric, now, before, limit, verdict.limit)
    per_step = " per step" if words_of(metric.name).per_step else each(metric)
    parts = [f"{text[now]}{per_step}"]
    if before is not None:
        change = format_change(metric, before, now)
        parts.append(f", was {text[before]} ({change})")
    if limit is not None:
        at_least = "at least " if metric.direction is Direction.HIGHER else ""
        parts.append(f", limit {at_least}{text[limit]}")
        parts.append(excess_alike(metric, now, limit) if over else "")
    elif verdict.limit is not None and before is not None:
        parts.append(f", allowed {text[verdict.limit]}")
    return "".join((*parts, kept))


def _apart(verdict: Verdict, limit: float | None) -> tuple[Verdict, str]:
    """Take what cuBLAS keeps out of *verdict*, and say how much; only say it next to a limit.

    A budget limits all bytes that torch counts, and a part that changed belongs to them.
    """
    kept, before = verdict.workspace_bytes, verdict.stored_workspace_bytes
    if not kept and not before:
        return verdict, ""
    metric = metric_named(verdict.metric)
    said = format_value(metric, kept)
    if limit is None and verdict.own != verdict:
        return verdict.own, f", and {said} of cuBLAS"
    is_other = verdict.baseline is not None and before not in {kept, None}
    was = f", was {format_value(metric, before or 0)}" if is_other else ""
    return verdict, f", with {said} of cuBLAS{was}"


def merged_headlines(
    failing: Sequence[Verdict], *, is_short: bool = False
) -> Iterator[tuple[Verdict, str]]:
    """Yield the headlines of *failing*, one a metric.

    A metric that became worse and is over its limit as well is one with two limits. What
    a mark and a call both ask for is said once.
    """
    said: set[str] = set()
    limits = {v.metric: v.limit for v in failing if v.outcome is Outcome.OVER_BUDGET}
    worse = {v.metric for v in failing if v.outcome is Outcome.REGRESSED}
    for verdict in failing:
        if verdict.outcome is Outcome.OVER_BUDGET and verdict.metric in worse:
            continue
        regressed = verdict.outcome is Outcome.REGRESSED
        limit = limits.get(verdict.metric) if regressed else None
        text = headline_of(verdict, limit, is_short=is_short)
        if text not in said:
            said.add(text)
            yield verdict, text


def open_headline(verdict: TestVerdict) -> str:
    """Say in a line which metrics of a test that passed are inconclusive or have no baseline."""
    inconclusive = [
        headline_of(v)
        for v in verdict.verdicts
        if v.outcome is Outcome.INCONCLUSIVE and not v.is_missed
    ]
    missed = missed_headline(verdict.verdicts)
    if inconclusive or missed:
        return "; ".join(filter(None, (*inconclusive, missed)))
    found = [v for v in verdict.verdicts if v.outcome is Outcome.NO_BASELINE]
    return no_baseline_headline(found)


def missed_headline(verdicts: Sequence[Verdict]) -> str:
    """Write ``NOT MEASURED: peak memory, syncs``; nothing if all were measured."""
    names = list(dict.fromkeys(title(v.metric) for v in verdicts if v.is_missed))
    return _listed("NOT MEASURED", names) if names else ""


def missed_sentences(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Write ``not measured: peak memory, syncs: no time was left``, once for a reason."""
    missed: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.is_missed:
            missed.setdefault(verdict.because, []).append(title(verdict.metric))
    for because, names in missed.items():
        yield f"not measured: {', '.join(dict.fromkeys(names))}: {because}"


def no_baseline_headline(found: Sequence[Verdict]) -> str:
    """Write ``NO BASELINE: step time 12.03 ms, syncs 0``: the worst first, few zeros."""
    order = list(dict.fromkeys((*ASKED_FIRST, *WORDS, *(v.metric for v in found))))
    values = [
        f"{title(v.metric)} {_amount(metric_named(v.metric), v.now, v.workspace_bytes)}"
        for v in sorted(found, key=lambda v: order.index(v.metric))
        if v.now is not None and (v.now or v.metric in ASKED_FIRST)
    ]
    return _listed("NO BASELINE", values) if values else "NO BASELINE"


def _amount(metric: Metric, now: float, kept: int) -> str:
    """Write ``12.03 ms``, or ``0.06 MiB and 64.00 MiB of cuBLAS``."""
    own = format_value(metric, now - kept)
    return f"{own} and {format_value(metric, kept)} of cuBLAS" if kept else own


def _listed(what: str, items: Sequence[str]) -> str:
    """Write *what* and as many *items* as fit on the line, and count the others."""
    return f"{what}: {join_fitting(items, text_width() - len(what) - 2)}"


# The one line of a failure that pytest has room for behind the name of its test.

_HEADLINE: Final = re.compile(
    r"(?P<what>[A-Z][A-Z ]+[A-Z]\b(?: \w+(?: \w+)*)?): (?P<now>.+?)"
    r"(?:, was (?P<before>.+?) \((?P<change>[^()]+)\)(?: when last accepted)?)?"
    r"(?P<limit>, (?:limit|allowed|and|with) .+)?"
)
"""The first line of ``Failure.text`` and ``drift_text``."""


def fitting_headline(text: str, room: int) -> str:
    """Return as much of the headline *text* as fits whole into *room* characters.

    No number is cut and none loses its unit. Other texts are returned as they are.
    """
    found = _HEADLINE.fullmatch(text)
    if found is None:
        return text
    return next((short for short in _shorter(text, found) if len(short) <= room), text)


def _shorter(text: str, found: re.Match[str]) -> Iterator[str]:
    what, change = found["what"], found["change"]
    yield text
    # From the longest to the shortest: the first one that fits is taken.
    yield text.removesuffix(found["limit"] or "")
    if change:
        yield f"{what}: {found['now']} ({change})"
        yield f"{what}: {change}"
    yield f"{what}: {found['now']}"
    yield what
