"""``gpuperf help``: the help of a command, or all options and ini keys of the plugin."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from textwrap import TextWrapper
from typing import Final


REST: Final = None

OPTIONS_TOPIC: Final = "options"

WIDEST: Final = 100
"""Columns of a line: longer ones are hard to read."""

INDENT: Final = " " * 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is asked about."""
    parser.add_argument(
        "topic",
        nargs="?",
        metavar="COMMAND",
        help=f"a command; {OPTIONS_TOPIC}: all options and ini keys of pytest --gpuperf "
        "(default: the list of commands)",
    )


def run(arguments: argparse.Namespace, _: Sequence[str]) -> int:
    """Print the help of the topic."""
    from . import main

    topic = arguments.topic
    if topic == OPTIONS_TOPIC:
        columns = min(shutil.get_terminal_size().columns, WIDEST)
        sys.stdout.write("\n".join(_options(columns)) + "\n")
        return 0
    # Unknown words are refused there, with what may have been meant.
    return main([topic, "--help"] if topic else ["--help"])


def _options(columns: int) -> Iterator[str]:
    """Yield each option with its ini key, then the keys that have no option."""
    # It imports pytest, which the help of a command does not need.
    from ..plugin.options import OPTIONS

    yield "Options of pytest, each also an ini key (--gpuperf-seed: gpuperf_seed):"
    for option in (o for o in OPTIONS if o.on_command_line):
        value = f"={option.metavar}" if option.metavar else ""
        yield f"  {option.flag}{value}"
        yield _text(option.help, columns)
    yield "\nIni keys only; for one run: pytest -o gpuperf_detect=8%"
    for option in (o for o in OPTIONS if not o.on_command_line):
        yield f"  {option.name} = {option.metavar or 'true or false'}"
        yield _text(option.help, columns)


def _text(text: str, columns: int) -> str:
    wrapper = TextWrapper(columns, INDENT, INDENT, break_on_hyphens=False)
    return wrapper.fill(text)
