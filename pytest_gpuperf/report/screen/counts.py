"""The line that counts every outcome, and other lines about the whole run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from ...judge.readings import WOULD_HAVE_FAILED
from ...model.baseline import Refresh
from ...model.environment import Hardware
from ...model.metrics import STEP_MS, counted
from ...model.run import NOTHING_SEEN, Unseen
from ...model.verdict import (
    DetectableChange,
    Outcome,
    SuiteAcuity,
    SuiteVerdict,
    TestVerdict,
    Verdict,
)
from ..command import Invocation, ab_command, refresh_command
from ..document import wrapped
from ..headline import PEOPLE
from ..numbers import join_fitting
from .summary import ROLES, WORST_FIRST_OUTCOMES, Line, LineRole, as_lines


MOST_NAMES: Final = 400
COUNTED_WORDS: Final = {
    Outcome.REGRESSED: "worse",
    Outcome.OVER_BUDGET: "over limit",
    **PEOPLE,
}
"""What people call the tests of an outcome; those that fail have a word for each reason."""

UNCHECKED_WORDS: Final = {
    Outcome.NO_BASELINE: "without baseline",
    Outcome.NOT_CHECKED: "not checked",
}


def counts_line(  # noqa: PLR0913  one line counts all there is to count
    verdicts: Sequence[TestVerdict],
    hardware: Hardware,
    unseen: Unseen = NOTHING_SEEN,
    unchecked: Sequence[str] = (),
    refused: int = 0,
    *,
    note: str = "",
    warns: bool = False,
    unmeasured: Sequence[str] = (),
    stopped: str = "",
) -> Line:
    """Count every outcome that occurred, and the tests which have none.

    *unchecked* says how tests ended that gave nothing to judge, *unseen* names those
    that a green run would hide, *refused* counts those that were not refreshed.
    The *note* is on the device, and on a run that *warns*. *unmeasured* are those that
    nobody waited for: they are *stopped*, which says why.
    """
    calls = Counter(v.outcome for v in verdicts if v.verdicts or v.sides is None)
    parts = (
        _outcomes(calls, len(verdicts) - calls.total(), warns=warns)
        + f" on {hardware.in_words}{f' ({note})' if note else ''}",
        *_without_verdict(unchecked),
        *_ungated([v for v in verdicts if v.outcome is not Outcome.NOT_CHECKED]),
        *([f"{refused} NOT REFRESHED"] if refused else []),
        *named(unmeasured, stopped),
        *_hidden(unseen),
    )
    role = _role(calls, len(verdicts), warns=warns)
    if unseen.fails or refused or "failed" in unchecked:
        role = LineRole.BAD
    # It fails in CI only, but a green line must not hide it here either.
    if unseen.unmeasured and role in {LineRole.GOOD, LineRole.PLAIN}:
        role = LineRole.WARN
    return Line(text=f"gpuperf: {'; '.join(parts)}", role=role)


def _role(calls: Counter[Outcome], verdicts: int, *, warns: bool) -> LineRole:
    """Return that of the worst outcome; where only steps were compared it is plain."""
    if warns and any(outcome.fails for outcome in calls):
        return LineRole.WARN
    roles = (ROLES[outcome] for outcome in WORST_FIRST_OUTCOMES if calls[outcome])
    return next(roles, LineRole.PLAIN if verdicts else LineRole.WARN)


def nothing_line(unseen: Unseen, why: str) -> Line:
    """Say *why* a run measured nothing, and name what it should have measured."""
    named = tuple(_hidden(unseen))
    parts = (
        ("nothing was measured", *named)
        if unseen.lost
        else (f"nothing was measured: {why}", *named)
    )
    role = LineRole.BAD if unseen.fails else LineRole.WARN
    return Line(text=f"gpuperf: {'; '.join(parts)}", role=role)


def _hidden(unseen: Unseen) -> Iterator[str]:
    yield from named(unseen.lost, "WITHOUT A RESULT")
    yield from named(unseen.silenced, "FAILED AND NOT REPORTED SO")
    yield from named(unseen.unmeasured, "STORED AND NOT MEASURED")


def named(tests: Sequence[str], what: str) -> Iterator[str]:
    """Count *tests* to which that happened, and name as many as fit."""
    if tests:
        yield f"{len(tests)} {what}: {join_fitting(tests, MOST_NAMES)}"


def _outcomes(calls: Counter[Outcome], compared: int, *, warns: bool) -> str:
    """Write ``2 failed (1 worse, 1 over limit), 3 passed``."""
    counts = {
        o: f"{calls[o]} {COUNTED_WORDS[o]}" for o in WORST_FIRST_OUTCOMES if calls[o]
    }
    failed = [outcome for outcome in counts if outcome.fails]
    shown = [text for outcome, text in counts.items() if not outcome.fails]
    if failed:
        word = WOULD_HAVE_FAILED if warns else "failed"
        kinds = ", ".join(counts[outcome] for outcome in failed)
        shown.insert(0, f"{sum(calls[o] for o in failed)} {word} ({kinds})")
    shown += [f"{compared} compared"] if compared else []
    return ", ".join(shown) or "no verdict"


def _without_verdict(endings: Sequence[str]) -> Iterator[str]:
    """Count how the tests ended that gave nothing to judge."""
    if endings:
        kinds = ", ".join(f"{n} {ending}" for ending, n in Counter(endings).items())
        yield f"without a verdict: {kinds}"


def _ungated(judged: Sequence[TestVerdict]) -> Iterator[str]:
    """Count the metrics of *judged* tests that were not checked themselves."""
    found = [v for test in judged for v in test.verdicts]
    metrics = Counter(v.outcome for v in found)
    counts = [
        f"{counted(metrics[outcome], 'metric')} {what}"
        for outcome, what in UNCHECKED_WORDS.items()
        if metrics[outcome]
    ]
    if counts:
        yield ", ".join(counts)
    lacking = list(dict.fromkeys(v.metric for v in found if v.not_stored))
    if lacking:
        yield f"not in a test's baseline: {join_fitting(lacking, MOST_NAMES)}"


# Lines about the whole run, printed once.


def moved_line(
    moved: Sequence[TestVerdict], invocation: Invocation, *, warns: bool = False
) -> Line:
    """One verdict for the run: exact metrics moved together with torch's version.

    It is a warning where the run only *warns*.
    """
    then, now = next(v.changed["torch"] for v in moved if "torch" in v.changed)
    command = refresh_command(Refresh.ALL, invocation, accept_drift=True)
    tests = counted(len(moved), "test")
    fails = WOULD_HAVE_FAILED if warns else "fails"
    text = (
        f"gpuperf: the run {fails}: torch {then} -> {now} moved exact "
        f"metrics of {tests}; check them, then accept with: {command}"
    )
    return Line(text, LineRole.WARN if warns else LineRole.BAD)


MOST_FILES: Final = 80
"""Characters of file names on a line that says where more is."""

MOST_TYPED: Final = 3
"""Tests that a printed command names; it measures more of them all alike."""


def inconclusive_lines(
    verdicts: Sequence[TestVerdict], invocation: Invocation, *, is_strict: bool
) -> Iterator[Line]:
    """Count the tests with a time that nobody judged, and say what would."""
    by_commit: dict[str, list[str]] = {}
    for test in verdicts:
        if any(_is_open(verdict) for verdict in test.verdicts):
            by_commit.setdefault(test.recorded, []).append(test.test)
    for commit, tests in by_commit.items():
        named = tests if len(tests) <= MOST_TYPED else ()
        text = (
            f"gpuperf: inconclusive: the time of {counted(len(tests), 'test')}; to decide "
            "it, measure the baseline's code again: "
            f"{ab_command(commit, invocation, named)}"
        )
        yield Line(text, LineRole.BAD if is_strict else LineRole.WARN)


def _is_open(verdict: Verdict) -> bool:
    return (
        verdict.metric == STEP_MS.name
        and verdict.outcome is Outcome.INCONCLUSIVE
        and verdict.baseline is not None
    )


def evidence_line(verdicts: Sequence[TestVerdict]) -> Iterator[Line]:
    """Say where more about the failures is: a page, traces, snapshots of memory."""
    failed = [v for v in verdicts if v.outcome.fails]
    if not failed:
        return
    files = {
        "ui.perfetto.dev": [v.trace for v in failed if v.trace],
        "pytorch.org/memory_viz": [v.snapshot for v in failed if v.snapshot],
    }
    shown = [
        f"for {viewer}: {join_fitting(names, MOST_FILES)}"
        for viewer, names in files.items()
        if names
    ]
    text = "; ".join(("why, as a page: gpuperf report", *shown))
    yield Line(text=text)


def skipped_line(files: Sequence[str]) -> Line:
    """Name *files* that may have looked for a GPU where pytest collects, next to none."""
    which = f"{len(files)} files skipped themselves"
    if len(files) == 1:
        which = "1 file skipped itself"
    text = (
        f"gpuperf: {which} while collected, and no test there was looked at: "
        f"{join_fitting(files, MOST_NAMES)}; where a GPU was looked for, let "
        "pytest.mark.skipif ask, which sees the simulated one"
    )
    return Line(text, LineRole.WARN)


def suite_line(suite: SuiteVerdict) -> Line:
    """One verdict for the run: the times of its tests moved together."""
    return Line(text=f"gpuperf: {suite.because}", role=LineRole.WARN)


# The smallest slowdown that can be detected, in a sentence, and what would lower it.


PRECISION_INDENT: Final = "    "
LOUD: Final = 2.0
"""Multiple of the median scatter above which a test is named."""

MOST_TESTS_NAMED: Final = 3
ENOUGH: Final = 0.95
"""Share of decidable tests below which something must be said."""


OTHERWISE: Final = (
    "    inconclusive tests are compared with the baseline's code, run again from git"
)


def acuity_lines(suite: SuiteAcuity) -> tuple[Line, ...]:
    """Say how much runs vary and what can be detected; give advice where it is needed.

    Tests that vary twice as much as the median are named, three at most.
    """
    role = LineRole.WARN if is_poor(suite) else LineRole.PLAIN
    sentence = f"noise: {acuity_sentence(suite)}"
    return (
        *as_lines(wrapped(sentence), role),
        *([Line(text=OTHERWISE, role=role)] if is_poor(suite) else []),
        *as_lines(map(_named, _loud(suite))),
    )


def acuity_sentence(suite: SuiteAcuity) -> str:
    """Say how much runs vary, what can be detected, and what would help if need be."""
    tests = len(suite.tests)
    median = "" if tests == 1 else f" (median of {tests} tests)"
    sees = (
        f"runs vary by {percent(suite.scatter)}{median}; this machine can detect "
        f"slowdowns of {percent(suite.smallest)} or more"
    )
    if not is_poor(suite):
        return sees
    return f"{sees}, but with {_tolerance(suite)} {_passing(suite)}; {_advice(suite)}"


def _tolerance(suite: SuiteAcuity) -> str:
    (first, *others) = {test.tolerance for test in suite.tests}
    return "their tolerances" if others else f"a tolerance of {100 * first:.3g} %"


def _passing(suite: SuiteAcuity) -> str:
    if len(suite.tests) == 1:
        return "unchanged code would rarely pass"
    return f"only {suite.decidable} of {len(suite.tests)} tests would pass unchanged"


def _advice(suite: SuiteAcuity) -> str:
    if suite.advised is None:
        return (
            "no tolerance up to 50 % would help: check syncs and memory on this "
            "machine, not time"
        )
    tests = len(suite.tests)
    who = "it" if tests == 1 else f"{suite.decidable_then} of {tests}"
    return f"{who} would with --gpuperf-tolerance=ms={100 * suite.advised:.0f}%"


def is_poor(suite: SuiteAcuity) -> bool:
    """Whether too many tests scatter so much that unchanged code would rarely pass."""
    return suite.decidable < ENOUGH * len(suite.tests)


def _loud(suite: SuiteAcuity) -> Iterator[DetectableChange]:
    for test in suite.tests[:MOST_TESTS_NAMED]:
        if test.scatter > LOUD * suite.scatter:
            yield test


def _named(test: DetectableChange) -> str:
    return (
        f"{PRECISION_INDENT}varies by {percent(test.scatter)}, detects "
        f"{percent(test.smallest)} or more: {test.test}"
    )


def percent(ratio: float) -> str:
    """Write a ratio of 0.023 as ``2.3 %``, and without a decimal from 10 % on."""
    digits = 1 if ratio < 0.0995 else 0  # noqa: PLR2004  9.95 % would be 10.0 %
    return f"{100 * ratio:.{digits}f} %"
