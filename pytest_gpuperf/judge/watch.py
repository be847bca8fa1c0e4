"""What ordinary tests do on the simulated GPU: merged, ranked, and judged by counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from ..errors import ErrorId, UsageError
from ..model.baseline import Entry, RunSummary
from ..model.finding import (
    A_MOVE,
    Finding,
    FindingKind,
    Location,
    WatchedTest,
    stored_lines,
)
from ..model.metrics import PAGEABLE_COPIES, SYNCS, counted
from ..model.verdict import Outcome


# The suite: each line over all tests.


UNKNOWN: Final = Location(file="?", line=0, function="?")
"""The place of what no line is known for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteLine:
    """What a line did over all tests, or in one: ``first`` has its place and its cause.

    ``most`` counts are those of the test with most of them, ``others`` its other causes.
    """

    first: Finding
    worst_test: str
    tests: int = 1
    syncs: int
    most_syncs: int
    pageable: int
    most_pageable: int
    nbytes: int
    others: tuple[Finding, ...] = ()

    @property
    def place(self) -> Location:
        """The line; ``UNKNOWN`` if nobody knows it."""
        return self.first.location or UNKNOWN

    @property
    def key(self) -> str:
        """Name the line so that an edit above it changes no baseline."""
        return line_key(self.place.file, self.place.function, self.first.source)


def line_key(file: str, function: str, source: str) -> str:
    """Name a line by all but its number."""
    return f"{file} {function}: {source}"


def suite_lines(records: Iterable[WatchedTest]) -> tuple[SuiteLine, ...]:
    """Add up the lines that are no test's, the worst first."""
    found: dict[str, SuiteLine] = {}
    for record in records:
        for line in lines_of_test(record):
            if line.syncs or line.pageable:
                known = found.get(line.key)
                found[line.key] = _added(known, line) if known else line
    return tuple(sorted(found.values(), key=_badness))


def _badness(line: SuiteLine) -> tuple[bool, int, int, int, str]:
    is_move = line.first.reason == A_MOVE
    return (is_move, -line.most_syncs, -line.syncs, -line.nbytes, line.key)


def lines_of_test(record: WatchedTest) -> Iterable[SuiteLine]:
    """Add up what one test did on each line; the operation with most syncs names it."""
    found: dict[str, SuiteLine] = {}
    lines = (_line_of(done, record.test) for done in record.judged)
    for line in sorted(lines, key=_first_cause):
        first = found.get(line.key)
        found[line.key] = _sum(first, line) if first else line
    return found.values()


def _first_cause(line: SuiteLine) -> tuple[int, int, str]:
    return -line.syncs, -line.pageable, line.first.op or ""


def _line_of(done: Finding, test: str) -> SuiteLine:
    syncs = 0 if done.kind is FindingKind.TRANSFER else done.per_step
    pageable = done.per_step if PAGEABLE_COPIES.name in done.metrics else 0
    return SuiteLine(
        first=done,
        worst_test=test,
        syncs=syncs,
        most_syncs=syncs,
        pageable=pageable,
        most_pageable=pageable,
        nbytes=done.moved_bytes,
    )


def _sum(first: SuiteLine, other: SuiteLine) -> SuiteLine:
    """Add what the same test did there by another operation."""
    syncs, pageable = first.syncs + other.syncs, first.pageable + other.pageable
    return replace(
        first,
        syncs=syncs,
        most_syncs=syncs,
        pageable=pageable,
        most_pageable=pageable,
        nbytes=first.nbytes + other.nbytes,
        others=(*first.others, other.first, *other.others),
    )


def _added(line: SuiteLine, other: SuiteLine) -> SuiteLine:
    """Add what another test did there."""
    worst = other if other.syncs > line.most_syncs else line
    return replace(
        _sum(line, other),
        worst_test=worst.worst_test,
        tests=line.tests + 1,
        most_syncs=worst.most_syncs,
        most_pageable=max(line.most_pageable, other.most_pageable),
    )


# Gates of the command line.


GATE_FORM: Final = "max-syncs:N, leak:N or both, such as max-syncs:0,leak:0"


def parse_gates(text: str, place: str) -> Mapping[str, int]:
    """Read by name the most that a single test may do.

    *place* is the option or key that an error names.
    """
    found: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, number = part.partition(":")
        if name not in {"max-syncs", "leak"} or not number.isdecimal():
            msg = f"{place}: found {text!r}, expected {GATE_FORM}; put paths before it"
            raise UsageError(msg, ErrorId.GP101)
        found[name] = int(number)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """Why the suite fails: ``what`` in a line, the test, and the lines that did it."""

    what: str
    test: str = ""
    lines: tuple[SuiteLine, ...] = ()
    left: tuple[Finding, ...] = ()


