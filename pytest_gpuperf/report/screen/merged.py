"""The report of several runs that were joined: one table, one line that counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from itertools import chain
from itertools import islice
from typing import Any
from typing import Final

from ...model.results import FoundRecord
from ...model.results import Merged
from ...model.verdict import Outcome
from ...model.verdict import worst_of
from ..json.results import verdict_of
from .comparison import compared_lines
from .counts import OutcomeCounts
from .counts import count_lines
from .counts import named
from .summary import WORST_FIRST_OUTCOMES
from .summary import summary_lines


MOST_ROWS: Final = 1000
"""Calls that have a row in the table of one hardware, the worst."""

Pattern = tuple[bool, tuple[str, ...]]
"""Whether a call compared two steps, and the outcomes of its metrics."""

Call = tuple[Mapping[str, Any], str]
"""A call as JSON, and its file."""

_OUTCOMES: Final = {outcome.value: outcome for outcome in Outcome}


def merged_lines(merged: Merged) -> tuple[str, ...]:
    """Return the summary of all shards, like that of one run, the worst first.

    Raises ``UsageError`` if a verdict that is shown cannot be read.
    """
    by_hardware = {key: _by_pattern(found) for key, found in merged.tests.items()}
    several = len(by_hardware) > 1
    tables = (
        chain([f"{key}:"] if several else [], _table(patterns, merged.tests[key]))
        for key, patterns in by_hardware.items()
    )
    return (
        *chain.from_iterable(tables),
        *merged.notes,
        *(f"objection: {objection}" for objection in merged.objections),
        _last_line(merged, by_hardware),
    )


def _by_pattern(tests: Mapping[str, FoundRecord]) -> dict[Pattern, list[Call]]:
    """Group similar calls: a hundred thousand of them have a few patterns."""
    patterns: dict[Pattern, list[Call]] = {}
    for record, source in tests.values():
        for call in record.verdicts:
            words = tuple([judged["outcome"] for judged in call["verdicts"]])
            pattern = "sides" in call, words
            patterns.setdefault(pattern, []).append((call, source))
    return patterns


def _outcome(pattern: Pattern) -> Outcome:
    is_comparison, words = pattern
    if is_comparison and not words:
        return Outcome.PASS
    return worst_of(_OUTCOMES[word] for word in words) or Outcome.NOT_JUDGED


def _table(
    patterns: Mapping[Pattern, list[Call]], tests: Mapping[str, FoundRecord]
) -> Iterator[str]:
    worst = sorted(patterns, key=lambda p: WORST_FIRST_OUTCOMES.index(_outcome(p)))
    calls = chain.from_iterable(patterns[pattern] for pattern in worst)
    # Only what is shown is decoded: there may be a hundred thousand calls.
    shown = [verdict_of(*call) for call in islice(calls, MOST_ROWS)]
    yield from (line.text for line in summary_lines(shown))
    yield from (line.text for line in compared_lines(shown))
    more = sum(map(len, patterns.values())) - len(shown)
    if more:
        yield f"and {more} more, none is worse"
    yield from islice(_failures(tests), MOST_ROWS)


def _failures(tests: Mapping[str, FoundRecord]) -> Iterator[str]:
    """Name the tests that failed without a verdict."""
    for test, (record, _) in tests.items():
        if record.outcome is None and record.ending.fails:
            why = f": {record.headline}" if record.headline else ""
            yield f"{record.ending.value} {test}{why}"


def _last_line(
    merged: Merged, by_hardware: Mapping[str, Mapping[Pattern, list[Call]]]
) -> str:
    said = [
        part
        for key, patterns in by_hardware.items()
        for part in count_lines(_counts(patterns, merged.tests[key].values()), key)
    ]
    parts = (
        *(said or ["no verdict"]),
        *named(merged.lost, "WITHOUT A RESULT"),
        *named(merged.missing, "RUN BY NO SHARD"),
        *_objections(len(merged.objections)),
        f"{merged.shards} shard{'s' if merged.shards > 1 else ''}",
    )
    return f"gpuperf: {'; '.join(parts)}"


def _objections(number: int) -> Iterator[str]:
    if number:
        yield f"{number} OBJECTION{'S' if number > 1 else ''}"


def _counts(
    patterns: Mapping[Pattern, list[Call]], tests: Iterable[FoundRecord]
) -> OutcomeCounts:
    counts = OutcomeCounts()
    for pattern, calls in patterns.items():
        is_comparison, words = pattern
        outcome = _outcome(pattern)
        # A comparison without a budget has no verdict; it is counted as compared.
        if words or not is_comparison:
            counts.calls[outcome] += len(calls)
        if outcome is not Outcome.NOT_JUDGED:
            for word in words:
                counts.metrics[_OUTCOMES[word]] += len(calls)
    judged = counts.calls.total()
    compared = sum(map(len, patterns.values())) - judged
    endings = Counter(r.ending.value for r, _ in tests if not r.verdicts)
    return OutcomeCounts(
        calls=counts.calls,
        compared=compared,
        metrics=counts.metrics,
        endings=endings,
    )
