"""``gpuperf refresh``: measure with pytest and accept what it measured."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from ..model.baseline import Refresh
from .script import interrupts_left_to_child
from .script import shell_code


REST: Final = "[pytest arguments...]"

REFRESH_KINDS: Final = ", ".join(kind.value for kind in Refresh)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options with a short name here; everything else is pytest's."""
    parser.add_argument(
        "--kind",
        type=_kind,
        metavar="KIND",
        help=f"baselines to replace: {REFRESH_KINDS} "
        "(default: all where node ids are named, else missing)",
    )
    parser.add_argument(
        "--device",
        metavar="KIND",
        help="device to measure on: cuda, pretend or cpu (default: as pytest --gpuperf)",
    )
    parser.add_argument(
        "--accept-drift",
        action="store_true",
        help="store also what drifted from its anchor beyond detect",
    )


def run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Run pytest and return its exit code, as a shell would give it."""
    kind = arguments.kind or _usual_kind(rest)
    device = [f"--gpuperf-device={arguments.device}"] if arguments.device else []
    drift = ["--gpuperf-accept-drift"] if arguments.accept_drift else []
    with interrupts_left_to_child():
        code = subprocess.run(  # noqa: S603 - the user's own arguments, no shell
            [
                # The same interpreter: `pytest` on the path may be of another
                # environment.
                *(sys.executable, "-m", "pytest"),
                *("--gpuperf", f"--gpuperf-update={kind.value}", *drift, *device),
                *rest,
            ],
            check=False,
        ).returncode
    return shell_code(code)


def _kind(text: str) -> Refresh:
    try:
        return Refresh(text)
    except ValueError:
        msg = f"expected one of {REFRESH_KINDS}, found {text!r}"
        raise argparse.ArgumentTypeError(msg) from None


def _usual_kind(rest: Sequence[str]) -> Refresh:
    """Choose ALL, which also takes what regressed, only for tests that are named."""
    named = any(
        "::" in argument and not argument.startswith("-")
        for before, argument in pairwise(("", *rest))
        # A node id after --deselect names a test that is not meant.
        if before != "--deselect"
    )
    return Refresh.ALL if named else Refresh.MISSING
