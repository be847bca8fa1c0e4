"""A cause with its location."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import PurePath
from typing import Final

from .codec import ALWAYS, RARELY
from .metrics import OCCASIONAL, SYNCS


CALLED: Final = "call"
"""``op`` of a line that runs operations only in the code that it calls."""

A_MOVE: Final = "a module is moved to the GPU"
"""Why a line waits that moves a model: tests do so often, programs once."""


class FindingKind(Enum):
    """What was found."""

    SYNC = "sync"
    """The host waits for the device."""
    COPY = "copy"
    """The host waits inside a copy, which returns only when it is done."""
    INCONCLUSIVE = "inconclusive"
    """Only a GPU can show whether the host waits; never counted."""
    TRANSFER = "transfer"
    """Bytes go between host and device, whether or not anybody waits for them."""
    BREAK = "break"
    """torch.compile ends a graph here, or leaves the function to Python."""
    RECOMPILE = "recompile"
    """torch.compile compiles this function once more."""
    PEAK = "peak"
    """Most device memory is allocated here; the reason says what for."""
    MEMORY = "memory"
    """Device memory taken here, or before the step, is in use at the peak."""
    LEFT = "left"
    """Memory taken here is still in use when later steps are over."""
    GARBAGE = "garbage"
    """Memory taken here is freed by Python's garbage collector alone."""
    WORK = "work"
    """Operations run here."""
    TIME = "time"
    """Much of the step's time is spent on this line."""
    IDLE = "idle"
    """The GPU has nothing to do while the host is here, in much of the step's time."""
    COLLECTIVE = "collective"
    """Ranks join, share out or send tensors."""

    # Its own would run in Python, for each event on the device.
    __hash__ = object.__hash__


