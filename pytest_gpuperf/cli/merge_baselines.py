"""``gpuperf merge-baselines``: the driver with which git merges baseline files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..baselines import store
from ..baselines.format import dumps
from ..baselines.format import join
from ..errors import BaselineError
from ..errors import ErrorId
from ..model.baseline import Baselines
from ..model.baseline import Entry
from ..model.environment import DeviceKind
from ..report.command import measure_command
from ..report.wrapping import wrapped
from ..visible import printed
from .files import read_document


REST: Final = None

CONFLICT: Final = 1
"""Exit code by which git knows that somebody must look at the file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the three files that git names, and the one that they are versions of."""
    for name, metavar, meaning in (
        ("ancestor", "ANCESTOR", "what both branches began with: %%O"),
        ("ours", "OURS", "what this branch has, and where the result goes: %%A"),
        ("theirs", "THEIRS", "what the other branch has: %%B"),
    ):
        parser.add_argument(name, type=Path, metavar=metavar, help=meaning)
    parser.add_argument(
        "path",
        nargs="?",
        metavar="PATH",
        help="name of the file in the repository, for messages: %%P",
    )


def run(arguments: argparse.Namespace, _rest: Sequence[str]) -> int:
    """Merge into OURS; return 1 where both branches recorded a test anew."""
    name = arguments.path or str(arguments.ours)
    ours, theirs = read_document(arguments.ours), read_document(arguments.theirs)
    if ours.hardware != theirs.hardware:
        msg = (
            f"{name}: one branch measured on {ours.hardware.key}, the other on "
            f"{theirs.hardware.key}; keep one of them, or give each its own file"
        )
        raise BaselineError(msg, ErrorId.GP508)
    ancestor = _ancestor(arguments.ancestor, ours)
    merged, conflicts = join(ancestor, ours, theirs.entries)
    # Written also with conflicts: git takes the exit code for the outcome, and OURS as
    # the file to resolve.
    store.write(arguments.ours, dumps(merged))
    if not conflicts:
        return 0
    lines = _described(name, conflicts, ours.hardware.kind)
    sys.stderr.write(printed(lines))
    return CONFLICT


def _ancestor(path: Path, ours: Baselines) -> Mapping[str, Entry]:
    """Read what both began with; it is an empty file if both branches added theirs."""
    if path.is_file() and not path.stat().st_size:
        return {}
    ancestor = read_document(path)
    return ancestor.entries if ancestor.hardware == ours.hardware else {}


def _described(name: str, tests: Sequence[str], kind: DeviceKind) -> Sequence[str]:
    both = "a test" if len(tests) == 1 else f"{len(tests)} tests"
    return (
        *wrapped(
            f"gpuperf: {name}: both branches recorded {both} anew, and neither number "
            "is that of the merged code; the file has ours, measure again with:"
        ),
        f"    {measure_command(tests, kind)}",
    )
