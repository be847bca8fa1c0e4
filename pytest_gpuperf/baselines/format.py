"""The file format: one JSON document a hardware, made to be read as a diff.

Indented and sorted, so that two branches that refresh different tests merge; a line
a run, four significant digits, and nothing that changes without a measurement.
``schema.json`` beside this module is its JSON Schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from math import inf
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeVar

from ..errors import BaselineError, ErrorId
from ..model.baseline import Baselines, Entry, Judged, Origin, RunSummary, StepSummary
from ..model.codec import decode, encode, encode_briefly
from ..model.environment import DeviceKind, Hardware
from ..model.finding import MOST_LINES_OF_FINDING, StoredLine
from ..model.measurement import Board, Distribution, FurtherSteps
from ..model.metric import MetricKind, Unit
from ..model.metrics import METRICS
from ..model.retired import with_names_of_today


# From parsed JSON to values, checked field by field.
#
# Each error names the place, what was found there and what was expected. The name of a
# place is built only for an error: there may be a hundred thousand entries without one.

V = TypeVar("V")

Place = tuple["Place | None", "str | int"]
"""The enclosing place, and the name or number within it."""

Reader = Callable[[Any, Place], V]
Shape = Mapping[str, Reader[Any]]
"""What reads each field of an object."""

COMMIT_ID: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")

OCCASION: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\dZ-[0-9a-f]{4}")

LEAST_TIME: Final = 1e-9
LONGEST_TIME: Final = 1e12
"""Milliseconds: a femtosecond and thirty years, between which any time lies, and any
ratio of two. The judge takes logarithms and quotients of them, which stay finite."""

LARGEST: Final = 10**24
"""No step has so many bytes or operations; a float has room for far more."""

_WHOLE: Final = (None, "the file")

_LONGEST = 40  # characters of a wrong value that are quoted

_TIMES: Final = frozenset(
    n for n, metric in METRICS.items() if metric.kind is MetricKind.NOISY
)
_SHARES: Final = frozenset(
    n for n, metric in METRICS.items() if metric.unit is Unit.PERCENT
)


class ShapeError(Exception):
    """A document of another shape; its text names the place."""


def read_baselines(raw: Any) -> Baselines:
    """Read a whole document of schema 1.

    Raises ``ShapeError`` at the first thing that does not belong.
    """
    parts = _fields(raw, _WHOLE, _DOCUMENT)
    return Baselines(hardware=parts["hardware"], entries=parts["tests"])


def check_entry(test: str, raw: Any) -> None:
    """Raise ``ShapeError`` if *raw* is no entry of *test* that could be read back."""
    _entry(raw, ((None, "tests"), test))


def _version(raw: Any, where: Place) -> int:
    # The exact type, as everywhere below: True is an int for isinstance and equals 1.
    if type(raw) is not int or raw != 1:
        _refuse(where, "1", raw)
    return raw


def _hardware(raw: Any, where: Place) -> Hardware:
    return Hardware(**_fields(raw, where, _HARDWARE))


def _kind(raw: Any, where: Place) -> DeviceKind:
    try:
        return DeviceKind(raw)
    except ValueError:
        kinds = ", ".join(kind.value for kind in DeviceKind)
        _refuse(where, f"one of {kinds}", raw)


def _entry(raw: Any, where: Place) -> Entry:
    parts = _fields(raw, where, _ENTRY, _ENTRY_TOO)
    commit, dirty = parts.pop("commit", None), parts.pop("dirty", False)
    origin = Origin(commit=commit, dirty=dirty) if commit else None
    return Entry(origin=origin, **parts)


def _runs(raw: Any, where: Place) -> tuple[RunSummary, ...]:
    if not isinstance(raw, list) or not raw:
        _refuse(where, "a list of at least one run", raw)
    return tuple([_run(run, (where, number)) for number, run in enumerate(raw)])


def _step(raw: Any, where: Place) -> StepSummary:
    parts = _fields(raw, where, {}, _STEP)
    parts.pop("spent_pct", None)  # of 0.2, which said what a step waits for
    return StepSummary(**parts)


def _lines(raw: Any, where: Place) -> tuple[StoredLine, ...]:
    if not isinstance(raw, list) or len(raw) > MOST_LINES_OF_FINDING:
        _refuse(where, f"a list of at most {MOST_LINES_OF_FINDING} lines", raw)
    return tuple(_stored_line(line, (where, number)) for number, line in enumerate(raw))


def _stored_line(raw: Any, where: Place) -> StoredLine:
    try:
        line = decode(StoredLine, raw)
    except (TypeError, ValueError, KeyError):
        _refuse(where, "what a line of source did", raw)
    _count(line.per_step, (where, "per_step"))
    return replace(line, metrics=tuple(n for n in line.metrics if n in METRICS))


def _commit(raw: Any, where: Place) -> str:
    commit = _text(raw, where)
    if not COMMIT_ID.fullmatch(commit):
        _refuse(where, "the 40 or 64 hex digits of a commit", commit)
    return commit


def _flag(raw: Any, where: Place) -> bool:
    if type(raw) is not bool:
        _refuse(where, "true or false", raw)
    return raw


def _judged(raw: Any, where: Place) -> Judged:
    try:
        # Version 0.2.0 said as well whether runs ended early.
        judged = decode(Judged, {k: v for k, v in {**raw}.items() if k != "ends_early"})
    except (TypeError, ValueError, KeyError):
        _refuse(where, "outcomes and a tolerance", raw)
    tolerance = judged.tolerance
    numbers = [*tolerance.ratios.values(), *tolerance.floors.values()]
    if tolerance.detect is not None:
        numbers.append(tolerance.detect)
    for number in numbers:
        _amount(number, (where, "tolerance"))
    return judged


def _anchors(raw: Any, where: Place) -> dict[str, float]:
    if not isinstance(raw, dict):
        _refuse(where, "an object", raw)
    return {
        name: (_time if name in _TIMES else _amount)(value, (where, name))
        for name, value in raw.items()
    }


def _run(raw: Any, where: Place) -> RunSummary:
    return RunSummary(**_fields(raw, where, _RUN, _RUN_TOO))


def _further(raw: Any, where: Place) -> FurtherSteps:
    try:
        found = decode(FurtherSteps, raw)
    except (TypeError, ValueError, KeyError):
        _refuse(where, "a look at further steps", raw)
    _positive(found.first, (where, "first"))
    _positive(found.last, (where, "last"))
    for name, usual in found.usual.items():
        _count(usual, (where, name))
    for name, counts in found.counts.items():
        for number, count in counts:
            _positive(number, (where, name))
            _count(count, (where, name))
    return found


def _occasion(raw: Any, where: Place) -> str:
    text = _text(raw, where)
    if not OCCASION.fullmatch(text) or not _is_date(text):
        _refuse(where, "an occasion such as 2026-01-31T09:30Z-4f2a", raw)
    return text


def _is_date(occasion: str) -> bool:
    try:
        datetime.fromisoformat(occasion.partition("Z")[0])
    except ValueError:
        return False
    return True


def _board(raw: Any, where: Place) -> Board:
    return Board(**_fields(raw, where, {}, _BOARD))


def _positive(raw: Any, where: Place) -> int:
    if type(raw) is not int or raw <= 0:
        _refuse(where, "a whole number above 0", raw)
    return _count(raw, where)


def _distribution(raw: Any, where: Place) -> Distribution:
    of_share = where[1] in _SHARES
    return Distribution(**_fields(raw, where, _SHARE if of_share else _TIME))


def _time(raw: Any, where: Place) -> float:
    if not _is_number(raw) or raw <= 0:
        _refuse(where, "a time above 0", raw)
    if not LEAST_TIME <= raw <= LONGEST_TIME:
        _refuse(where, f"a time from {LEAST_TIME:g} to {LONGEST_TIME:g} ms", raw)
    return float(raw)


def _amount(raw: Any, where: Place) -> float:
    if not _is_number(raw) or raw < 0:
        _refuse(where, "a number from 0 up", raw)
    if raw > LARGEST:
        _refuse(where, "a number up to 1e24", raw)
    return float(raw)


def _is_number(raw: Any) -> bool:
    """Whether *raw* is a number, and not NaN or infinite."""
    return type(raw) in {int, float} and -inf < raw < inf


def _count(raw: Any, where: Place) -> int:
    if type(raw) is not int or raw < 0:
        _refuse(where, "a whole number from 0 up", raw)
    if raw > LARGEST:
        _refuse(where, "a whole number up to 1e24", raw)
    return raw


def _text(raw: Any, where: Place) -> str:
    if not isinstance(raw, str):
        _refuse(where, "a text", raw)
    return raw


def _map_of(reader: Reader[V]) -> Reader[dict[str, V]]:
    def read(raw: Any, where: Place) -> dict[str, V]:
        if not isinstance(raw, dict):
            _refuse(where, "an object", raw)
        return {key: reader(item, (where, key)) for key, item in raw.items()}

    return read


def _fields(
    raw: Any, where: Place, shape: Shape, optional: Shape = MappingProxyType({})
) -> dict[str, Any]:
    """Read an object with each field of *shape*, and some of the *optional* ones."""
    if not isinstance(raw, dict):
        _refuse(where, "an object", raw)
    for name in sorted(shape.keys() - raw.keys()):
        msg = f'{_spelled(where)} has no field "{name}"'
        raise ShapeError(msg)
    for name in sorted(raw.keys() - shape.keys() - optional.keys()):
        msg = f'{_spelled(where)} has an unknown field "{name}"'
        raise ShapeError(msg)
    found = {name: read(raw[name], (where, name)) for name, read in shape.items()}
    for name in optional.keys() & raw.keys():
        found[name] = optional[name](raw[name], (where, name))
    return found


def _refuse(where: Place, expected: str, found: Any) -> NoReturn:
    quoted = repr(found)
    if len(quoted) > _LONGEST:
        quoted = quoted[:_LONGEST] + "..."
    msg = f"{_spelled(where)}: expected {expected}, found {quoted}"
    raise ShapeError(msg)


def _spelled(place: Place) -> str:
    outer, name = place
    if outer in {None, _WHOLE}:
        return str(name)
    return f"{_spelled(outer)}{f'[{name}]' if isinstance(name, int) else f'.{name}'}"


# Objects, by what reads each of their fields.

_BOARD: Final[Shape] = {"gpu": _text, "sm_mhz": _positive}
_TIME: Final[Shape] = {
    **dict.fromkeys(("q10", "q25", "q50", "mean"), _time),
    "samples": _positive,
}
_SHARE: Final[Shape] = {**dict.fromkeys(_TIME, _amount), "samples": _positive}
_RUN: Final[Shape] = {"times": _map_of(_distribution), "exact": _map_of(_count)}
_RUN_TOO: Final[Shape] = {
    "board": _board,
    "further": _further,
    "occasion": _occasion,
    "round_steps": _positive,
}
_STEP: Final[Shape] = {"spent_pct": _map_of(_count), "peak_bytes": _map_of(_count)}
_ENTRY: Final[Shape] = {
    "anchor": _anchors,
    "software": _map_of(_text),
    "runs": _runs,
}
_ENTRY_TOO: Final[Shape] = {
    "commit": _commit,
    "dirty": _flag,
    "judged": _judged,
    "lines": _lines,
    "step": _step,
}
_HARDWARE: Final[Shape] = {"kind": _kind, "name": _text}
_DOCUMENT: Final[Shape] = {
    "schema": _version,
    "hardware": _hardware,
    "tests": _map_of(_entry),
}


BASELINE_SCHEMA: Final = 1
"""Version of the format that is written, and the only one that is read."""

RESTORE_FILE: Final = (
    "restore the file from version control, or delete it and record it again with "
    "--gpuperf-update=all"
)


def rounded(value: float) -> float:
    """*value* to four significant digits, a count or a size as it is."""
    return value if isinstance(value, int) else float(f"{value:.4g}")


def dumps(baselines: Baselines) -> str:
    """Write *baselines* as a document.

    Raises ``BaselineError`` for a value that ``loads`` would refuse, such as NaN:
    nothing is written that cannot be read.
    """
    raw = {
        "schema": BASELINE_SCHEMA,
        "hardware": encode(baselines.hardware),
        "tests": {test: _raw_entry(entry) for test, entry in baselines.entries.items()},
    }
    _check(raw)
    return _layout(raw) + "\n"


def why_unstorable(test: str, entry: Entry) -> str | None:
    """Say what ``loads`` would refuse in *entry*; ``None`` if nothing.

    One bad test must not keep the file from being written for all others.
    """
    try:
        check_entry(test, _raw_entry(entry))
    except (ShapeError, ArithmeticError, ValueError) as error:
        return str(error)
    return None


def _check(raw: Mapping[str, Any]) -> None:
    try:
        read_baselines(raw)
    except ShapeError as error:
        msg = f"the new baseline is not stored, {error}"
        raise BaselineError(msg, ErrorId.GP505) from None


def loads(text: str, source: str, way_out: str = RESTORE_FILE) -> Baselines:
    """Read a document; *source* names it in errors, *way_out* says what to do then.

    Raises ``BaselineError`` if the text is empty, cut off, no JSON, of a newer
    schema, of another shape, or contains a number that cannot have been measured.
    """
    try:
        raw = _parse(text)
    except ShapeError as error:
        raise _refusal(source, str(error), way_out) from None
    version = raw.get("schema") if isinstance(raw, dict) else None
    # Before the shape is checked: a newer format would only look like a broken file.
    if type(version) is int and version > BASELINE_SCHEMA:
        msg = (
            f"{source}: written by a newer pytest-gpuperf "
            f"(schema {version}, this one reads {BASELINE_SCHEMA}): upgrade it"
        )
        raise BaselineError(msg, ErrorId.GP503)
    try:
        return read_baselines(raw)
    except ShapeError as error:
        raise _refusal(source, str(error), way_out) from None


def _parse(text: str) -> Any:
    """Raise ``ShapeError`` if *text* is no JSON that can be read."""
    if not text.strip():
        msg = "the file is empty"
        raise ShapeError(msg)
    try:
        return json.loads(
            with_names_of_today(text), object_pairs_hook=_without_duplicates
        )
    except json.JSONDecodeError as error:
        raise ShapeError(_why_no_json(text, error)) from None
    except (RecursionError, ValueError):  # nested too deeply; a number too long
        msg = "the file is not readable JSON"
        raise ShapeError(msg) from None


def _why_no_json(text: str, error: json.JSONDecodeError) -> str:
    in_string = error.msg.startswith("Unterminated string")
    if in_string or error.pos >= len(text.rstrip()):
        return f"the file is cut off at line {error.lineno}"
    # The most common damage of a committed file has a way out of its own.
    if text[error.pos :].startswith(("<<<<<<<", "=======", ">>>>>>>")):
        return f"a merge conflict is left at line {error.lineno}"
    return f"the file is not JSON at line {error.lineno}"


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for at, key in enumerate(keys) if key in keys[:at])
        msg = f'the key "{twice}" occurs twice in one object'
        raise ShapeError(msg)
    return found


def _refusal(source: str, found: str, way_out: str) -> BaselineError:
    return BaselineError(f"{source}: {found}; {way_out}", ErrorId.GP502)


def _raw_entry(entry: Entry) -> dict[str, Any]:
    return {
        "anchor": {
            name: _raw_anchor(name, value) for name, value in entry.anchor.items()
        },
        **_raw_origin(entry.origin),
        **_raw_judged(entry.judged),
        **({} if entry.lines is None else {"lines": encode(entry.lines)}),
        "software": dict(entry.software),
        **({} if entry.step is None else {"step": encode_briefly(entry.step)}),
        "runs": [_raw_run(run) for run in entry.runs],
    }


def _raw_origin(origin: Origin | None) -> dict[str, Any]:
    if origin is None:
        return {}
    return {"commit": origin.commit, **({"dirty": True} if origin.dirty else {})}


def _raw_judged(judged: Judged | None) -> dict[str, Any]:
    return {} if judged is None else {"judged": encode_briefly(judged)}


def _raw_anchor(name: str, value: float) -> float:
    """An exact metric's anchor is stored whole, and so is that of one that is no more."""
    if name in _TIMES:
        return rounded(value)
    stored = value if value == value // 1 else rounded(value)
    return int(stored) if stored == stored // 1 else stored