def objections(
    gates: Mapping[str, int], records: Iterable[WatchedTest]
) -> Iterator[Objection]:
    """Yield what *gates* say against each test."""
    most_syncs, most_left = gates.get("max-syncs", inf), gates.get("leak", inf)
    for record in records:
        if record.syncs > most_syncs:
            waiting = (line for line in lines_of_test(record) if line.syncs)
            yield Objection(
                what=f"{counted(record.syncs, 'sync')}, limit {most_syncs}",
                test=record.test,
                lines=tuple(sorted(waiting, key=lambda line: -line.syncs)),
            )
        if record.left_tensors > most_left:
            yield Objection(
                what=f"{counted(record.left_tensors, 'tensor')} leaked, limit {most_left}",
                test=record.test,
                left=record.left,
            )


# The baseline: an entry of each test that used the simulated GPU.


LEFT_TENSORS: Final = "left_tensors"

NOUNS: Final = {SYNCS.name: "sync", PAGEABLE_COPIES.name: "pageable copy"}
"""The counts that lines of a test have."""


def entry_of(record: WatchedTest) -> Entry:
    """Return what a baseline stores of a test."""
    counts = _counts(lines_of_test(record))
    run = RunSummary(exact={**counts, LEFT_TENSORS: record.left_tensors})
    return Entry(runs=(run,), lines=stored_lines(record.judged))


def _counts(lines: Iterable[SuiteLine]) -> dict[str, int]:
    numbers = [(line.syncs, line.pageable) for line in lines]
    return dict(zip(NOUNS, map(sum, zip(*numbers, (0, 0), strict=True)), strict=True))


def outcomes_of(
    record: WatchedTest, stored: Entry | None
) -> dict[str, tuple[Outcome, ...]]:
    """Return the outcome of each count against the *stored* entry of its test."""
    if stored is None:
        return {}
    before, now = stored.runs[-1].exact, entry_of(record).runs[-1].exact
    return {name: (_outcome(now[name] - before.get(name, 0)),) for name in now}


def _outcome(rise: int) -> Outcome:
    if not rise:
        return Outcome.PASS
    return Outcome.REGRESSED if rise > 0 else Outcome.IMPROVED


def worse_than(
    stored: Mapping[str, Entry], records: Sequence[WatchedTest]
) -> Iterator[Objection]:
    """Yield what tests do more than is *stored*: of those on the same lines the first.

    A new test may use the lines of the others.
    """
    known = _known_lines(stored, records)
    alike: dict[object, list[Objection]] = {}
    for record in records:
        for found in _rises(record, stored.get(record.test), known):
            lines = tuple(line.key for line in found.lines) or found.test
            alike.setdefault(lines, []).append(found)
    for first, *others in alike.values():
        more = f", and more in {counted(len(others), 'other test')}" if others else ""
        yield replace(first, what=f"{first.what}{more}")


def _known_lines(
    stored: Mapping[str, Entry], records: Iterable[WatchedTest]
) -> frozenset[str]:
    """Return the lines that are stored, or used by a test that has not become worse."""
    keys = {key for entry in stored.values() for key in _done(entry)}
    for record in records:
        outcomes = outcomes_of(record, stored.get(record.test))
        if outcomes and (Outcome.REGRESSED,) not in outcomes.values():
            keys.update(line.key for line in lines_of_test(record))
    return frozenset(keys)


def _done(entry: Entry) -> Counter[str]:
    """Return how often each line did something."""
    found: Counter[str] = Counter()
    for line in entry.lines or ():
        found[line_key(line.file, line.function, line.text)] += line.per_step
    return found


def _rises(
    record: WatchedTest, stored: Entry | None, known: frozenset[str]
) -> Iterator[Objection]:
    if stored is not None and record.unchecked:
        what = f"not checked, and the baseline has it: {record.unchecked}"
        yield Objection(what=what, test=record.test)
        return
    before = stored.runs[-1].exact if stored else {}
    lines = sorted(lines_of_test(record), key=_badness)
    if stored is None:
        lines = [line for line in lines if line.key not in known]
    said = [
        f"{counted(number, NOUNS[name])}, "
        + (f"baseline {before.get(name, 0)}" if stored else "by a new line")
        for name, number in _counts(lines).items()
        if number > before.get(name, 0)
    ]
    if said:
        blamed = tuple(_risen(lines, record, stored))
        yield Objection(what="; ".join(said), test=record.test, lines=blamed)
    left = before.get(LEFT_TENSORS, 0)
    if record.left_tensors > left:
        tensors = counted(record.left_tensors, "tensor")
        what = f"{tensors} leaked, baseline {left}"
        yield Objection(what=what, test=record.test, left=record.left)


def _risen(
    lines: Sequence[SuiteLine], record: WatchedTest, stored: Entry | None
) -> Sequence[SuiteLine]:
    """Return those of *lines* that do more than is stored; all if none does."""
    before, now = _done(stored or Entry(runs=())), _done(entry_of(record))
    return [line for line in lines if now[line.key] > before[line.key]] or lines


# Endings.


def tally(records: Iterable[WatchedTest]) -> Counter[str]:
    """Count tests by how they used the simulated GPU."""
    found: Counter[str] = Counter()
    for record in records:
        found["tests"] += 1
        found["used"] += record.used
        found["unchecked"] += bool(record.unchecked)
        found["unchecked_ops"] += record.unchecked_ops > 0
        found["leaking"] += bool(record.left)
    return found
