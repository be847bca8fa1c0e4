"""Why a test failed, on one screen, and which rule decided each metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ...judge.readings import signed
from ...model.baseline import Refresh
from ...model.finding import CALLED, Finding
from ...model.metrics import LAUNCHES, STEP_MS, MetricKind, counted
from ...model.verdict import DecidedBy, Evidence, Outcome, TestVerdict, Verdict
from ...visible import visible
from ..command import (
    ACCEPTABLE,
    DEFAULT_INVOCATION,
    Invocation,
    ab_command,
    accept_lines_command,
    again_command,
    refresh_command,
)
from ..headline import (
    merged_headlines,
    missed_headline,
    missed_sentences,
    no_baseline_headline,
    title,
)
from ..numbers import join_fitting, metric_named
from ..remedies import METRIC_REMEDIES
from ..wrapping import REASON_INDENT, labelled, text_width, uncut, wrapped
from .counts import COUNTED_WORDS
from .findings import (
    ARROW,
    SharedCauses,
    blame_lines,
    blame_texts,
    explained,
    failing_findings,
    finding_lines,
    gap_lines,
    loop_lines,
    peak_lines,
    place_of,
    short,
)
from .summary import Line, LineRole, as_lines


SCREEN_LINES: Final = 24
MOST_FAILING: Final = 6
"""Metrics that are reported in full; the others share one line."""
FAILED_BY_SETTING: Final = frozenset(
    {Outcome.INCONCLUSIVE, Outcome.NO_BASELINE, Outcome.IMPROVED}
)

LEAST_SHARED: Final = 2
"""Tests that fail for a cause, from which on it names them."""

BASELINE_NEEDED: Final = (
    "a missing baseline fails if CI is set, or by gpuperf_missing_baseline: "
    "store it outside of CI, and commit it"
)

MEASURING_NEEDED: Final = (
    "a test that nothing judged fails if CI is set, or by gpuperf_missing_baseline"
)


def failure_text(  # noqa: PLR0913  keywords, each said once a failure
    verdict: TestVerdict,
    *,
    nodeid: str,
    source: str | None = None,
    invocation: Invocation = DEFAULT_INVOCATION,
    strict: bool = False,
    baseline_needed: bool = False,
    shared: SharedCauses | None = None,
) -> str:
    """Say what failed, where, what to do about it, how sure it is, and what to type.

    A test without a failing metric was failed by a setting: then the metrics that could
    not be decided, or became better, are shown. ``source`` is the place of the test.
    ``invocation`` is how this run was started, for the command to accept. The run
    was ``strict`` if inconclusive metrics fail, and in one with a ``baseline_needed`` a
    missing one does. ``shared`` causes that another test shows are not explained again.
    """
    failing = _failing(verdict)
    missed = [v for v in failing if v.is_missed]
    failing = tuple(v for v in failing if not v.is_missed)
    if not {v.outcome for v in failing} - {Outcome.NO_BASELINE}:
        unchecked = (
            *_unchecked_heads(failing, missed, needed=baseline_needed),
            *_strict_lines(missed, strict=strict and not baseline_needed),
            *_longer_lines([] if failing else missed, nodeid, invocation),
            *_accept_lines(failing, nodeid, invocation),
        )
        return "\n".join(map(visible, unchecked))
    shared = shared or SharedCauses()
    shown = list(merged_headlines(failing))[:MOST_FAILING]
    heads = [text for _, text in shown]
    seen = _seen(verdict, failing, shared)
    if _is_explained(verdict, failing, seen):
        return "\n".join(map(visible, (*heads, *_same_lines(seen))))
    alike = shared.tests_of(failing_findings(verdict))
    tail = (
        *_fix_lines(verdict, failing),
        *_certainty_lines([v for v, _ in shown]),
        *_tests_lines(alike, nodeid),
        *_budget_lines(failing, source),
        *_strict_lines(failing, strict=strict),
        *_needed_lines(failing, needed=baseline_needed),
        *_again_lines(verdict, failing, nodeid, invocation),
        *_accept_all_lines(verdict, failing, alike, nodeid, invocation),
        *_number_lines(verdict, failing, shown),
        *_call_lines(verdict, nodeid),
    )
    # Causes get what is left: there may be any number of them, and the commands must
    # fit.
    room = SCREEN_LINES - len(heads) - len(tail)
    own = [finding for finding in verdict.findings if finding not in seen]
    metrics = {v.metric for v in failing}
    findings = (*_same_lines(seen), *finding_lines(own, metrics, room - len(seen)))
    return "\n".join(map(visible, (*heads, *findings, *tail)))


# A cause that several tests share is explained at the first, which names the others.


def _seen(
    verdict: TestVerdict, failing: Sequence[Verdict], shared: SharedCauses
) -> Mapping[Finding, str]:
    """Return the findings that another test has shown, each with the name of that test."""
    metrics = {v.metric for v in failing}
    counting = [f for f in verdict.findings if metrics & {*f.metrics}]
    shown = {finding: shared.shown_at(finding) for finding in counting}
    return {finding: test for finding, test in shown.items() if test}


def is_shown_elsewhere(verdict: TestVerdict, shared: SharedCauses) -> bool:
    """Whether what another test shows is all that fails this one."""
    failing = _failing(verdict)
    return _is_explained(verdict, failing, _seen(verdict, failing, shared))


def _is_explained(
    verdict: TestVerdict, failing: Sequence[Verdict], seen: Mapping[Finding, str]
) -> bool:
    metrics = {metric for finding in seen for metric in finding.metrics}
    rest = [finding for finding in failing_findings(verdict) if finding not in seen]
    return not rest and all(v.outcome.fails and v.metric in metrics for v in failing)


def _same_lines(seen: Mapping[Finding, str]) -> Iterator[str]:
    """Name the place of each cause that another test shows, and that test."""
    for finding, test in seen.items():
        # Of each test the same line is at another place of the step.
        said = explained(replace(finding, operations=0))
        text = f"{place_of(finding)}: {said}; see {test}"
        yield from wrapped(text, first=ARROW, rest=" " * REASON_INDENT)


def _tests_lines(tests: Sequence[str], nodeid: str) -> tuple[str, ...]:
    """Name the *tests* that fail for the same cause, those of the same file in short."""
    if len(tests) < LEAST_SHARED:
        return ()
    file = f"{nodeid.partition('::')[0]}::"
    names = [test.removeprefix(file) for test in tests]
    room = text_width() - REASON_INDENT - len("100 fail here: ")
    return labelled("tests", f"{len(tests)} fail here: {join_fitting(names, room)}")


def _accept_all_lines(
    verdict: TestVerdict,
    failing: Sequence[Verdict],
    alike: Sequence[str],
    nodeid: str,
    invocation: Invocation,
) -> Iterator[str]:
    """Name the command that accepts this test, or all that fail for the same line."""
    place = only_line(verdict)
    # The file is named from the root on, and the run left its numbers there.
    is_here = invocation.root == invocation.folder
    if len(alike) < LEAST_SHARED or not place or not is_here:
        yield from _accept_lines(failing, nodeid, invocation)
        return
    yield from uncut("accept", accept_lines_command([place]))


def only_line(verdict: TestVerdict) -> tuple[str, int] | None:
    """Return the file and line that alone make a test worse; ``None`` if there is more.

    A time has more causes than a line, and a limit is not accepted.
    """
    places = {
        (at.file, at.line) if at else None
        for at in (short(finding.location) for finding in failing_findings(verdict))
    }
    failing = [v for v in verdict.verdicts if v.outcome.fails or v.unchecked_budget]
    explained_by = {m for f in failing_findings(verdict) for m in f.metrics}
    is_all = all(
        v.outcome is Outcome.REGRESSED
        and v.metric in explained_by
        and metric_named(v.metric).kind is not MetricKind.NOISY
        for v in failing
    )
    return places.pop() if is_all and len(places) == 1 else None


def _number_lines(
    verdict: TestVerdict,
    failing: Sequence[Verdict],
    shown: Sequence[tuple[Verdict, str]],
) -> Iterator[str]:
    """Name operations and software that changed, and what else there is to know."""
    yield from _operation_lines(verdict)
    yield from _changed_lines(verdict)
    yield from _inconclusive_lines([v for v in verdict.verdicts if v not in failing])
    for text in missed_sentences(verdict.verdicts):
        yield from labelled("also", text)
    yield from _left_lines(failing, shown)


def _operation_lines(verdict: TestVerdict) -> tuple[str, ...]:
    """Name one line that runs other operations: what it calls has a line of its own."""
    changes = sorted(verdict.operations, key=lambda change: CALLED in change.ops)
    return blame_lines(changes, most=1)


def _unchecked_heads(
    found: Sequence[Verdict], missed: Sequence[Verdict], *, needed: bool
) -> Iterator[str]:
    """Say what was compared with nothing, what was not measured, and why that fails."""
    if found:
        yield no_baseline_headline(found)
    if missed:
        yield missed_headline(missed)
    label = "why"
    for because in dict.fromkeys(v.because for v in missed):
        yield from labelled(label, because)
        label = ""
    if needed:
        needs = BASELINE_NEEDED if found else MEASURING_NEEDED
        yield from labelled("needs" if missed else "why", needs)


def _longer_lines(
    missed: Sequence[Verdict], nodeid: str, invocation: Invocation
) -> tuple[str, ...]:
    """Name the command that measures again, with more time if that was too short."""
    if not missed:
        return ()
    longer = any("--gpuperf-seconds" in v.because for v in missed)
    return uncut("again", again_command(invocation, nodeid, longer=longer))


def _needed_lines(failing: Sequence[Verdict], *, needed: bool) -> tuple[str, ...]:
    """Say that a baseline is missing, if nothing worse failed the test."""
    lacks = needed and any(v.outcome is Outcome.NO_BASELINE for v in failing)
    return labelled("needs", BASELINE_NEEDED if lacks else "")


def _failing(verdict: TestVerdict) -> tuple[Verdict, ...]:
    unchecked = tuple(v for v in verdict.verdicts if v.unchecked_budget)
    failing = tuple(v for v in verdict.verdicts if v.outcome.fails)
    return (*failing, *unchecked) or tuple(
        v for v in verdict.verdicts if v.outcome in FAILED_BY_SETTING
    )


def _certainty_lines(shown: Sequence[Verdict]) -> Iterator[str]:
    """Say how sure each of *shown* is; which ones are named if the reasons differ."""
    label = "sure" if any(v.outcome.fails for v in shown) else "why"
    names: dict[str, dict[str, None]] = {}
    for verdict in shown:
        names.setdefault(verdict.because, {})[title(verdict.metric)] = None
    for because, metrics in names.items():
        of_which = f"{', '.join(metrics)}: " if len(names) > 1 else ""
        if because:
            yield from labelled(label, f"{of_which}{because}")
            label = ""


def _inconclusive_lines(others: Sequence[Verdict]) -> Iterator[str]:
    """Name the inconclusive verdicts next to the failed ones, and why."""
    for verdict in others:
        if verdict.outcome is Outcome.INCONCLUSIVE and not verdict.is_missed:
            yield from labelled(
                "also", f"inconclusive: {title(verdict.metric)}: {verdict.because}"
            )


def _left_lines(
    failing: Sequence[Verdict], shown: Sequence[tuple[Verdict, str]]
) -> tuple[str, ...]:
    known = {v.metric for v, _ in shown}
    left = dict.fromkeys(title(v.metric) for v in failing if v.metric not in known)
    return labelled("also", join_fitting(list(left), text_width() - REASON_INDENT))


def _changed_lines(verdict: TestVerdict) -> tuple[str, ...]:
    """Name the software that has another version than for the baseline."""
    versions = [
        f"{name} {then or 'absent'} -> {now or 'absent'}"
        for name, (then, now) in sorted(verdict.changed.items())
    ]
    if not versions:
        return ()
    since = " since the baseline"
    room = 2 * (text_width() - REASON_INDENT) - len(since)
    return labelled("env", f"{join_fitting(versions, room)}{since}")


def _fix_lines(verdict: TestVerdict, failing: Sequence[Verdict]) -> Iterator[str]:
    """Say what ends the failure of a metric, whatever its line."""
    failed = {v.metric for v in failing}
    if LAUNCHES.name in failed:
        yield from loop_lines(verdict.operations)
    for name, remedy in METRIC_REMEDIES.items():
        yield from labelled("fix", remedy if name in failed else "")


def _call_lines(verdict: TestVerdict, nodeid: str) -> tuple[str, ...]:
    return () if verdict.test == nodeid else uncut("call", verdict.test)


def _again_lines(
    verdict: TestVerdict,
    failing: Sequence[Verdict],
    nodeid: str,
    invocation: Invocation,
) -> tuple[str, ...]:
    """Name the command that compares with the baseline's code, if the time failed."""
    if not verdict.recorded or STEP_MS.name not in {v.metric for v in failing}:
        return ()
    return uncut("again", ab_command(verdict.recorded, invocation, [nodeid]))


