"""``gpuperf merge``: the runs of several machines as one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..baselines.pending import pending_path
from ..baselines.pending import write_pending
from ..devices.garbage import no_garbage_collection
from ..errors import UsageError
from ..merging import merge
from ..model.baseline import Baselines
from ..model.merged import Shard
from ..model.results import FILE
from ..model.results import Results
from ..report.merged import merged_lines
from .left import read_results
from .left import results_file
from .pending import read_pending


SUMMARY: Final = "join the results of several machines into one verdict"
REST: Final = None

ABSENT: Final = (
    "its run died before it began, or the hidden folder .gpuperf was not uploaded"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the shards, and what must be there."""
    parser.add_argument(
        "shards",
        nargs="+",
        type=Path,
        metavar="PATH",
        help=f"folder that a shard left, or its {FILE}",
    )
    parser.add_argument(
        "--shards",
        dest="expected",
        type=_count,
        metavar="N",
        help="fail where there are not so many shards (default: as many as are named)",
    )
    parser.add_argument(
        "--allow-missing",
        action="store_true",
        help="do not fail for tests that were collected and that no shard ran",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(".gpuperf"),
        metavar="DIR",
        help="folder for what can be accepted (default: %(default)s)",
    )


def run(arguments: argparse.Namespace, _rest: Sequence[str]) -> int:
    """Print the table of all shards, join what is pending, return pytest's exit code."""
    with no_garbage_collection():  # looking for some among millions of values
        status, lines = _merged(arguments)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return status


def _merged(arguments: argparse.Namespace) -> tuple[int, tuple[str, ...]]:
    """Join what is named; nothing is written where that is refused."""
    merged = merge(
        [_shard(path) for path in _files(arguments.shards)],
        expected=arguments.expected,
        allow_missing=arguments.allow_missing,
    )
    lines = merged_lines(merged)
    written = [
        write_pending(arguments.out, pending, are_read=True)
        for pending in merged.pending
    ]
    return merged.exit_status, (*(f"pending: {path}" for path in written), *lines)


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        msg = f"expected a whole number from 1 on, found {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the file of each shard; raise ``UsageError`` where one is given twice."""
    seen: set[Path] = set()
    for path in paths:
        file = results_file(path)
        if file.resolve() in seen:
            msg = f"{file}: given twice; name each shard once"
            raise UsageError(msg)
        seen.add(file.resolve())
        yield file


def _shard(file: Path) -> Shard:
    results = read_results(file, ABSENT)
    return Shard(source=str(file), results=results, pending=_pending(file, results))


def _pending(file: Path, results: Results) -> Baselines | None:
    hardware = results.head.hardware
    if hardware is None:
        return None
    path = pending_path(file.parent, hardware)
    return read_pending(path) if path.exists() else None
