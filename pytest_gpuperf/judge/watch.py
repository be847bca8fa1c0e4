"""What ordinary tests do on the simulated GPU: merged, ranked, and judged by counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace
from pathlib import PurePath
from typing import Final

from ..errors import ErrorId
from ..errors import UsageError
from .wording import counted


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

    ``garbage`` was freed by Python's garbage collector alone, and kept by a cycle.
    ``gained`` says that it is skipped, or missing, without that GPU. ``differs`` says how
    it ended there, if that is not what is reported.
    """

    test: str
    lines: tuple[LineUse, ...] = ()
    left: tuple[LeftTensors, ...] = ()
    garbage: tuple[LeftTensors, ...] = ()
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