def _budget_lines(failing: Sequence[Verdict], source: str | None) -> Iterator[str]:
    """Say what to do about a budget that was missed, or that nothing was measured for."""
    if any(v.outcome is Outcome.OVER_BUDGET for v in failing):
        place = f" ({source})" if source else ""
        yield from labelled(
            "limit",
            f"is set in the test's budget{place}: change it there, a new baseline does not",
        )
    if any(v.unchecked_budget for v in failing):
        yield from labelled(
            "limit",
            "a limit that was not checked fails if CI is set: let it be measured, or "
            "lift it with None",
        )


def _accept_lines(
    failing: Sequence[Verdict], nodeid: str, invocation: Invocation
) -> Iterator[str]:
    """Name the command that ends the failure, if storing the numbers can."""
    outcomes = {v.outcome for v in failing if not v.unchecked_budget} & ACCEPTABLE
    if not outcomes:
        return
    kind = Refresh.MISSING if outcomes == {Outcome.NO_BASELINE} else Refresh.ALL
    # What regressed is often too far from its last accepted value as well, and a refresh would
    # refuse it.
    regressed = Outcome.REGRESSED in outcomes
    command = refresh_command(kind, invocation, [nodeid], accept_drift=regressed)
    yield from uncut("store" if kind is Refresh.MISSING else "accept", command)


