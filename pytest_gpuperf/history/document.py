"""A file of the history: gzip, in it JSON, a line a call of ``gpuperf(step)``.

The lines stand for themselves, so that DuckDB and others can read a folder of them.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from calendar import timegm
from collections.abc import Callable
from collections.abc import Iterable
from functools import lru_cache
from math import isfinite
from time import gmtime
from time import strftime
from time import strptime
from typing import Any
from typing import Final
from typing import NoReturn

from ..errors import UsageError
from ..model.codec import encode
from ..model.history import CallRow


SCHEMA: Final = 1
"""Version of the format that is written, and the newest one that is read."""

MOST_BYTES: Final = 2**28
"""A file may be as large when it is unpacked: 500,000 lines, more is no run's."""

_WHEN: Final = re.compile(r"[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"
_NEEDED: Final = frozenset({"schema", "test", "hardware", "recorded_at"})
_OPTIONAL: Final = frozenset({"commit", "dirty", "versions", "metrics", "outcomes"})


class UnreadableError(UsageError):
    """A file that is not one of the history; its text says why, behind the name."""


@lru_cache(maxsize=4096)
def seconds_of(moment: str) -> int:
    """Return *moment*, ``2026-03-01T09:30:00Z``, in seconds since 1970.

    Raises ``ValueError`` where there is no such moment.
    """
    if not _WHEN.fullmatch(moment):
        msg = f"expected a moment such as 2026-03-01T09:30:00Z, found {moment[:40]!r}"
        raise ValueError(msg)
    return timegm(strptime(moment, _FORMAT))


def moment_of(seconds: float) -> str:
    """Return the moment that is so many *seconds* after the begin of 1970."""
    return strftime(_FORMAT, gmtime(seconds))


def dumps(rows: Iterable[CallRow]) -> bytes:
    """Write *rows*; the same ones are the same bytes, whenever they are written."""
    lines = [
        json.dumps(_written(row), allow_nan=False, separators=(",", ":"))
        for row in rows
    ]
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)


def _written(row: CallRow) -> dict[str, Any]:
    metrics = {name: _shortest(value) for name, value in row.metrics.items()}
    return {"schema": SCHEMA, **encode(row), "metrics": metrics}


def _shortest(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def loads(content: bytes) -> list[CallRow]:
    """Read a file; raises ``UnreadableError`` at the first thing that does not belong."""
    lines = enumerate(_text(content).split("\n"), start=1)
    rows = [_row(line, number) for number, line in lines if line.strip()]
    if not rows:
        _refuse("it holds no line")
    return rows


def _text(content: bytes) -> str:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = file.read(MOST_BYTES + 1)
    except EOFError:
        _refuse("it is truncated")
    except gzip.BadGzipFile:
        _refuse("it is no gzip file, or damaged")
    except zlib.error:
        _refuse("it is damaged")
    if len(unpacked) > MOST_BYTES:
        _refuse(f"it is larger than {MOST_BYTES} bytes")
    try:
        return unpacked.decode()
    except UnicodeDecodeError:
        _refuse("it is no UTF-8 text")


def _row(line: str, number: int) -> CallRow:
    raw = _parsed(line, number)
    version = raw.get("schema")
    if type(version) is int and version > SCHEMA:
        _refuse(
            f"it was written by a newer pytest-gpuperf (schema {version}, this one "
            f"reads {SCHEMA})"
        )
    if type(version) is not int or version < 1:
        _refuse(f"its line {number} has the schema {version!r}")
    try:
        return _checked(raw)
    except (TypeError, ValueError, OverflowError) as error:
        _refuse(f"its line {number} has another shape, {error}")


def _parsed(line: str, number: int) -> dict[str, Any]:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        _refuse(f"its line {number} is no JSON")
    if not isinstance(raw, dict):
        _refuse(f"its line {number} is no JSON object")
    return raw


def _checked(raw: dict[str, Any]) -> CallRow:
    """Look at each field: a history may hold millions of them."""
    if not _NEEDED <= raw.keys() <= _NEEDED | _OPTIONAL:
        odd = sorted(_NEEDED - raw.keys()) + sorted(raw.keys() - _NEEDED - _OPTIONAL)
        msg = f"which lacks or should not have {', '.join(odd)}"
        raise ValueError(msg)
    dirty = raw.get("dirty")
    if dirty is not None and type(dirty) is not bool:
        _object("dirty", dirty)
    commit = raw.get("commit")
    return CallRow(
        test=_string("test", raw["test"]),
        hardware=_string("hardware", raw["hardware"]),
        recorded_at=_moment("recorded_at", raw["recorded_at"]),
        commit=None if commit is None else _string("commit", commit),
        dirty=dirty,
        versions=_map("versions", raw.get("versions", {}), _string),
        metrics=_map("metrics", raw.get("metrics", {}), _number),
        outcomes=_map("outcomes", raw.get("outcomes", {}), _string),
    )


def _map(name: str, raw: Any, read: Callable[[str, Any], Any]) -> dict[str, Any]:
    if type(raw) is not dict:
        _object(name, raw)
    return {_string(name, key): read(name, value) for key, value in raw.items()}


def _string(name: str, raw: Any) -> str:
    if type(raw) is not str:
        _object(name, raw)
    raw.encode()  # a lone surrogate is a ValueError: no database takes it
    return raw


def _moment(name: str, raw: Any) -> str:
    text = _string(name, raw)
    try:
        seconds_of(text)
    except ValueError:
        _object(name, raw)
    return text


def _number(name: str, raw: Any) -> float:
    if type(raw) not in {int, float} or not isfinite(raw):
        _object(name, raw)
    return float(raw)


def _object(name: str, found: Any) -> NoReturn:
    msg = f"found {str(found)[:40]!r} under {name}"
    raise TypeError(msg)


def _refuse(why: str) -> NoReturn:
    raise UnreadableError(why)
