"""``gpuperf accept``: what a run measured becomes the stored baselines."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..accepting import Plan
from ..accepting import acceptance
from ..accepting import chosen
from ..accepting import stored_changes
from ..baselines import store
from ..baselines.refresh import Change
from ..ci import refuse_in_ci
from ..model.baseline import Baselines
from ..report.acceptance import acceptance_lines
from ..report.acceptance import refused_lines
from ..report.command import accept_command
from ..report.terminal import refresh_lines
from ..summary import row_of
from .pending import acceptance_of
from .pending import add_choice_arguments
from .pending import choice_of
from .pending import files_in
from .pending import nothing_chosen
from .pending import read_pending
from .pending import refuse_unknown_names
from .stored import add_baselines_argument


SUMMARY: Final = "store what a run measured, as in CI, as the baselines"
REST: Final = None

REFUSED: Final = 1
"""Exit code where something drifted too far to be accepted; pytest's for the same."""

LOCKS: Final = Path(".gpuperf")
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
    refuse_in_ci("gpuperf accept", "accept", os.environ)
    found = [read_pending(path) for path in files_in(arguments.pending)]
    refuse_unknown_names(arguments.pending, found, choice_of(arguments))
    return max([_accept(arguments, pending) for pending in found])


def _accept(arguments: argparse.Namespace, pending: Baselines) -> int:
    old = store.read(arguments.baselines, pending.hardware)
    choice = choice_of(arguments)
    if not chosen(pending, old, choice):
        sys.stdout.writelines(f"{line}\n" for line in nothing_chosen(pending, choice))
        return 0
    plan = acceptance(pending, old, choice)
    changes = stored_changes(arguments.baselines, old, plan.entries, lock_folder=LOCKS)
    lines = _lines(arguments, pending, plan, changes)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return REFUSED if plan.drifts else 0


def _lines(
    arguments: argparse.Namespace,
    pending: Baselines,
    plan: Plan,
    changes: Sequence[Change],
) -> Iterator[str]:
    if changes:
        path = store.path_of(arguments.baselines, pending.hardware)
        yield f"accepted into {path}:"
        yield from (line.text for line in refresh_lines([row_of(c) for c in changes]))
    insist = accept_command(
        str(arguments.pending), _folder(arguments.baselines), plan.drifted
    )
    yield from refused_lines(plan.drifts, insist)
    yield from acceptance_lines(acceptance_of(plan, pending), "gpuperf: ")


def _folder(baselines: Path) -> str:
    """Name the folder where it is not the default one."""
    return "" if baselines == Path("baselines") else str(baselines)