def _strict_lines(failing: Sequence[Verdict], *, strict: bool) -> tuple[str, ...]:
    outcomes = {v.outcome for v in failing}
    decides = strict and not any(outcome.fails for outcome in outcomes)
    why = "fails because --gpuperf-strict is on and the result is inconclusive"
    inconclusive = decides and Outcome.INCONCLUSIVE in outcomes
    return labelled("strict", why if inconclusive else "")


# The rule that decided each metric, in words and with its numbers.


EXPLANATION_INDENT: Final = "    "

LEAST_SHOWN: Final = 0.0005
"""A ratio below it would be written as 0.0 %."""

RULE_WORDS: Final = {
    DecidedBy.UPPER_BOUND: "the upper 95 % bound of the slowdown is below detect",
    DecidedBy.T_AND_RANK: "the t test and the rank test both prove more than the tolerance",
    DecidedBy.FAR: "each run is at least four times as slow as the slowest stored one",
    DecidedBy.BOUND: "more than a disturbed machine can have added, and more than the tolerance",
    DecidedBy.BUDGET: "the mean of the runs was compared with the limit",
    DecidedBy.MORE_RUNS: "more runs could have decided, but there was no time for them",
    DecidedBy.TOO_FEW_STORED: "the baseline has too few runs to fail a test",
    DecidedBy.SESSIONS: "proven, unless the machine shifted since the baseline",
    DecidedBy.DIRTY: "too few runs were undisturbed",
    DecidedBy.SUITE_SHIFT: "not proven once the change that all tests of this run share is removed",
    DecidedBy.ENVIRONMENT: "not proven once the machine's own change is removed",
    DecidedBy.NOISE: "no change is proven, and a slowdown of detect is not ruled out",
    DecidedBy.HOLM: "proven for one test alone, not among all tests of this run",
}
"""What each rule found."""


