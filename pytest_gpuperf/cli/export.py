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
from ..errors import ErrorId
from ..errors import UsageError
from ..model.environment import DeviceKind
from ..model.results import RESULTS_NAME
from ..model.results import Head
from ..report.exchange import pytest_benchmark as pytest_benchmark_json
from ..report.exchange.measured_calls import MeasuredCall
from ..report.exchange.measured_calls import measured_calls
from ..report.exchange.tracking_services import bencher_json
from ..report.exchange.tracking_services import smaller_is_better_json
from .files import read_results
from .files import read_samples
from .files import results_file


REST: Final = None

NO_RUN_TO_EXPORT: Final = (
    "run `pytest --gpuperf` first, or name the folder that it left"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedRun:
    """One run: its head, its calls, and when it ended."""

    head: Head
    calls: tuple[MeasuredCall, ...]
    kind: DeviceKind
    at: datetime


def _pytest_benchmark(measured: ExportedRun) -> str:
    """Write the calls with times: the format has no place for others."""
    untimed = sum(not call.step_ms for call in measured.calls)
    if untimed == len(measured.calls):
        msg = (
            "pytest-benchmark knows times alone, and this run has none: measure on cuda "
            "or cpu, or export custom-smaller-is-better or bmf"
        )
        raise UsageError(msg, ErrorId.GP514)
    if untimed:
        calls = (
            "1 call has no times and is"
            if untimed == 1
            else (f"{untimed} calls have no times and are")
        )
        sys.stderr.write(f"gpuperf: {calls} left out\n")
    return pytest_benchmark_json.dumps(measured.head, measured.calls, measured.at)


def _smaller_is_better(measured: ExportedRun) -> str:
    return smaller_is_better_json(measured.calls, measured.kind)


def _bmf(measured: ExportedRun) -> str:
    return bencher_json(measured.calls, measured.kind)


FORMATS: Final[Mapping[str, Callable[[ExportedRun], str]]] = {
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
        help=f"folder that a run left, or its {RESULTS_NAME} (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="file to write (default: standard output)",
    )


def run(arguments: argparse.Namespace, _rest: Sequence[str]) -> int:
    """Write the run at the path; raise ``UsageError`` if nothing was measured."""
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


def _measured(file: Path) -> ExportedRun:
    results = read_results(file, NO_RUN_TO_EXPORT)
    hardware = results.head.hardware
    verdicts = {test: record.verdicts for test, record in results.tests.items()}
    samples = read_samples(file) if hardware else {}
    calls = tuple(measured_calls(verdicts, samples))
    if not calls or hardware is None:
        msg = f"{file}: nothing was measured in this run; {NO_RUN_TO_EXPORT}"
        raise UsageError(msg, ErrorId.GP514)
    changed = datetime.fromtimestamp(file.stat().st_mtime, tz=timezone.utc)
    return ExportedRun(head=results.head, calls=calls, kind=hardware.kind, at=changed)
