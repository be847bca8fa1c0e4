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
from ...model.metrics import SPEEDUP, STEP_MS, counted
from ..document import Block, Table, Text, Verbatim, markdown_table, terminal
from ..headline import title
from ..numbers import format_apart, format_change, metric_named, size_in_words
from .findings import blame_blocks, finding_blocks
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


def comparison_blocks(comparison: AbRun) -> tuple[Block, ...]:
    """Return everything about *comparison*, the sum in the last line."""
    return (
        *map(Text, _heading(comparison)),
        _table(comparison),
        *_explanations(comparison),
        *(Text(f"note: {note}") for note in comparison.notes),
        Text(_sum(comparison)),
    )


def markdown_lines(comparison: AbRun) -> tuple[str, ...]:
    """Return the same as Markdown, for a comment on a pull request."""
    details = [f"    {line}" for line in terminal(_explanations(comparison))]
    table = _table(comparison)
    named = table._replace(rows=[_with_code(row) for row in table.rows])
    return (
        f"**{_sum(comparison)}**",
        *chain.from_iterable(("", text) for text in _heading(comparison)),
        "",
        *markdown_table(named),
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


def _table(comparison: AbRun) -> Table:
    """Return a row for each number, without a column that has no value."""
    cells = [COMMITS_HEADER, *_rows(comparison)]
    header, *rows = filled(cells, always=len(COMMITS_LEFT_COLUMNS))
    return Table(header, rows, COMMITS_LEFT_COLUMNS)


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


def _explanations(comparison: AbRun) -> Iterator[Block]:
    timed = any(call.time for call in comparison.calls)
    calls = _all_calls(comparison)
    kept = max((c.workspace_bytes for call in calls for c in call.exact), default=0)
    if kept:
        yield Text(f"memory: without {size_in_words(kept)} of cuBLAS")
    for call in calls:
        if call.uncompared:
            yield from _reason(call)
            continue
        if timed and call.no_time:
            yield Text(f"{call.test}: no time to compare: {call.no_time}")
        for metric, why in call.unmeasured.items():
            if metric != SPEEDUP.name:
                yield Text(f"{call.test}: {metric} not checked: {why}")
        yield from _explanation(call)


def _explanation(call: Comparison) -> Iterator[Block]:
    """Why it is not simply the same, and which lines make it worse."""
    time = call.time
    if time is not None and time.answer is not Answer.SAME:
        yield Text(f"{call.test}: {time.why}")
    for change in call.exact:
        if change.turn is Turn.VARIES:
            yield Text(f"{call.test}: {change.metric} differs from run to run")
    causes = finding_blocks(call.findings, {*call.worse_metrics}, MOST_FINDING_LINES)
    worse = [title(change.metric) for change in call.worse_counts]
    if worse and causes:
        yield Text(f"{call.test}: more {', '.join(worse)}")
    yield from causes
    if call.operations:
        yield Text(f"{call.test}: lines that run other operations than before")
        yield from blame_blocks(call.operations)


def _reason(found: Comparison) -> Iterator[Block]:
    first, *rest = found.uncompared.splitlines()
    yield Text(f"{found.test}: {first}")
    if rest:
        yield Verbatim("\n".join(f"    {line}" for line in rest))


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


def _with_code(row: Sequence[str]) -> list[str]:
    *cells, test = row
    # GitHub splits cells before it looks for code, so a pipe counts within backticks,
    # too.
    return [*cells, "`" + test.replace("|", "\\|") + "`"]
