"""The file format: one JSON document a hardware, made to be read as a diff.

Indented and sorted, so that two branches that refresh different tests merge; a line
a run, four significant digits, and nothing that changes without a measurement.
``schema.json`` beside this module is its JSON Schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from typing import Final

from ..errors import BaselineError
from ..model.baseline import Baselines
from ..model.baseline import Entry
from ..model.baseline import Judged
from ..model.baseline import Origin
from ..model.baseline import RunSummary
from ..model.codec import encode
from ..model.codec import encode_briefly
from ..model.measurement import Distribution
from ..model.metric import METRICS
from ..model.metric import Kind
from .shape import ShapeError
from .shape import read_baselines


SCHEMA: Final = 1
"""Version of the format that is written, and the only one that is read."""

WAY_OUT: Final = (
    "restore the file from version control, or delete it and record it again with "
    "--gpuperf-update=all"
)


def rounded(value: float) -> float:
    """*value* to four significant digits, a count or a size as it is."""
    return value if isinstance(value, int) else float(f"{value:.4g}")


def dumps(baselines: Baselines, *, are_read: bool = False) -> str:
    """Write *baselines* as a document.

    Raises ``BaselineError`` where a value is none that ``loads`` would take back,
    such as NaN: nothing is written that cannot be read. What *are_read* says that
    ``loads`` has taken is not looked at again.
    """
    raw = {
        "schema": SCHEMA,
        "hardware": encode(baselines.hardware),
        "tests": {test: _raw_entry(entry) for test, entry in baselines.entries.items()},
    }
    if not are_read:
        _check(raw)
    return _layout(raw) + "\n"


def _check(raw: Mapping[str, Any]) -> None:
    try:
        read_baselines(raw)
    except ShapeError as error:
        msg = f"the new baseline is not stored, {error}"
        raise BaselineError(msg) from None


def loads(text: str, source: str, way_out: str = WAY_OUT) -> Baselines:
    """Read a document; *source* names it in errors, *way_out* says what to do then.

    Raises ``BaselineError`` where the text is empty, cut off, no JSON, of a newer
    schema, of another shape, or holds a number that cannot have been measured.
    """
    try:
        raw = _parse(text)
    except ShapeError as error:
        raise _refusal(source, str(error), way_out) from None
    version = raw.get("schema") if isinstance(raw, dict) else None
    if type(version) is int and version > SCHEMA:
        msg = (
            f"{source}: written by a newer pytest-gpuperf "
            f"(schema {version}, this one reads {SCHEMA}): upgrade it"
        )
        raise BaselineError(msg)
    try:
        return read_baselines(raw)
    except ShapeError as error:
        raise _refusal(source, str(error), way_out) from None


def _parse(text: str) -> Any:
    """Raise ``ShapeError`` where *text* is no JSON that can be read."""
    if not text.strip():
        msg = "the file is empty"
        raise ShapeError(msg)
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise ShapeError(_why_no_json(text, error)) from None
    except (RecursionError, ValueError):  # nested too deeply; a number too long
        msg = "the file is no JSON that can be read"
        raise ShapeError(msg) from None


def _why_no_json(text: str, error: json.JSONDecodeError) -> str:
    in_string = error.msg.startswith("Unterminated string")
    if in_string or error.pos >= len(text.rstrip()):
        return f"the file is cut off at line {error.lineno}"
    if text[error.pos :].startswith(("<<<<<<<", "=======", ">>>>>>>")):
        return f"a merge conflict is left at line {error.lineno}"
    return f"the file is no JSON at line {error.lineno}"


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for at, key in enumerate(keys) if key in keys[:at])
        msg = f'the key "{twice}" stands twice in one object'
        raise ShapeError(msg)
    return found


def _refusal(source: str, found: str, way_out: str) -> BaselineError:
    return BaselineError(f"{source}: {found}; {way_out}")


def _raw_entry(entry: Entry) -> dict[str, Any]:
    return {
        "anchor": {
            name: _raw_anchor(name, value) for name, value in entry.anchor.items()
        },
        **_raw_origin(entry.origin),
        **_raw_judged(entry.judged),
        "software": dict(entry.software),
        "runs": [_raw_run(run) for run in entry.runs],
    }


def _raw_origin(origin: Origin | None) -> dict[str, Any]:
    if origin is None:
        return {}
    return {"commit": origin.commit, **({"dirty": True} if origin.dirty else {})}


def _raw_judged(judged: Judged | None) -> dict[str, Any]:
    return {} if judged is None else {"judged": encode_briefly(judged)}


def _raw_anchor(name: str, value: float) -> float:
    """An exact metric's anchor is stored whole."""
    metric = METRICS.get(name)
    if metric is not None and metric.kind is Kind.EXACT and value == value // 1:
        return int(value)
    return rounded(value)


def _raw_run(run: RunSummary) -> dict[str, Any]:
    times = {name: _raw_distribution(d) for name, d in run.times.items()}
    board = {name: value for name, value in encode(run.board).items() if value}
    raw = {"times": times, "exact": dict(run.exact)}
    return {**raw, "board": board} if board else raw


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
