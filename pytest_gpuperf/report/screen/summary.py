"""The progress of a run, the table at its end, its last line, the table of a refresh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import chain
from typing import Final

from ...model.baseline import BaselineChange
from ...model.metrics import (
    GROWTH,
    LAUNCHES,
    PAGEABLE_COPIES,
    PEAK_ALLOCATED,
    STEP_MS,
    SYNCS,
    Direction,
    Metric,
    counted,
)
from ...model.verdict import Outcome, TestVerdict, Verdict
from ..document import align, text_width, wrapped
from ..headline import PEOPLE, title, what_happened
from ..numbers import (
    format_apart,
    format_change,
    format_value,
    metric_named,
    rates_in_words,
)
from .findings import inconclusive_remark


NO_VALUE: Final = "-"
SUMMARY_INDENT: Final = "    "
SUMMARY_HEADER: Final = (
    "step now",
    "baseline",
    "change",
    "syncs",
    "was",
    "memory",
    "was",
    "cuBLAS",
    *("copies", "was"),
    *("launches", "was"),
    *("growth", "was"),
    "outcome",
    "test",
)
IF_WORSE: Final = (PAGEABLE_COPIES, LAUNCHES, GROWTH)
"""What has a column only where it fails a test."""

REFRESH_HEADER: Final = ("old", "new", "change", "drift", "cuBLAS", "metric", "test")
NEW_HEADER: Final = ("time", "memory", "cuBLAS", "syncs", "new test")
NEW_COLUMNS: Final = (STEP_MS, PEAK_ALLOCATED, SYNCS)
WORST_FIRST_OUTCOMES: Final = tuple(Outcome)
EXPLAINED_OUTCOMES: Final = frozenset(Outcome) - {
    Outcome.NO_BASELINE,
    Outcome.PASS,
    Outcome.NOT_CHECKED,
}


class LineRole(Enum):
    """The role of a line; the terminal chooses a colour by it."""

    PLAIN = "plain"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    HEADER = "header"


ROLES: Final = {
    Outcome.REGRESSED: LineRole.BAD,
    Outcome.OVER_BUDGET: LineRole.BAD,
    Outcome.INCONCLUSIVE: LineRole.WARN,
    Outcome.NO_BASELINE: LineRole.WARN,
    Outcome.IMPROVED: LineRole.GOOD,
    Outcome.PASS: LineRole.GOOD,
    Outcome.NOT_CHECKED: LineRole.PLAIN,
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the report, in ASCII but for names that the user chose."""

    text: str
    role: LineRole = LineRole.PLAIN


def as_lines(texts: Iterable[str], role: LineRole = LineRole.PLAIN) -> tuple[Line, ...]:
    """Return *texts* as lines of one *role*."""
    return tuple(Line(text=text, role=role) for text in texts)


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    roles: Iterable[LineRole],
    left: int,
) -> tuple[Line, ...]:
    """Align *rows*, each with its role, below their *header*; no row, no table.

    Column *left* is flush left.
    """
    texts = align([header, *rows], left=frozenset({left})) if rows else ()
    return tuple(map(Line, texts, (LineRole.HEADER, *roles)))


def summary_lines(verdicts: Sequence[TestVerdict]) -> tuple[Line, ...]:
    """One row a test, worst first: its step time, syncs and memory, its whole name last.

    A column that no test has a value for is left out. Below it, what else there is to
    say of a test that did not simply pass, but for the failure above, and at the end
    what was not checked at all. Comparisons have a table of their own.
    """
    shown = [verdict for verdict in verdicts if verdict.sides is None]
    said = partial(remark, failures_above=True)
    return lines_of_tests(shown, SUMMARY_HEADER, summary_cells, said)


def lines_of_tests(
    verdicts: Sequence[TestVerdict],
    header: tuple[str, ...],
    cells_of: Callable[[TestVerdict], tuple[str, ...]],
    remarks_of: Callable[[TestVerdict], Iterable[str]],
) -> tuple[Line, ...]:
    """A row a test above what there is to say of it, and then what was not checked at all."""
    ordered = worst_first(verdicts)
    if not ordered:
        return ()
    cells = filled([header, *map(cells_of, ordered)])
    first, *rows = align(cells, left=frozenset({len(cells[0]) - 2}))
    lines = [Line(first, LineRole.HEADER)]
    for verdict, row in zip(ordered, rows, strict=True):
        role = ROLES[verdict.outcome] if verdict.verdicts else LineRole.PLAIN
        lines.append(Line(row, role))
        lines += as_lines(remarks_of(verdict))
    return (*lines, *as_lines(unchecked_lines(ordered)))


def worst_first(verdicts: Sequence[TestVerdict]) -> list[TestVerdict]:
    """Sort by outcome."""
    return sorted(
        verdicts, key=lambda verdict: WORST_FIRST_OUTCOMES.index(verdict.outcome)
    )


