"""The stored counts of a watched suite, which may not get worse."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial
from math import inf
from typing import Any, Final

from ..errors import ErrorId, UsageError
from ..model.metric import counted
from .watch import Objection, SuiteLine, WatchedTest, lines_of_test, suite_lines


Row = Mapping[str, Mapping[str, int]]
"""Waits and pageable copies of a line by test, or tensors left by test."""

Counts = Mapping[str, Any]
"""The rows of lines, that of the tests which leave memory, and all tests that use a GPU.

A test that is not among the last is new: it may use each line that is known.
"""

STORED_LINES: Final = "lines"
STORED_LEAKS: Final = "leaks"
STORED_TESTS: Final = "tests"
WATCH_FORMAT: Final = 2

ANY_TEST: Final = "*"
"""In format 1, and until a refresh: a line's limit is that of its busiest test."""


def counts_of(records: Sequence[WatchedTest]) -> Counts:
    """Return what a baseline stores: lines and tests that do nothing bad are no rows."""
    rows: dict[str, dict[str, Mapping[str, int]]] = {}
    for record in records:
        for line in lines_of_test(record):
            done = _present(waits=line.most_waits, pageable=line.most_pageable)
            if done:
                rows.setdefault(line.key, {})[record.test] = done
    return {
        STORED_LINES: rows,
        STORED_LEAKS: {r.test: {"tensors": r.left_tensors} for r in records if r.left},
        STORED_TESTS: sorted(record.test for record in records if record.used),
    }


def _present(**counts: int) -> dict[str, int]:
    return {name: number for name, number in counts.items() if number}


def stored_counts(document: Any, place: str) -> Counts:
    """Return the counts in a baseline's *document*, which is at *place*."""
    shape = document if isinstance(document, dict) else {}
    lines, leaks = shape.get(STORED_LINES), shape.get(STORED_LEAKS)
    tests = shape.get(STORED_TESTS, [])
    if shape.get("format") == 1 and isinstance(lines, dict):
        lines = {key: {ANY_TEST: row} for key, row in lines.items()}
    elif shape.get("format") != WATCH_FORMAT or not isinstance(lines, dict):
        lines = {"": None}
    if not all(map(_is_row, [leaks, *lines.values()])) or not isinstance(tests, list):
        msg = (
            f"{place}: found no baseline of --gpuperf-watch in format {WATCH_FORMAT}, "
            "expected one; restore it, or store it again with --gpuperf-update=all"
        )
        raise UsageError(msg, ErrorId.GP115)
    return {STORED_LINES: lines, STORED_LEAKS: leaks, STORED_TESTS: tests}


def _is_row(table: object) -> bool:
    return isinstance(table, dict) and all(
        isinstance(row, dict) and all(isinstance(n, int) for n in row.values())
        for row in table.values()
    )


# Lines that were edited since.


LEAST_ALIKE: Final = 0.6
"""Of two texts, by ``SequenceMatcher``: below it one is no edit of the other."""

LinesOf = Callable[[str], Collection[str]]
"""The lines of a file as they are now, without the space around them."""


def with_edits(
    stored: Counts, records: Sequence[WatchedTest], lines_of: LinesOf
) -> Counts:
    """Return *stored* with the rows of edited lines under what the lines are now.

    The row of a line that is gone goes to one that has none and is an edit of it: much
    alike in the same file, of the same function first, or the same text in another file.
    The most alike go first, so that no wait that is gone pays for a new one beside it.
    """
    rows = dict(stored[STORED_LINES])
    lines = suite_lines(records)
    new = [line for line in lines if line.key not in rows]
    still = {line.key for line in lines}
    gone = [k for k in rows if k not in still and _is_gone(k, lines_of)] if new else []
    likeness = {(n.key, k): _likeness(k, n) for n in new for k in gone}
    alike = sorted((found, pair) for pair, found in likeness.items() if found)
    for _, (now, before) in reversed(alike):
        if before in rows and now not in rows:
            rows[now] = rows.pop(before)
    return {**stored, STORED_LINES: rows}


def _parts(key: str) -> tuple[str, str, str]:
    """Return the file, the function and the text of a line's *key*."""
    place, _, text = key.partition(": ")
    file, _, function = place.rpartition(" ")
    return file, function, text


def _is_gone(key: str, lines_of: LinesOf) -> bool:
    """Whether a line, or the function that it was in, is not in its file any more."""
    file, function, text = _parts(key)
    present = lines_of(file)
    head = re.compile(rf"(async )?def {re.escape(function)}\b")
    is_defined = not function.isidentifier() or any(map(head.match, present))
    return text not in present or not is_defined


