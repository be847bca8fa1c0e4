"""What an edit does to the counts of a program: what falls, and what speaks against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final, NamedTuple

from ..devices.audit_record import StepAudit, StepMark
from ..model.ab import TrainingRecord
from ..model.finding import Finding
from ..model.metrics import D2H_BYTES, FEW_SCALARS, H2D_BYTES, MIB, PAGEABLE_COPIES


class Ran(NamedTuple):
    """What came of one run of the program: ``outputs`` are streams and files, by name."""

    code: int
    outputs: Mapping[str, str]
    audit: StepAudit | None
    training: TrainingRecord
    peak_bytes: int = 0
    gpu_draws: int = 0
    notes: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


class Fall(NamedTuple):
    """What an edit lowers, from ``before`` to ``after``."""

    what: str
    before: float
    after: float


class _Count(NamedTuple):
    """A sum over all steps, which may rise by ``slack`` a step, or by that if it is none."""

    what: str
    read: Callable[[StepAudit], float]
    slack: float = 0.0
    is_sum: bool = True


COUNTS: Final = (
    _Count("syncs", lambda audit: audit.totals.syncs),
    # A list that is read once, and not number by number, is a copy of few bytes.
    _Count(
        "pageable copies", lambda audit: audit.totals.counts[PAGEABLE_COPIES.name], 0.5
    ),
    _Count("bytes to the GPU", lambda audit: audit.totals.counts[H2D_BYTES.name]),
    _Count("bytes to the CPU", lambda audit: audit.totals.counts[D2H_BYTES.name], 16),
    _Count("bytes left", lambda audit: audit.growth.nbytes, FEW_SCALARS, is_sum=False),
    _Count(
        "bytes of garbage",
        lambda audit: audit.garbage.nbytes if audit.garbage else 0,
        FEW_SCALARS,
        is_sum=False,
    ),
    _Count("inconclusive syncs", lambda audit: audit.totals.inconclusive),
    _Count(
        "unchecked operations",
        lambda audit: sum(f.per_step for f in (*audit.not_checked, *audit.as_eager)),
    ),
)
"""What is compared; of what falls the first says most."""


def fallen(before: StepAudit, after: StepAudit) -> Iterator[Fall]:
    """Yield what is lower *after*, per step if there is more than one."""
    steps = max(1, before.steps)
    each = " per step" if steps > 1 else ""
    for what, read, slack, is_sum in COUNTS:
        old, new = read(before), read(after)
        over = steps if is_sum else 1
        if old - new > slack * over:
            yield Fall(f"{what}{each}", old / over, new / over)


Texts = Mapping[str, tuple[str, str]]
"""By file what is edited: its text before and after."""


class Where(NamedTuple):
    """A line of the text before; ``None`` for all lines that are edited."""

    file: str
    line: int | None

    def __str__(self) -> str:
        return Path(self.file).name + (f":{self.line}" if self.line else "")


WhereOf = Callable[[str, int], Where]


def places(texts: Texts) -> tuple[WhereOf, WhereOf]:
    """Return what finds the place of a line of the texts before, and of those after."""
    both = {file: [*_unchanged(*pair)] for file, pair in texts.items()}
    lines = {file: {old: old for old, _ in pairs} for file, pairs in both.items()}
    moved = {file: {new: old for old, new in pairs} for file, pairs in both.items()}

    def before(file: str, line: int) -> Where:
        return Where(file, lines[file].get(line) if file in lines else line)

    def after(file: str, line: int) -> Where:
        return Where(file, moved[file].get(line) if file in moved else line)

    return before, after


def _unchanged(before: str, after: str) -> Iterator[tuple[int, int]]:
    """Yield the number of each line that stays, before and after."""
    old, new = before.splitlines(), after.splitlines()
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    for block in blocks:
        yield from ((block.a + n, block.b + n) for n in range(1, block.size + 1))


class Waits:
    """What repeats of a run's syncs, by place."""

    def __init__(self, audit: StepAudit, place_of: WhereOf, steps: int) -> None:
        self._steps = steps
        self._by_place: dict[Where, list[Finding]] = {}
        for found in audit.findings:
            if found.is_certain and found.location and repeats(found, self._steps):
                place = place_of(found.location.file, found.location.line)
                self._by_place.setdefault(place, []).append(found)

    def __iter__(self) -> Iterator[Where]:
        return iter(self._by_place)

    def count(self, place: Where) -> int:
        """Return how often all steps wait there."""
        return sum(found.per_step for found in self._by_place.get(place, ()))

    def in_most_steps(self, place: Where) -> set[str | None]:
        """Return the operations that wait there in most steps."""
        found = self._by_place.get(place, ())
        return {f.op for f in found if self._steps <= 1 or 2 * f.in_steps > self._steps}