def filled(
    cells: Sequence[tuple[str, ...]], *, always: int = 0
) -> list[tuple[str, ...]]:
    """Return the header and the rows without columns that have no value, but the first."""
    columns = range(len(cells[0]))
    shown = [
        n for n in columns if n < always or any(row[n] != NO_VALUE for row in cells[1:])
    ]
    return [tuple(row[n] for n in shown) for row in cells]


def summary_cells(verdict: TestVerdict) -> tuple[str, ...]:
    """Return what the table has of a test, in the order of its header."""
    time, syncs, peak = map(verdict.measured, (STEP_MS, SYNCS, PEAK_ALLOCATED))
    now, baseline = (time.now, time.baseline) if time else (None, None)
    kept = peak.workspace_bytes if peak else 0
    return (
        _cell(STEP_MS, now),
        _cell(STEP_MS, baseline),
        _change(STEP_MS, baseline, now),
        *_now_and_before(SYNCS, syncs),
        *_now_and_before(PEAK_ALLOCATED, peak),
        _cell(PEAK_ALLOCATED, kept or None),
        *chain.from_iterable(_if_worse(metric, verdict) for metric in IF_WORSE),
        in_a_word(verdict),
        verdict.test,
    )


def _if_worse(metric: Metric, verdict: TestVerdict) -> tuple[str, ...]:
    fails = any(v.outcome.fails for v in verdict.verdicts if v.metric == metric.name)
    return _now_and_before(metric, verdict.measured(metric) if fails else None)


def _now_and_before(metric: Metric, verdict: Verdict | None) -> tuple[str, ...]:
    """Write a number, and what it was if it changed."""
    now, before = verdict.own_bytes if verdict else (None, None)
    if now is None or before is None or before == now:
        return _cell(metric, now), NO_VALUE
    texts = _cell(metric, now), _cell(metric, before)
    return texts if texts[0] != texts[1] else format_apart(metric, now, before)


def in_a_word(verdict: TestVerdict) -> str:
    """Name what failed, as the headline does, or the outcome."""
    outcome = verdict.outcome
    if not outcome.fails:
        return PEOPLE[outcome]
    return what_happened(next(v for v in verdict.verdicts if v.outcome is outcome))


def _cell(metric: Metric, value: float | None) -> str:
    return NO_VALUE if value is None else format_value(metric, value)


def _change(metric: Metric, old: float | None, new: float | None) -> str:
    return NO_VALUE if old is None or new is None else format_change(metric, old, new)


def remark(verdict: TestVerdict, *, failures_above: bool = False) -> tuple[str, ...]:
    """Give the reason of the worst outcome, and name the metrics without a gate.

    They are followed by what else must be known to read the numbers.
    """
    explained = [
        f"{title(v.metric)}: {v.because}"
        # A limit that somebody asked for comes before what a baseline would have said.
        for v in sorted(verdict.verdicts, key=lambda v: not v.unchecked_budget)
        if v.outcome is verdict.outcome and v.outcome in EXPLAINED_OUTCOMES
        if not (failures_above and v.outcome.fails)
    ]
    # Where nothing is stored the outcome says so already.
    ungated = [
        title(v.metric)
        for v in verdict.verdicts
        if v.outcome is Outcome.NO_BASELINE is not verdict.outcome
    ]
    named = [f"no baseline: {', '.join(ungated)}"] if ungated else []
    inconclusive = inconclusive_remark(verdict.findings)
    rates = rates_in_words(verdict.rates)
    said = (*explained[:1], *named, rates, *verdict.remarks, inconclusive)
    return wrapped(
        "; ".join(filter(None, said)), first=SUMMARY_INDENT, rest=SUMMARY_INDENT
    )


def unchecked_lines(verdicts: Sequence[TestVerdict]) -> tuple[str, ...]:
    """Say once for all tests what was not checked, and why."""
    reasons = Counter(
        (_unchecked_name(v, test), v.because)
        for test in verdicts
        for v in test.verdicts
        if v.outcome is Outcome.NOT_CHECKED
    )
    alike: dict[tuple[str, int], list[str]] = {}
    for (name, because), tests in reasons.items():
        alike.setdefault((because, tests), []).append(name)
    return tuple(
        line
        for (because, tests), names in alike.items()
        for line in wrapped(
            f"not checked: {', '.join(names)} of {tests} "
            f"test{'s' if tests > 1 else ''}, {because}",
            rest=SUMMARY_INDENT,
        )
    )


def _unchecked_name(unchecked: Verdict, test: TestVerdict) -> str:
    """Name the metric, or only its budget where a baseline was asked instead."""
    judged = {v.metric for v in test.verdicts if v.outcome is not Outcome.NOT_CHECKED}
    return unchecked.metric + (" budget" if unchecked.metric in judged else "")


def refresh_lines(rows: Sequence[BaselineChange]) -> tuple[Line, ...]:
    """A row for each value that changed, and one for each new test that has several."""
    new = _new_tests(rows)
    changed = [row for row in rows if row.test not in new]
    return (*_changed_lines(changed), *_new_lines(new))


