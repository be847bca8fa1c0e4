"""What ordinary tests do on the simulated GPU: merged, ranked, and judged by counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from pathlib import PurePath
from typing import Any
from typing import Final

from ..errors import ErrorId
from ..errors import UsageError


# What one test did.


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A line of source; ``file`` is relative to the rootdir or to site-packages."""

    file: str
    line: int
    function: str
    source: str

    @property
    def key(self) -> str:
        """Name the line so that an edit above it changes no baseline."""
        return f"{self.file} {self.function}: {self.source}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineUse:
    """What one line did in one test, by ``op`` for ``reason``."""

    place: SourceLine
    op: str
    reason: str
    waits: int = 0
    pageable: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftTensors:
    """Device memory from one line that outlived its test, and the name that keeps it."""

    place: SourceLine
    tensors: int
    nbytes: int
    kept_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedTest:
    """What a test did on the simulated GPU.

    ``gained`` says that it is skipped, or missing, without that GPU. ``differs`` says how
    it ended there, if that is not what is reported.
    """

    test: str
    lines: tuple[LineUse, ...] = ()
    left: tuple[LeftTensors, ...] = ()
    peak_bytes: int = 0
    used: bool = False
    unjudged: int = 0
    gained: bool = False
    differs: str = ""

    @property
    def waits(self) -> int:
        """Waits on lines that are no test's."""
        return sum(use.waits for use in self.judged)

    @property
    def judged(self) -> tuple[LineUse, ...]:
        """What lines outside of the tests did: a test must read what it asserts."""
        return tuple(use for use in self.lines if not is_test_code(use.place.file))

    @property
    def left_tensors(self) -> int:
        """Tensors that it left to the next test."""
        return sum(left.tensors for left in self.left)


TEST_FOLDERS: Final = frozenset({"test", "tests", "testing", "_pytest", "hypothesis"})
"""Folders whose code only tests run."""


def is_test_code(file: str) -> bool:
    """Whether only tests run the code of *file*, by its name and folders."""
    path = PurePath(file)
    is_named_so = path.stem.startswith("test_") or path.stem.endswith("_test")
    return (
        is_named_so
        or path.name == "conftest.py"
        or not TEST_FOLDERS.isdisjoint(path.parts[:-1])
    )


# The suite: each line over all tests.


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteLine:
    """A line over all tests; ``most`` counts are those of the test with most of them."""

    use: LineUse
    tests: int
    most_waits: int
    most_pageable: int
    worst_test: str


def suite_lines(records: Iterable[WatchedTest]) -> tuple[SuiteLine, ...]:
    """Add up the lines that are no test's, the worst first."""
    found: dict[str, SuiteLine] = {}
    for record in records:
        for use in _by_line(record.judged):
            if use.waits or use.pageable:
                key = use.place.key
                found[key] = _added(found.get(key), use, record.test)
    return tuple(sorted(found.values(), key=_badness))


def _badness(line: SuiteLine) -> tuple[int, int, int, str]:
    use = line.use
    return (-line.most_waits, -use.waits, -use.nbytes, use.place.key)


def _by_line(uses: Iterable[LineUse]) -> Iterable[LineUse]:
    """Add up what one test did on each line; the operation with most waits names it."""
    found: dict[str, LineUse] = {}
    for use in sorted(uses, key=lambda u: (-u.waits, u.op)):
        first = found.get(use.place.key)
        found[use.place.key] = use if first is None else _sum(first, use)
    return found.values()


def _sum(first: LineUse, other: LineUse) -> LineUse:
    return replace(
        first,
        waits=first.waits + other.waits,
        pageable=first.pageable + other.pageable,
        nbytes=first.nbytes + other.nbytes,
    )


def _added(line: SuiteLine | None, use: LineUse, test: str) -> SuiteLine:
    if line is None:
        return SuiteLine(
            use=use,
            tests=1,
            most_waits=use.waits,
            most_pageable=use.pageable,
            worst_test=test,
        )
    is_worse = use.waits > line.most_waits
    return replace(
        line,
        use=_sum(line.use, use),
        tests=line.tests + 1,
        most_waits=max(line.most_waits, use.waits),
        most_pageable=max(line.most_pageable, use.pageable),
        worst_test=test if is_worse else line.worst_test,
    )


# Gates of the command line.


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchGates:
    """The most that a single test may do; ``None`` is no limit."""

    max_syncs: int | None = None
    leak: int | None = None


GATE_FORM: Final = "max-syncs:N, leak:N or both, such as max-syncs:0,leak:0"


def parse_gates(text: str, place: str) -> WatchGates:
    """Read gates; *place* is the option or key that an error names."""
    found: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, number = part.partition(":")
        if name not in {"max-syncs", "leak"} or not number.isdecimal():
            msg = f"{place}: found {text!r}, expected {GATE_FORM}"
            raise UsageError(msg, ErrorId.GP101)
        found[name.replace("-", "_")] = int(number)
    return WatchGates(**found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """Why the suite fails: ``what`` in a line, the test, and the lines that did it."""

    what: str
    test: str = ""
    lines: tuple[LineUse, ...] = ()
    left: tuple[LeftTensors, ...] = ()


def objections(
    gates: WatchGates, records: Iterable[WatchedTest]
) -> Iterator[Objection]:
    """Yield what *gates* say against each test."""
    for record in records:
        if gates.max_syncs is not None and record.waits > gates.max_syncs:
            waiting = (use for use in _by_line(record.judged) if use.waits)
            yield Objection(
                what=f"{counted(record.waits, 'wait')}, limit {gates.max_syncs}",
                test=record.test,
                lines=tuple(sorted(waiting, key=lambda use: -use.waits)),
            )
        if gates.leak is not None and record.left_tensors > gates.leak:
            yield Objection(
                what=f"{counted(record.left_tensors, 'tensor')} left, limit {gates.leak}",
                test=record.test,
                left=record.left,
            )


# The ratchet: counts that may not get worse.

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


def worse_than(
    stored: Mapping[str, Counts], records: Sequence[WatchedTest]
) -> Iterator[Objection]:
    """Yield each count that is above the stored one, or that is new."""
    for line in suite_lines(records):
        before = stored[STORED_LINES].get(line.use.place.key, {})
        now = _present(waits=line.most_waits, pageable=line.most_pageable)
        for name, number in now.items():
            if number > before.get(name, 0):
                noun = "wait" if name == "waits" else "pageable copy"
                yield Objection(
                    what=f"{counted(number, noun)} in one test, "
                    f"baseline {before.get(name, 0)}",
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


# Endings.


def tally(records: Iterable[WatchedTest]) -> Counter[str]:
    """Count tests by how they used the simulated GPU."""
    found: Counter[str] = Counter()
    for record in records:
        found["tests"] += 1
        found["used"] += record.used
        found["gained"] += record.gained
        found["gained_failed"] += record.gained and bool(record.differs)
        found["differs"] += bool(record.differs) and not record.gained
        found["unjudged"] += record.unjudged > 0
        found["leaking"] += bool(record.left)
    return found


def counted(number: int, noun: str) -> str:
    """Write *number* with its *noun*."""
    if number == 1:
        return f"1 {noun}"
    plural = noun[:-1] + "ies" if noun.endswith("copy") else f"{noun}s"
    return f"{number} {plural}"
