"""The command ``gpuperf``: baselines and audits from a shell."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from io import TextIOWrapper
from typing import Final, NoReturn, Protocol, TextIO, cast

from ..devices.preflight import own_version
from ..errors import ErrorId, GpuperfError, UsageError
from ..model.retired import refuse_retired
from ..visible import VisibleStream, shows_colours


USAGE_ERROR: Final = 4
"""Exit code of pytest for the same."""

REFUSAL_OF: Final = {"ab": 125}
"""Exit codes of commands that are another one: ``git bisect run`` takes 4 for a bad commit."""


RANK_LAUNCHERS: Final = frozenset(
    {"torchrun", "torch.distributed.run", "torch.distributed.launch"}
)
"""Scripts and modules whose arguments are options, a program, and its arguments."""

LONG_OPTION: Final = re.compile(r"(?<!\S)--\w[\w-]*")

GROUPS: Final[dict[str, dict[str, str]]] = {
    "Look": {
        "audit": "find the lines of a script that wait for a GPU; needs none",
        "memory": "predict the peak memory of a script, and what would lower it",
        "doctor": "check what this machine can measure, and how precisely",
        "report": "write an HTML page about the last run",
    },
    "Compare": {
        "ab": "compare this version of the project with another one",
    },
    "Baselines": {
        "refresh": "measure tests and store the numbers as their baselines",
        "accept": "store what a run measured, as in CI, as the baselines",
    },
    "More": {
        "export": "export the last measurements in the format of another program",
    },
}
"""What each command does, in a line of the help; its module has its name."""

COMMANDS: Final = {
    name: does for group in GROUPS.values() for name, does in group.items()
}


class Command(Protocol):
    """A module of this folder. Only the typed command is imported: imports are slow."""

    @property
    def REST(self) -> str | None:  # noqa: N802 - a constant of the module
        """How the help names the arguments that it passes on, if it does."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare its arguments."""

    def run(self, arguments: argparse.Namespace, rest: Sequence[str]) -> int:
        """Do it, and return the exit code."""


class Parser(argparse.ArgumentParser):
    """A parser that reports errors as this package does."""

    def error(self, message: str) -> NoReturn:
        """Raise ``UsageError`` instead of leaving with code 2, which pytest uses."""
        known = self._option_string_actions
        typed = (word for word in LONG_OPTION.findall(message) if word not in known)
        near = next(filter(None, (_nearest(word, known) for word in typed)), "")
        meant = f" (did you mean {near}?)" if near else ""
        msg = f"{message}{meant}; see `{self.prog} --help`"
        raise UsageError(msg, ErrorId.GP102)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``gpuperf`` with *argv* and return its exit code."""
    _print_anything()
    with redirect_stdout(_seen(sys.stdout)), redirect_stderr(_seen(sys.stderr)):
        return _run(sys.argv[1:] if argv is None else argv)


def _run(argv: Sequence[str]) -> int:
    own, passed_on = _parted(argv)
    try:
        _refuse_unknown_command(own)
        if not own:
            _parser("").print_help()
            return 0
        # Only the parser of this command gets its arguments; declaring the others would
        # import their modules.
        name = next((word for word in own if word in COMMANDS), "")
        for word in own:
            refuse_retired(f"gpuperf {name} {word.partition('=')[0]}")
        arguments, unknown = _parser(name).parse_known_args(own)
        command = _command(arguments.command)
        rest = [*unknown, *passed_on]
        if rest and command.REST is None:
            arguments.parser.error(f"unrecognized arguments: {' '.join(rest)}")
        return command.run(arguments, rest)
    except GpuperfError as error:
        sys.stderr.write(f"gpuperf: {error}\n")
        return REFUSAL_OF.get(argv[0] if argv else "", USAGE_ERROR)


def _seen(stream: TextIO) -> TextIO:
    """Return *stream* with control characters made visible, and in colours if it has them."""
    paint = _painted if shows_colours(stream, os.environ) else None
    return cast("TextIO", VisibleStream(stream, paint))


def _painted(text: str) -> str:
    # Not at the top: the help imports no report.
    from ..report.document import coloured

    return coloured(text)


def _print_anything() -> None:
    """Escape characters that the encoding lacks: names come from files."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _parted(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Split *argv* before ``--``, which versions of argparse treat differently.

    What follows a launcher of programs is the launcher's, with or without ``--``.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    launchers = (n for n in range(1, end) if argv[n] in RANK_LAUNCHERS)
    after = next(launchers, end - 1) + 1
    if argv[:1] and argv[0] in {"audit", "memory"} and after < end:
        return argv[:after], ["--", *argv[after:]]
    return argv[:end], argv[end:]


def _refuse_unknown_command(own: Sequence[str]) -> None:
    """Raise ``UsageError`` that suggests what was meant, where the first word is no command."""
    name = own[0] if own else ""
    refuse_retired(f"gpuperf {name}")
    if not name or name.startswith("-") or name in COMMANDS:
        return
    near = _nearest(name, COMMANDS)
    meant = f"did you mean `gpuperf {near}`? " if near else ""
    msg = f"there is no command {name!r}; {meant}`gpuperf --help` lists all"
    raise UsageError(msg, ErrorId.GP103)


def _nearest(typed: str, known: Iterable[str]) -> str:
    # Needed for an error only, and every command would pay for the import.
    from difflib import get_close_matches

    return next(iter(get_close_matches(typed, known, n=1)), "")


def _command(name: str) -> Command:
    module = import_module(f".{name.replace('-', '_')}", __name__)
    return cast("Command", module)


def _parser(typed: str) -> Parser:
    """Return the parser of all commands, with the arguments of the one that was *typed*."""
    parser = Parser(
        prog="gpuperf",
        usage="%(prog)s [-h] [--version] COMMAND ...",
        description="Find what makes PyTorch training slow, and keep it out.",
        epilog=_listed(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"pytest-gpuperf {own_version()}"
    )
    commands = parser.add_subparsers(
        dest="command",
        metavar="COMMAND",
        required=True,
        help=argparse.SUPPRESS,
        prog=parser.prog,
    )
    for name, summary in COMMANDS.items():
        subparser = commands.add_parser(
            name, help=summary, description=summary, allow_abbrev=False
        )
        subparser.set_defaults(parser=subparser)
        if name == typed:
            _declare(_command(name), subparser)
    return parser


def _listed() -> str:
    """List the commands by what they are for."""
    return "\n\n".join(
        "\n".join(
            (f"{title}:", *(f"  {name:<8} {does}" for name, does in group.items()))
        )
        for title, group in GROUPS.items()
    )


def _declare(command: Command, parser: argparse.ArgumentParser) -> None:
    if command.REST:
        parser.usage = f"%(prog)s [options] {command.REST}"
    command.add_arguments(parser)
