"""``gpuperf diff``: what was measured last, against what is stored."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..baselines import store
from ..baselines.refresh import changes
from ..model.baseline import Baselines
from ..report.table import Row
from ..report.terminal import refresh_lines
from ..summary import row_of
from .stored import add_baselines_argument
from .stored import read_document


SUMMARY: Final = "compare what pytest --gpuperf measured last with the stored baselines"
REST: Final = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the two folders."""
    add_baselines_argument(parser)
    parser.add_argument(
        "--pending",
        type=Path,
        default=Path(".gpuperf"),
        metavar="DIR",
        help="folder that runs leave their numbers in (default: %(default)s)",
    )


def run(arguments: argparse.Namespace, _rest: Sequence[str]) -> int:
    """Print old and new values, hardware by hardware; differences are no failure."""
    paths = sorted(arguments.pending.glob("pending-*.json"))
    lines = [line for path in paths for line in _compared(path, arguments.baselines)]
    if not paths:
        lines = [
            f"nothing pending in {arguments.pending}: run `pytest --gpuperf` first"
        ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _compared(path: Path, folder: Path) -> tuple[str, ...]:
    new = read_document(path)
    stored = store.path_of(folder, new.hardware)
    rows = _rows(store.read(folder, new.hardware), new)
    if not rows:
        return (f"nothing pending in {path}: it says the same as {stored}",)
    return (f"{stored} -> {path}", *(line.text for line in refresh_lines(rows)))


def _rows(old: Baselines, new: Baselines) -> list[Row]:
    """Leave out tests that the last run did not measure: they are not gone."""
    return [
        row_of(change) for change in changes(old, new) if change.test in new.entries
    ]
