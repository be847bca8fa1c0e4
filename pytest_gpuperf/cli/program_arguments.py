"""The program that a command runs, as its command line names it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..errors import UsageError
from .program import Program
from .program import check_script


REST: Final = "SCRIPT [-- arguments...]"


def add_program(parser: argparse.ArgumentParser) -> None:
    """Declare the program and the folder whose lines are named."""
    parser.add_argument(
        "script", nargs="?", metavar="SCRIPT", help="script to run, as python would"
    )
    parser.add_argument(
        "-m", dest="module", metavar="MODULE", help="module to run in its place"
    )
    parser.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        help="folder of the code whose lines to name (default: the working directory, "
        "or the script's where it lies elsewhere)",
    )


def program_of(arguments: argparse.Namespace, rest: Sequence[str]) -> Program:
    """Tell the program and its arguments; raises ``UsageError`` where it cannot be one."""
    own, *passed_on = rest or ["--"]
    if own != "--":
        arguments.parser.error(
            f"unexpected {own}: arguments of the script go after `--`"
        )
    if (arguments.script is None) == (arguments.module is None):
        arguments.parser.error("expected either a script or -m MODULE")
    if arguments.script is not None:
        check_script(arguments.script)
    return Program(
        name=arguments.module or arguments.script,
        is_module=arguments.module is not None,
        arguments=tuple(passed_on),
    )


def root_of(named: Path | None, program: Program) -> Path:
    """Return the folder *named*, or that of the code; raises ``UsageError`` for none."""
    here = Path.cwd()
    if named is not None:
        if not named.is_dir():
            msg = f"--root={named}: there is no such folder; expected that of your code"
            raise UsageError(msg)
        return named.resolve()
    if program.is_module:
        return here
    folder = Path(program.name).absolute().parent.resolve()
    return here if folder.is_relative_to(here) else folder
