"""Why a test failed, on one screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Sequence
from itertools import chain
from typing import Final

from ...model.baseline import Refresh
from ...model.finding import Bottleneck
from ...model.metrics import BUSY
from ...model.metrics import KEPT_GRAPHS
from ...model.metrics import LOADER_WAIT
from ...model.metrics import STEP_MS
from ...model.metrics import Direction
from ...model.verdict import Outcome
from ...model.verdict import TestVerdict
from ...model.verdict import Verdict
from ...visible import visible
from ..command import ACCEPTABLE
from ..command import DEFAULT_INVOCATION
from ..command import Invocation
from ..command import ab_command
from ..command import refresh_command
from ..numbers import each
from ..numbers import excess_alike
from ..numbers import format_apart
from ..numbers import format_change
from ..numbers import format_value
from ..numbers import join_fitting
from ..numbers import metric_named
from ..wrapping import REASON_INDENT
from ..wrapping import TEXT_WIDTH
from ..wrapping import headline
from ..wrapping import labelled
from ..wrapping import uncut
from .bottleneck import TO_DO
from .bottleneck import in_a_line
from .findings import finding_lines


# The one line of a failure that pytest has room for behind the name of its test.

_HEADLINE: Final = re.compile(
    r"(?P<what>[A-Z][A-Z ]+ \w+): (?:(?P<before>.+?) -> )?(?P<now>.+?)"
    r"(?: \((?P<change>[^()]+)\)(?: since its anchor)?)?(?P<limit>, (?:limit|budget) .+)?"
)
"""The first line of ``failure_text`` and ``drift_text``."""


def fitting_headline(text: str, room: int) -> str:
    """Return as much of the headline *text* as fits whole into *room* characters.

    No number is cut and none loses its unit. Other texts are returned as they are.
    """
    found = _HEADLINE.fullmatch(text)
    if found is None:
        return text
    return next((short for short in _shorter(text, found) if len(short) <= room), text)


def _shorter(text: str, found: re.Match[str]) -> Iterator[str]:
    what, change = found["what"], found["change"]
    yield text
    # From the longest to the shortest: the first one that fits is taken.
    yield text.removesuffix(found["limit"] or "")
    if change:
        yield f"{what}: {found['now']} ({change})"
        yield f"{what}: {change}"
    yield f"{what}: {found['now']}"
    yield what
    yield what.rpartition(" ")[0]


WAITED_FOR: Final = frozenset({STEP_MS.name, BUSY.name, LOADER_WAIT.name})
"""Metrics that fail because the step waits."""

REMEDIES: Final = {
    LOADER_WAIT.name: TO_DO[Bottleneck.LOADER],
    KEPT_GRAPHS.name: "detach() what outlives the step, such as a loss that is kept: it "
    "keeps the graph of autograd behind it alive",
}
"""What ends the failure of a metric, whatever its line."""

SCREEN_LINES: Final = 24
MOST_FAILING: Final = 6
"""Metrics that are reported in full; the others share one line."""
FAILED_BY_SETTING: Final = frozenset(
    {Outcome.INCONCLUSIVE, Outcome.NO_BASELINE, Outcome.IMPROVED}
)

ACCEPTED_BY: Final = {
    frozenset({Outcome.NO_BASELINE}): Refresh.MISSING,
    frozenset({Outcome.IMPROVED}): Refresh.IMPROVED,
}
"""The smallest refresh that takes over what failed; all, for other outcomes."""


def failure_text(  # noqa: PLR0913  keywords, each said once a failure
    verdict: TestVerdict,
    *,
    nodeid: str,
    baseline_file: str,
    source: str | None = None,
    invocation: Invocation = DEFAULT_INVOCATION,
    strict: bool = False,
    baseline_needed: bool = False,
) -> str:
    """Say what failed, by how much, why, where, and how to accept it.

    A test without a failing metric was failed by a setting: then the metrics that could
    not be decided, or became better, are shown. ``source`` is the place of the test.
    ``invocation`` is how this run was started, for the command to accept. The run
    was ``strict`` if undecided metrics fail, and in one with a ``baseline_needed`` a
    missing one does.
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
        *_again_lines(failing, nodeid, invocation),
        *_budget_lines(failing, source),
        *_strict_lines(failing, strict=strict),
        *_missing_lines(failing, needed=baseline_needed),
        *_accept_lines(failing, nodeid, baseline_file, invocation),
    )
    # Causes get what is left: there may be any number of them, and the commands must
    # fit.
    room = SCREEN_LINES - len(head) - len(tail)
    findings = finding_lines(verdict.findings, {v.metric for v in failing}, room)
    return "\n".join(map(visible, (*head, *findings, *tail)))


def _file_lines(label: str, file: str, viewer: str) -> tuple[str, ...]:
    if not file:
        return ()
    return (*uncut(label, file), *uncut("", f"for the viewer at {viewer}"))


