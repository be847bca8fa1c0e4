"""The stored counts of a watched suite, which may not get worse."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any
from typing import Final

from ..errors import ErrorId
from ..errors import UsageError
from .watch import Objection
from .watch import SourceLine
from .watch import WatchedTest
from .watch import suite_lines
from .wording import counted


Counts = Mapping[str, Mapping[str, int]]
"""The most waits and pageable copies in one test by line, tensors left by test."""

STORED_LINES: Final = "lines"
STORED_LEAKS: Final = "leaks"
WATCH_FORMAT: Final = 1


def counts_of(records: Sequence[WatchedTest]) -> dict[str, Counts]:
    """Return what a baseline stores: lines and tests that do nothing bad are no rows."""
    return {
        STORED_LINES: {
            line.use.place.key: _present(
                waits=line.most_waits, pageable=line.most_pageable
            )
            for line in suite_lines(records)
        },
        STORED_LEAKS: {
            record.test: {"tensors": record.left_tensors}
            for record in records
            if record.left
        },
    }


def _present(**counts: int) -> dict[str, int]:
    return {name: number for name, number in counts.items() if number}


def stored_counts(document: Any, place: str) -> dict[str, Counts]:
    """Return the counts in a baseline's *document*, which is at *place*."""
    shape = document if isinstance(document, dict) else {}
    tables = [shape.get(STORED_LINES), shape.get(STORED_LEAKS)]
    if shape.get("format") != WATCH_FORMAT or not all(map(_is_table, tables)):
        msg = (
            f"{place}: found no baseline of --gpuperf-watch in format {WATCH_FORMAT}, "
            "expected one; restore it, or store it again with --gpuperf-update=all"
        )
        raise UsageError(msg, ErrorId.GP115)
    return {STORED_LINES: shape[STORED_LINES], STORED_LEAKS: shape[STORED_LEAKS]}


def _is_table(table: object) -> bool:
    return isinstance(table, dict) and all(
        isinstance(row, dict) and all(isinstance(n, int) for n in row.values())
        for row in table.values()
    )


NEW_LINE: Final = "by a new line"

LinesOf = Callable[[str], Collection[str]]
"""The lines of a file as they are now, without the space around them."""


def with_edits(
    stored: Mapping[str, Counts], records: Sequence[WatchedTest], lines_of: LinesOf
) -> dict[str, Counts]:
    """Return *stored* with the rows of edited lines under what the lines are now.

    A line was edited if it is not in its file any more, and another one there, which has
    no row, took its place: the most alike, of the same function if there is one.
    """
    rows = dict(stored[STORED_LINES])
    for line in suite_lines(records):
        place = line.use.place
        if place.key in rows:
            continue
        gone = _gone_rows(rows, place.file, lines_of)
        if gone:
            rows[place.key] = rows.pop(max(gone, key=lambda key: _likeness(key, place)))
    return {**stored, STORED_LINES: rows}


def _gone_rows(rows: Counts, file: str, lines_of: LinesOf) -> list[str]:
    of_file = [key for key in rows if key.startswith(f"{file} ")]
    present = lines_of(file) if of_file else ()
    return [key for key in of_file if key.partition(": ")[2] not in present]


def _likeness(key: str, place: SourceLine) -> tuple[bool, float]:
    of_function = key.startswith(f"{place.file} {place.function}: ")
    return of_function, SequenceMatcher(None, key, place.key).ratio()


def worse_than(
    stored: Mapping[str, Counts], records: Sequence[WatchedTest]
) -> Iterator[Objection]:
    """Yield each count that is above the stored one, or that is new."""
    for line in suite_lines(records):
        before = stored[STORED_LINES].get(line.use.place.key)
        now = _present(waits=line.most_waits, pageable=line.most_pageable)
        for name, number in now.items():
            known = 0 if before is None else before.get(name, 0)
            if number > known:
                noun = "wait" if name == "waits" else "pageable copy"
                limit = NEW_LINE if before is None else f"baseline {known}"
                yield Objection(
                    what=f"{counted(number, noun)} in one test, {limit}",
                    test=line.worst_test,
                    lines=(line.use,),
                )
    for record in records:
        before = stored[STORED_LEAKS].get(record.test, {})
        if record.left_tensors > before.get("tensors", 0):
            yield Objection(
                what=f"{counted(record.left_tensors, 'tensor')} left, "
                f"baseline {before.get('tensors', 0)}",
                test=record.test,
                left=record.left,
            )


def updated(
    stored: Mapping[str, Counts] | None,
    records: Sequence[WatchedTest],
    *,
    raises: bool,
    whole: bool,
) -> dict[str, Counts]:
    """Return what to store: *raises* lets counts rise, a *whole* run lets them fall.

    A run of some tests knows nothing of what the others do on the same line.
    """
    found = counts_of(records)
    if stored is None:
        return found
    seen = {record.test for record in records}
    return {
        STORED_LINES: _merged(
            stored[STORED_LINES],
            found[STORED_LINES],
            raises=raises,
            may_fall=lambda _: whole,
        ),
        STORED_LEAKS: _merged(
            stored[STORED_LEAKS],
            found[STORED_LEAKS],
            raises=raises,
            may_fall=lambda test: whole or test in seen,
        ),
    }


def _merged(
    stored: Counts, found: Counts, *, raises: bool, may_fall: Callable[[str], bool]
) -> dict[str, dict[str, int]]:
    merged: dict[str, dict[str, int]] = {}
    for key in {**stored, **found}:
        old, new = stored.get(key, {}), found.get(key, {})
        row = {
            name: _moved(
                old.get(name, 0), new.get(name, 0), raises=raises, falls=may_fall(key)
            )
            for name in {**old, **new}
        }
        if any(row.values()):
            merged[key] = _present(**row)
    return merged


def _moved(old: int, new: int, *, raises: bool, falls: bool) -> int:
    return new if (new > old and raises) or (new < old and falls) else old


def changed_rows(
    before: Mapping[str, Counts] | None, after: Mapping[str, Counts]
) -> int:
    """Count rows that differ."""
    old = before or {STORED_LINES: {}, STORED_LEAKS: {}}
    return sum(
        old[table].get(key) != after[table].get(key)
        for table in (STORED_LINES, STORED_LEAKS)
        for key in {**old[table], **after[table]}
    )
