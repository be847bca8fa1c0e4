"""The smallest slowdown that can be detected, in a sentence, and what would lower
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...model.verdict import DetectableChange, SuiteAcuity
from ..wrapping import wrapped
from .summary import Line, LineRole, as_lines


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