def explanation_lines(verdicts: Sequence[TestVerdict]) -> tuple[Line, ...]:
    """Say of each test, under its name, what decided each of its metrics."""
    return tuple(
        line
        for test in verdicts
        for line in (
            Line(text=test.test, role=LineRole.HEADER),
            *as_lines(_explained(test)),
        )
    )


def _explained(test: TestVerdict) -> Iterator[str]:
    for verdict in test.verdicts:
        if verdict.outcome is not Outcome.NO_BASELINE:
            yield from _indented(_sentence(verdict))
    for text in (*peak_lines(test.findings), *gap_lines(test.findings)):
        yield f"  {text}"
    for text in blame_texts(test.operations):
        yield from _indented(f"operations: {text}")
    if test.sides is not None and test.sides.time is not None:
        # Which rule ended a comparison, with its numbers.
        yield from _indented(f"compared: {test.sides.time.why}")
    new = [v.metric for v in test.verdicts if v.outcome is Outcome.NO_BASELINE]
    if new:
        yield from _indented(f"no baseline: {', '.join(new)}")


def _indented(sentence: str) -> tuple[str, ...]:
    return wrapped(sentence, first=EXPLANATION_INDENT, rest=2 * EXPLANATION_INDENT)


def _sentence(verdict: Verdict) -> str:
    head = f"{verdict.metric} {COUNTED_WORDS[verdict.outcome]}: "
    if verdict.evidence is None:
        return head + (verdict.because or "nothing to judge it by")
    # The judge's own sentence repeats the numbers, but for what it could not decide.
    doubt = verdict.outcome is Outcome.INCONCLUSIVE
    because = f"; {verdict.because}" if doubt else ""
    return f"{head}{decided_by(verdict)}{because}"


