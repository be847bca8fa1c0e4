"""``gpuperf accept``: what a run measured becomes the stored baselines."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..baselines.acceptance import changes_by
from ..baselines.acceptance import stored_changes
from ..baselines.operations import keep_operations
from ..baselines.operations import read_operations
from ..model.baseline import BaselineChange
from ..report.command import accept_command
from ..report.command import measure_command
from ..report.screen.acceptance import acceptance_lines
from ..report.screen.acceptance import missed_lines
from ..report.screen.acceptance import outlook_lines
from ..report.screen.acceptance import refused_lines
from ..report.screen.summary import refresh_lines
from ..settings import refuse_in_ci
from ..visible import printed
from .files import add_baselines_argument
from .pending import Pending
from .pending import add_choice_arguments
from .pending import choice_of
from .pending import files_in
from .pending import nothing_chosen
from .pending import plans


REST: Final = None

EXIT_REFUSED: Final = 1
"""Exit code if something was to be accepted and is not; as pytest's for failures."""

LOCK_FOLDER: Final = Path(".gpuperf")
"""Folder in which runs take turns to write."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the file, what to take of it, and the committed folder."""
    parser.add_argument(
        "pending",
        type=Path,
        metavar="PENDING",
        help="file that a run left, .gpuperf/pending-<hardware>.json, or its folder",
    )
    add_choice_arguments(parser)
    add_baselines_argument(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say what would be accepted, and write nothing",
    )


def run(arguments: argparse.Namespace, _rest: Sequence[str]) -> int:
    """Store what is chosen and moved, print old and new values."""
    if not arguments.dry_run:
        # A gate that moves its own baseline passes whatever it measures.
        refuse_in_ci("gpuperf accept", "accept", os.environ)
    status = 0
    for found in plans(arguments, arguments.pending, files_in(arguments.pending)):
        store = _planned if arguments.dry_run else _stored
        refuses, lines = _said(arguments, found, store(arguments, found))
        status = EXIT_REFUSED if refuses and not arguments.dry_run else status
        sys.stdout.write(printed(lines))
    return status


def _planned(_: argparse.Namespace, found: Pending) -> Sequence[BaselineChange]:
    return changes_by(found.old, found.plan.entries)


def _stored(arguments: argparse.Namespace, found: Pending) -> Sequence[BaselineChange]:
    """Store what is planned, with its operations, and return what moved."""
    entries, hardware = found.plan.entries, found.new.hardware
    moved = stored_changes(
        arguments.baselines, found.old, entries, lock_folder=LOCK_FOLDER
    )
    digests = {
        test: read_operations(
            found.path.parent, hardware, test, found.new.entries[test]
        )
        for test in entries
    }
    keep_operations(arguments.baselines, hardware, entries, digests)
    return moved


def _said(
    arguments: argparse.Namespace, found: Pending, changes: Sequence[BaselineChange]
) -> tuple[bool, Iterable[str]]:
    """Return whether something is refused, and how all is said."""
    choice, plan = choice_of(arguments), found.plan
    if not found.chosen:
        refuses = any(map(choice.is_named, found.new.entries))
        return refuses, nothing_chosen(found.new, choice)
    lines = _lines(arguments, found, changes)
    return bool(plan.drifted or plan.missed), lines


def _lines(
    arguments: argparse.Namespace, found: Pending, changes: Sequence[BaselineChange]
) -> Iterator[str]:
    plan, kind = found.plan, found.new.hardware.kind
    if changes:
        would = "would be " if arguments.dry_run else ""
        yield f"{would}accepted into {found.stored}:"
        yield from (line.text for line in refresh_lines(changes))
    insist = accept_command(
        str(arguments.pending), str(arguments.baselines), plan.drifted
    )
    yield from refused_lines(plan.drifts, insist)
    yield from missed_lines(plan, measure_command(plan.missed, kind))
    yield from (outlook_lines if arguments.dry_run else acceptance_lines)(plan)