def _new_tests(rows: Sequence[BaselineChange]) -> dict[str, list[BaselineChange]]:
    """Return the rows of each test that has several, all of them new."""
    by_test: dict[str, list[BaselineChange]] = {}
    for row in rows:
        by_test.setdefault(row.test, []).append(row)
    return {
        test: own
        for test, own in by_test.items()
        if len(own) > 1 and all(row.old is None for row in own)
    }


def _new_lines(new: Mapping[str, Sequence[BaselineChange]]) -> tuple[Line, ...]:
    cells = [NEW_HEADER, *(_new_cells(test, new[test]) for test in new)]
    header, *rows = filled(cells)
    return table(header, rows, [LineRole.PLAIN] * len(rows), left=len(header) - 1)


def _new_cells(test: str, rows: Sequence[BaselineChange]) -> tuple[str, ...]:
    """Format what a user asks for first."""
    by_metric = {row.metric: row for row in rows}
    found = [(metric, by_metric.get(metric.name)) for metric in NEW_COLUMNS]
    time, peak, syncs = (
        _cell(m, own_part(row.new, row) if row else None) for m, row in found
    )
    kept = max((row.workspace_bytes for row in rows), default=0)
    return time, peak, _cell(PEAK_ALLOCATED, kept or None), syncs, test


def own_part(value: float | None, row: BaselineChange) -> float | None:
    """Return *value* of *row* without what cuBLAS keeps of it."""
    return value if value is None else value - row.workspace_bytes


def _changed_lines(rows: Sequence[BaselineChange]) -> tuple[Line, ...]:
    """Old and new values; if any drifted from its anchor, a column says how far."""
    header, *shown = filled([REFRESH_HEADER, *map(refresh_cells, rows)], always=3)
    return table(header, shown, map(_refresh_role, rows), len(header) - 2)


def refresh_cells(row: BaselineChange) -> tuple[str, ...]:
    """Return what the table of a refresh has of a value, in the order of its header."""
    metric = metric_named(row.metric)
    was, now, anchor = (own_part(v, row) for v in (row.old, row.new, row.anchor))
    if was is None or now is None:
        old, new = _cell(metric, was), _cell(metric, now)
        change = "new" if was is None else "gone"
    else:
        old, new = format_apart(metric, was, now)
        change = format_change(metric, was, now)
    drift = _change(metric, anchor, now) if row.has_drifted else NO_VALUE
    kept = _cell(metric, row.workspace_bytes or None)
    return old, new, change, drift, kept, row.metric, row.test


def _refresh_role(row: BaselineChange) -> LineRole:
    if row.old is None or row.new is None or row.old == row.new:
        return LineRole.PLAIN
    higher_is_better = metric_named(row.metric).direction is Direction.HIGHER
    better = (row.new > row.old) is higher_is_better
    return LineRole.GOOD if better else LineRole.WARN


# The progress of a run in one line, and how to go on after an interrupted refresh.


# The progress of a run in one line of a terminal.


def progress_text(counts: str, part: str, test: str) -> str:
    """Write the *counts*, and the current *test* and its phase if there is room."""
    whole = ", ".join(filter(None, (counts, part)))
    return _with_name(whole if len(whole) < text_width() else counts, test)


def duration(seconds: float) -> str:
    """Write seconds as ``40 s`` or ``3 min 20 s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _with_name(start: str, test: str) -> str:
    """Add the node id, else the test's name, else nothing: no name is ever cut."""
    names = (test, test.rpartition("::")[2])
    lines = (f"{start}: {name}" for name in names)
    return next((line for line in lines if len(line) < text_width()), start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """Tests of a refresh that was interrupted, by what became of them.

    ``complete`` have all their runs, ``thin`` enough to be stored; ``lost`` have fewer
    than *enough* undisturbed ones. ``failure`` says why nothing could be written.
    """

    complete: Sequence[str]
    thin: Sequence[str]
    lost: Sequence[str]
    enough: int
    failure: str = ""


def interruption_lines(kept: Interrupted, file: str, command: str) -> Sequence[str]:
    """Name the runs stored in *file*, and the *command* that measures the rest."""
    if kept.failure:
        return wrapped(f"gpuperf: interrupted: {kept.failure}")
    stored, thin = len(kept.complete) + len(kept.thin), len(kept.thin)
    are = "1 test is" if stored == 1 else f"{stored} tests are"
    text = f"{are} stored in {file}" if stored else "nothing was stored"
    if thin:
        text += f", {thin} of them with {kept.enough} or more of their runs"
    if kept.lost:
        have = f"; {counted(len(kept.lost), 'test')} had fewer than {kept.enough}"
        text += f"{have} undisturbed runs"
    said = wrapped(f"gpuperf: interrupted: {text}")
    return [*said, *([f"  go on    {command}"] if kept.lost else [])]
