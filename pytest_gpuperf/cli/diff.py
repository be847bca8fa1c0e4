"""``gpuperf diff``: what was measured last, against what is stored."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..baselines import store
from ..baselines.acceptance import Choice
from ..baselines.acceptance import acceptance
from ..baselines.acceptance import chosen
from ..baselines.refresh import changes
from ..model.baseline import Baselines
from ..plugin.terminal import row_of
from ..report.screen.acceptance import outlook_lines
from ..report.screen.summary import refresh_lines
from ..visible import printed
from .files import add_baselines_argument
from .files import elsewhere
from .pending import acceptance_of
from .pending import add_choice_arguments
from .pending import choice_of
from .pending import files_in
from .pending import nothing_chosen
from .pending import read_pending
from .pending import refuse_unknown_names


REST: Final = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files, what to take of them, and the two folders."""
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="PENDING",
        help="file that a run left, or its folder (default: that of --pending)",
    )
    add_choice_arguments(parser)
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
    named = [file for path in arguments.files for file in files_in(path)]
    paths = named or sorted(arguments.pending.glob("pending-*.json"))
    lines = list(_lines(arguments, paths))
    if not paths:
        hint = elsewhere(arguments.pending)
        lines = [
            f"nothing pending in {arguments.pending}: run `pytest --gpuperf` first{hint}"
        ]
    sys.stdout.write(printed(lines))
    return 0


def _lines(arguments: argparse.Namespace, paths: Sequence[Path]) -> Iterator[str]:
    choice, found = choice_of(arguments), [read_pending(path) for path in paths]
    refuse_unknown_names(arguments.pending, found, choice)
    for path, new in zip(paths, found, strict=True):
        yield from _compared(path, new, arguments.baselines, choice)


def _compared(
    path: Path, new: Baselines, folder: Path, choice: Choice
) -> tuple[str, ...]:
    """Compare the tests that the last run measured; the others are not gone."""
    old, stored = store.read(folder, new.hardware), store.path_of(folder, new.hardware)
    tests = chosen(new, old, choice)
    if not tests:
        return nothing_chosen(new, choice)
    rows = [row_of(change) for change in changes(old, new) if change.test in tests]
    if not rows:
        return (f"nothing pending in {path}: it says the same as {stored}",)
    plan = acceptance(new, old, choice)
    return (
        f"{stored} -> {path}",
        *(line.text for line in refresh_lines(rows)),
        *outlook_lines(acceptance_of(plan, new, choice)),
    )
