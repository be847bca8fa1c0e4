"""From parsed JSON to values, checked field by field.

Each error names the place, what stands there and what belongs there. A place is spelled
out for an error alone: there may be a hundred thousand entries without one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import Final
from typing import NoReturn
from typing import TypeVar

from ..model.baseline import Baselines
from ..model.baseline import Entry
from ..model.baseline import Judged
from ..model.baseline import Origin
from ..model.baseline import RunSummary
from ..model.codec import decode
from ..model.environment import DeviceKind
from ..model.environment import Hardware
from ..model.measurement import Board
from ..model.measurement import Distribution
from ..model.metric import METRICS
from ..model.metric import Kind
from ..model.metric import Unit


V = TypeVar("V")

Place = tuple["Place | None", "str | int"]
"""What it lies in, and its name or its number there."""

Reader = Callable[[Any, Place], V]
Names = frozenset[str]

COMMIT: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")

_LONGEST = 40  # characters of a wrong value that are quoted

_DOCUMENT: Final = frozenset({"schema", "hardware", "tests"})
_HARDWARE: Final = frozenset({"kind", "name"})
_ENTRY: Final = frozenset({"anchor", "software", "runs"})
_ENTRY_TOO: Final = frozenset({"commit", "dirty", "judged"})
_RUN: Final = frozenset({"times", "exact"})
_RUN_TOO: Final = frozenset({"board"})
_BOARD: Final = frozenset({"gpu", "sm_mhz"})
_DISTRIBUTION: Final = frozenset({"q10", "q25", "q50", "mean", "samples"})
_NONE: Final[Names] = frozenset()

_TIMES: Final = frozenset(
    n for n, metric in METRICS.items() if metric.kind is Kind.NOISY
)
_SHARES: Final = frozenset(
    n for n, metric in METRICS.items() if metric.unit is Unit.PERCENT
)
_NO_BOARD: Final = Board()


class ShapeError(Exception):
    """A document of another shape; its text names the place."""


def read_baselines(raw: Any) -> Baselines:
    """Read a whole document of schema 1.

    Raises ``ShapeError`` at the first thing that does not belong.
    """
    parts = _fields(raw, (None, "the file"), _DOCUMENT)
    if type(parts["schema"]) is not int or parts["schema"] != 1:
        _refuse((None, "schema"), "1", parts["schema"])
    return Baselines(
        hardware=_hardware(parts["hardware"], (None, "hardware")),
        entries=_map(parts["tests"], (None, "tests"), _entry),
    )


def _hardware(raw: Any, where: Place) -> Hardware:
    parts = _fields(raw, where, _HARDWARE)
    kinds = [kind.value for kind in DeviceKind]
    if parts["kind"] not in kinds:
        _refuse((where, "kind"), f"one of {', '.join(kinds)}", parts["kind"])
    name = _text(parts["name"], (where, "name"))
    return Hardware(kind=DeviceKind(parts["kind"]), name=name)


def _entry(raw: Any, where: Place) -> Entry:
    parts = _fields(raw, where, _ENTRY, _ENTRY_TOO)
    runs, place = parts["runs"], (where, "runs")
    if not isinstance(runs, list) or not runs:
        _refuse(place, "a list of at least one run", runs)
    return Entry(
        anchor=_anchors(parts["anchor"], (where, "anchor")),
        software=_map(parts["software"], (where, "software"), _text),
        runs=tuple([_run(run, (place, number)) for number, run in enumerate(runs)]),
        origin=_origin(parts, where),
        judged=_judged(parts["judged"], (where, "judged"))
        if "judged" in parts
        else None,
    )


def _origin(parts: Mapping[str, Any], where: Place) -> Origin | None:
    dirty = parts.get("dirty", False)
    if type(dirty) is not bool:
        _refuse((where, "dirty"), "true or false", dirty)
    if "commit" not in parts:
        return None
    commit = _text(parts["commit"], (where, "commit"))
    if not COMMIT.fullmatch(commit):
        _refuse((where, "commit"), "the 40 or 64 hex digits of a commit", commit)
    return Origin(commit=commit, dirty=dirty)


def _judged(raw: Any, where: Place) -> Judged:
    try:
        judged = decode(Judged, raw)
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
    parts = _fields(raw, where, _RUN, _RUN_TOO)
    return RunSummary(
        times=_map(parts["times"], (where, "times"), _distribution),
        exact=_map(parts["exact"], (where, "exact"), _count),
        board=_board(parts["board"], (where, "board"))
        if "board" in parts
        else _NO_BOARD,
    )


def _board(raw: Any, where: Place) -> Board:
    parts = _fields(raw, where, _NONE, _BOARD)
    return Board(
        gpu=_text(parts["gpu"], (where, "gpu")) if "gpu" in parts else None,
        sm_mhz=_clock(parts["sm_mhz"], (where, "sm_mhz"))
        if "sm_mhz" in parts
        else None,
    )


def _clock(raw: Any, where: Place) -> int:
    if type(raw) is not int or raw <= 0:
        _refuse(where, "a whole number above 0", raw)
    return raw


def _distribution(raw: Any, where: Place) -> Distribution:
    parts = _fields(raw, where, _DISTRIBUTION)
    samples = _count(parts["samples"], (where, "samples"))
    if samples == 0:
        _refuse((where, "samples"), "a whole number above 0", samples)
    number = _amount if where[1] in _SHARES else _time
    return Distribution(
        q10=number(parts["q10"], (where, "q10")),
        q25=number(parts["q25"], (where, "q25")),
        q50=number(parts["q50"], (where, "q50")),
        mean=number(parts["mean"], (where, "mean")),
        samples=samples,
    )


def _time(raw: Any, where: Place) -> float:
    if not _is_number(raw) or raw <= 0:
        _refuse(where, "a time above 0", raw)
    return float(raw)


def _amount(raw: Any, where: Place) -> float:
    if not _is_number(raw) or raw < 0:
        _refuse(where, "a number from 0 up", raw)
    return float(raw)


def _is_number(raw: Any) -> bool:
    """Whether *raw* is a number that a float can be: not NaN, nor too large."""
    return type(raw) in {int, float} and abs(raw) <= sys.float_info.max


def _count(raw: Any, where: Place) -> int:
    if type(raw) is not int or raw < 0:
        _refuse(where, "a whole number from 0 up", raw)
    return raw


def _text(raw: Any, where: Place) -> str:
    if not isinstance(raw, str):
        _refuse(where, "a text", raw)
    return raw


def _map(raw: Any, where: Place, reader: Reader[V]) -> dict[str, V]:
    if not isinstance(raw, dict):
        _refuse(where, "an object", raw)
    return {key: reader(item, (where, key)) for key, item in raw.items()}


def _fields(
    raw: Any, where: Place, names: Names, optional: Names = _NONE
) -> dict[str, Any]:
    if not isinstance(raw, dict):
        _refuse(where, "an object", raw)
    if raw.keys() != names:
        _refuse_fields(raw, where, names, optional)
    return raw


def _refuse_fields(
    raw: Mapping[str, Any], where: Place, names: Names, optional: Names
) -> None:
    for name in sorted(names - raw.keys()):
        msg = f'{_spelled(where)} has no field "{name}"'
        raise ShapeError(msg)
    for name in sorted(raw.keys() - names - optional):
        msg = f'{_spelled(where)} has an unknown field "{name}"'
        raise ShapeError(msg)


def _refuse(where: Place, expected: str, found: Any) -> NoReturn:
    quoted = repr(found)
    if len(quoted) > _LONGEST:
        quoted = quoted[:_LONGEST] + "..."
    msg = f"{_spelled(where)}: expected {expected}, found {quoted}"
    raise ShapeError(msg)


def _spelled(place: Place) -> str:
    outer, name = place
    if outer is None:
        return str(name)
    return f"{_spelled(outer)}{f'[{name}]' if isinstance(name, int) else f'.{name}'}"
