"""Validates the answers of measuring processes.

Tests run there and may have replaced what the answer is made with. What one of them
spoils is its own verdict, and never arithmetic on the numbers of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from ..baselines.format import LARGEST
from ..errors import ErrorId
from ..errors import RunError
from ..model.codec import decode
from ..model.measurement import Measurement
from ..model.run import Ending
from ..model.run import TestResult
from .screening import Group


def results_of(group: Group, answer: Any) -> Sequence[TestResult]:
    """Return the results in *answer*; if it is none, each test of *group* has died."""
    if isinstance(answer, RunError):
        return _died(group, str(answer))
    try:
        return [_believed(decode(TestResult, result)) for result in answer]
    # All that `decode` raises for JSON of another shape.
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        msg = (
            f"the measuring process left a result of another shape ({error}); does the "
            "test replace what json, dataclasses or pytest are made of?"
        )
        return _died(group, str(RunError(msg, ErrorId.GP603)))


def _died(group: Group, text: str) -> Sequence[TestResult]:
    return [TestResult(test=test, ending=Ending.DIED, text=text) for test in group]


def _believed(result: TestResult) -> TestResult:
    """Return *result*, failed where it has a number that no step can show."""
    wrong = next((w for m in _measurements(result) for w in _wrong(m)), None)
    if wrong is None:
        return result
    text = (
        f"{wrong}, which no step shows: does the test replace the clock or what counts?"
    )
    if result.ending is Ending.PASSED:
        result = replace(result, ending=Ending.FAILED, text=text)
    return replace(result, calls=(), comparisons=())


def _measurements(result: TestResult) -> Iterator[Measurement]:
    yield from (call.measurement for call in result.calls)
    yield from (compared.after for compared in result.comparisons)


def _wrong(measurement: Measurement) -> Iterator[str]:
    for name, count in measurement.exact.items():
        if not 0 <= count <= LARGEST:
            yield f"{name} is {_short(count)}"
    for name, times in measurement.times.items():
        for number in (times.q10, times.q25, times.q50, times.mean):
            if not isfinite(number):
                yield f"{name} is {number}"


def _short(count: int) -> str:
    return str(count) if abs(count) < LARGEST else f"about 2**{count.bit_length()}"