def _failing(verdict: TestVerdict) -> tuple[Verdict, ...]:
    unjudged = tuple(v for v in verdict.verdicts if v.unjudged_budget)
    failing = tuple(v for v in verdict.verdicts if v.outcome.fails)
    return (*failing, *unjudged) or tuple(
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
        parts.append(excess_alike(metric, now, limit) if over else "")
    return "".join(parts)


def _changed_lines(verdict: TestVerdict) -> tuple[str, ...]:
    if all(v.baseline is None for v in verdict.verdicts):
        return ()
    versions = [
        f"{name} {then or 'absent'} -> {now or 'absent'}"
        for name, (then, now) in sorted(verdict.changed.items())
    ]
    if not versions:
        return labelled("changed", "no version of software since the baseline")
    return labelled("changed", join_fitting(versions, 2 * (TEXT_WIDTH - REASON_INDENT)))


def _waiting_lines(verdict: TestVerdict, failing: Sequence[Verdict]) -> tuple[str, ...]:
    """Say what a step waits for if its time failed or its GPU has too little to do."""
    failed = {v.metric for v in failing}
    lines: tuple[str, ...] = ()
    if verdict.diagnosis is not None and failed & WAITED_FOR:
        lines += labelled("waits", in_a_line(verdict.diagnosis))
    for name, remedy in REMEDIES.items():
        lines += labelled("try", remedy if name in failed else "")
    return lines


def _also_lines(others: Sequence[Verdict]) -> tuple[str, ...]:
    """Report the rest in one line: the worst verdict of each metric."""
    order = list(Outcome)
    ranked = sorted(others, key=lambda v: (order.index(v.outcome), v.baseline is None))
    items = [
        _standing(next(v for v in ranked if v.metric == name))
        for name in dict.fromkeys(v.metric for v in others)
    ]
    return labelled("also", join_fitting(items, TEXT_WIDTH - REASON_INDENT))


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
    failing: Sequence[Verdict], nodeid: str, invocation: Invocation
) -> tuple[str, ...]:
    """Name the command that compares with other code again, if that decided."""
    settled = [v.settlement for v in failing if v.settlement and v.settlement.time]
    if not settled:
        return ()
    return uncut("again", ab_command(settled[0].commit, invocation, nodeid))


def _budget_lines(failing: Sequence[Verdict], source: str | None) -> tuple[str, ...]:
    lines = _unjudged_lines(failing)
    if all(v.outcome is not Outcome.OVER_BUDGET for v in failing):
        return lines
    place = f" ({source})" if source else ""
    return (
        *uncut("budget", f"is set in the test's mark or call{place}:"),
        *uncut("", "a refresh does not move it"),
        *lines,
    )


def _unjudged_lines(failing: Sequence[Verdict]) -> tuple[str, ...]:
    """Say what to do about a budget that nothing was measured for."""
    if not any(v.unjudged_budget for v in failing):
        return ()
    return labelled(
        "unjudged",
        "a budget that was not judged fails where CI is set: let it be measured, or "
        "lift it with None",
    )


def _accept_lines(
    failing: Sequence[Verdict],
    nodeid: str,
    baseline_file: str,
    invocation: Invocation,
) -> tuple[str, ...]:
    """Name the command that ends the failure, if storing the numbers can."""
    outcomes = {v.outcome for v in failing if not v.unjudged_budget} & ACCEPTABLE
    if not outcomes:
        return ()
    kind = ACCEPTED_BY.get(frozenset(outcomes), Refresh.ALL)
    # What regressed is often too far from its anchor as well, and a refresh would
    # refuse it.
    regressed = Outcome.REGRESSED in outcomes
    command = refresh_command(kind, invocation, [nodeid], accept_drift=regressed)
    return (
        *_better_lines(outcomes),
        *uncut("baseline", baseline_file),
        *uncut("record" if kind is Refresh.MISSING else "accept", command),
    )


def _strict_lines(failing: Sequence[Verdict], *, strict: bool) -> tuple[str, ...]:
    outcomes = {v.outcome for v in failing}
    if not strict or any(outcome.fails for outcome in outcomes):
        return ()
    undecided = Outcome.INCONCLUSIVE in outcomes
    return labelled("strict", "what cannot be decided fails" if undecided else "")


def _missing_lines(failing: Sequence[Verdict], *, needed: bool) -> tuple[str, ...]:
    """Say why a missing baseline fails here, and warns elsewhere."""
    if not needed or any(v.outcome is not Outcome.NO_BASELINE for v in failing):
        return ()
    return labelled(
        "missing",
        "a missing baseline fails where CI is set, or gpuperf_missing_baseline says so: "
        "record it outside of CI, and commit it",
    )


def _better_lines(outcomes: set[Outcome]) -> tuple[str, ...]:
    if outcomes != {Outcome.IMPROVED}:
        return ()
    return labelled(
        "strict", "what became better fails: accept it, so that it cannot be lost again"
    )
