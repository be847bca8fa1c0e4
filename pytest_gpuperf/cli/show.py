"""``gpuperf show``: what is stored."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from typing import Final

from ..baselines.refresh import typical_values
from ..errors import ErrorId
from ..errors import UsageError
from ..judge.readings import stored_values
from ..model.baseline import Baselines
from ..model.baseline import Entry
from ..model.baseline import typical_time
from ..model.codec import encode
from ..model.environment import DeviceKind
from ..model.metric import Metric
from ..model.metrics import METRICS
from ..model.metrics import PEAK_ALLOCATED
from ..model.metrics import STEP_MS
from ..model.metrics import SYNCS
from ..model.metrics import limited_by
from ..report.numbers import format_change
from ..report.numbers import format_value
from ..report.table import align
from ..visible import printed
from .files import add_baselines_argument
from .files import elsewhere
from .files import read_document
from .json_option import add_json_argument
from .json_option import print_json


REST: Final = None

SHOW_HEADER: Final = (
    *("time", "spread", "memory", "waits", "runs", "torch", "since accepted", "test"),
)
TORCH_COLUMN: Final = 5
DRIFT_COLUMN: Final = 6

MOST_SHOWN: Final = 40
"""Tests that are shown, but with ``-v``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--baselines`` and the hardware."""
    add_baselines_argument(parser)
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="show every test, and the version of torch that measured it",
    )
    parser.add_argument(
        "hardware",
        nargs="?",
        metavar="HARDWARE",
        help="name of the file, as cuda-nvidia-h200 (default: the only one)",
    )
    add_json_argument(parser)


def run(arguments: argparse.Namespace, _rest: Sequence[str]) -> int:
    """Print the table of one hardware, or the files where there are several."""
    paths = sorted(arguments.baselines.glob("*.json"))
    if not paths:
        msg = (
            f"no baselines in {arguments.baselines}: record them with "
            "`pytest --gpuperf --gpuperf-update=missing`, or name their folder with "
            f"--baselines{elsewhere(arguments.baselines)}"
        )
        raise UsageError(msg, ErrorId.GP509)
    if arguments.hardware is not None:
        paths = [_path_of(arguments.hardware, paths)]
    if arguments.json:
        files = [*map(_document, paths)]
        print_json({"schema": STORED_SCHEMA, "status": 0, "files": files})
        return 0
    one = len(paths) == 1
    lines = _stored(paths[0], verbose=arguments.verbose) if one else _files(paths)
    sys.stdout.write(printed(lines))
    return 0


STORED_SCHEMA: Final = 1
"""Version of the format of ``show_schema.json`` in ``report.json``."""


def _document(path: Path) -> dict[str, Any]:
    """Return what is stored in *path*, as ``json.dumps`` takes it."""
    found = read_document(path)
    kind = found.hardware.kind
    tests = {
        test: {
            "values": typical_values(entry, kind),
            "anchor": dict(entry.anchor),
            "runs": len(entry.runs),
            "step_ms": list(stored_values(STEP_MS, entry.runs, kind)),
            "software": dict(entry.software),
            "origin": encode(entry.origin),
        }
        for test, entry in sorted(found.entries.items())
    }
    return {"file": str(path), "hardware": found.hardware.key, "tests": tests}


def _path_of(hardware: str, paths: Sequence[Path]) -> Path:
    by_name = {path.stem: path for path in paths}
    if hardware not in by_name:
        msg = f"no baselines for {hardware!r}; expected one of {', '.join(by_name)}"
        raise UsageError(msg, ErrorId.GP509)
    return by_name[hardware]


def _files(paths: Sequence[Path]) -> tuple[str, ...]:
    cells = [(str(len(read_document(p).entries)), p.stem) for p in paths]
    table = align([("tests", "hardware"), *cells], left=frozenset())
    return (*table, "show one with `gpuperf show HARDWARE`")


def _stored(path: Path, *, verbose: bool) -> tuple[str, ...]:
    baselines = read_document(path)
    rows = _rows(baselines)
    shown = rows if verbose else rows[:MOST_SHOWN]
    hidden = {
        *(() if verbose else (TORCH_COLUMN,)),
        *(() if any(row[DRIFT_COLUMN] for row in rows) else (DRIFT_COLUMN,)),
    }
    kept = [column for column in range(len(SHOW_HEADER)) if column not in hidden]
    cells = [tuple(row[column] for column in kept) for row in (SHOW_HEADER, *shown)]
    left = [kept.index(c) for c in kept if c in {TORCH_COLUMN, DRIFT_COLUMN}]
    title = f"{baselines.hardware.name} ({baselines.hardware.kind.value}), {path}"
    more = len(rows) - len(shown)
    return (
        title,
        *align(cells, left=frozenset(left)),
        *((f"and {more} more, with -v",) if more else ()),
    )


def _rows(baselines: Baselines) -> list[tuple[str, ...]]:
    kind = baselines.hardware.kind
    return [
        (*_cells(entry, kind), test)
        for test, entry in sorted(baselines.entries.items())
    ]


def _cells(entry: Entry, kind: DeviceKind) -> tuple[str, ...]:
    """Return times as the judge reads them, and the largest run of bytes and counts."""
    times = stored_values(STEP_MS, entry.runs, kind)
    return (
        format_value(STEP_MS, typical_time(times)) if times else "-",
        f"{_spread_percent(times):.1f} %" if len(times) > 1 else "-",
        _largest(entry, limited_by(str(PEAK_ALLOCATED.budget))),
        _largest(entry, (SYNCS,)),
        str(len(entry.runs)),
        entry.software.get("torch", "-"),
        _drift(entry, kind),
    )


def _drift(entry: Entry, kind: DeviceKind) -> str:
    """Say how far each metric is from its anchor, of those that left it."""
    now = typical_values(entry, kind)
    return ", ".join(
        f"{name} {format_change(METRICS[name], anchor, now[name])}"
        for name, anchor in sorted(entry.anchor.items())
        if name in now and now[name] != anchor
    )


def _spread_percent(times: Sequence[float]) -> float:
    """Distance of the slowest from the fastest run; *times* ascend."""
    return 100 * (times[-1] - times[0]) / typical_time(times)


def _largest(entry: Entry, metrics: Sequence[Metric]) -> str:
    """Format the first of *metrics* that was measured; a device measures only one."""
    for metric in metrics:
        values = [
            run.exact[metric.name] for run in entry.runs if metric.name in run.exact
        ]
        if values:
            return format_value(metric, max(values))
    return "-"
