"""Why a test failed, on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from ..model.diagnosis import Bottleneck
from ..model.gpu_metric import BUSY
from ..model.loader_metric import LOADER_WAIT
from ..model.metric import STEP_MS
from ..model.metric import Direction
from ..model.refresh import Refresh
from ..model.verdict import Outcome
from ..model.verdict import TestVerdict
from ..model.verdict import Verdict
from .command import ab_command
from .command import refresh_command
from .diagnosis import TO_DO
from .diagnosis import in_a_line
from .findings import finding_lines
from .labels import INDENT
from .labels import headline
from .labels import labelled
from .labels import uncut
from .numbers import each
from .numbers import format_apart
from .numbers import format_change
from .numbers import format_value
from .numbers import join_fitting
from .numbers import metric_named
from .wrapping import WIDTH


WAITED_FOR: Final = frozenset({STEP_MS.name, BUSY.name, LOADER_WAIT.name})
"""What fails by waiting."""

SCREEN_LINES: Final = 24
MOST_FAILING: Final = 6
"""Metrics that are told whole; those beyond stand in the line of the others."""
FAILED_BY_SETTING: Final = frozenset(
    {Outcome.INCONCLUSIVE, Outcome.NO_BASELINE, Outcome.IMPROVED}
)

ACCEPTED_BY: Final = {
    frozenset({Outcome.NO_BASELINE}): Refresh.MISSING,
    frozenset({Outcome.IMPROVED}): Refresh.IMPROVED,
}
"""The smallest refresh that takes over what failed; all, for other outcomes."""


def failure_text(
    verdict: TestVerdict,
    *,
    nodeid: str,
    baseline_file: str,
    source: str | None = None,
    options: Sequence[str] = (),
) -> str:
    """Say what failed, by how much, why, where, and how to accept it.

    A test without a failing metric was failed by a setting: then what could not be
    decided, or became better, stands in its place. ``source`` is where the test stands. ``options`` are
    those of this run which the command to accept must repeat.
    """
    failing = _failing(verdict)
    shown = failing[:MOST_FAILING]
    head = (
        *chain.from_iterable(map(_verdict_lines, shown)),
        *_changed_lines(verdict),
        *_waiting_lines(verdict, failing),
    )
    tail = (
        *_file_lines("trace", verdict.trace, "ui.perfetto.dev"),
        *_file_lines("snapshot", verdict.snapshot, "pytorch.org/memory_viz"),
        *_also_lines([v for v in verdict.verdicts if v not in shown]),
        *_call_lines(verdict, nodeid),
        *_again_lines(failing, nodeid, options),
        *_budget_lines(failing, source),
        *_accept_lines(failing, nodeid, baseline_file, options),
    )
    room = SCREEN_LINES - len(head) - len(tail)
    findings = finding_lines(verdict.findings, {v.metric for v in failing}, room)
    return "\n".join((*head, *findings, *tail))


def _file_lines(label: str, file: str, viewer: str) -> tuple[str, ...]:
    if not file:
        return ()
    return (*uncut(label, file), *uncut("", f"for the viewer at {viewer}"))


def _failing(verdict: TestVerdict) -> tuple[Verdict, ...]:
    failing = tuple(v for v in verdict.verdicts if v.outcome.fails)
    return failing or tuple(
        v for v in verdict.verdicts if v.outcome in FAILED_BY_SETTING
    )


def _verdict_lines(verdict: Verdict) -> tuple[str, ...]:
    outcome = verdict.outcome.name.replace("_", " ")
    return (
        *headline(f"{outcome} {_numbers(verdict)}"),
        *labelled("why", verdict.because),
    )


def _numbers(verdict: Verdict) -> str:
    """Name the metric and its numbers: ``step_ms: 10.00 ms -> 12.03 ms (+20.3 %), ...``."""
    metric = metric_named(verdict.metric)
    before, now, limit = verdict.baseline, verdict.now, verdict.limit
    known = [value for value in (before, now, limit) if value is not None]
    text = dict(zip(known, format_apart(metric, *known), strict=True))
    if now is None:
        return verdict.metric
    per_step = each(metric)
    parts = [f"{verdict.metric}: "]
    over = verdict.outcome is Outcome.OVER_BUDGET
    if before is not None and not over:
        change = format_change(metric, before, now)
        parts.append(f"{text[before]} -> {text[now]}{per_step} ({change})")
    else:
        parts.append(f"{text[now]}{per_step}")
    if limit is not None:
        at_least = "at least " if metric.direction is Direction.HIGHER else ""
        parts.append(f", {'budget' if over else 'limit'} {at_least}{text[limit]}")
    return "".join(parts)


def _changed_lines(verdict: TestVerdict) -> tuple[str, ...]:
    if all(v.baseline is None for v in verdict.verdicts):
        return ()
    versions = [
        f"{name} {then or 'absent'} -> {now or 'absent'}"
        for name, (then, now) in sorted(verdict.changed.items())
    ]
    if not versions:
        return labelled("changed", "nothing recorded since the baseline")
    return labelled("changed", join_fitting(versions, 2 * (WIDTH - INDENT)))


def _waiting_lines(verdict: TestVerdict, failing: Sequence[Verdict]) -> tuple[str, ...]:
    """Say what a step waits for whose time failed, or whose GPU has too little to do."""
    failed = {v.metric for v in failing}
    lines: tuple[str, ...] = ()
    if verdict.diagnosis is not None and failed & WAITED_FOR:
        lines += labelled("waits", in_a_line(verdict.diagnosis))
    if LOADER_WAIT.name in failed:
        lines += labelled("try", TO_DO[Bottleneck.LOADER])
    return lines


def _also_lines(others: Sequence[Verdict]) -> tuple[str, ...]:
    """Tell the rest in one line: of each metric, what is worst."""
    order = list(Outcome)
    ranked = sorted(others, key=lambda v: (order.index(v.outcome), v.baseline is None))
    items = [
        _standing(next(v for v in ranked if v.metric == name))
        for name in dict.fromkeys(v.metric for v in others)
    ]
    return labelled("also", join_fitting(items, WIDTH - INDENT))


def _standing(verdict: Verdict) -> str:
    """Write ``syncs 0 (pass)``; what only a budget allows did not pass a baseline."""
    number = "" if verdict.now is None else f" {_number(verdict, verdict.now)}"
    kept = verdict.outcome is Outcome.PASS and verdict.baseline is None
    outcome = "within budget" if kept else verdict.outcome.value
    return f"{verdict.metric}{number} ({outcome})"


def _number(verdict: Verdict, value: float) -> str:
    return format_value(metric_named(verdict.metric), value)


def _call_lines(verdict: TestVerdict, nodeid: str) -> tuple[str, ...]:
    return () if verdict.test == nodeid else uncut("call", verdict.test)


def _again_lines(
    failing: Sequence[Verdict], nodeid: str, options: Sequence[str]
) -> tuple[str, ...]:
    """Name the command that compares with other code again, where that decided."""
    settled = [v.settlement for v in failing if v.settlement and v.settlement.time]
    if not settled:
        return ()
    return uncut("again", ab_command(settled[0].commit, options, nodeid))


def _budget_lines(failing: Sequence[Verdict], source: str | None) -> tuple[str, ...]:
    if all(v.outcome is not Outcome.OVER_BUDGET for v in failing):
        return ()
    place = f" ({source})" if source else ""
    return (
        *uncut("budget", f"stands in the test's mark or call{place}:"),
        *uncut("", "a refresh does not move it"),
    )


def _accept_lines(
    failing: Sequence[Verdict], nodeid: str, baseline_file: str, options: Sequence[str]
) -> tuple[str, ...]:
    """Name the command that ends the failure, unless a budget alone failed."""
    outcomes = {v.outcome for v in failing}
    if not outcomes - {Outcome.OVER_BUDGET}:
        return ()
    kind = ACCEPTED_BY.get(frozenset(outcomes), Refresh.ALL)
    regressed = Outcome.REGRESSED in outcomes
    command = refresh_command(kind, options, [nodeid], accept_drift=regressed)
    return (
        *_strict_lines(outcomes),
        *_better_lines(outcomes),
        *uncut("baseline", baseline_file),
        *uncut("record" if kind is Refresh.MISSING else "accept", command),
    )


def _strict_lines(outcomes: set[Outcome]) -> tuple[str, ...]:
    if Outcome.REGRESSED in outcomes or Outcome.INCONCLUSIVE not in outcomes:
        return ()
    return labelled(
        "strict", "what cannot be decided fails: run again, or accept the new numbers"
    )


def _better_lines(outcomes: set[Outcome]) -> tuple[str, ...]:
    if outcomes != {Outcome.IMPROVED}:
        return ()
    return labelled(
        "strict", "what became better fails: accept it, so that it cannot be lost again"
    )
