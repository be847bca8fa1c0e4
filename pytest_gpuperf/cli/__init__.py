"""The command ``gpuperf``: baselines and audits from a shell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final
from typing import NoReturn
from typing import Protocol

from ..errors import GpuperfError
from ..errors import UsageError
from . import ab
from . import accept
from . import audit
from . import bisect
from . import diff
from . import doctor
from . import export
from . import history
from . import memory
from . import merge
from . import merge_baselines
from . import refresh
from . import report
from . import show


USAGE_ERROR: Final = 4
"""Exit code of pytest for the same."""


class Command(Protocol):
    """A module of this folder."""

    @property
    def SUMMARY(self) -> str:  # noqa: N802 - a constant of the module
        """What it does, in a line of the help."""

    @property
    def REST(self) -> str | None:  # noqa: N802 - a constant of the module
        """How the help names the arguments that it passes on, if it does."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare its arguments."""

    def run(self, arguments: argparse.Namespace, rest: Sequence[str]) -> int:
        """Do it, and return the exit code."""


COMMANDS: Final[dict[str, Command]] = {
    "refresh": refresh,
    "show": show,
    "diff": diff,
    "accept": accept,
    "merge-baselines": merge_baselines,
    "history": history,
    "merge": merge,
    "report": report,
    "export": export,
    "ab": ab,
    "bisect": bisect,
    "doctor": doctor,
    "audit": audit,
    "memory": memory,
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are this package's."""

    def error(self, message: str) -> NoReturn:
        """Raise ``UsageError`` instead of leaving with code 2, which pytest uses."""
        msg = f"{message}; see `{self.prog} --help`"
        raise UsageError(msg)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``gpuperf`` with *argv* and return its exit code."""
    own, passed_on = _parted(sys.argv[1:] if argv is None else argv)
    try:
        arguments, unknown = _parser().parse_known_args(own)
        command = COMMANDS[arguments.command]
        rest = [*unknown, *passed_on]
        if rest and command.REST is None:
            arguments.parser.error(f"unrecognized arguments: {' '.join(rest)}")
        return command.run(arguments, rest)
    except GpuperfError as error:
        sys.stderr.write(f"gpuperf: {error}\n")
        return USAGE_ERROR


def _parted(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Part *argv* before ``--``; what versions of argparse make of it differs."""
    end = argv.index("--") if "--" in argv else len(argv)
    return argv[:end], argv[end:]


def _parser() -> Parser:
    parser = Parser(
        prog="gpuperf",
        description="Baselines of pytest --gpuperf: refresh, show, compare. Runs as a page. "
        "One commit against another. What a machine can see. Audits of scripts.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        usage = f"%(prog)s [options] {command.REST}" if command.REST else None
        subparser = commands.add_parser(
            name,
            usage=usage,
            help=command.SUMMARY,
            description=command.SUMMARY,
            allow_abbrev=False,
        )
        command.add_arguments(subparser)
        subparser.set_defaults(parser=subparser)
    return parser
