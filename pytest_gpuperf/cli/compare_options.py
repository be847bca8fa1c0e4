"""Options that the commands which compare versions of a project share."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence


def add_device_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--device``, which pytest knows under a longer name."""
    parser.add_argument(
        "--device",
        "--gpuperf-device",
        dest="device",
        metavar="KIND",
        help="device to measure on: cuda, pretend or cpu (default: as pytest --gpuperf)",
    )


def device_options(arguments: argparse.Namespace) -> list[str]:
    """Return the option that names the device to pytest, if one is named."""
    return [f"--gpuperf-device={arguments.device}"] if arguments.device else []


def passed_on(arguments: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """Return what was typed after ``--``."""
    own, *typed = rest or ["--"]
    if own != "--":
        arguments.parser.error(f"unexpected {own}: arguments of pytest go after `--`")
    return typed


def pytest_arguments(arguments: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """Return the arguments of pytest, in the order in which it reads them."""
    typed = passed_on(arguments, rest)
    added = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    # As pytest itself orders them: what is typed comes last and wins.
    return [*added, *device_options(arguments), *typed]


def announce(text: str) -> None:
    """Print progress to standard error; standard output is for the result."""
    sys.stderr.write(f"gpuperf: {text}\n")
    sys.stderr.flush()
