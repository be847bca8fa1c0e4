"""The table at the end of a run, its last line, and the table of a refresh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..model.memory_metric import PEAK_ALLOCATED
from ..model.metric import STEP_MS
from ..model.metric import SYNCS
from ..model.metric import Direction
from ..model.metric import Metric
from ..model.metric import limited_by
from ..model.verdict import Outcome
from ..model.verdict import TestVerdict
from ..model.verdict import Verdict
from .findings import maybe_remark
from .numbers import format_apart
from .numbers import format_change
from .numbers import format_value
from .numbers import metric_named
from .table import Row
from .table import align
from .wrapping import broken


INDENT: Final = "    "
HEADER: Final = ("step now", "baseline", "change", "syncs", "memory", "outcome", "test")
REFRESH_HEADER: Final = ("old", "new", "change", "drift", "metric", "test")
WORST_FIRST: Final = tuple(Outcome)
EXPLAINED: Final = frozenset(Outcome) - {
    Outcome.NO_BASELINE,
    Outcome.PASS,
    Outcome.NOT_JUDGED,
}


class Role(Enum):
    """What a line is for; the terminal chooses a colour by it."""

    PLAIN = "plain"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    HEADER = "header"


ROLES: Final = {
    Outcome.REGRESSED: Role.BAD,
    Outcome.OVER_BUDGET: Role.BAD,
    Outcome.INCONCLUSIVE: Role.WARN,
    Outcome.NO_BASELINE: Role.WARN,
    Outcome.IMPROVED: Role.GOOD,
    Outcome.PASS: Role.GOOD,
    Outcome.NOT_JUDGED: Role.PLAIN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the report, in ASCII but for names that the user chose."""

    text: str
    role: Role


def summary_lines(verdicts: Sequence[TestVerdict]) -> tuple[Line, ...]:
    """One row a test, worst first: its step time, syncs and memory, its whole name last.

    Below it, what else there is to say of a test that did not simply pass, and at the
    end what was not judged at all. Comparisons stand in a table of their own.
    """
    ordered = worst_first([verdict for verdict in verdicts if verdict.sides is None])
    if not ordered:
        return ()
    cells = [HEADER, *map(_cells, ordered)]
    header, *rows = align(cells, left=frozenset({5}))
    lines = [Line(text=header, role=Role.HEADER)]
    for verdict, row in zip(ordered, rows, strict=True):
        lines.append(Line(text=row, role=ROLES[verdict.outcome]))
        lines += [Line(text=text, role=Role.PLAIN) for text in remark(verdict)]
    lines += [Line(text=text, role=Role.PLAIN) for text in unjudged_lines(ordered)]
    return tuple(lines)


def worst_first(verdicts: Sequence[TestVerdict]) -> list[TestVerdict]:
    """Sort by outcome."""
    return sorted(verdicts, key=lambda verdict: WORST_FIRST.index(verdict.outcome))


def _cells(verdict: TestVerdict) -> tuple[str, ...]:
    baseline, now = _numbers(verdict, STEP_MS)
    outcome = verdict.outcome
    return (
        _cell(STEP_MS, now),
        _cell(STEP_MS, baseline),
        _change(STEP_MS, baseline, now),
        _cell(SYNCS, _numbers(verdict, SYNCS)[1]),
        _cell(PEAK_ALLOCATED, _peak_bytes(verdict)),
        outcome.value.upper() if outcome.fails else outcome.value,
        verdict.test,
    )


def _numbers(verdict: TestVerdict, metric: Metric) -> tuple[float | None, float | None]:
    """*metric*'s baseline and present value."""
    found = [v for v in verdict.verdicts if v.metric == metric.name]
    known = sorted(
        (v for v in found if v.now is not None), key=lambda v: v.baseline is None
    )
    return (known[0].baseline, known[0].now) if known else (None, None)


