"""JSON for other programs: results of a run, comparisons, audits, predicted memory.

``results_schema.json``, ``ab_schema.json``, ``audit_schema.json`` and
``memory_schema.json`` next to this module are their JSON Schemas. Numbers that are no
whole ones have six significant digits; fields of a verdict at their defaults are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from typing import Any, Final, NoReturn, TypeVar

from ..devices.audit_record import StepAudit, Totals
from ..devices.memory_picture import Garbage
from ..errors import ErrorId, RunError, UsageError
from ..model.ab import AbResult, AbRun, Comparison, ExactChange, Training, inverse
from ..model.codec import decode, encode
from ..model.finding import Finding, LineChange, Location
from ..model.measurement import Fit, Forecast, Samples, Saving
from ..model.metrics import SPEEDUP, STEP_MS
from ..model.retired import with_names_of_today
from ..model.run import Ending, Head, Record, Results
from ..model.verdict import Outcome, TestVerdict
from ..visible import visible
from .line_syntax import with_context
from .numbers import rounded
from .remedies import remedy_of


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
"""No number of a metric is further from 0; results of arithmetic on them stay finite."""

RESULTS_SCHEMA: Final = 1
"""Version of the format that is written, and the only one that is read."""

EXPECTED_RESULTS: Final = "expected the results.json of a run of pytest --gpuperf"

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
    raw = _parsed(text, source)
    _check_schema(raw.get("schema"), source)
    dropped = _DERIVED | _OF_BEFORE
    head = {name: value for name, value in raw.items() if name not in dropped}
    tests = raw.get("tests")
    if not isinstance(tests, dict):
        _refuse(source, "it has no object of tests")
    return Results(
        head=_decoded(Head, head, source, "it"),
        tests={test: _record(row, test, source) for test, row in tests.items()},
    )


def _decoded(kind: type[T], raw: Mapping[str, Any], source: str, what: str) -> T:
    try:
        return decode(kind, raw)
    except (TypeError, ValueError, KeyError) as error:
        _refuse(source, f"{what} has another shape, {error.args[0]}")


def _record(row: Any, test: str, source: str) -> Record:
    try:
        outcome = row.get("outcome")
        return Record(
            ending=Ending(row["ending"]),
            outcome=None if outcome is None else Outcome(outcome),
            headline=decode(str, row.get("headline", "")),
            verdicts=tuple(map(_checked, decode(list, row.get("verdicts", [])))),
            where=decode(str, row.get("where", "")),
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
    decode(str, call["test"])
    for judged in decode(list, call["verdicts"]):
        decode(str, judged["metric"])
        Outcome(judged["outcome"])
        for name in _NUMBERS:
            _check_number(judged.get(name))
    return decode(dict, call)


def _samples(raw: Any) -> Mapping[str, tuple[Samples, ...]]:
    kind = tuple[Samples, ...]
    samples = {call: decode(kind, runs) for call, runs in decode(dict, raw).items()}
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


def verdict_of(call: Mapping[str, Any], source: str) -> TestVerdict:
    """Read one *call* of a record; raises ``UsageError`` if it has another shape."""
    what = f"a verdict of {call.get('test')}"
    return _decoded(TestVerdict, _upgraded(call), source, what)


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


def _check_schema(version: Any, source: str) -> None:
    # Before the shape: a newer format would only look like a broken file.
    if type(version) is int and version > RESULTS_SCHEMA:
        msg = (
            f"{source}: written by a newer pytest-gpuperf "
            f"(schema {version}, this one reads {RESULTS_SCHEMA}): upgrade it"
        )
        raise UsageError(msg, ErrorId.GP503)
    if type(version) is not int or version < RESULTS_SCHEMA:
        _refuse(source, f"its schema is {version!r}")


def _parsed(text: str, source: str) -> dict[str, Any]:
    if not text.strip():
        _refuse(source, "the file is empty")
    try:
        # Python's parser takes NaN and Infinity, which are no JSON.
        raw = json.loads(with_names_of_today(text), parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        _refuse(source, f"the file is not JSON at line {error.lineno}")
    except RecursionError:
        _refuse(source, "the file is nested too deeply")
    except ValueError as error:
        _refuse(source, f"the file cannot be read ({error})")
    if not isinstance(raw, dict):
        _refuse(source, "the file is not a JSON object")
    return raw


def _refuse_constant(name: str) -> NoReturn:
    msg = f"it has {name}, which is not a measured value"
    raise ValueError(msg)


def _refuse(source: str, found: str) -> NoReturn:
    """Raise ``UsageError`` that says what was found in *source*."""
    msg = f"{visible(source)}: {visible(found)}; {EXPECTED_RESULTS}"
    raise UsageError(msg, ErrorId.GP512)


# A comparison of two sides for other programs: `gpuperf ab --json`.
#
# `ab_schema.json` next to this module is its JSON Schema.


AB_SCHEMA: Final = 1
"""Version of the format."""


def ab_document(found: AbRun) -> dict[str, Any]:
    """Return *found* as ``json.dumps`` takes it."""
    return {
        "schema": AB_SCHEMA,
        "before": found.before,
        "after": found.after,
        "device": found.device,
        "is_worse": found.is_worse,
        "status": int(found.status),
        "notes": list(found.notes),
        "tests": [*map(_test, found.calls), *map(_test, found.uncompared)],
    }


def _test(call: Comparison) -> dict[str, Any]:
    return {
        "test": call.test,
        "verdict": call.outcome.value,
        "why": call.uncompared or _of_time(call),
        "not_checked": {
            STEP_MS.name if name == SPEEDUP.name else name: why
            for name, why in call.unmeasured.items()
        },
        "training": _training(call.training) if call.training else None,
        "time": _time(call.time) if call.time else None,
        "exact": [_exact(change) for change in call.exact],
        "findings": [
            _finding_of_ab(found)
            for found in call.findings
            if set(found.metrics).intersection(call.worse_metrics)
        ],
        "operations": [*map(_operations, call.operations)],
    }


def _of_time(call: Comparison) -> str:
    """Say that time was not checked, or what it says: verdicts without it are of counts."""
    if call.no_time:
        return f"time was not checked: {call.no_time}"
    return call.time.why if call.time else ""


def _time(time: AbResult) -> dict[str, Any]:
    names = ("ratio", "low", "high", "smallest", "before_ms", "after_ms", "p_value")
    numbers = {name: getattr(time, name) for name in names}
    return {
        "verdict": time.answer.value,
        **{k: None if v is None else rounded(v) for k, v in numbers.items()},
    }


def _training(training: Training) -> dict[str, Any]:
    return {"verdict": training.answer.value, "why": training.text}


def _exact(change: ExactChange) -> dict[str, Any]:
    return {
        "metric": change.metric,
        "verdict": change.turn.value if change.gated else "changed",
        "before": change.before,
        "after": change.after,
    }


def _finding_of_ab(finding: Finding) -> dict[str, Any]:
    return {
        **_fields(finding, "kind", "metrics", "op", "reason", "location", "innermost"),
        "per_step": finding.per_step,
        "before_per_step": finding.stored,
        "fix": _fix(finding),
    }


def _fields(finding: Finding, *names: str) -> dict[str, Any]:
    return {name: encode(getattr(finding, name)) for name in names}


def _fix(finding: Finding) -> str | None:
    remedy = remedy_of(finding)
    return remedy.do if remedy else None


def _operations(change: LineChange) -> dict[str, Any]:
    ops = {op: {"before": old, "after": new} for op, (old, new) in change.ops.items()}
    return {**encode(change), "ops": ops}


# Findings of `gpuperf audit` and `gpuperf memory` as JSON.


# The predicted memory of a program as JSON.


def memory_document(
    forecast: Forecast,
    savings: Mapping[Saving, Forecast | None],
    gib: float | None,
    fit: Fit | None,
) -> dict[str, Any]:
    """Return the *forecast* and those with *savings* as ``json.dumps`` takes them."""
    document: dict[str, Any] = encode(forecast)
    document["savings"] = [
        {
            "saving": saving.value,
            "allocated_bytes": None if again is None else again.allocated_bytes,
        }
        for saving, again in savings.items()
    ]
    document["gib"] = gib
    document["fit"] = None if fit is None else fit.value
    return document


NOTHING_RAN: Final = "nothing ran on the GPU, so nothing was judged"


def audit_document(audit: StepAudit, notes: Sequence[str]) -> dict[str, Any]:
    """Return *audit* and *notes* as ``json.dumps`` takes it; files are absolute paths."""
    notes = notes if audit.touched_gpu else (NOTHING_RAN, *notes)
    return {
        "judged": audit.touched_gpu,
        "findings": [_finding(finding, audit.steps) for finding in audit.findings],
        "not_checked": [_unchecked(unchecked) for unchecked in audit.not_checked],
        "as_eager": [_unchecked(unchecked) for unchecked in audit.as_eager],
        "notes": list(notes),
        "steps": audit.steps,
        "step_mark": audit.mark.value if audit.mark else None,
        "syncs_per_step": audit.per_step if audit.steps > 1 else None,
        "totals": _totals(audit.totals),
        "garbage": _garbage(audit.garbage),
        "growth": _garbage(audit.growth),
    }


def _totals(totals: Totals) -> dict[str, Any]:
    """Return *totals* as one object, each count by the name of its metric."""
    others = dict(encode(totals))
    counts = others.pop("counts")
    return {**others, **counts}


def _garbage(garbage: Garbage | None) -> dict[str, Any] | None:
    if garbage is None:
        return None
    lines = [
        {"op": held.op, **_where(held), "bytes": held.held_bytes}
        for held in garbage.held
    ]
    return {"bytes_per_step": garbage.nbytes, "cycle": garbage.cycle, "lines": lines}


def _finding(finding: Finding, steps: int) -> dict[str, Any]:
    return {
        **_fields(finding, "kind", "op", "reason"),
        **_where(finding),
        "torch": _place(finding.torch),
        "count": finding.per_step,
        "in_steps": finding.in_steps,
        # After the last step too; of a single step nobody knows what repeats.
        "once": finding.in_steps == 1 < steps,
        **_fields(finding, "waits_after", "operations", "is_idle"),
        "fix": _fix(replace(with_context(finding), of_steps=steps)),
    }


def _unchecked(unchecked: Finding) -> dict[str, Any]:
    said = _fields(unchecked, "op", "reason")
    return {**said, **_where(unchecked), "count": unchecked.per_step}


def _where(finding: Finding) -> dict[str, Any]:
    nowhere = {"file": None, "line": None, "function": None}
    return {
        **(_place(finding.location) or nowhere),
        "innermost": _place(finding.inner),
        "forward": _place(finding.forward),
        "phase": finding.phase.value if finding.phase else None,
    }


def _place(location: Location | None) -> dict[str, Any] | None:
    names = ("file", "line", "function")
    return {name: getattr(location, name) for name in names} if location else None
