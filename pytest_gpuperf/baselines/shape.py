"""From parsed JSON to values, checked field by field.

Each error names the place, what stands there and what belongs there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from math import isfinite
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


V = TypeVar("V")
Reader = Callable[[Any, str], V]

COMMIT: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")

_LONGEST = 40  # characters of a wrong value that are quoted


class ShapeError(Exception):
    """A document of another shape; its text names the place."""


def read_baselines(raw: Any) -> Baselines:
    """Read a whole document of schema 1.

    Raises ``ShapeError`` at the first thing that does not belong.
    """
    parts = _fields(raw, "the file", {"schema", "hardware", "tests"})
    if type(parts["schema"]) is not int or parts["schema"] != 1:
        _refuse("schema", "1", parts["schema"])
    return Baselines(
        hardware=_hardware(parts["hardware"], "hardware"),
        entries=_map(parts["tests"], "tests", _entry),
    )


def _hardware(raw: Any, where: str) -> Hardware:
    parts = _fields(raw, where, {"kind", "name"})
    kinds = [kind.value for kind in DeviceKind]
    if parts["kind"] not in kinds:
        _refuse(f"{where}.kind", f"one of {', '.join(kinds)}", parts["kind"])
    name = _text(parts["name"], f"{where}.name")
    return Hardware(kind=DeviceKind(parts["kind"]), name=name)


def _entry(raw: Any, where: str) -> Entry:
    needed = {"anchor", "software", "runs"}
    parts = _fields(raw, where, needed, optional={"commit", "dirty", "judged"})
    runs = parts["runs"]
    if not isinstance(runs, list) or not runs:
        _refuse(f"{where}.runs", "a list of at least one run", runs)
    return Entry(
        anchor=_anchors(parts["anchor"], f"{where}.anchor"),
        software=_map(parts["software"], f"{where}.software", _text),
        runs=tuple(
            _run(run, f"{where}.runs[{place}]") for place, run in enumerate(runs)
        ),
        origin=_origin(parts, where),
        judged=_judged(parts["judged"], f"{where}.judged")
        if "judged" in parts
        else None,
    )


def _origin(parts: Mapping[str, Any], where: str) -> Origin | None:
    dirty = parts.get("dirty", False)
    if type(dirty) is not bool:
        _refuse(f"{where}.dirty", "true or false", dirty)
    if "commit" not in parts:
        return None
    commit = _text(parts["commit"], f"{where}.commit")
    if not COMMIT.fullmatch(commit):
        _refuse(f"{where}.commit", "the 40 or 64 hex digits of a commit", commit)
    return Origin(commit=commit, dirty=dirty)


def _judged(raw: Any, where: str) -> Judged:
    try:
        judged = decode(Judged, raw)
    except (TypeError, ValueError, KeyError):
        _refuse(where, "outcomes and a tolerance", raw)
    tolerance = judged.tolerance
    numbers = [*tolerance.ratios.values(), *tolerance.floors.values()]
    if tolerance.detect is not None:
        numbers.append(tolerance.detect)
    for number in numbers:
        _amount(number, f"{where}.tolerance")
    return judged


def _anchors(raw: Any, where: str) -> dict[str, float]:
    if not isinstance(raw, dict):
        _refuse(where, "an object", raw)
    return {
        name: (_time if _is_time(name) else _amount)(value, f"{where}.{name}")
        for name, value in raw.items()
    }


def _is_time(name: str) -> bool:
    return name in METRICS and METRICS[name].kind is Kind.NOISY


def _run(raw: Any, where: str) -> RunSummary:
    parts = _fields(raw, where, {"times", "exact"}, optional={"board"})
    return RunSummary(
        times=_map(parts["times"], f"{where}.times", _distribution),
        exact=_map(parts["exact"], f"{where}.exact", _count),
        board=_board(parts.get("board", {}), f"{where}.board"),
    )


def _board(raw: Any, where: str) -> Board:
    parts = _fields(raw, where, set(), optional={"gpu", "sm_mhz"})
    return Board(
        gpu=_text(parts["gpu"], f"{where}.gpu") if "gpu" in parts else None,
        sm_mhz=_clock(parts["sm_mhz"], f"{where}.sm_mhz")
        if "sm_mhz" in parts
        else None,
    )


def _clock(raw: Any, where: str) -> int:
    if type(raw) is not int or raw <= 0:
        _refuse(where, "a whole number above 0", raw)
    return raw


def _distribution(raw: Any, where: str) -> Distribution:
    parts = _fields(raw, where, {"q10", "q25", "q50", "mean", "samples"})
    samples = _count(parts.pop("samples"), f"{where}.samples")
    if samples == 0:
        _refuse(f"{where}.samples", "a whole number above 0", samples)
    times = {name: _time(value, f"{where}.{name}") for name, value in parts.items()}
    return Distribution(**times, samples=samples)


def _time(raw: Any, where: str) -> float:
    value = _number(raw)
    if value is None or value <= 0:
        _refuse(where, "a time above 0", raw)
    return value


def _amount(raw: Any, where: str) -> float:
    value = _number(raw)
    if value is None or value < 0:
        _refuse(where, "a number from 0 up", raw)
    return value


def _number(raw: Any) -> float | None:
    try:
        value = float(raw) if type(raw) in {int, float} else None
    except OverflowError:
        return None
    return value if value is not None and isfinite(value) else None


def _count(raw: Any, where: str) -> int:
    if type(raw) is not int or raw < 0:
        _refuse(where, "a whole number from 0 up", raw)
    return raw


def _text(raw: Any, where: str) -> str:
    if not isinstance(raw, str):
        _refuse(where, "a text", raw)
    return raw


def _map(raw: Any, where: str, reader: Reader[V]) -> dict[str, V]:
    if not isinstance(raw, dict):
        _refuse(where, "an object", raw)
    return {key: reader(item, f"{where}.{key}") for key, item in raw.items()}


def _fields(
    raw: Any, where: str, names: set[str], optional: Collection[str] = ()
) -> dict[str, Any]:
    if not isinstance(raw, dict):
        _refuse(where, "an object", raw)
    for name in sorted(names - set(raw)):
        msg = f'{where} has no field "{name}"'
        raise ShapeError(msg)
    for name in sorted(set(raw) - names - set(optional)):
        msg = f'{where} has an unknown field "{name}"'
        raise ShapeError(msg)
    return dict(raw)


def _refuse(where: str, expected: str, found: Any) -> NoReturn:
    quoted = repr(found)
    if len(quoted) > _LONGEST:
        quoted = quoted[:_LONGEST] + "..."
    msg = f"{where}: expected {expected}, found {quoted}"
    raise ShapeError(msg)
