"""``gpuperf ab``: one version of the project against another, on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..compare_commits.commits import compare_versions
from ..compare_commits.side_server import Selection
from ..compare_commits.sides import versions
from ..report.screen.commits import comparison_lines
from ..report.screen.commits import markdown_lines
from ..runner.git import Repository
from ..sharing.processes import EXIT_INTERRUPTED
from ..visible import printed
from .compare_options import add_device_argument
from .compare_options import announce
from .compare_options import pytest_arguments


REST: Final = "[REF [REF2]] [-- pytest arguments...]"

WORSE: Final = 1
"""Exit code of a confirmed regression."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the two versions, the device and the form of the table."""
    parser.add_argument(
        "before",
        nargs="?",
        metavar="REF",
        help="commit to compare with (default: the commit at which HEAD left main)",
    )
    parser.add_argument(
        "after",
        nargs="?",
        metavar="REF2",
        help="commit to judge (default: the working tree, uncommitted changes included)",
    )
    add_device_argument(parser)
    parser.add_argument(
        "--markdown",
        action="store_true",
        help="print the table for a pull request",
    )


def run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Compare, print the table, and return 1 where something became worse."""
    given = pytest_arguments(arguments, rest)
    try:
        repository = Repository.containing(Path.cwd())
        found = compare_versions(
            repository,
            versions(repository, arguments.before, arguments.after),
            Selection(arguments=tuple(given)),
            announce,
        )
    except KeyboardInterrupt:
        announce("interrupted: nothing was judged, nothing is left behind")
        return EXIT_INTERRUPTED
    lines = markdown_lines(found) if arguments.markdown else comparison_lines(found)
    sys.stdout.write(printed(lines))
    return WORSE if found.is_worse else 0
