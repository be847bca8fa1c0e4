"""``gpuperf ab``: one version of the project against another, on this machine."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..commits.comparing import compare_versions
from ..commits.repository import Repository
from ..commits.version import versions
from ..model.environment import DeviceKind
from ..report.commits import comparison_lines
from ..report.commits import markdown_lines
from ..runs.fork_server import HEAVY_MODULES
from .program import INTERRUPTED


SUMMARY: Final = "compare this version of the project with another, on this machine"
REST: Final = "[REF [REF2]] [-- pytest arguments...]"

WORSE: Final = 1
"""Exit code of a confirmed regression."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the two versions, the device and the form of the table."""
    parser.add_argument(
        "before",
        nargs="?",
        metavar="REF",
        help="commit to compare with (default: where HEAD left main)",
    )
    parser.add_argument(
        "after",
        nargs="?",
        metavar="REF2",
        help="commit to judge (default: the working tree, uncommitted changes included)",
    )
    parser.add_argument(
        "--device",
        "--gpuperf-device",
        dest="device",
        metavar="KIND",
        help="device to measure on: cuda, pretend or cpu (default: as pytest --gpuperf)",
    )
    parser.add_argument(
        "--markdown",
        action="store_true",
        help="print the table for a pull request",
    )


def run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Compare, print the table, and return 1 where something became worse."""
    given = _pytest_arguments(arguments, rest)
    scripted = f"--gpuperf-device={DeviceKind.SCRIPTED.value}" in given
    try:
        repository = Repository.containing(Path.cwd())
        found = compare_versions(
            repository,
            versions(repository, arguments.before, arguments.after),
            given,
            preload=() if scripted else HEAVY_MODULES,
            announce=_announce,
        )
    except KeyboardInterrupt:
        _announce("interrupted: nothing was judged, nothing is left behind")
        return INTERRUPTED
    lines = markdown_lines(found) if arguments.markdown else comparison_lines(found)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return WORSE if found.is_worse else 0


def _pytest_arguments(arguments: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """Return what pytest is told, in the order in which it reads it."""
    own, *passed_on = rest or ["--"]
    if own != "--":
        arguments.parser.error(f"unexpected {own}: arguments of pytest go after `--`")
    device = [f"--gpuperf-device={arguments.device}"] if arguments.device else []
    return [*shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *device, *passed_on]


def _announce(text: str) -> None:
    sys.stderr.write(f"gpuperf: {text}\n")
    sys.stderr.flush()