def decided_by(verdict: Verdict) -> str:
    """Say which rule decided, with its numbers; nothing if there is no evidence."""
    if verdict.evidence is None:
        return ""
    numbers = ", ".join(_numbers(verdict, verdict.evidence))
    return f"{RULE_WORDS[verdict.evidence.rule]}; {numbers}"


def _numbers(verdict: Verdict, evidence: Evidence) -> Iterator[str]:
    low, high = signed(evidence.low), signed(evidence.high)
    yield f"{signed(evidence.estimate)} (95 %: {low} to {high})"
    if verdict.baseline is not None:
        yield f"tolerance {_plain(evidence.tolerance)}"
        yield f"detect {_plain(evidence.detect)}"
    yield f"{counted(evidence.runs, 'fresh run')}, {evidence.stored_runs} stored"
    if evidence.p_regressed is not None:
        what = "an excess" if verdict.baseline is None else "a slowdown"
        yield f"p = {evidence.p_regressed:.1g} of {what} by chance"
    if evidence.p_improved is not None:
        yield f"p = {evidence.p_improved:.1g} of a speed-up by chance"
    if abs(evidence.discount) >= LEAST_SHOWN:
        pace = "slower" if evidence.discount > 0 else "faster"
        yield f"the machine looks {_plain(abs(evidence.discount))} {pace}"
    yield f"smallest detectable change {_plain(evidence.smallest_detectable)}"


def _plain(ratio: float) -> str:
    return f"{100 * ratio:.1f} %"
