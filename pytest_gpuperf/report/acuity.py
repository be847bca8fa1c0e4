"""How small a slowdown can be seen, in a sentence, with what would help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..model.acuity import Acuity
from ..model.acuity import SuiteAcuity
from .terminal import Line
from .terminal import Role
from .wrapping import wrapped


INDENT: Final = "    "
LOUD: Final = 2.0
"""Multiple of the median scatter above which a test is named."""

MOST_NAMED: Final = 3
ENOUGH: Final = 0.95
"""Share of decidable tests below which something must be said."""


def acuity_lines(suite: SuiteAcuity) -> tuple[Line, ...]:
    """Say how far runs scatter and what can be blamed; give advice where it is needed.

    Tests that scatter twice as much as the median are named, three at most.
    """
    role = Role.WARN if _is_poor(suite) else Role.PLAIN
    sentence = f"noise: {acuity_sentence(suite)}"
    return (
        *(Line(text=text, role=role) for text in wrapped(sentence)),
        *(Line(text=_named(test), role=Role.PLAIN) for test in _loud(suite)),
    )


def acuity_sentence(suite: SuiteAcuity) -> str:
    """Say how far runs scatter, what can be blamed, and what would help if need be."""
    tests = len(suite.tests)
    whose, median = ("of a test ", f" (median of {tests} tests)")
    if tests == 1:
        whose, median = "", ""
    scatter = f"runs {whose}scatter by {percent(suite.scatter)}{median}"
    blamed = f"a slowdown of {percent(suite.smallest)} can be blamed"
    if not _is_poor(suite):
        return f"{scatter}, {blamed}"
    return (
        f"{scatter}; {_tolerance(suite)} {blamed}, {_passing(suite)}; {_advice(suite)}"
    )


def _tolerance(suite: SuiteAcuity) -> str:
    (first, *others) = {test.tolerance for test in suite.tests}
    return "with their tolerances" if others else f"with tolerance {100 * first:.3g} %"


def _passing(suite: SuiteAcuity) -> str:
    if len(suite.tests) == 1:
        return "and unchanged code would rarely pass"
    return f"and {suite.decidable} of {len(suite.tests)} tests can pass"


def _advice(suite: SuiteAcuity) -> str:
    if suite.advised is None:
        return (
            "no gpuperf_tolerance up to 50 % changes that: widen the marks of these "
            "tests, or find a quieter machine"
        )
    who = f"{suite.decidable_then} of {len(suite.tests)}"
    return (
        f"gpuperf_tolerance = ms={100 * suite.advised:.0f}% would let "
        f"{'it' if len(suite.tests) == 1 else who} be decided"
    )


def _is_poor(suite: SuiteAcuity) -> bool:
    return suite.decidable < ENOUGH * len(suite.tests)


def _loud(suite: SuiteAcuity) -> Iterator[Acuity]:
    for test in suite.tests[:MOST_NAMED]:
        if test.scatter > LOUD * suite.scatter:
            yield test


def _named(test: Acuity) -> str:
    return (
        f"{INDENT}{percent(test.scatter)}, {percent(test.smallest)} can be blamed: "
        f"{test.test}"
    )


def percent(ratio: float) -> str:
    """Write a ratio of 0.023 as ``2.3 %``, and without a decimal from 10 % on."""
    digits = 1 if ratio < 0.0995 else 0  # noqa: PLR2004  9.95 % would be 10.0 %
    return f"{100 * ratio:.{digits}f} %"
