"""``gpuperf merge``: the runs of several machines as one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..baselines.operations import join_operations
from ..baselines.store import pending_path
from ..baselines.store import write_pending
from ..devices.preflight import no_garbage_collection
from ..errors import ErrorId
from ..errors import UsageError
from ..model.baseline import Baselines
from ..model.results import RESULTS_NAME
from ..model.results import Merged
from ..model.results import Results
from ..model.results import Shard
from ..report.json.results import merged_document
from ..report.screen.merged import merged_lines
from ..runner.merge import merge
from ..visible import printed
from .files import count
from .files import read_results
from .files import results_file
from .json_option import add_json_argument
from .json_option import print_json
from .pending import read_pending


REST: Final = None

NO_RUN_TO_MERGE: Final = (
    "its run died before it began, or the hidden folder .gpuperf was not uploaded"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the shards, and what must be there."""
    parser.add_argument(
        "shards",
        nargs="+",
        type=Path,
        metavar="PATH",
        help=f"folder that a shard left, or its {RESULTS_NAME}",
    )
    parser.add_argument(
        "--shards",
        dest="expected",
        type=count,
        metavar="N",
        help="fail if there are fewer than N shards (default: as many as are named)",
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
    add_json_argument(parser)


def run(arguments: argparse.Namespace, _rest: Sequence[str]) -> int:
    """Print the table of all shards, join what is pending, return pytest's exit code."""
    with no_garbage_collection():  # looking for some among millions of values
        merged, lines, written = _merged(arguments)
    if arguments.json:
        print_json(merged_document(merged, written))
    else:
        sys.stdout.write(printed((*(f"pending: {path}" for path in written), *lines)))
    return merged.exit_status


def _merged(
    arguments: argparse.Namespace,
) -> tuple[Merged, tuple[str, ...], Sequence[Path]]:
    """Join the named shards; nothing is written if that is refused."""
    shards = [_shard(path) for path in _files(arguments.shards)]
    merged = merge(
        shards,
        expected=arguments.expected,
        allow_missing=arguments.allow_missing,
    )
    # Before anything is written: a verdict that cannot be read refuses the whole.
    lines = merged_lines(merged)
    written = [_write(arguments.out, pending, shards) for pending in merged.pending]
    return merged, lines, written


def _write(folder: Path, pending: Baselines, shards: Sequence[Shard]) -> Path:
    """Write what is *pending*, with the operations that the *shards* left beside it."""
    path = write_pending(folder, pending, are_read=True)
    for shard in shards:
        join_operations(folder, pending, Path(shard.source).parent)
    return path


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the file of each shard; raise ``UsageError`` if one is given twice."""
    seen: set[Path] = set()
    for path in paths:
        file = results_file(path)
        if file.resolve() in seen:
            msg = f"{file}: given twice; name each shard once"
            raise UsageError(msg, ErrorId.GP515)
        seen.add(file.resolve())
        yield file


def _shard(file: Path) -> Shard:
    results = read_results(file, NO_RUN_TO_MERGE)
    return Shard(source=str(file), results=results, pending=_pending(file, results))


def _pending(file: Path, results: Results) -> Baselines | None:
    hardware = results.head.hardware
    if hardware is None:
        return None
    path = pending_path(file.parent, hardware)
    return read_pending(path) if path.exists() else None
