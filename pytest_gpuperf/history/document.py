"""A file of the history: gzip, in it JSON, a line a call of ``gpuperf(step)``.

Each line is complete in itself, so that DuckDB and others can read a folder of files.
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
from collections.abc import Iterator
from functools import lru_cache
from math import isfinite
from time import gmtime
from time import strftime
from time import strptime
from typing import Any
from typing import Final
from typing import NoReturn

from ..errors import ErrorId
from ..errors import UsageError
from ..model.codec import encode
from ..model.history import CallRow


HISTORY_SCHEMA: Final = 1
"""Version of the format that is written, and the newest one that is read."""

MOST_ROW_BYTES: Final = 2**26
"""Largest size of an unpacked file: 100,000 lines, more than any run has."""

MOST_PACKED_BYTES: Final = 2**25
"""Largest size of a packed file: one that compresses badly has fewer lines."""

LONGEST_ROW: Final = 2**20
"""Bytes of a line: a call has some tens of metrics, and a name."""

PIECE: Final = 2**16
"""Bytes that are unpacked at once, so that a bomb costs little memory."""

_WHEN: Final = re.compile(r"[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"
_NEEDED: Final = frozenset({"schema", "test", "hardware", "recorded_at"})
_OPTIONAL: Final = frozenset({"commit", "dirty", "versions", "metrics", "outcomes"})


class UnreadableError(UsageError):
    """A file that is none of the history; its text says why, behind the name."""


@lru_cache(maxsize=4096)
def seconds_of(moment: str) -> int:
    """Return *moment*, ``2026-03-01T09:30:00Z``, in seconds since 1970.

    Raises ``ValueError`` if there is no such moment.
    """
    if not _WHEN.fullmatch(moment):
        msg = f"expected a moment such as 2026-03-01T09:30:00Z, found {moment[:40]!r}"
        raise ValueError(msg)
    # `timegm`, as `mktime` would read it in local time.
    return timegm(strptime(moment, _FORMAT))


def moment_of(seconds: float) -> str:
    """Return the moment that is so many *seconds* after the begin of 1970."""
    return strftime(_FORMAT, gmtime(seconds))


def dumps_rows(rows: Iterable[CallRow]) -> bytes:
    """Write *rows*; the same ones are the same bytes, whenever they are written."""
    lines = [
        json.dumps(_written(row), allow_nan=False, separators=(",", ":"))
        for row in rows
    ]
    # No time stamp in the header: the same rows are the same bytes.
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)


def _written(row: CallRow) -> dict[str, Any]:
    metrics = {name: _shortest(value) for name, value in row.metrics.items()}
    return {"schema": HISTORY_SCHEMA, **encode(row), "metrics": metrics}


def _shortest(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def loads(content: bytes) -> list[CallRow]:
    """Read a file; raises ``UnreadableError`` at the first thing that does not belong."""
    lines = enumerate(_lines(content), start=1)
    rows = [_row(line, number) for number, line in lines if line.strip()]
    if not rows:
        _refuse("it has no line")
    return rows


def _lines(content: bytes) -> Iterator[str]:
    """Yield the lines of a file that is small enough, without keeping it whole."""
    if len(content) > MOST_PACKED_BYTES:
        _refuse(f"it is larger than {MOST_PACKED_BYTES} bytes")
    # A file that is too large is refused before the slow reading of its lines.
    for _ in _pieces(content):  # cheap beside reading the lines
        pass
    begun = b""
    for piece in _pieces(content):
        *whole, begun = (begun + piece).split(b"\n")
        yield from map(_decoded, whole)
        if len(begun) > LONGEST_ROW:
            _refuse(f"it has a line longer than {LONGEST_ROW} bytes")
    yield _decoded(begun)


def _pieces(content: bytes) -> Iterator[bytes]:
    unpacked = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            while piece := file.read(PIECE):
                unpacked += len(piece)
                if unpacked > MOST_ROW_BYTES:
                    _refuse(
                        f"it is larger than {MOST_ROW_BYTES} bytes when it is unpacked"
                    )
                yield piece
    except EOFError:
        _refuse("it is truncated")
    except gzip.BadGzipFile:
        _refuse("it is not a gzip file, or damaged")
    except zlib.error:
        _refuse("it is damaged")


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        _refuse("it is not UTF-8 text")


def _row(line: str, number: int) -> CallRow:
    raw = _parsed(line, number)
    version = raw.get("schema")
    if type(version) is int and version > HISTORY_SCHEMA:
        _refuse(
            f"it was written by a newer pytest-gpuperf (schema {version}, this one "
            f"reads {HISTORY_SCHEMA})"
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
        _refuse(f"its line {number} is not JSON")
    if not isinstance(raw, dict):
        _refuse(f"its line {number} is not a JSON object")
    return raw


def _checked(raw: dict[str, Any]) -> CallRow:
    """Check each field by hand: a generic decoder is too slow for millions of rows."""
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
    raise UnreadableError(why, ErrorId.GP523)
