"""``results.json``: a run for other programs.

``results_schema.json`` next to this module is its JSON Schema. Numbers that are no whole
ones have six significant digits; fields of a verdict at their defaults are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from math import inf
from typing import Any, Final, NoReturn, TypeVar

from ...errors import ErrorId, RunError, UsageError
from ...model.ab import inverse
from ...model.codec import decode, encode
from ...model.measurement import Samples
from ...model.results import Head, Record, Results
from ...model.run import Ending
from ...model.verdict import Outcome, TestVerdict
from ..numbers import rounded
from .checked_object import read_object, refuse


# Verdicts as JSON text, the form in which they cross from process to process.


def to_json(verdict: TestVerdict) -> str:
    """*verdict* as one line of JSON."""
    return json.dumps(encode(verdict))


def from_json(text: str) -> TestVerdict:
    """Read the verdict that ``to_json`` wrote; raises ``RunError`` for any other text."""
    try:
        return decode(TestVerdict, json.loads(text))
    except (TypeError, ValueError, KeyError) as error:
        msg = (
            f"a process reported a verdict that cannot be read ({error.args[0]}); expected "
            "the JSON of this version: install the same pytest-gpuperf for every process"
        )
        raise RunError(msg, ErrorId.GP603) from error


T = TypeVar("T")

LARGEST_PUBLISHED: Final = 1e24
"""No number of a metric is further from 0; what is made of these stays finite."""

RESULTS_SCHEMA: Final = 1
"""Version of the format that is written, and the only one that is read."""

EXPECTED_RESULTS: Final = "expected the results.json of a run of pytest --gpuperf"

_ENDINGS: Final = {ending.value: ending for ending in Ending}
_OUTCOMES: Final = {outcome.value: outcome for outcome in Outcome}
_NUMBERS: Final = ("now", "baseline", "limit")
_KEPT_OF_A_SPEEDUP: Final = frozenset(
    {"why", "before_ms", "after_ms", "p_value", "quads", "steps"}
)
_DERIVED: Final = {"schema", "counts", "tests"}
_OF_BEFORE: Final = {"fail_on_improvement"}


def dumps(results: Results) -> str:
    """Write *results*; raises ``UsageError`` if a number is none."""
    head = {
        "schema": RESULTS_SCHEMA,
        **encode(results.head),
        "counts": dict(results.counts),
    }
    rows = [*_members(head), f'  "tests": {_tests(results.tests)}']
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _members(head: Mapping[str, object]) -> Iterator[str]:
    for name, value in head.items():
        if name == "seed" and value is None:
            continue  # written by a version that had none
        yield f"  {_text(name)}: {_text(value)}"


def _tests(tests: Mapping[str, Record]) -> str:
    """Give each test a line."""
    if not tests:
        return "{}"
    rows = [f"    {_text(test)}: {_text(row_of(r))}" for test, r in tests.items()]
    return "{\n" + ",\n".join(rows) + "\n  }"


def row_of(record: Record) -> dict[str, Any]:
    """Return what ``json.dumps`` takes of a test."""
    row: dict[str, Any] = {"ending": record.ending.value}
    if record.outcome:
        row["outcome"] = record.outcome.value
    if record.headline:
        row["headline"] = record.headline
    if record.where:
        row["where"] = record.where
    if record.verdicts:
        row["verdicts"] = [_rounded(verdict) for verdict in record.verdicts]
    if record.samples:
        row["samples"] = _rounded(encode(record.samples))
    return row


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return rounded(value)
    return value


def _text(value: object) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        msg = "the results are not written, a number in them is NaN or infinite"
        raise UsageError(msg, ErrorId.GP513) from None


def loads(text: str, source: str) -> Results:
    """Read a document; *source* names it in errors.

    Raises ``UsageError`` if the text is empty, no JSON, of a newer schema, of another
    shape, or contains NaN or infinity.
    """
    raw = read_object(text, source, schema=RESULTS_SCHEMA, expected=EXPECTED_RESULTS)
    return _results(raw, source)


def _results(raw: Mapping[str, Any], source: str) -> Results:
    dropped = _DERIVED | _OF_BEFORE
    head = {name: value for name, value in raw.items() if name not in dropped}
    tests = raw.get("tests")
    if not isinstance(tests, dict):
        _refuse(source, "it has no object of tests")
    try:
        decoded = decode(Head, head)
    except (TypeError, ValueError, KeyError) as error:
        _refuse(source, f"it has another shape, {error.args[0]}")
    return Results(
        head=decoded,
        tests={test: _record(row, test, source) for test, row in tests.items()},
    )


def _record(row: Any, test: str, source: str) -> Record:
    try:
        outcome = row.get("outcome")
        return Record(
            ending=_ENDINGS[row["ending"]],
            outcome=None if outcome is None else _OUTCOMES[outcome],
            headline=_of(str, row.get("headline", "")),
            verdicts=tuple([_checked(v) for v in _of(list, row.get("verdicts", []))]),
            where=_of(str, row.get("where", "")),
            samples=_samples(row.get("samples", {})),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        _refuse(source, f"what it says of {test} has another shape")
    except OverflowError as error:
        _refuse(source, f"a number of {test} is {error}")


def _checked(call: Any) -> Mapping[str, Any]:
    """Return *call* if it has everything that is counted and exported."""
    # Checked, not decoded: a file may have a hundred thousand calls, of which few are
    # shown.
    _of(str, call["test"])
    for judged in _of(list, call["verdicts"]):
        _of(str, judged["metric"])
        if judged["outcome"] not in _OUTCOMES:
            raise KeyError(judged["outcome"])
        for name in _NUMBERS:
            _check_number(judged.get(name))
    return _of(dict, call)


def _samples(raw: Any) -> Mapping[str, tuple[Samples, ...]]:
    kind = tuple[Samples, ...]
    samples = {call: decode(kind, runs) for call, runs in _of(dict, raw).items()}
    for run in chain.from_iterable(samples.values()):
        for value in chain.from_iterable(run.values()):
            _check_number(value)
    return samples


def _check_number(value: Any) -> None:
    if value is None:
        return
    if type(value) not in {int, float}:
        raise TypeError(value)
    if not -LARGEST_PUBLISHED <= value <= LARGEST_PUBLISHED:
        raise OverflowError("infinite" if abs(value) == inf else "beyond 1e24")


def _of(kind: type[T], value: Any) -> T:
    # Not isinstance: a bool is an int there.
    if type(value) is not kind:
        raise TypeError(value)
    return value


def verdict_of(call: Mapping[str, Any], source: str) -> TestVerdict:
    """Read one *call* of a record; raises ``UsageError`` if it has another shape."""
    try:
        return decode(TestVerdict, _upgraded(call))
    except (TypeError, ValueError, KeyError) as error:
        _refuse(
            source,
            f"a verdict of {call.get('test')} has another shape, {error.args[0]}",
        )


def _upgraded(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return *call* with the time of a comparison as it is written now.

    It was written by its speedup, with the two limits of the judge, before steps and
    commits had one kind of result. What a step waits for is dropped.
    """
    call = {name: value for name, value in call.items() if name != "diagnosis"}
    sides = call.get("sides") or {}
    time = sides.get("time")
    if not isinstance(time, dict) or "speedup" not in time:
        return call
    kept = {name: value for name, value in time.items() if name in _KEPT_OF_A_SPEEDUP}
    ratio = {
        "answer": time["verdict"],
        "ratio": inverse(time["speedup"]),
        "low": inverse(time.get("high")),
        "high": inverse(time.get("low")),
        "smallest": time.get("smallest_slowdown"),
    }
    return {**call, "sides": {**sides, "time": {**kept, **ratio}}}


def _refuse(source: str, found: str) -> NoReturn:
    refuse(source, found, EXPECTED_RESULTS)