def _raw_run(run: RunSummary) -> dict[str, Any]:
    times = {name: _raw_distribution(d) for name, d in run.times.items()}
    board = {name: value for name, value in encode(run.board).items() if value}
    return {
        "times": times,
        "exact": dict(run.exact),
        **({"board": board} if board else {}),
        **({} if run.round_steps is None else {"round_steps": run.round_steps}),
        **({"occasion": run.occasion} if run.occasion else {}),
        **({"further": encode_briefly(run.further)} if run.further else {}),
    }


def _raw_distribution(distribution: Distribution) -> dict[str, float]:
    return {
        "q10": rounded(distribution.q10),
        "q25": rounded(distribution.q25),
        "q50": rounded(distribution.q50),
        "mean": rounded(distribution.mean),
        "samples": distribution.samples,
    }


_line: Final = json.JSONEncoder(sort_keys=True).encode


def _layout(value: object, depth: int = 0) -> str:
    """Indent objects; give each item of an array one line."""
    if type(value) in {int, float}:
        return repr(value)  # no encoder is made for it
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict) and value:
        rows = [
            f"{inner}{_line(key)}: {_layout(item, depth + 1)}"
            for key, item in sorted(value.items())
        ]
        return "{\n" + ",\n".join(rows) + f"\n{outer}}}"
    if isinstance(value, list) and value:
        rows = [f"{inner}{_line(item)}" for item in value]
        return "[\n" + ",\n".join(rows) + f"\n{outer}]"
    return _line(value)