class Phase(Enum):
    """Part of a training step in which something happened."""

    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A line of source. ``exact`` is false if only the function is known."""

    file: str
    line: int
    function: str
    exact: bool = True

    def __str__(self) -> str:
        # A stored line has no number, which would change with each line above it.
        number = f":{self.line}" if self.line else ""
        where = f"{self.file}{number} in {self.function}"
        return where if self.exact else f"{where} (line unknown, this is the def)"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCourse:
    """Memory over one step by purpose, at moments in which it was taken or released.

    ``kib`` has a row for each of ``purposes``: its size at each moment, or one number if
    it never changes. ``phases`` has the parts of the step, each with the number of the
    moment at which it begins; ``peak`` is that of the moment with most.
    """

    purposes: tuple[str, ...]
    kib: tuple[tuple[int, ...], ...]
    phases: tuple[tuple[str, int], ...] = ()
    peak: int = 0


CUBLAS_WORKSPACES: Final = "cuBLAS workspaces"
"""The purpose of memory that the library keeps for itself, whatever the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A cause seen ``per_step`` times a step, which blocked the host ``blocked_ms`` of it.

    ``metrics`` names the metrics it counts in. ``location`` is the innermost line of the
    project, ``innermost`` the innermost one outside of torch where that is another,
    ``forward`` the line of the forward to which a backward belongs. ``reason`` says why
    the host waits or would, ``allowed`` why its author lets it: then it counts in
    nothing. ``moved_bytes`` is what its copies carry in a step, ``held_bytes`` the device
    memory it keeps at the peak, or for good, in ``per_step`` blocks. A peak says what for
    in ``held_for``: bytes by purpose, and how it came to it in ``course``. ``percent`` is
    the share of a step's time that is spent on its line, or idle at it. ``source`` is the
    text of its line, ``stored`` how often a step did it there when the baseline was
    recorded, if that is known, and ``changed_since`` the commit of that code, if git says
    that the line is another one since. If not every step that was looked at has it,
    ``in_steps`` of ``of_steps`` have, in equal distances if ``every`` is not 0.
    ``waits_after`` has, of the first waits of a step, how many of its ``operations`` had
    been enqueued before; ``is_idle`` if the GPU had nothing to do at any of them, as
    another line had waited just before. What is the same in other steps may be at another
    place in them.

    Of a program with its own loop ``per_step`` counts all steps, of which ``in_steps``
    have it; ``once``, it was before the first one was over and never again, or only
    ``after_last``. ``torch`` is the line of torch's own code that waits. ``context`` has
    what surrounds ``source``.
    """

    kind: FindingKind
    op: str | None
    api: str | None = field(default=None, metadata=ALWAYS)
    per_step: int = field(default=0, metadata=ALWAYS)
    blocked_ms: float = field(default=0.0, metadata=ALWAYS)
    location: Location | None = None
    metrics: tuple[str, ...] = (SYNCS.name,)
    reason: str = ""
    phase: Phase | None = None
    innermost: Location | None = None
    forward: Location | None = None
    allowed: str | None = None
    moved_bytes: int = 0
    held_bytes: int = 0
    held_for: tuple[tuple[str, int], ...] = ()
    course: MemoryCourse | None = None
    percent: float = 0.0
    source: str = ""
    stored: int | None = None
    changed_since: str = ""
    in_steps: int = 0
    of_steps: int = 0
    every: int = 0
    once: bool = field(default=False, metadata=RARELY)
    after_last: bool = field(default=False, metadata=RARELY)
    torch: Location | None = field(default=None, metadata=RARELY)
    context: str = field(default="", metadata=RARELY)
    waits_after: tuple[int, ...] = field(default=(), metadata=RARELY, compare=False)
    operations: int = field(default=0, metadata=RARELY, compare=False)
    is_idle: bool = field(default=False, metadata=RARELY, compare=False)

    @property
    def is_certain(self) -> bool:
        """Whether the host waits, of what says that it does or may."""
        return self.kind is not FindingKind.INCONCLUSIVE

    @property
    def workspace_bytes(self) -> int:
        """What cuBLAS keeps of a peak's bytes."""
        return dict(self.held_for).get(CUBLAS_WORKSPACES, 0)

    @property
    def inner(self) -> Location | None:
        """The innermost line outside of torch, whether or not it is the project's."""
        return self.innermost or self.location

    @property
    def how_often(self) -> str:
        """How often steps do it: ``2 per step``, ``1 every 50 steps``."""
        if self.every:
            return f"{self.per_step} every {self.every} steps"
        if self.of_steps:
            some = f"{self.in_steps} of " * (self.in_steps < self.of_steps)
            return f"{self.per_step} in {some}{self.of_steps} steps"
        return f"{self.per_step} per step"

    def allowing(self, reason: str | None) -> Finding:
        """Return that it counts in nothing, if there is a *reason*."""
        return self if reason is None else replace(self, metrics=(), allowed=reason)

    @property
    def is_new(self) -> bool:
        """Whether its line did nothing of the kind when the baseline was recorded."""
        return self.stored == 0

    @property
    def has_risen(self) -> bool:
        """Whether its line does more of it than when the baseline was recorded."""
        return self.stored is not None and 0 < self.stored < self.per_step


MOST_WAITS: Final = 16
"""Waits of one cause in a step of which the place is kept."""


# A line of source as the baseline stores it: its kind, and how often a step.

MOST_LINES_OF_FINDING: Final = 20
"""Lines kept of an entry: syncs and copies before lines that only run operations."""


STORED: Final = (
    FindingKind.SYNC,
    FindingKind.COPY,
    FindingKind.TRANSFER,
    FindingKind.BREAK,
    FindingKind.RECOMPILE,
    FindingKind.WORK,
)
"""Kinds of findings of which a baseline keeps the lines, the most important first."""


Key = tuple[str, str, str, str, tuple[str, ...]]
"""What a line is known by, wherever it moves to: all but its file and its number."""


@dataclass(frozen=True, slots=True)
class StoredLine:
    """What a line did ``per_step`` times a step.

    It is known by its ``text`` and its function, not by its number: code moves.
    ``metrics`` are those it counted in.
    """

    kind: str
    op: str
    file: str
    function: str
    text: str
    metrics: tuple[str, ...]
    per_step: int


def stored_lines(findings: Iterable[Finding]) -> tuple[StoredLine, ...]:
    """Return the lines of *findings* that a baseline keeps: in each kind what does most."""
    counts: Counter[tuple[str, Key]] = Counter()
    for finding in findings:
        if is_stored(finding):
            counts[file_of(finding), key_of(finding)] += finding.per_step
    lines = (
        StoredLine(kind, op, file, function, text, metrics, count)
        for (file, (kind, op, function, text, metrics)), count in counts.items()
    )
    return ranked(lines)[:MOST_LINES_OF_FINDING]