def _likeness(key: str, line: SuiteLine) -> tuple[bool, float] | None:
    """Say how much a line is like that of *key*; ``None`` if it is another one."""
    file, function, text = _parts(key)
    if file != line.place.file:
        return (False, 0.0) if text == line.first.source else None
    ratio = SequenceMatcher(None, text, line.first.source).ratio()
    return (function == line.place.function, ratio) if ratio >= LEAST_ALIKE else None


# What rose.


NEW_LINE: Final = "by a new line"


def worse_than(stored: Counts, records: Sequence[WatchedTest]) -> Iterator[Objection]:
    """Yield each count that is above the stored one, or that is new."""
    found = counts_of(records)[STORED_LINES]
    for line in suite_lines(records):
        rises = [*_rises(stored, line.key, found[line.key])]
        if rises:
            said, tests = zip(*rises, strict=True)
            yield Objection(what="; ".join(said), test=tests[0], lines=(line,))
    for record in records:
        before = stored[STORED_LEAKS].get(record.test, {}).get("tensors", 0)
        if record.left_tensors > before:
            yield Objection(
                what=f"{counted(record.left_tensors, 'tensor')} left, baseline {before}",
                test=record.test,
                left=record.left,
            )


def _rises(
    stored: Counts, key: str, found: Mapping[str, Mapping[str, int]]
) -> Iterator[tuple[str, str]]:
    """Say which counts of a line rose, and in which test most: a copy may also be a wait."""
    for name, noun in (("waits", "wait"), ("pageable", "pageable copy")):
        numbers = {test: row.get(name, 0) for test, row in found.items()}
        limits = {test: _limit(stored, key, test, name) for test in numbers}
        risen = [test for test in numbers if numbers[test] > limits[test]]
        if risen:
            worst = max(risen, key=lambda t: numbers[t] - limits[t])
            is_known = key in stored[STORED_LINES]
            limit = f"baseline {limits[worst]:g}" if is_known else NEW_LINE
            more = counted(len(risen) - 1, "other test")
            said = f"{counted(numbers[worst], noun)} in one test, {limit}"
            yield (f"{said}, and more in {more}" if risen[1:] else said), worst


def _limit(stored: Counts, key: str, test: str, name: str) -> float:
    """Return how often a *test* may use a line; a new one as often as it likes."""
    row = stored[STORED_LINES].get(key, {})
    for known in (test, ANY_TEST):
        if known in row:
            return float(row[known].get(name, 0))
    return inf if row and test not in stored[STORED_TESTS] else 0


def better_lines(stored: Counts, records: Sequence[WatchedTest]) -> int:
    """Count the lines that do less than is stored in a test that ran."""
    ran = {record.test for record in records}
    fallen = updated(stored, records, rises=False)[STORED_LINES]
    return sum(
        any(fallen.get(key, {}).get(test) != row[test] for test in row if test in ran)
        for key, row in stored[STORED_LINES].items()
    )


# What is stored then.


def updated(
    stored: Counts | None,
    records: Sequence[WatchedTest],
    *,
    rises: bool,
    falls: bool = True,
    is_gone: Callable[[str], bool] = lambda _: False,
) -> Counts:
    """Return what to store: whether counts of known tests may rise, and may fall.

    What new tests do on lines that are known is stored in any case. The row of a test that
    did not run stays, unless the test ``is_gone``.
    """
    found = counts_of(records)
    if stored is None:
        return found
    ran = {record.test for record in records}

    def row_of(before: Row, after: Row, limit: Callable[[str, str], float]) -> Row:
        row = {t: r for t, r in before.items() if t not in ran and not is_gone(t)}
        for test in ran & {*before, *after}:
            counts = {}
            for name in {**before.get(test, {}), **after.get(test, {})}:
                old, new = limit(test, name), after.get(test, {}).get(name, 0)
                moves = rises if new > old else falls or old == inf
                counts[name] = new if moves else int(old)
            if any(counts.values()):
                row[test] = _present(**counts)
        return row

    known, leaks = stored[STORED_LINES], stored[STORED_LEAKS]
    lines = {
        key: row_of(
            known.get(key, {}),
            found[STORED_LINES].get(key, {}),
            partial(_limit, stored, key),
        )
        for key in {**known, **found[STORED_LINES]}
    }
    tests = [t for t in stored[STORED_TESTS] if t not in ran and not is_gone(t)]
    return {
        STORED_LINES: {key: row for key, row in lines.items() if row},
        STORED_LEAKS: row_of(
            leaks, found[STORED_LEAKS], lambda t, name: leaks.get(t, {}).get(name, 0)
        ),
        STORED_TESTS: sorted({*found[STORED_TESTS], *tests}),
    }


def changed_rows(before: Counts | None, after: Counts) -> int:
    """Count rows that differ."""
    old = before or {STORED_LINES: {}, STORED_LEAKS: {}}
    return sum(
        old[table].get(key) != after[table].get(key)
        for table in (STORED_LINES, STORED_LEAKS)
        for key in {**old[table], **after[table]}
    )