def repeats(found: Finding, steps: int) -> bool:
    """Whether it is not only once in *steps*; of a single one nobody knows."""
    return steps <= 1 or (not found.once and found.in_steps > 1)


class Counted:
    """The counts of a program ``before`` and ``after`` edits of *texts*."""

    def __init__(self, before: StepAudit, after: StepAudit, texts: Texts) -> None:
        self._before, self._after = before, after
        self._place, place_after = places(texts)
        self._were = Waits(before, self._place, before.steps)
        # Without a step that is known it still has those from before.
        self._are = Waits(after, place_after, after.steps or before.steps)

    def fall(self, file: str, line: int) -> Fall:
        """Return what the edit for a finding in *line* lowers: its syncs, or a sum."""
        place = self._place(file, line)
        were, are = self._were.count(place), self._are.count(place)
        if were <= are:
            return next(fallen(self._before, self._after))
        steps = max(1, self._before.steps)
        each = " per step" if steps > 1 else ""
        return Fall(f"syncs{each}", were / steps, are / steps)

    def objections(self, lines: Sequence[tuple[str, int]]) -> Iterator[str]:
        """Yield what speaks against the edits for findings in *lines*."""
        old, new = self._before, self._after
        is_same = (old.steps, old.mark) == (new.steps, new.mark)
        # The turns of a loop are counted by what they do, of which an edit leaves less.
        is_loop = old.mark is StepMark.LOOP and new.mark in {StepMark.LOOP, None}
        if not is_same and not is_loop:
            yield f"the program makes {new.steps} steps, {old.steps} before"
        for what, read, slack, is_sum in COUNTS:
            were, are = read(old), read(new)
            if are - were > slack * (old.steps if is_sum else 1):
                yield f"{what} rise from {were:g} to {are:g}"
        if not any(fallen(old, new)):
            yield "nothing is counted less often"
        yield from self._waiting(lines)
        yield from self._new()

    def _waiting(self, lines: Sequence[tuple[str, int]]) -> Iterator[str]:
        for file, line in lines:
            place = self._place(file, line)
            were, are = self._were.count(place), self._are.count(place)
            stays = self._were.in_most_steps(place) & self._are.in_most_steps(place)
            if were and (are >= were or (stays and place.line is None)):
                yield f"{Path(file).name}:{line} still waits"

    def _new(self) -> Iterator[str]:
        """Yield what waits more often; what was read in each step may be in a few."""
        for place in self._are:
            is_more = self._are.count(place) > self._were.count(place)
            if is_more and self._are.in_most_steps(place):
                yield f"{place} waits where it did not"


def objection(
    before: Ran, after: Ran, texts: Texts, lines: Sequence[tuple[str, int]]
) -> str:
    """Say what speaks first against the edits for findings in *lines*, if anything does."""
    if after.code != before.code:
        return f"the program ends with exit status {after.code}, {before.code} before"
    if before.audit is None or after.audit is None:
        return "the program left no findings"
    rise = (after.peak_bytes - before.peak_bytes) / MIB
    if rise > 1:
        return f"the peak of memory rises by {rise:.0f} MiB"
    return next(Counted(before.audit, after.audit, texts).objections(lines), "")
