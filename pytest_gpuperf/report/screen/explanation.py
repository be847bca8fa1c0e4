"""The rule that decided each metric, in words and with its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ...judge.wording import signed
from ...model.metric import counted
from ...model.verdict import DecidedBy, Evidence, Outcome, TestVerdict, Verdict
from ..wrapping import wrapped
from .counts import COUNTED_WORDS
from .findings import gap_lines, peak_lines
from .summary import Line, LineRole, as_lines


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
    DecidedBy.OCCASIONS: "proven, unless the machine shifted since the baseline",
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
        yield from _indented(_sentence(verdict))
    for text in (*peak_lines(test.findings), *gap_lines(test.findings)):
        yield f"  {text}"
    if test.sides is not None and test.sides.time is not None:
        # Which rule ended a comparison, with its numbers.
        yield from _indented(f"compared: {test.sides.time.why}")


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
