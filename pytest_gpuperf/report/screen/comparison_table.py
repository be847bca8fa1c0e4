"""The table of comparisons at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Final

from ...model.ab import Answer
from ...model.ab import Sides
from ...model.metrics import STEP_MS
from ...model.verdict import TestVerdict
from ..table import align
from ..wrapping import broken
from .comparison import arrow
from .comparison import both_sides
from .comparison import interval
from .comparison import speedup
from .comparison import why_untimed
from .summary import ROLES
from .summary import SUMMARY_INDENT
from .summary import Line
from .summary import LineRole
from .summary import remark
from .summary import unjudged_lines
from .summary import worst_first


STEPS_HEADER: Final = (
    "speedup",
    "95 % interval",
    "step",
    "memory",
    "syncs",
    "verdict",
    "test",
)

_UNKNOWN: Final = "-"


def compared_lines(verdicts: Sequence[TestVerdict]) -> tuple[Line, ...]:
    """One row a comparison with the numbers of both sides, worst first."""
    ordered = worst_first(
        [verdict for verdict in verdicts if verdict.sides is not None]
    )
    if not ordered:
        return ()
    cells = [STEPS_HEADER, *(_cells(verdict) for verdict in ordered)]
    header, *rows = align(cells, left=frozenset({5}))
    lines = [Line(text=header, role=LineRole.HEADER)]
    for verdict, row in zip(ordered, rows, strict=True):
        lines.append(Line(text=row, role=_role(verdict)))
        lines += [Line(text=text, role=LineRole.PLAIN) for text in _remarks(verdict)]
    lines += [Line(text=text, role=LineRole.PLAIN) for text in unjudged_lines(ordered)]
    return tuple(lines)


def _cells(verdict: TestVerdict) -> tuple[str, ...]:
    sides = verdict.sides or Sides()
    time = sides.time
    return (
        _UNKNOWN if time is None else speedup(time),
        _UNKNOWN if time is None else interval(time),
        _step(sides),
        _both(sides, "memory"),
        _both(sides, "syncs"),
        _verdict(verdict, sides),
        verdict.test,
    )


def _step(sides: Sides) -> str:
    time = sides.time
    if time is None or time.before_ms is None or time.after_ms is None:
        return _UNKNOWN
    return arrow(STEP_MS, time.before_ms, time.after_ms)


def _both(sides: Sides, name: str) -> str:
    both = both_sides(sides, name)
    return _UNKNOWN if both is None else arrow(*both)


def _verdict(verdict: TestVerdict, sides: Sides) -> str:
    if verdict.outcome.fails:
        return verdict.outcome.value.upper()
    return _UNKNOWN if sides.time is None else sides.time.answer.value


def _role(verdict: TestVerdict) -> LineRole:
    return ROLES[verdict.outcome] if verdict.verdicts else LineRole.PLAIN


def _remarks(verdict: TestVerdict) -> Iterator[str]:
    yield from remark(verdict)
    for text in _said(verdict.sides or Sides(), verdict):
        yield from broken(text, first=SUMMARY_INDENT, rest=SUMMARY_INDENT)


def _said(sides: Sides, verdict: TestVerdict) -> Iterator[str]:
    if sides.time is None and not verdict.verdicts:
        yield f"time was not measured: {why_untimed(sides)}"
    if sides.time is not None and sides.time.answer is Answer.INCONCLUSIVE:
        yield sides.time.why
    if sides.training:
        yield f"same training: {sides.training}"
