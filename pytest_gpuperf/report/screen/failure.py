"""Why a test failed, on one screen, and which rule decided each metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ...judge.readings import signed
from ...model.baseline import Refresh
from ...model.finding import CALLED, Finding, FindingKind
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
    diff_command,
    refresh_command,
)
from ..document import (
    REASON_INDENT,
    Block,
    Field,
    Heading,
    Place,
    Text,
    terminal,
    text_width,
)
from ..headline import (
    merged_headlines,
    missed_headline,
    missed_sentences,
    no_baseline_headline,
    telling,
    title,
)
from ..numbers import join_fitting, metric_named
from ..remedies import METRIC_REMEDIES, has_rewrite
from .counts import COUNTED_WORDS
from .findings import (
    LINES_OF_PAGE,
    SharedCauses,
    blame_blocks,
    blame_texts,
    explained,
    failing_findings,
    finding_blocks,
    kinds_blocks,
    loop_fix,
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


class Room(NamedTuple):
    """How much a failure may take: lines in all, columns of a list, lines of operations."""

    lines: int
    columns: int
    operations: int


PAGE_ROOM: Final = Room(lines=60, columns=2000, operations=LINES_OF_PAGE)


def screen_room() -> Room:
    """Return the room of a screen as wide as the terminal."""
    columns = text_width() - REASON_INDENT
    return Room(lines=SCREEN_LINES, columns=columns, operations=1)


class Failure:
    """What failed, where, what to do about it, how sure it is, and what to type.

    A test without a failing metric was failed by a setting: then the metrics that could
    not be decided, or became better, are shown. ``invocation`` is how this run was
    started, for the command to accept. The run was ``strict`` if inconclusive metrics
    fail, and in one with a ``baseline_needed`` a missing one does. ``shared`` causes that
    another test shows are not explained again; those of this one are noted in them.
    ``accept`` is the command that stores the numbers of this run, if they are kept.
    """

    def __init__(  # noqa: PLR0913  keywords, each said once a failure
        self,
        verdict: TestVerdict,
        nodeid: str,
        invocation: Invocation = DEFAULT_INVOCATION,
        *,
        strict: bool = False,
        baseline_needed: bool = False,
        shared: SharedCauses | None = None,
        accept: str = "",
    ) -> None:
        self._verdict, self._nodeid, self._invocation = verdict, nodeid, invocation
        self._accept_command = accept
        self._strict, self._needed = strict, baseline_needed
        failing = [v for v in telling(verdict) if v.outcome.fails or v.unchecked_budget]
        by_setting = (v for v in verdict.verdicts if v.outcome in FAILED_BY_SETTING)
        failing = failing or [*by_setting]
        self._missed = [v for v in failing if v.is_missed]
        self._failing = [v for v in failing if not v.is_missed]
        self._metrics = {v.metric for v in self._failing}
        self._outcomes = {v.outcome for v in self._failing}
        self._shown = list(merged_headlines(self._failing))[:MOST_FAILING]
        self._shared = shared or SharedCauses()
        self._seen = _seen(verdict, failing, self._shared)
        self._alike = self._shared.tests_of(failing_findings(verdict))

    @property
    def text(self) -> str:
        """All of it as it is printed, on one screen."""
        return "\n".join(map(visible, terminal(self.blocks(screen_room()))))

    @property
    def is_shown_elsewhere(self) -> bool:
        """Whether what another test shows is all that fails this one."""
        metrics = {metric for finding in self._seen for metric in finding.metrics}
        rest = [f for f in failing_findings(self._verdict) if f not in self._seen]
        return not rest and all(
            v.outcome.fails and v.metric in metrics for v in self._failing
        )

    def blocks(self, room: Room) -> Iterator[Block]:
        """Say all of it, the causes in the rest of the *room*, one at least."""
        if not self._outcomes - {Outcome.NO_BASELINE}:
            yield from self._unchecked()
            return
        heads = [Heading(text) for _, text in self._shown]
        yield from heads
        yield from self._same()
        if self.is_shown_elsewhere:
            return
        # Causes get the rest: there may be any number of them, and the commands
        # must fit.
        rest = [*self._what_to_do(room), *self._commands(), *self._numbers(room)]
        left = room.lines - len(heads) - len(terminal(rest)) - len(self._seen)
        own = [f for f in self._verdict.findings if f not in self._seen]
        causes = finding_blocks(own, self._metrics, left)
        self._shared.show(self._nodeid, own, causes)
        yield from causes
        if len(heads) + len(terminal([*causes, *rest])) < ENOUGH_LINES:
            yield from self._trial()
        yield from rest

    def _trial(self) -> Iterator[Block]:
        """Name the command that tries the fixes of the causes."""
        if any(map(has_rewrite, failing_findings(self._verdict))):
            command = diff_command(self._invocation, self._nodeid)
            yield Field("try", command, is_copied=True)

    def _same(self) -> Iterator[Block]:
        """Name the place of each cause that another test shows, and that test."""
        for finding, test in self._seen.items():
            # Of each test the same line is at another place of the step.
            said = explained(replace(finding, operations=0))
            nowhere = replace(finding, source="")
            yield Place(place_of(finding), nowhere, f"{said}; see {test}")

    def _unchecked(self) -> Iterator[Block]:
        """Say what was compared with nothing, what was not measured, and why that fails."""
        found, missed = self._failing, self._missed
        if found:
            yield Heading(no_baseline_headline(found))
        if missed:
            yield Heading(missed_headline(missed))
        for n, because in enumerate(dict.fromkeys(v.because for v in missed)):
            yield Field("" if n else "why", because)
        if self._needed:
            needs = BASELINE_NEEDED if found else MEASURING_NEEDED
            yield Field("needs" if missed else "why", needs)
        else:
            yield from self._strictness(missed)
        if missed and not found:
            longer = any("--gpuperf-seconds" in v.because for v in missed)
            command = again_command(self._invocation, self._nodeid, longer=longer)
            yield Field("again", command, is_copied=True)
        yield from self._accept()

    def _what_to_do(self, room: Room) -> Iterator[Block]:
        """Say what ends it, whatever its line, how sure that is, and which tests fail so."""
        if LAUNCHES.name in self._metrics:
            yield Field("fix", loop_fix(self._verdict.operations))
        for name, remedy in METRIC_REMEDIES.items():
            yield Field("fix", remedy if name in self._metrics else "")
        yield from _certainty([v for v, _ in self._shown])
        if len(self._alike) >= LEAST_SHARED and not self._seen:
            yield Field("tests", _named_tests(self._alike, self._nodeid, room))

    def _commands(self) -> Iterator[Block]:
        """Say what to do about a limit or a setting, and what to type."""
        if Outcome.OVER_BUDGET in self._outcomes:
            yield Field("limit", CHANGE_THE_LIMIT)
        if any(v.unchecked_budget for v in self._failing):
            yield Field("limit", LIFT_THE_LIMIT)
        yield from self._strictness(self._failing)
        if self._needed and Outcome.NO_BASELINE in self._outcomes:
            yield Field("needs", BASELINE_NEEDED)
        commit = self._verdict.recorded
        if commit and STEP_MS.name in self._metrics:
            command = ab_command(commit, self._invocation, [self._nodeid])
            yield Field("again", command, is_copied=True)
        yield from self._accept()

    def _strictness(self, judged: Sequence[Verdict]) -> Iterator[Block]:
        outcomes = {v.outcome for v in judged}
        decides = self._strict and not any(outcome.fails for outcome in outcomes)
        if decides and Outcome.INCONCLUSIVE in outcomes:
            yield Field("strict", STRICT_FAILS)

    def _accept(self) -> Iterator[Block]:
        """Name the command that ends the failure, of all tests of one line if it is that."""
        place = only_line(self._verdict)
        # The file is named from the root on, and the run left its numbers there.
        is_here = self._invocation.root == self._invocation.folder
        if len(self._alike) >= LEAST_SHARED and place and is_here:
            yield Field("accept", accept_lines_command([place]), is_copied=True)
            return
        checked = [v for v in self._failing if not v.unchecked_budget]
        outcomes = {v.outcome for v in checked} & ACCEPTABLE
        if not outcomes:
            return
        kind = Refresh.MISSING if outcomes == {Outcome.NO_BASELINE} else Refresh.ALL
        # What regressed is often too far from its last accepted value as well, and a
        # refresh would refuse it.
        drifts = Outcome.REGRESSED in outcomes
        command = self._accept_command or refresh_command(
            kind, self._invocation, [self._nodeid], accept_drift=drifts
        )
        label = "store" if kind is Refresh.MISSING else "accept"
        yield Field(label, command, is_copied=True)

    def _numbers(self, room: Room) -> Iterator[Block]:
        """Name operations and software that changed, and what else there is to know."""
        verdict = self._verdict
        # What a line calls has a line of its own, so it comes last.
        changes = sorted(verdict.operations, key=lambda change: CALLED in change.ops)
        yield from blame_blocks(changes, room.operations)
        yield Field("env", changed_in_words(verdict, room))
        for other in verdict.verdicts:
            is_open = other.outcome is Outcome.INCONCLUSIVE and not other.is_missed
            if is_open and other not in self._failing:
                said = f"inconclusive: {title(other.metric)}: {other.because}"
                yield Field("also", said)
        for text in missed_sentences(verdict.verdicts):
            yield Field("also", text)
        known = {v.metric for v, _ in self._shown}
        left = (title(v.metric) for v in self._failing if v.metric not in known)
        yield Field("also", join_fitting([*dict.fromkeys(left)], room.columns))
        if verdict.test != self._nodeid:
            yield Field("call", verdict.test, is_copied=True)


ENOUGH_LINES: Final = 12
"""A failure of so many lines names no command that tries its fixes."""

CHANGE_THE_LIMIT: Final = (
    "is set in the test's budget: change it there, a new baseline does not"
)
LIFT_THE_LIMIT: Final = (
    "a limit that was not checked fails if CI is set: let it be measured, or "
    "lift it with None"
)
STRICT_FAILS: Final = (
    "fails because --gpuperf-strict is on and the result is inconclusive"
)


def _seen(
    verdict: TestVerdict, failing: Sequence[Verdict], shared: SharedCauses
) -> Mapping[Finding, str]:
    """Return the findings that another test has shown, each with the name of that test."""
    metrics = {v.metric for v in failing}
    counting = [f for f in verdict.findings if metrics & {*f.metrics}]
    shown = {finding: shared.shown_at(finding) for finding in counting}
    return {finding: test for finding, test in shown.items() if test}


def _named_tests(tests: Sequence[str], nodeid: str, room: Room) -> str:
    """Name the *tests* that fail for the same cause, those of the same file in short."""
    file = f"{nodeid.partition('::')[0]}::"
    names = [test.removeprefix(file) for test in tests]
    columns = room.columns - len("100 fail here: ")
    return f"{len(tests)} fail here: {join_fitting(names, columns)}"


def only_line(verdict: TestVerdict) -> tuple[str, int] | None:
    """Return the file and line that alone make a test worse; ``None`` if there is more.

    A time has more causes than a line, and a limit is not accepted.
    """
    places = {
        (at.file, at.line) if at else None
        for at in (short(finding.location) for finding in failing_findings(verdict))
    }
    failing = telling(verdict)
    explained_by = {m for f in failing_findings(verdict) for m in f.metrics}
    is_all = all(
        v.outcome is Outcome.REGRESSED
        and v.metric in explained_by
        and metric_named(v.metric).kind is not MetricKind.NOISY
        for v in failing
    )
    return places.pop() if is_all and len(places) == 1 else None


def _certainty(shown: Sequence[Verdict]) -> Iterator[Block]:
    """Say how sure each of *shown* is; which ones are named if the reasons differ."""
    label = "sure" if any(v.outcome.fails for v in shown) else "why"
    names: dict[str, dict[str, None]] = {}
    for verdict in shown:
        names.setdefault(verdict.because, {})[title(verdict.metric)] = None
    for because, metrics in names.items():
        of_which = f"{', '.join(metrics)}: " if len(names) > 1 else ""
        if because:
            yield Field(label, f"{of_which}{because}")
            label = ""


def changed_in_words(verdict: TestVerdict, room: Room) -> str:
    """Name the software that has another version than for the baseline."""
    versions = [
        f"{name} {then or 'absent'} -> {now or 'absent'}"
        for name, (then, now) in sorted(verdict.changed.items())
    ]
    since = " since the baseline"
    columns = 2 * room.columns - len(since)
    return f"{join_fitting(versions, columns)}{since}" if versions else ""


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
            *as_lines(terminal(_explained(test))),
        )
    )


def _explained(test: TestVerdict) -> Iterator[Block]:
    places = (
        *kinds_blocks(test.findings, FindingKind.PEAK, FindingKind.MEMORY),
        *kinds_blocks(test.findings, FindingKind.IDLE),
    )
    blamed = (_indented(f"operations: {t}") for t in blame_texts(test.operations))
    yield from explanation_blocks(test, (*places, *blamed))


def explanation_blocks(
    test: TestVerdict, causes: Iterable[Block] = ()
) -> Iterator[Block]:
    """Say what decided each metric of *test*, the *causes*, and what has no baseline."""
    for verdict in test.verdicts:
        if verdict.outcome is not Outcome.NO_BASELINE:
            yield _indented(_sentence(verdict))
    yield from causes
    if test.sides is not None and test.sides.time is not None:
        # Which rule ended a comparison, with its numbers.
        yield _indented(f"compared: {test.sides.time.why}")
    new = [v.metric for v in test.verdicts if v.outcome is Outcome.NO_BASELINE]
    if new:
        yield _indented(f"no baseline: {', '.join(new)}")


def _indented(sentence: str) -> Text:
    return Text(sentence, EXPLANATION_INDENT, 2 * EXPLANATION_INDENT)


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
