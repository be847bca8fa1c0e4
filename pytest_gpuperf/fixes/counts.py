"""What an edit does to the counts of a program: what falls, and what speaks against it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from ..devices.audit_record import StepAudit, StepMark
from ..model.ab import Sketch, TrainingRecord
from ..model.finding import Finding
from ..model.metrics import (
    D2H_BYTES,
    FEW_SCALARS,
    H2D_BYTES,
    MIB,
    PAGEABLE_COPIES,
    Metric,
)


class Ran(NamedTuple):
    """What came of one run of the program.

    ``outputs`` are streams and files, ``results`` what its loops left in variables, by name.
    """

    code: int
    outputs: Mapping[str, str]
    audit: StepAudit | None
    training: TrainingRecord
    peak_bytes: int = 0
    gpu_draws: int = 0
    results: Mapping[str, Sketch] = MappingProxyType({})
    notes: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


class Fall(NamedTuple):
    """What an edit lowers, from ``before`` to ``after``."""

    what: str
    before: float
    after: float


Read = Callable[[StepAudit], float]


class _Count(NamedTuple):
    """A sum, which may rise by ``slack`` a step or spared sync, or by that if it is none."""

    what: str
    read: Read
    slack: float = 0.0
    is_sum: bool = True


def _total(metric: Metric) -> Read:
    return lambda audit: audit.totals.counts[metric.name]


def _garbage(audit: StepAudit) -> float:
    return audit.garbage.nbytes if audit.garbage else 0


def _unchecked(audit: StepAudit) -> float:
    return sum(found.per_step for found in (*audit.not_checked, *audit.as_eager))


COUNTS: Final = (
    _Count("syncs", lambda audit: audit.totals.syncs),
    # A list that is read once, and not number by number, is a copy of few bytes.
    _Count("pageable copies", _total(PAGEABLE_COPIES), 0.5),
    _Count("bytes to the GPU", _total(H2D_BYTES)),
    _Count("bytes to the CPU", _total(D2H_BYTES), 16),
    _Count("bytes left", lambda audit: audit.growth.nbytes, FEW_SCALARS, is_sum=False),
    _Count("bytes of garbage", _garbage, FEW_SCALARS, is_sum=False),
    _Count("inconclusive syncs", lambda audit: audit.totals.inconclusive),
    _Count("unchecked operations", _unchecked),
)
"""What is compared; of what falls the first says most."""


def fallen(before: StepAudit, after: StepAudit) -> Iterator[Fall]:
    """Yield what is lower *after*, per step if there is more than one."""
    for what, read, slack, is_sum in COUNTS:
        old, new = read(before), read(after)
        steps = max(1, before.steps) if is_sum else 1
        if old - new > slack * steps:
            yield _fall(what, old, new, steps)


def _fall(what: str, old: float, new: float, steps: int) -> Fall:
    """Share sums out to *steps* where nothing is left over: set-up is in none."""
    if steps > 1 and not (old % steps or new % steps):
        return Fall(f"{what} per step", old / steps, new / steps)
    return Fall(f"{what} in {steps} steps" if steps > 1 else what, old, new)


Texts = Mapping[str, tuple[str, str]]
"""By file what is edited: its text before and after."""


class Where(NamedTuple):
    """A line of the text before; ``None`` for all lines that are edited."""

    file: str
    line: int | None

    def __str__(self) -> str:
        return Path(self.file).name + (f":{self.line}" if self.line else "")


def _unchanged(before: str, after: str) -> dict[int, int]:
    """Return the number before of each line that stays, by the one after."""
    old, new = before.splitlines(), after.splitlines()
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return {b.b + n: b.a + n for b in blocks for n in range(1, b.size + 1)}


class Waits:
    """What repeats of a run's syncs, by place."""

    def __init__(
        self, audit: StepAudit, place: Callable[..., Where], steps: int
    ) -> None:
        self._steps = steps
        self.by_place: dict[Where, list[Finding]] = defaultdict(list)
        for found in audit.findings:
            at = found.location
            if found.is_certain and at and repeats(found, steps):
                self.by_place[place(at.file, at.line)].append(found)

    def count(self, place: Where) -> int:
        """Return how often all steps wait there."""
        return sum(found.per_step for found in self.by_place.get(place, ()))

    def in_most_steps(self, place: Where) -> set[str | None]:
        """Return the operations that wait there in most steps."""
        found = self.by_place.get(place, ())
        return {f.op for f in found if self._steps <= 1 or 2 * f.in_steps > self._steps}