def ranked(lines: Iterable[StoredLine]) -> tuple[StoredLine, ...]:
    """Return *lines* with those of a more important kind first, then what does most."""
    kinds = [kind.value for kind in STORED]

    def rank(line: StoredLine) -> tuple[int, int, str, Key]:
        kind = kinds.index(line.kind)
        return kind, -line.per_step, line.file, key_of_line(line)

    return tuple(sorted(lines, key=rank))


_OCCASIONAL: Final = frozenset(metric.name for metric in OCCASIONAL.values())


def is_stored(finding: Finding) -> bool:
    """Whether a baseline keeps its line: what is allowed counts in nothing.

    What only some steps do may be seen in one run and not in another.
    """
    has_line = finding.location is not None and bool(finding.metrics)
    is_occasional = not _OCCASIONAL.isdisjoint(finding.metrics)
    return has_line and finding.kind in STORED and not is_occasional


def file_of(finding: Finding) -> str:
    """Return the file that *finding* names."""
    return finding.location.file if finding.location else ""


def key_of(finding: Finding) -> Key:
    """Return what the line of *finding* is known by."""
    at = finding.location
    function = at.function if at else ""
    return (
        finding.kind.value,
        finding.op or "",
        function,
        finding.source,
        finding.metrics,
    )


def key_of_line(line: StoredLine) -> Key:
    """Return what a stored *line* is known by."""
    return (line.kind, line.op, line.function, line.text, line.metrics)


# What the lines of a step run, by module, line and operation.


Tally = tuple[int, int]
"""How often something runs in a step, and the bytes of its results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineWork:
    """What a line runs in one step for one ``module``: ``ops`` by name.

    ``location`` is the innermost line of the user's own code, ``innermost`` the innermost
    one outside of torch where that is another, and ``source`` the text of the innermost.
    Operations of a backward belong to the line of their forward. What a line runs in the
    code that it calls is apart, with ``CALLED`` for module and operation.
    """

    module: str = ""
    location: Location | None = None
    innermost: Location | None = None
    source: str = ""
    ops: Mapping[str, Tally] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many operations it runs."""
        return sum(count for count, _ in self.ops.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChange:
    """What a line runs in another number than before: operations before and after.

    ``added_bytes`` are those of their results. It ``is_new`` if it ran nothing before.
    """

    module: str
    location: Location | None
    innermost: Location | None
    source: str
    is_new: bool
    ops: Mapping[str, tuple[int, int]]
    added_bytes: int

    @property
    def added(self) -> int:
        """How many operations it runs more than before."""
        return sum(after - before for before, after in self.ops.values())


# What an ordinary test did on the simulated GPU.


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedTest:
    """What a test did on the simulated GPU: certain syncs and copies, line by line.

    Files are named from the rootdir or from site-packages on. Memory that is ``left``
    outlived the test, ``garbage`` was freed by Python's garbage collector alone: their
    reasons say what kept it. cuBLAS kept ``workspace_bytes`` of the peak. ``unchecked`` says why it could not be checked there.
    """

    test: str = ""
    lines: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    garbage: tuple[Finding, ...] = ()
    peak_bytes: int = 0
    workspace_bytes: int = 0
    used: bool = False
    unchecked_ops: int = 0
    unchecked: str = ""

    @property
    def syncs(self) -> int:
        """Syncs on lines that are no test's."""
        return syncs_in(self.judged)

    @property
    def judged(self) -> tuple[Finding, ...]:
        """What lines outside of the tests did: a test must read what it asserts."""
        return tuple(done for done in self.lines if not is_test_code(file_of(done)))

    @property
    def left_tensors(self) -> int:
        """Tensors that it left to the next test."""
        return sum(left.per_step for left in self.left)


def syncs_in(lines: Iterable[Finding]) -> int:
    """Count the syncs in what *lines* did."""
    return sum(done.per_step for done in lines if done.kind is not FindingKind.TRANSFER)


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
