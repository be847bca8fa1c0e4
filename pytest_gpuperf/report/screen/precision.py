"""The smallest slowdown that can be detected, in a sentence, and what would lower
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from math import ceil
from typing import Final

from ...model.baseline import FULL_RUNS
from ...model.verdict import DetectableChange
from ...model.verdict import Effort
from ...model.verdict import SuiteAcuity
from ..wrapping import wrapped
from .summary import Line
from .summary import LineRole


PRECISION_INDENT: Final = "    "
LOUD: Final = 2.0
"""Multiple of the median scatter above which a test is named."""

MOST_TESTS_NAMED: Final = 3
ENOUGH: Final = 0.95
"""Share of decidable tests below which something must be said."""


OTHERWISE: Final = (
    "    undecided tests are compared with the baseline's code, run again from git"
)


def acuity_lines(suite: SuiteAcuity) -> tuple[Line, ...]:
    """Say how much runs vary and what can be detected; give advice where it is needed.

    Tests that vary twice as much as the median are named, three at most.
    """
    role = LineRole.WARN if is_poor(suite) else LineRole.PLAIN
    sentence = f"noise: {acuity_sentence(suite)}"
    return (
        *(Line(text=text, role=role) for text in wrapped(sentence)),
        *([Line(text=OTHERWISE, role=role)] if is_poor(suite) else []),
        *(Line(text=_named(test), role=LineRole.PLAIN) for test in _loud(suite)),
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
            "no tolerance up to 50 % would help: check waits and memory on this "
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


# The runs that a wanted precision takes, and tests that cannot reach it.


def fresh_text(
    precision: float,
    judged: Sequence[Effort],
    undecided: Sequence[Effort],
    seconds: float,
) -> str:
    """Say what the *undecided* of all *judged* tests will cost: so many *seconds* at most."""
    floors = [effort.floor for effort in judged if not effort.reached]
    better = sum(floor <= precision for floor in floors)
    parts = [_fresh_runs(undecided, seconds), *_unreached(precision, floors)]
    if better:
        parts.append(
            f"{_tests(better)} can reach it after a refresh with this precision has "
            "stored more runs"
        )
    return _sentence(precision, parts)


def stored_text(precision: float, recorded: Sequence[Effort], seconds: float) -> str:
    """Say what tests will cost of which a refresh has *recorded* eight runs already."""
    reached = [effort for effort in recorded if effort.reached]
    more = [e.stored - FULL_RUNS for e in reached if e.stored > FULL_RUNS]
    floors = [effort.floor for effort in recorded if not effort.reached]
    parts = list(_unreached(precision, floors))
    if more:
        runs = f"{_span(more)} more run{'s' if max(more) > 1 else ''}"
        parts.insert(0, f"{_need(len(more))} {runs}, {duration(seconds)} left")
    elif reached:
        parts.insert(
            0, f"{FULL_RUNS} stored runs are enough for {_tests(len(reached))}"
        )
    return _sentence(precision, parts)


def duration(seconds: float) -> str:
    """Write seconds as ``about 40 s`` or ``about 3 min 20 s``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"about {minutes} min {rest} s" if minutes else f"about {rest} s"


def _sentence(precision: float, parts: Sequence[str]) -> str:
    text = f"gpuperf: precision {100 * precision:.3g} %: {'; '.join(parts)}"
    return "\n".join(wrapped(text))


def _fresh_runs(undecided: Sequence[Effort], seconds: float) -> str:
    if not undecided:
        return "no test needs another run"
    runs = max(effort.fresh for effort in undecided)
    each = "" if len(undecided) == 1 else " each"
    return (
        f"{_need(len(undecided), 'undecided ')} up to {runs} runs{each}, "
        f"{duration(seconds)} at most"
    )


def _unreached(precision: float, floors: Sequence[float]) -> Iterator[str]:
    hopeless = [floor for floor in floors if floor > precision]
    if hopeless:
        low, high = _upward(min(hopeless)), _upward(max(hopeless))
        best = low if low == high else f"{low} to {high}"
        yield (
            f"{_tests(len(hopeless))} cannot reach it on this machine, at best {best}"
        )


def _upward(ratio: float) -> str:
    """Write a floor so that asking for what is written is not too much."""
    digits = 3 if ratio < 0.0995 else 2  # noqa: PLR2004  as ``percent`` shows it
    # Less a little: the product may be just above a whole number by rounding.
    return percent(ceil(ratio * 10**digits - 1e-9) / 10**digits)


def _span(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least}" if least == most else f"{least} to {most}"


def _tests(count: int) -> str:
    return f"{count} test{'s' if count > 1 else ''}"


def _need(count: int, which: str = "") -> str:
    return f"1 {which}test needs" if count == 1 else f"{count} {which}tests need"