def _peak_bytes(verdict: TestVerdict) -> float | None:
    """Memory under the same budget, whichever way this device measures it."""
    peaks = (_numbers(verdict, m)[1] for m in limited_by(str(PEAK_ALLOCATED.budget)))
    return next((peak for peak in peaks if peak is not None), None)


def _cell(metric: Metric, value: float | None) -> str:
    return "-" if value is None else format_value(metric, value)


def _change(metric: Metric, old: float | None, new: float | None) -> str:
    return "-" if old is None or new is None else format_change(metric, old, new)


def remark(verdict: TestVerdict) -> tuple[str, ...]:
    """Give the reason of the worst outcome, and name the metrics without a gate.

    Behind them stands what else must be known to read the numbers.
    """
    explained = [
        f"{v.metric}: {v.because}"
        for v in verdict.verdicts
        if v.outcome is verdict.outcome and v.outcome in EXPLAINED
    ]
    ungated = _metrics(verdict, Outcome.NO_BASELINE)
    named = [f"not gated: {', '.join(ungated)}"] if ungated else []
    maybe = maybe_remark(verdict.findings)
    said = (*explained[:1], *named, *verdict.remarks, maybe)
    return broken("; ".join(filter(None, said)), first=INDENT, rest=INDENT)


def unjudged_lines(verdicts: Sequence[TestVerdict]) -> tuple[str, ...]:
    """Say once for all tests what was not judged, and why."""
    reasons = Counter(
        (_unjudged_name(v, test), v.because)
        for test in verdicts
        for v in test.verdicts
        if v.outcome is Outcome.NOT_JUDGED
    )
    alike: dict[tuple[str, int], list[str]] = {}
    for (name, because), tests in reasons.items():
        alike.setdefault((because, tests), []).append(name)
    return tuple(
        line
        for (because, tests), names in alike.items()
        for line in broken(
            f"not judged: {', '.join(names)} of {tests} "
            f"test{'s' if tests > 1 else ''}, {because}",
            rest=INDENT,
        )
    )


def _unjudged_name(unjudged: Verdict, test: TestVerdict) -> str:
    """Name the metric, or only its budget where a baseline was asked instead."""
    judged = {v.metric for v in test.verdicts if v.outcome is not Outcome.NOT_JUDGED}
    return unjudged.metric + (" budget" if unjudged.metric in judged else "")


def _metrics(verdict: TestVerdict, outcome: Outcome) -> list[str]:
    return [v.metric for v in verdict.verdicts if v.outcome is outcome]


def refresh_lines(rows: Sequence[Row]) -> tuple[Line, ...]:
    """Old and new values, a row each; nothing where there are no *rows*.

    How far the new ones drifted from their anchors stands beside them if any did.
    """
    if not rows:
        return ()
    cells = [REFRESH_HEADER, *map(_refresh_cells, rows)]
    left = 4
    if not any(row.has_drifted for row in rows):
        cells = [(*row[:3], *row[4:]) for row in cells]
        left = 3
    header, *texts = align(cells, left=frozenset({left}))
    return (
        Line(text=header, role=Role.HEADER),
        *(
            Line(text=text, role=_refresh_role(row))
            for row, text in zip(rows, texts, strict=True)
        ),
    )


def _refresh_cells(row: Row) -> tuple[str, ...]:
    metric = metric_named(row.metric)
    if row.old is None or row.new is None:
        old, new = _cell(metric, row.old), _cell(metric, row.new)
        change = "new" if row.old is None else "gone"
    else:
        old, new = format_apart(metric, row.old, row.new)
        change = format_change(metric, row.old, row.new)
    return old, new, change, _change(metric, row.anchor, row.new), row.metric, row.test


def _refresh_role(row: Row) -> Role:
    if row.old is None or row.new is None or row.old == row.new:
        return Role.PLAIN
    higher_is_better = metric_named(row.metric).direction is Direction.HIGHER
    better = (row.new > row.old) is higher_is_better
    return Role.GOOD if better else Role.WARN
