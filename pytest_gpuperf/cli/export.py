"""``gpuperf export``: the last run in the format of pytest-benchmark."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from ..baselines.store import write
from ..errors import ErrorId, UsageError
from ..model.run import RESULTS_NAME, Results
from ..report.measured_calls import MeasuredCall, measured_calls
from ..report.pytest_benchmark import dumps
from .shared_options import read_results, results_file


REST: Final = None

NO_RUN_TO_EXPORT: Final = (
    "run `pytest --gpuperf` first, or name the folder with its results"
)


FORMAT: Final = "pytest-benchmark"

REMOVED_FORMATS: Final = ("bmf", "custom-smaller-is-better")
"""What a recipe makes from the results. The names go with the next release."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the format, the run and the file."""
    parser.add_argument(
        "format",
        type=_format,
        metavar="FORMAT",
        help=FORMAT,
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
    """Write the run at the path; raise ``UsageError`` if nothing was timed."""
    file = results_file(arguments.path)
    results = read_results(file, NO_RUN_TO_EXPORT)
    calls = _measured(results, file)
    changed = datetime.fromtimestamp(file.stat().st_mtime, tz=timezone.utc)
    text = dumps(results.head, _timed(calls), changed)
    if arguments.out is None:
        sys.stdout.write(text)
    else:
        write(arguments.out, text)
    return 0


def _format(text: str) -> str:
    if text in REMOVED_FORMATS:
        msg = (
            f"{text!r} was removed: services read {FORMAT} as well, and results.json has "
            "all numbers"
        )
        raise argparse.ArgumentTypeError(msg)
    if text != FORMAT:
        msg = f"found {text!r}, expected {FORMAT}"
        raise argparse.ArgumentTypeError(msg)
    return text


def _measured(results: Results, file: Path) -> Sequence[MeasuredCall]:
    verdicts = {test: record.verdicts for test, record in results.tests.items()}
    samples = {
        call: runs
        for record in results.tests.values()
        for call, runs in record.samples.items()
    }
    calls = tuple(measured_calls(verdicts, samples))
    if not calls:
        msg = f"{file}: nothing was measured in this run; {NO_RUN_TO_EXPORT}"
        raise UsageError(msg, ErrorId.GP514)
    return calls


def _timed(calls: Sequence[MeasuredCall]) -> Sequence[MeasuredCall]:
    """Return those that have times: the format has no place for others."""
    timed = [call for call in calls if call.step_ms]
    if not timed:
        msg = (
            f"{FORMAT} knows times alone, and this run has none: measure on cuda or cpu"
        )
        raise UsageError(msg, ErrorId.GP514)
    untimed = len(calls) - len(timed)
    if untimed:
        left = "1 call has no times and is"
        if untimed > 1:
            left = f"{untimed} calls have no times and are"
        sys.stderr.write(f"gpuperf: {left} left out\n")
    return timed
