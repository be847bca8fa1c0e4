"""The file format: one JSON document a hardware, made to be read as a diff.

Sorted, so that two branches that refresh different tests merge; what all runs agree on
is written once, times have a line a run and four significant digits, and each line of source
has one that ends with a comma wherever it is. Nothing changes without a measurement.
``schema.json`` next to this module is its JSON Schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from math import inf
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeVar

from ..errors import BaselineError, ErrorId
from ..model.baseline import (
    MOST_RUNS,
    Baselines,
    Entry,
    Judged,
    RunSummary,
    StepSummary,
    rounded,
    with_anchor,
)
from ..model.codec import decode, encode, encode_briefly
from ..model.environment import DeviceKind, Hardware
from ..model.finding import CALLED, STORED, StoredLine, ranked
from ..model.measurement import Board, Distribution, FurtherSteps
from ..model.metrics import METRICS, OCCASIONAL, MetricKind, Unit
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

SESSION: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\dZ-[0-9a-f]{4}")

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
    """Read a whole document.

    Raises ``ShapeError`` at the first thing that does not belong.
    """
    parts = _fields(raw, _WHOLE, _DOCUMENT)
    hardware, entries = parts["hardware"], parts["tests"]
    is_old = parts["schema"] < BASELINE_SCHEMA
    if is_old:
        entries = {
            test: with_anchor(
                entry if "lines" in raw["tests"][test] else replace(entry, lines=None),
                entry.anchor,
                hardware.kind,
            )
            for test, entry in entries.items()
        }
    return Baselines(hardware=hardware, entries=entries, is_old=is_old)


def check_entry(test: str, raw: Any) -> None:
    """Raise ``ShapeError`` if *raw* is no entry of *test* that could be read back."""
    _entry(raw, ((None, "tests"), test))


def _version(raw: Any, where: Place) -> int:
    # The exact type, as everywhere below: True is an int for isinstance and equals 1.
    if type(raw) is not int or raw not in {1, BASELINE_SCHEMA}:
        _refuse(where, f"1 or {BASELINE_SCHEMA}", raw)
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
    if not isinstance(raw, dict):
        _refuse(where, "an object", raw)
    rows = {key: row for key, row in raw.items() if key.startswith(LINE)}
    # Version 0.2 named what was checked out.
    gone = {*rows, "commit", "dirty"}
    rest = {key: part for key, part in raw.items() if key not in gone}
    parts = _fields(rest, where, _ENTRY, _ENTRY_TOO)
    parts.setdefault("lines", _lines_of(rows, where))
    exact = {**parts.pop("counts", {}), **parts.pop("memory", {})}
    parts["runs"] = _whole(parts["runs"], exact, parts.pop("further", None), where)
    return Entry(**parts)


def _runs(raw: Any, where: Place) -> tuple[RunSummary, ...]:
    if type(raw) is int and 0 < raw <= MOST_RUNS:
        return (RunSummary(),) * raw
    if not isinstance(raw, list) or not raw:
        _refuse(where, "a list of at least one run, or how many there are", raw)
    return tuple([_run(run, (where, number)) for number, run in enumerate(raw)])


def _whole(
    runs: Sequence[RunSummary], exact: Mapping[str, Any], look: Any, where: Place
) -> tuple[RunSummary, ...]:
    """Give each of *runs* its part of the values that are written once, or its own of a list."""
    place, found, count = (where, "further"), [], len(runs)
    each = {n: _by_run(of, count, ((where, "counts"), n)) for n, of in exact.items()}
    for n, (run, raw) in enumerate(zip(runs, _by_run(look, count, place), strict=True)):
        own = {name: v for name, of in each.items() if (v := of[n]) is not None}
        full = replace(run, exact=own) if own else run
        if raw is not None:
            seen = _further(raw, place)
            usual = seen.usual if "usual" in raw else _usual(full)
            full = replace(full, further=replace(seen, usual=usual))
        found.append(full)
    return tuple(found)


def _by_run(value: Any, count: int, where: Place) -> list[Any]:
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        _refuse(where, f"a list with a value of each of {count} runs", value)
    return value


def _usual(run: RunSummary) -> dict[str, int]:
    """Return what each step does, as the counts of *run* say: a look finds the same."""
    return {name: count for name in OCCASIONAL if (count := run.exact.get(name))}


def _step(raw: Any, where: Place) -> StepSummary:
    parts = _fields(raw, where, {}, _STEP)
    parts.pop("spent_pct", None)  # of 0.2, which said what a step waits for
    return StepSummary(**parts)


def _lines(raw: Any, where: Place) -> tuple[StoredLine, ...] | None:
    """Read the list of version 0.2, or that nobody recorded any."""
    if raw is None:
        return None
    try:
        lines = decode(tuple[StoredLine, ...], raw)
    except (TypeError, ValueError, KeyError):
        _refuse(where, "what lines of source did", raw)
    known = (
        replace(line, metrics=tuple(n for n in line.metrics if n in METRICS))
        for line in lines
    )
    return _ranked([*known], where)


def _lines_of(rows: Mapping[str, Any], where: Place) -> tuple[StoredLine, ...]:
    """Read the rows that ``_raw_lines`` made."""
    found = []
    for key, did in rows.items():
        file, function, text = line_of(key)
        for what, count in _map_of(_count)(did, (where, key)).items():
            kind, _, rest = what.partition(" ")
            names, _, op = rest.partition(" ")
            metrics = tuple(filter(None, names.split(",")))
            line = StoredLine(kind, op, file, function, text, metrics, count)
            found.append(line)
    return _ranked(found, where)


def _ranked(lines: Sequence[StoredLine], where: Place) -> tuple[StoredLine, ...]:
    kinds = [kind.value for kind in STORED]
    for line in lines:
        _count(line.per_step, (where, "per_step"))
        if line.kind not in kinds:
            _refuse((where, "kind"), f"one of {', '.join(kinds)}", line.kind)
    return ranked(lines)


LINE: Final = "line "
"""How the keys of lines of source begin."""


def key_of_source(file: str, function: str, text: str) -> str:
    """Return the key of a line of source."""
    return f"{LINE}{file} | {function} | {text}"


def line_of(key: str) -> tuple[str, str, str]:
    """Return file, function and text of what has the *key*."""
    file, _, rest = key[len(LINE) :].partition(" | ")
    function, _, text = rest.partition(" | ")
    return file, function, text


def _exact(raw: Any, where: Place) -> Any:
    """Read a number that all runs share, or those of each; ``None`` where one has none."""
    if not isinstance(raw, list):
        return _count(raw, where)
    return [one if one is None else _count(one, where) for one in raw]


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


def _session(raw: Any, where: Place) -> str:
    text = _text(raw, where)
    if not SESSION.fullmatch(text) or not _is_date(text):
        _refuse(where, "a session such as 2026-01-31T09:30Z-4f2a", raw)
    return text


def _is_date(session: str) -> bool:
    try:
        datetime.fromisoformat(session.partition("Z")[0])
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
    if isinstance(raw, list) and len(raw) == len(_TIME):
        raw = dict(zip(_TIME, raw, strict=True))
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
_RUN: Final[Shape] = {}
_RUN_TOO: Final[Shape] = {
    "board": _board,
    "exact": _map_of(_count),  # of 0.2, as is a look of each run
    "further": _further,
    "session": _session,
    "round_steps": _positive,
    "times": _map_of(_distribution),
}
_STEP: Final[Shape] = {"spent_pct": _map_of(_count), "peak_bytes": _map_of(_count)}
_ENTRY: Final[Shape] = {"runs": _runs}
_ENTRY_TOO: Final[Shape] = {
    "anchor": _anchors,
    "counts": _map_of(_exact),
    "further": lambda raw, _: raw,
    "judged": _judged,
    "lines": _lines,
    "memory": _map_of(_exact),
    "software": _map_of(_text),
    "step": _step,
}
_HARDWARE: Final[Shape] = {"kind": _kind, "name": _text}
_DOCUMENT: Final[Shape] = {
    "schema": _version,
    "hardware": _hardware,
    "tests": _map_of(_entry),
}


BASELINE_SCHEMA: Final = 2
"""Version of the format that is written; that of 0.2, which is 1, is read as well."""

RESTORE_FILE: Final = (
    "restore the file from version control, or delete it and record it again with "
    "--gpuperf-update=all"
)


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
    names = {name for run in entry.runs for name in run.exact}
    exact = {n: _once([run.exact.get(n) for run in entry.runs]) for n in names}
    looks = _once([_raw_look(run) for run in entry.runs])
    rows = [_raw_run(run) for run in entry.runs]
    parts = {
        "anchor": {n: _raw_anchor(n, value) for n, value in entry.anchor.items()},
        "counts": {n: v for n, v in exact.items() if not _is_memory(n)},
        "memory": {n: v for n, v in exact.items() if _is_memory(n)},
        "further": looks or {},
        "software": dict(entry.software),
        "step": {} if entry.step is None else encode_briefly(entry.step),
        **_raw_lines(entry.lines or ()),
    }
    return {
        **{name: part for name, part in parts.items() if part},
        "runs": rows if any(rows) else len(rows),
        **({} if entry.judged is None else {"judged": encode_briefly(entry.judged)}),
        **({"lines": None} if entry.lines is None else {}),
    }


def _once(values: Sequence[Any]) -> Any:
    """Return the value that all runs have, or a list of theirs."""
    first, *others = values
    return first if all(value == first for value in others) else list(values)


_MOVED: Final = frozenset({"h2d_bytes", "d2h_bytes", "collective_bytes"})


def _is_memory(name: str) -> bool:
    return name.endswith("_bytes") and name not in _MOVED


def _raw_look(run: RunSummary) -> dict[str, Any] | None:
    if run.further is None:
        return None
    is_known = run.further.usual == _usual(run)
    usual = {} if is_known else {"usual": dict(run.further.usual)}
    return {**encode_briefly(replace(run.further, usual={})), **usual}


def _raw_lines(lines: Sequence[StoredLine]) -> dict[str, dict[str, int]]:
    """Give each line of source a row. How much a call does tells nothing."""
    found: dict[str, dict[str, int]] = {}
    for line in lines:
        what = f"{line.kind} {','.join(line.metrics)} {line.op}".rstrip()
        row = found.setdefault(key_of_source(line.file, line.function, line.text), {})
        row[what] = 1 if line.op == CALLED else line.per_step
    return found


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
        **({"times": times} if times else {}),
        **({"board": board} if board else {}),
        **({} if run.round_steps is None else {"round_steps": run.round_steps}),
        **({"session": run.session} if run.session else {}),
    }


def _raw_distribution(distribution: Distribution) -> list[float]:
    return [rounded(getattr(distribution, name)) for name in _TIME]


PARTS: Final = 3
"""Objects around a part of an entry."""

_line: Final = json.JSONEncoder(sort_keys=True).encode


def _layout(value: object, depth: int = 0) -> str:
    """Give each part of an entry, and each item of an array, one line."""
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict) and value and depth < PARTS:
        rows = [
            f"{inner}{_line(key)}: {_layout(item, depth + 1)}"
            for key, item in sorted(value.items())
        ]
        return "{\n" + ",\n".join(rows) + f"\n{outer}}}"
    if isinstance(value, list) and value and depth <= PARTS:
        rows = [f"{inner}{_line(item)}" for item in value]
        return "[\n" + ",\n".join(rows) + f"\n{outer}]"
    return _line(value)
