"""``gpuperf export``: the last run in the format of another program."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from datetime import timezone
from pathlib import Path
from typing import Final

from ..baselines.store import write
from ..errors import UsageError
from ..model.environment import DeviceKind
from ..model.results import FILE
from ..model.results import Head
from ..report import bmf_json
from ..report import pytest_benchmark_json
from ..report import smaller_is_better_json
from ..report.measured_calls import MeasuredCall
from ..report.measured_calls import measured_calls
from .left import read_results
from .left import read_samples
from .left import results_file


SUMMARY: Final = "write what was measured last in the format of another program"
REST: Final = None

ABSENT: Final = "run `pytest --gpuperf` first, or name the folder that it left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run: its head, its calls, and when it ended."""

    head: Head
    calls: tuple[MeasuredCall, ...]
    kind: DeviceKind
    at: datetime


def _pytest_benchmark(measured: Measured) -> str:
    """Write what has times: that format knows nothing else."""
    untimed = sum(not call.step_ms for call in measured.calls)
    if untimed == len(measured.calls):
        msg = (
            "pytest-benchmark knows times alone, and this run has none: measure on cuda "
            "or cpu, or export custom-smaller-is-better or bmf"
        )
        raise UsageError(msg)
    if untimed:
        calls = (
            "1 call has no times and is"
            if untimed == 1
            else (f"{untimed} calls have no times and are")
        )
        sys.stderr.write(f"gpuperf: {calls} left out\n")
    return pytest_benchmark_json.dumps(measured.head, measured.calls, measured.at)


def _smaller_is_better(measured: Measured) -> str:
    return smaller_is_better_json.dumps(measured.calls, measured.kind)


def _bmf(measured: Measured) -> str:
    return bmf_json.dumps(measured.calls, measured.kind)


FORMATS: Final[Mapping[str, Callable[[Measured], str]]] = {
    "pytest-benchmark": _pytest_benchmark,
    "custom-smaller-is-better": _smaller_is_better,
    "bmf": _bmf,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the format, the run and the file."""
    parser.add_argument(
        "format",
        type=_format,
        metavar="FORMAT",
        help=", ".join(FORMATS),
    )
    parser.add_argument(
        "path",
        nargs="?",
        type=Path,
        default=Path(".gpuperf"),
        metavar="PATH",
        help=f"folder that a run left, or its {FILE} (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="file to write (default: standard output)",
    )


def run(arguments: argparse.Namespace, _rest: Sequence[str]) -> int:
    """Write the run at the path; raise ``UsageError`` where nothing was measured."""
    text = FORMATS[arguments.format](_measured(results_file(arguments.path)))
    if arguments.out is None:
        sys.stdout.write(text)
    else:
        write(arguments.out, text)
    return 0


def _format(text: str) -> str:
    if text not in FORMATS:
        msg = f"found {text!r}, expected one of {', '.join(FORMATS)}"
        raise argparse.ArgumentTypeError(msg)
    return text


def _measured(file: Path) -> Measured:
    results = read_results(file, ABSENT)
    hardware = results.head.hardware
    verdicts = {test: record.verdicts for test, record in results.tests.items()}
    samples = read_samples(file) if hardware else {}
    calls = tuple(measured_calls(verdicts, samples))
    if not calls or hardware is None:
        msg = f"{file}: nothing was measured in this run; {ABSENT}"
        raise UsageError(msg)
    changed = datetime.fromtimestamp(file.stat().st_mtime, tz=timezone.utc)
    return Measured(head=results.head, calls=calls, kind=hardware.kind, at=changed)
