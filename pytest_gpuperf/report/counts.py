"""The line that counts every outcome, of one run or of several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Final

from ..model.environment import Hardware
from ..model.verdict import Outcome
from ..model.verdict import TestVerdict
from .numbers import join_fitting
from .terminal import ROLES
from .terminal import WORST_FIRST
from .terminal import Line
from .terminal import Role


MOST_NAMES: Final = 400
UNJUDGED: Final = {Outcome.NO_BASELINE: "not gated", Outcome.NOT_JUDGED: "not judged"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Calls by outcome and those only compared, metrics of judged calls by outcome.

    ``endings`` counts how the tests ended that gave nothing to judge.
    """

    calls: Counter[Outcome] = field(default_factory=Counter)
    compared: int = 0
    metrics: Counter[Outcome] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)

    @property
    def worst(self) -> Role:
        """The role of a line that says all this."""
        if self.endings["failed"]:
            return Role.BAD
        roles = [ROLES[outcome] for outcome in WORST_FIRST if self.calls[outcome]]
        roles += [Role.PLAIN] * self.compared
        return roles[0] if roles else Role.WARN


def counts_line(  # noqa: PLR0913  one line counts all there is to count
    verdicts: Sequence[TestVerdict],
    hardware: Hardware,
    unreported: Sequence[str] = (),
    unjudged: Sequence[str] = (),
    refused: int = 0,
    *,
    note: str = "",
) -> Line:
    """Count every outcome that occurred, and the tests which have none.

    *unjudged* says how tests ended that gave nothing to judge, *unreported* names
    those that pytest never reported, *refused* counts those that were not refreshed.
    The *note* is on the device.
    """
    counts = _counted(verdicts, unjudged)
    parts = (
        *counted(counts, f"{hardware.key}{f' ({note})' if note else ''}"),
        *([f"{refused} NOT REFRESHED"] if refused else []),
        *named(unreported, "WITHOUT A RESULT"),
    )
    role = Role.BAD if unreported or refused else counts.worst
    return Line(text=f"gpuperf: {'; '.join(parts)}", role=role)


def lost_line(lost: Sequence[str]) -> Line:
    """Name the tests of a run that ended before any was measured."""
    parts = ("nothing was measured", *named(lost, "WITHOUT A RESULT"))
    return Line(text=f"gpuperf: {'; '.join(parts)}", role=Role.BAD)


def _counted(verdicts: Sequence[TestVerdict], unjudged: Sequence[str]) -> Counts:
    calls = Counter(v.outcome for v in verdicts if v.verdicts or v.sides is None)
    judged = [v for v in verdicts if v.outcome is not Outcome.NOT_JUDGED]
    return Counts(
        calls=calls,
        compared=len(verdicts) - calls.total(),
        metrics=Counter(v.outcome for test in judged for v in test.verdicts),
        endings=Counter(unjudged),
    )


def counted(counts: Counts, where: str) -> Iterator[str]:
    """Yield what there is to say of one hardware, *where* in the first part."""
    shown = [f"{counts.compared} compared"] if counts.compared else []
    outcomes = ", ".join([*_outcomes(counts.calls), *shown])
    yield f"{outcomes or 'no verdict'} on {where}"
    yield from _without_verdict(counts.endings)
    yield from _ungated(counts.metrics)


def named(tests: Sequence[str], what: str) -> Iterator[str]:
    """Count *tests* to which that happened, and name as many as fit."""
    if tests:
        yield f"{len(tests)} {what}: {join_fitting(tests, MOST_NAMES)}"


def _outcomes(calls: Mapping[Outcome, int]) -> Iterator[str]:
    failed = {o: n for o, n in calls.items() if o.fails and n}
    if failed:
        kinds = ", ".join(f"{failed[o]} {o.value}" for o in WORST_FIRST if o in failed)
        yield f"{sum(failed.values())} failed ({kinds})"
    for outcome in WORST_FIRST:
        if calls.get(outcome) and not outcome.fails:
            yield f"{calls[outcome]} {outcome.value}"


def _without_verdict(endings: Mapping[str, int]) -> Iterator[str]:
    if endings:
        kinds = ", ".join(f"{count} {ending}" for ending, count in endings.items())
        yield f"without a verdict: {kinds}"


def _ungated(metrics: Mapping[Outcome, int]) -> Iterable[str]:
    """Count the metrics of judged tests that were not judged themselves."""
    counts = [
        f"{metrics[outcome]} metric{'s' if metrics[outcome] > 1 else ''} {what}"
        for outcome, what in UNJUDGED.items()
        if metrics.get(outcome)
    ]
    return [", ".join(counts)] if counts else []
