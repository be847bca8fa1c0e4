"""``samples.json``: the times that a run's verdicts were summed up from.

By call, an object a run, oldest first: samples by metric, of each at most
``MOST_SAMPLES``, to four significant digits and in the metric's unit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Final

from ...errors import ErrorId
from ...errors import UsageError
from ...model.measurement import Samples
from ..numbers import SIGNIFICANT_DIGITS
from .checked_object import read_object
from .checked_object import refuse


SAMPLES_SCHEMA: Final = 1
"""Version of the format that is written, and the only one that is read."""

LONGEST_MS: Final = 1e12
"""Thirty years: sums and squares of such times are finite."""

EXPECTED_SAMPLES: Final = "expected the samples.json of a run of pytest --gpuperf"


def dumps(samples: Mapping[str, Sequence[Samples]]) -> str:
    """Write *samples*, each call's runs; a call that no run has samples of is left out.

    Raises ``UsageError`` if a number is none.
    """
    rows = ",\n".join(_rows(samples))
    tests = f"{{\n{rows}\n  }}" if rows else "{}"
    return f'{{\n  "schema": {SAMPLES_SCHEMA},\n  "tests": {tests}\n}}\n'


def _rows(samples: Mapping[str, Sequence[Samples]]) -> Iterator[str]:
    for call, runs in samples.items():
        if any(runs):
            yield f"    {json.dumps(call)}: {_text(runs)}"


def _text(runs: Sequence[Samples]) -> str:
    raw = [{name: list(map(_rounded, read)) for name, read in r.items()} for r in runs]
    try:
        return json.dumps(raw, allow_nan=False)
    except ValueError:
        msg = "the samples are not written, a number in them is NaN or infinite"
        raise UsageError(msg, ErrorId.GP513) from None


def _rounded(value: float) -> float:
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def loads(text: str, source: str) -> dict[str, tuple[Samples, ...]]:
    """Read what ``dumps`` wrote; *source* names it in errors.

    Raises ``UsageError`` if the text is empty, no JSON, of a newer schema, of another
    shape, or contains a number that cannot be a time.
    """
    raw = read_object(text, source, schema=SAMPLES_SCHEMA, expected=EXPECTED_SAMPLES)
    tests = raw.get("tests")
    if not isinstance(tests, dict):
        refuse(source, "it has no object of tests", EXPECTED_SAMPLES)
    return {call: tuple(_runs(runs, call, source)) for call, runs in tests.items()}


def _runs(runs: Any, call: str, source: str) -> Iterator[Samples]:
    if not isinstance(runs, list) or not all(map(_is_run, runs)):
        refuse(source, f"what it says of {call} has another shape", EXPECTED_SAMPLES)
    for run in runs:
        yield {name: tuple(map(float, read)) for name, read in run.items()}


def _is_run(run: Any) -> bool:
    if not isinstance(run, dict):
        return False
    return all(isinstance(r, list) and all(map(_is_time, r)) for r in run.values())


def _is_time(value: Any) -> bool:
    """Whether *value* is a possible number of milliseconds."""
    return type(value) in {int, float} and 0 <= value <= LONGEST_MS