def repeats(found: Finding, steps: int) -> bool:
    """Whether it is not only once in *steps*; of a single one nobody knows."""
    return steps <= 1 or (not found.once and found.in_steps > 1)


class Counted:
    """The counts of a program ``before`` and ``after`` edits of *texts*."""

    def __init__(self, before: StepAudit, after: StepAudit, texts: Texts) -> None:
        self._before, self._after = before, after
        self._kept = {file: _unchanged(*both) for file, both in texts.items()}
        self._were = Waits(before, self._place, before.steps)
        # Without a step that is known it still has those from before.
        self._are = Waits(after, self._place_after, after.steps or before.steps)

    def _place(self, file: str, line: int) -> Where:
        kept = self._kept.get(file, {line: line}).values()
        return Where(file, line if line in kept else None)

    def _place_after(self, file: str, line: int) -> Where:
        return Where(file, self._kept.get(file, {line: line}).get(line))

    def fall(self, file: str, line: int) -> Fall:
        """Return what the edit for a finding in *line* lowers: its syncs, or a sum."""
        place = self._place(file, line)
        were, are = self._were.count(place), self._are.count(place)
        if were <= are:
            return next(fallen(self._before, self._after))
        return _fall("syncs", were, are, self._before.steps)

    def objections(self, lines: Sequence[tuple[str, int]]) -> Iterator[str]:
        """Yield what speaks against the edits for findings in *lines*."""
        old, new = self._before, self._after
        is_same = (old.steps, old.mark) == (new.steps, new.mark)
        # The turns of a loop are counted by what they do, of which an edit leaves less.
        is_loop = old.mark is StepMark.LOOP and new.mark in {StepMark.LOOP, None}
        if not is_same and not is_loop:
            yield f"the program makes {new.steps} steps, {old.steps} before"
        spared = max(old.steps, old.totals.syncs - new.totals.syncs)
        for what, read, slack, is_sum in COUNTS:
            were, are = read(old), read(new)
            if are - were > slack * (spared if is_sum else 1):
                yield f"{what} rise from {were:g} to {are:g}"
        if not any(fallen(old, new)):
            yield "nothing is counted less often"
        yield from self._waiting(lines)
        yield from self._new(lines)

    def _waiting(self, lines: Sequence[tuple[str, int]]) -> Iterator[str]:
        for file, line in lines:
            place = self._place(file, line)
            were, are = self._were.count(place), self._are.count(place)
            stays = self._were.in_most_steps(place) & self._are.in_most_steps(place)
            is_less = place.line is not None or 2 * are < were
            if were and (are >= were or (stays and not is_less)):
                yield f"{Path(file).name}:{line} still waits"

    def _new(self, lines: Sequence[tuple[str, int]]) -> Iterator[str]:
        """Yield what waits more often; what was read in each step may be in a few."""
        ended = {self._place(*line) for line in lines}
        spared = sum(self._were.count(p) - self._are.count(p) for p in ended)
        for place in self._are.by_place:
            moved = 0 if place.line or place in ended else max(0, spared // 2)
            is_more = self._are.count(place) > self._were.count(place) + moved
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
    if (rise := (after.peak_bytes - before.peak_bytes) / MIB) > 1:
        return f"the peak of memory rises by {rise:.0f} MiB"
    return next(Counted(before.audit, after.audit, texts).objections(lines), "")
