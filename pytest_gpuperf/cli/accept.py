"""``gpuperf accept``: what a run measured becomes the stored baselines."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..baselines import store
from ..baselines.acceptance import acceptance
from ..baselines.acceptance import chosen
from ..baselines.acceptance import stored_changes
from ..baselines.operations import keep_operations
from ..baselines.operations import read_operations
from ..model.baseline import AcceptancePlan
from ..model.baseline import BaselineChange
from ..model.baseline import Baselines
from ..report.command import accept_command
from ..report.command import measure_command
from ..report.screen.acceptance import acceptance_lines
from ..report.screen.acceptance import missed_lines
from ..report.screen.acceptance import refused_lines
from ..report.screen.summary import refresh_lines
from ..settings import refuse_in_ci
from ..visible import printed
from .files import add_baselines_argument
from .pending import add_choice_arguments
from .pending import choice_of
from .pending import files_in
from .pending import nothing_chosen
from .pending import read_pending
from .pending import refuse_unknown_names


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


def run(arguments: argparse.Namespace, _rest: Sequence[str]) -> int:
    """Store what is chosen and moved, print old and new values."""
    # A gate that moves its own baseline passes whatever it measures.
    refuse_in_ci("gpuperf accept", "accept", os.environ)
    # All are read before any is stored: a broken file must not leave half of them
    # accepted.
    found = [read_pending(path) for path in files_in(arguments.pending)]
    refuse_unknown_names(arguments.pending, found, choice_of(arguments))
    return max([_accept(arguments, pending) for pending in found])


def _accept(arguments: argparse.Namespace, pending: Baselines) -> int:
    old = store.read(arguments.baselines, pending.hardware)
    choice = choice_of(arguments)
    if not chosen(pending, old, choice):
        sys.stdout.write(printed(nothing_chosen(pending, choice)))
        return EXIT_REFUSED if any(map(choice.is_named, pending.entries)) else 0
    plan = acceptance(pending, old, choice)
    changes = stored_changes(
        arguments.baselines, old, plan.entries, lock_folder=LOCK_FOLDER
    )
    given: Path = arguments.pending
    folder, hardware = given if given.is_dir() else given.parent, pending.hardware
    digests = {
        test: read_operations(folder, hardware, test, pending.entries[test])
        for test in plan.entries
    }
    keep_operations(arguments.baselines, hardware, plan.entries, digests)
    lines = _lines(arguments, pending, plan, changes)
    sys.stdout.write(printed(lines))
    return EXIT_REFUSED if plan.drifted or plan.missed else 0


def _lines(
    arguments: argparse.Namespace,
    pending: Baselines,
    plan: AcceptancePlan,
    changes: Sequence[BaselineChange],
) -> Iterator[str]:
    if changes:
        path = store.path_of(arguments.baselines, pending.hardware)
        yield f"accepted into {path}:"
        yield from (line.text for line in refresh_lines(changes))
    insist = accept_command(
        str(arguments.pending), str(arguments.baselines), plan.drifted
    )
    yield from refused_lines(plan.drifts, insist)
    yield from missed_lines(plan, measure_command(plan.missed, pending.hardware.kind))
    yield from acceptance_lines(plan)
