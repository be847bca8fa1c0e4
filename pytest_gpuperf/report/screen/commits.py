"""Two versions of a project, as one table: for a terminal, or for a pull request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from ...model.ab import (
    AbOutcome,
    AbResult,
    AbRun,
    Answer,
    Comparison,
    ExactChange,
    TrainingAnswer,
    Turn,
)
from ...model.metrics import PEAK_ALLOCATED, SPEEDUP, STEP_MS, counted
from ..headline import title
from ..numbers import format_apart, format_change, format_value, metric_named
from ..wrapping import align, wrapped
from .findings import blame_lines, finding_lines
from .summary import NO_VALUE, filled


COMMITS_HEADER: Final = (
    "verdict",
    "metric",
    "before",
    "after",
    "change",
    "95 %",
    "sees",
    "test",
)
COMMITS_LEFT_COLUMNS: Final = frozenset({0, 1})
MOST_FINDING_LINES: Final = 20

SUMMED_UP: Final = {
    AbOutcome.WORSE: "worse",
    AbOutcome.BROKEN: "broken after",
    AbOutcome.BETTER: "better",
    AbOutcome.SAME: "same",
    AbOutcome.INCONCLUSIVE: "inconclusive",
    AbOutcome.NOT_COMPARED: "not compared",
}
"""What the last line counts, in its order."""

TRAINING_WORDS: Final = {
    TrainingAnswer.DIFFERS: "training differs",
    TrainingAnswer.NOT_COMPARED: "training not compared",
    TrainingAnswer.NOTHING: "training not compared",
}


def comparison_lines(comparison: AbRun) -> tuple[str, ...]:
    """Return everything about *comparison* for a terminal, the sum in the last line."""
    return (
        *chain.from_iterable(map(wrapped, _heading(comparison))),
        *align(_table(comparison), left=COMMITS_LEFT_COLUMNS),
        *_explanations(comparison),
        *chain.from_iterable(
            wrapped(note, first="note: ") for note in comparison.notes
        ),
        *wrapped(_sum(comparison)),
    )


def markdown_lines(comparison: AbRun) -> tuple[str, ...]:
    """Return the same as Markdown, for a comment on a pull request."""
    details = [f"    {line}" for line in _explanations(comparison)]
    header, *rows = _table(comparison)
    numbers = ["---:"] * (len(header) - len(COMMITS_LEFT_COLUMNS) - 1)
    return (
        f"**{_sum(comparison)}**",
        *chain.from_iterable(("", text) for text in _heading(comparison)),
        "",
        _markdown_row(header),
        _markdown_row([":---", ":---", *numbers, ":---"]),
        *(_markdown_row(_escaped(row)) for row in rows),
        *(["", *details] if details else []),
        *(line for note in comparison.notes for line in ("", f"Note: {note}")),
    )


def _heading(comparison: AbRun) -> Iterator[str]:
    yield (
        f"before {comparison.before}, after {comparison.after}, on {comparison.device}"
    )
    yield from _training(comparison)
    yield f"engine: {comparison.engine}{_pairs(comparison.calls)}"


def _training(comparison: AbRun) -> Iterator[str]:
    """Say of how many tests the training is the same, and what of the others."""
    asked = [call for call in comparison.calls if call.training]
    if asked:
        same = comparison.trained(TrainingAnswer.SAME)
        texts = {call.training.text for call in same if call.training}
        agrees = f"; {texts.pop()}" if len(texts) == 1 else ""
        yield f"same training: {len(same)} of {len(asked)}{agrees}"
    for answer, said in TRAINING_WORDS.items():
        for call in comparison.trained(answer):
            yield f"{call.test}: {said}: {call.training.text if call.training else ''}"


def _pairs(calls: Sequence[Comparison]) -> str:
    counts = sorted({call.pairs for call in calls})
    if not counts:
        return ""
    several = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    return f"; {several} pair{'' if several == '1' else 's'} a test"


def _table(comparison: AbRun) -> list[tuple[str, ...]]:
    """Return the header and the rows, without a column that has no value."""
    cells = [COMMITS_HEADER, *_rows(comparison)]
    return filled(cells, always=len(COMMITS_LEFT_COLUMNS))


def _rows(comparison: AbRun) -> Iterator[tuple[str, ...]]:
    for call in _all_calls(comparison):
        if call.uncompared:
            yield (call.outcome.value, *[NO_VALUE] * 6, call.test)
        elif call.time is not None:
            yield _time_row(call.time, call.test)
        elif call.lost:
            yield ("inconclusive", STEP_MS.name, *[NO_VALUE] * 5, call.test)
        elif not call.exact:
            yield ("same", "exact", *[NO_VALUE] * 5, call.test)
        for change in call.exact:
            yield _exact_row(change, call.test)


def _all_calls(comparison: AbRun) -> list[Comparison]:
    """Return what was compared and what was not, what needs attention first."""
    order = list(AbOutcome)
    found = (*comparison.calls, *comparison.uncompared)
    return sorted(found, key=lambda call: order.index(call.outcome))


def _time_row(time: AbResult, test: str) -> tuple[str, ...]:
    before = after = change = interval = NO_VALUE
    if time.before_ms is not None and time.after_ms is not None:
        before, after = format_apart(STEP_MS, time.before_ms, time.after_ms)
    if time.ratio is not None:
        change = f"{_signed(time.ratio)} %"
    if time.low is not None and time.high is not None:
        interval = f"{_signed(time.low)} to {_signed(time.high)}"
    sees = NO_VALUE if time.smallest is None else f"{100 * time.smallest:.1f} %"
    verdict = time.answer.value
    return (verdict, STEP_MS.name, before, after, change, interval, sees, test)


def _signed(ratio: float) -> str:
    # Adding 0.0 turns the negative zero of a rounded tiny change into 0.0.
    return f"{round(100 * (ratio - 1), 1) + 0.0:+.1f}"  # no -0.0


def _exact_row(change: ExactChange, test: str) -> tuple[str, ...]:
    metric = metric_named(change.metric)
    own = [each - change.workspace_bytes for each in (change.before, change.after)]
    before, after = format_apart(metric, *own)
    moved = format_change(metric, *own)
    verdict = change.turn.value if change.gated else "changed"
    return (verdict, change.metric, before, after, moved, NO_VALUE, NO_VALUE, test)


def _explanations(comparison: AbRun) -> Iterator[str]:
    timed = any(call.time for call in comparison.calls)
    calls = _all_calls(comparison)
    kept = max((c.workspace_bytes for call in calls for c in call.exact), default=0)
    if kept:
        yield f"memory: without {format_value(PEAK_ALLOCATED, kept)} of cuBLAS"
    for call in calls:
        if call.uncompared:
            yield from _reason(call)
            continue
        if timed and call.no_time:
            yield from wrapped(f"{call.test}: no time to compare: {call.no_time}")
        for metric, why in call.unmeasured.items():
            if metric != SPEEDUP.name:
                yield from wrapped(f"{call.test}: {metric} not checked: {why}")
        yield from _explanation(call)


def _explanation(call: Comparison) -> Iterator[str]:
    """Why it is not simply the same, and which lines make it worse."""
    time = call.time
    if time is not None and time.answer is not Answer.SAME:
        yield from wrapped(f"{call.test}: {time.why}")
    for change in call.exact:
        if change.turn is Turn.VARIES:
            yield f"{call.test}: {change.metric} differs from run to run"
    lines = finding_lines(call.findings, {*call.worse_metrics}, MOST_FINDING_LINES)
    worse = [title(change.metric) for change in call.worse_counts]
    if worse and lines:
        yield from wrapped(f"{call.test}: more {', '.join(worse)}")
    yield from lines
    if call.operations:
        yield from wrapped(f"{call.test}: lines that run other operations than before")
        yield from blame_lines(call.operations)


def _reason(found: Comparison) -> Iterator[str]:
    first, *rest = found.uncompared.splitlines()
    yield from wrapped(f"{found.test}: {first}")
    yield from (f"    {line}" for line in rest)


def _sum(comparison: AbRun) -> str:
    found = (*comparison.calls, *comparison.uncompared)
    counts = Counter(call.outcome for call in found)
    differ = [call.test for call in comparison.trained(TrainingAnswer.DIFFERS)]
    which = counted(len(differ), "test" if "::" in "".join(differ) else "script")
    shown = [
        *([f"{which} train{'' if differ[1:] else 's'} differently"] if differ else ()),
        *(f"{counts[each]} {name}" for each, name in SUMMED_UP.items() if counts[each]),
    ]
    meant = "; intended? let exit status 2 pass" if differ else ""
    return f"gpuperf: {', '.join(shown)}{meant}"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(row: Sequence[str]) -> list[str]:
    *cells, test = row
    # GitHub splits cells before it looks for code, so a pipe counts within backticks,
    # too.
    return [*cells, "`" + test.replace("|", "\\|") + "`"]
